"""A certificate that was changed is refused, and so is one of physics that it does not follow from."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cosmic.base.errors import SpecError
from cosmic.search.certify.certificate import (
    check_form,
    pack_bits,
    pack_bytes,
    read_certificate,
    unpack_bits,
    unpack_bytes,
    write_certificate,
)
from cosmic.search.certify.certificate_checker import Refused, check_certificate
from cosmic.search.certify.certifying import certify
from cosmic.search.objectives import losses
from cosmic.search.problem import make_problem
from cosmic.simulate.step_evaluation import RECORDER
from cosmic.step.communication import NetworkCosts
from tests.search.certify.spaces import small

Certificate = dict[str, Any]


@pytest.fixture(scope="module")
def made() -> Certificate:
    return json.loads(json.dumps(certify(small(), within=0.1).certificate))  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def fronted() -> Certificate:
    return json.loads(json.dumps(certify(small(), ["step_s", "network_usd"]).certificate))  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def enumerated() -> Certificate:
    space = small(workloads={"short": {"weight": 2}, "other": {"workload.sequence": 1024}})
    return json.loads(json.dumps(certify(space, within=0.1).certificate))  # type: ignore[no-any-return]


def test_an_honest_certificate_holds(made: Certificate, fronted: Certificate, enumerated: Certificate) -> None:
    assert any("in one leaf" in said for said in check_certificate(made))
    assert len(check_certificate(fronted)) >= 6
    assert any("blocks" in said for said in check_certificate(enumerated))


def test_an_unfinished_certificate_holds_as_far_as_it_goes() -> None:
    left = json.loads(json.dumps(certify(small(), limit_s=1e-6).certificate))
    assert not left["proven"]
    assert check_certificate(left)
    with pytest.raises(Refused):
        check_certificate({**left, "proven": True})
    left["space"]["source"] = None
    with pytest.raises(Refused, match="state the space"):
        check_certificate(left)
    assert check_certificate(left, small())


def bits(flip: Callable[[np.ndarray[Any, Any]], Any], key: str) -> Callable[[Certificate], None]:
    def change(found: Certificate) -> None:
        found[key] = pack_bits(flip(unpack_bits(found[key], key)))

    return change


def first_set(flags: np.ndarray[Any, Any], value: bool) -> np.ndarray[Any, Any]:
    flags = flags.copy()
    flags[np.flatnonzero(flags == value)[0]] = not value
    return flags


def worse_row(found: Certificate) -> None:
    row = found["front"][0]["row"]
    row[-1] = (row[-1] + 1) % 5


def scaled(key: str, factor: float) -> Callable[[Certificate], None]:
    def change(found: Certificate) -> None:
        found[key] *= factor

    return change


def other_design(found: Certificate) -> None:
    """Claim that a worse design, with what it achieves, is the best."""
    space = small()
    worse = certify(space, constraints=["step_s <= 30"])
    found["front"] = worse.certificate["front"]
    found["gap"] = 0.0


def stands_wrongly(found: Certificate) -> None:
    for choice in found["dominance"]:
        for table in choice["tables"]:
            kept = [each for place, each in enumerate(table) if each == place]
            if len(kept) > 1:  # one that is kept stands for another that is not worse
                for place, each in enumerate(table):
                    if each == kept[0]:
                        table[place] = kept[1]
                return


def fewer_tables(found: Certificate) -> None:
    which = unpack_bytes(found["dominance"][0]["which"], "which")
    found["dominance"][0]["which"] = pack_bytes(which[:-1])


def no_values(found: Certificate) -> None:
    found["ranges"][0]["indices"].pop()


def turned_range(found: Certificate) -> None:
    found["ranges"][0]["indices"].reverse()


def no_option(found: Certificate) -> None:
    found["choices"][0]["options"].pop()


TAMPERED: dict[str, Callable[[Certificate], None]] = {
    "changed value": lambda found: found["front"][0]["losses"].__setitem__(0, found["front"][0]["losses"][0] * 0.999),
    "changed row": worse_row,
    "another design as the best": other_design,
    "row outside the space": lambda found: found["front"][0]["row"].__setitem__(0, 99),
    "removed leaf": bits(lambda flags: flags[:-1], "tree"),
    "added leaf": bits(lambda flags: np.append(flags, False), "tree"),
    "widened box": bits(lambda flags: first_set(flags, value=True), "tree"),
    "split leaf": bits(lambda flags: first_set(flags, value=False), "tree"),
    "all leaves at the root": bits(lambda flags: np.zeros(flags.size, dtype=bool), "tree"),
    "other digest": lambda found: found.__setitem__("model", "0" * 16),
    "other space": lambda found: found["space"].__setitem__("identity", "0" * 16),
    "other values": lambda found: found["space"]["source"]["parameters"].__setitem__("collective.chunks", [4, 8]),
    "other objective": lambda found: found.__setitem__("objectives", ["step_s"]),
    "unknown objective": lambda found: found.__setitem__("objectives", ["speed"]),
    "added limit": lambda found: found.__setitem__("limits", ["step_s <= 10"]),
    "wrong count": lambda found: found["within"].__setitem__("count", found["within"]["count"] + 1),
    "other share": lambda found: found["within"].__setitem__("share", 0.2),
    "wrong dominance": stands_wrongly,
    "missing dominance": fewer_tables,
    "raised bound": scaled("lower", 1.01),
    "lowered bound": scaled("lower", 0.99),
    "wrong gap": lambda found: found.__setitem__("gap", 0.5),
    "no best": lambda found: found.__setitem__("front", []),
    "skeletons said not to run": bits(lambda flags: first_set(flags, value=True), "able"),
    "missing values": no_values,
    "turned range": turned_range,
    "missing option": no_option,
    "dropped range": lambda found: found["ranges"].pop(),
    "no slack": lambda found: found.__setitem__("slack", 0.9999),
    "wrong number of designs": lambda found: found["space"].__setitem__("designs", 5),
}


def test_slack_is_said_and_bounds_the_gap_of_a_proof(made: Certificate) -> None:
    """A worse design, with a slack that lets every leaf pass: what is claimed says how little that is."""
    exact = check_certificate(made)
    assert exact[0].endswith(f"designs beats its best in {made['objectives'][0]}")
    assert not any("by more than" in sentence for sentence in exact)
    loose = check_certificate({**made, "slack": 0.9})
    assert loose[0] == f"{exact[0]} by more than 90 %"
    assert sum("by more than 90 %" in sentence for sentence in loose) == 3


def test_a_proof_that_leaves_more_open_than_its_slack_is_refused(made: Certificate) -> None:
    """All numbers agree with each other: the best design is worse than the bound by more than the slack allows."""
    problem = make_problem(small(), made["objectives"])
    rows = small().sample(200, np.random.default_rng(1))
    results = problem.evaluate(rows)
    trial = int(np.flatnonzero(results.feasible)[0])
    loss = float(losses(problem.objectives, results.columns)[trial, 0])
    gap = 1 - made["lower"] / loss
    assert gap > 0.01
    forged = {**made, "front": [{"row": rows[trial].tolist(), "losses": [loss]}], "gap": gap, "within": None}
    with pytest.raises(Refused):
        check_certificate(forged)
    said = check_certificate({**forged, "slack": min(0.999, gap * 1.001)})
    assert said[0].endswith(f" by more than {100 * min(0.999, gap * 1.001):g} %")


@pytest.mark.parametrize("name", [name for name in TAMPERED if name != "no slack"])
def test_a_tampered_certificate_is_refused(name: str, made: Certificate) -> None:
    changed = copy.deepcopy(made)
    TAMPERED[name](changed)
    assert changed != made
    with pytest.raises((Refused, SpecError)):
        check_certificate(changed)


@pytest.mark.parametrize("name", ["swapped", "removed", "added", "dominated"])
def test_a_tampered_front_is_refused(name: str, fronted: Certificate) -> None:
    changed = copy.deepcopy(fronted)
    first, second = changed["front"][:2]
    if name == "swapped":
        first["row"], second["row"] = second["row"], first["row"]
    elif name == "removed":
        changed["front"] = changed["front"][1:]
    elif name == "added":
        changed["front"].append(copy.deepcopy(first))
    else:
        first["losses"] = [each * 1.5 for each in second["losses"]]
    with pytest.raises(Refused):
        check_certificate(changed)


@pytest.mark.parametrize("name", ["digest", "least", "missing", "count", "best"])
def test_a_tampered_enumeration_is_refused(name: str, enumerated: Certificate) -> None:
    changed = copy.deepcopy(enumerated)
    block = changed["blocks"][0]
    if name == "digest":
        block[0] = "0" * 16
    elif name == "least":
        block[1] *= 0.5
    elif name == "missing":
        changed["blocks"] = []
    elif name == "count":
        changed["within"]["count"] += 1
    else:
        changed["front"][0]["losses"][0] *= 2
    with pytest.raises(Refused):
        check_certificate(changed)


def test_slower_communication_that_shortens_a_step_is_noticed(
    made: Certificate, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = NetworkCosts.seconds
    monkeypatch.setenv("COSMIC_CACHE", "")
    monkeypatch.setattr(
        NetworkCosts, "seconds", lambda self, *given, **more: 1e-3 / (1.0 + original(self, *given, **more))
    )
    RECORDER.forget()
    try:
        found = certify(small())
        assert found.method == "enumerated"
        assert "never to fall" in found.why
        with pytest.raises(Refused):
            check_certificate(made)
        forged = {**copy.deepcopy(made), "front": found.certificate["front"], "within": None}
        for key in ("lower", "gap"):
            forged[key] = found.certificate[key]
        with pytest.raises(Refused):
            check_certificate(forged)
    finally:
        RECORDER.forget()


@pytest.mark.parametrize(
    "content",
    ["", "5", "[]", "{}", '{"kind": "cosmic certificate"}', '{"kind": "cosmic certificate", "format": 1}', "[" * 9999],
)
def test_what_is_no_certificate_is_refused(content: str, tmp_path: Path) -> None:
    (tmp_path / "c.json").write_text(content)
    with pytest.raises(SpecError, match="certificate"):
        read_certificate(tmp_path / "c.json")


@pytest.mark.parametrize(
    "packed", [5, {}, {"count": 8, "bits": "!"}, {"count": 10**12, "bits": ""}, {"count": 9, "bits": "eJwDAAAAAAE="}]
)
def test_packed_bits_that_are_damaged_are_refused(packed: Any) -> None:
    with pytest.raises(SpecError, match="here"):
        unpack_bits(packed, "here")


def test_a_certificate_is_written_and_read(made: Certificate, tmp_path: Path) -> None:
    write_certificate(tmp_path / "c.json", made)
    assert read_certificate(tmp_path / "c.json") == made
    assert check_form(made)["method"] == "bounded"
