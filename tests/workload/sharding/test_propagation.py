"""From a few annotations to all tensors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random

import pytest

from cosmic.base.errors import SpecError, UnknownName
from cosmic.workload.operator_graph import Graph, Operator, Tensor
from cosmic.workload.sharding import propagation
from cosmic.workload.sharding.autodiff import differentiate
from cosmic.workload.sharding.propagation import propagate
from cosmic.workload.sharding.tensor_sharding import REPLICATED, Annotation, Sharding, annotate
from tests.workload.sharding.layers import layer, moe

A, B, C = Tensor("A", ("i", "k")), Tensor("B", ("k", "j")), Tensor("C", ("i", "j"))
DOT = Operator("dot", "einsum", (A, B), (C,))
PRODUCT = Graph((DOT,))


def test_shardings_flow_along_factors_in_both_directions() -> None:
    found = propagate(PRODUCT, {"C": annotate({"i": "x", "j": "y"})})
    assert found["A"] == Sharding.of({"i": "x"})
    assert found["B"] == Sharding.of({"j": "y"})


def test_a_closed_dimension_takes_nothing_and_an_open_one_does() -> None:
    given = {"A": annotate({"i": "x"})}
    assert propagate(PRODUCT, given | {"C": annotate({})})["C"] == REPLICATED
    assert propagate(PRODUCT, given | {"C": annotate({}, open=("i",))})["C"] == Sharding.of({"i": "x"})


def test_an_open_dimension_keeps_what_it_was_given_when_later_priorities_come() -> None:
    given = {"A": annotate({"i": "x"}), "C": annotate({}, open=("i",)), "B": annotate({"j": "y"}, priority=1)}
    assert propagate(PRODUCT, given)["C"] == Sharding.of({"i": "x"})


def test_the_longest_common_prefix_of_axes_is_taken() -> None:
    other = Operator("other", "einsum", (Tensor("D", ("i", "k")), B), (Tensor("E", ("i", "j")),))
    graph = Graph((DOT, other, Operator("sum", "add", (C, Tensor("E", ("i", "j"))), (Tensor("F", ("i", "j")),))))
    given = {"C": annotate({"i": ("x", "y")}), "E": annotate({"i": ("x", "z")})}
    assert propagate(graph, given)["F"].axes("i")[0] == "x"


def test_an_axis_goes_where_the_larger_tensor_has_it() -> None:
    given = {"A": annotate({"i": "x"}), "B": annotate({"j": "x"})}
    sizes = {"i": 8, "k": 8, "j": 64}
    assert propagate(PRODUCT, given, sizes=sizes)["C"] == Sharding.of({"j": "x"})
    assert propagate(PRODUCT, given, sizes=sizes | {"i": 512})["C"] == Sharding.of({"i": "x"})


def test_a_lower_priority_number_goes_first() -> None:
    sizes = {"i": 8, "k": 8, "j": 64}
    given = {"A": annotate({"i": "x"}), "B": annotate({"j": "x"}, priority=1)}
    assert propagate(PRODUCT, given, sizes=sizes)["C"] == Sharding.of({"i": "x"})


def test_what_is_needed_whole_is_split_only_if_nothing_else_claims_the_axis() -> None:
    found = propagate(layer(), {"x": annotate({"sequence": "cp"})})
    assert found["k"] == Sharding.of({"context": "cp"})
    assert found["scores"] == found["shares"] == Sharding.of({"sequence": "cp"})


def test_tokens_become_slots() -> None:
    found = propagate(moe(), {"x": annotate({"batch": "dp", "sequence": "cp"})})
    assert found["sent"] == Sharding.of({"slots": ("dp", "cp")})


def test_axes_that_stay_pending_are_used() -> None:
    found = propagate(PRODUCT, {"C": annotate({}, partial=("x",), open=("i",)), "A": annotate({"i": "x"})})
    assert found["C"] == Sharding.of({}, partial=("x",))


def test_a_misspelt_tensor_or_dimension_is_refused() -> None:
    with pytest.raises(UnknownName, match="did you mean"):
        propagate(layer(), {"w_upp": annotate({"ffn": "tp"})})
    with pytest.raises(SpecError, match=r"annotation of A = 'j': the tensor has no such dimension, only i, k"):
        propagate(PRODUCT, {"A": annotate({"j": "tp"})})


def _said(tensor: Tensor, rng: Random) -> Annotation:
    """Return any annotation of *tensor*: disputes, open dimensions, pending sums and priorities are all likely."""
    dims: dict[str, list[str]] = {}
    for axis in rng.sample(("x", "y", "z"), rng.randint(0, 2)):
        dims.setdefault(rng.choice(tensor.dims), []).append(axis)
    pending = ["w"] if rng.random() < 0.1 else []
    free = [dim for dim in tensor.dims if rng.random() < 0.4]
    ranks = {dim: rng.randint(0, 2) for dim in tensor.dims if rng.random() < 0.5}
    return annotate(dims, partial=pending, open=free, priority=ranks if rng.random() < 0.3 else rng.randint(0, 2))


@pytest.mark.parametrize("made", [layer, moe])
def test_visits_that_are_left_out_would_change_nothing(
    made: Callable[[], Graph], monkeypatch: pytest.MonkeyPatch
) -> None:
    forward, rng = made(), Random(5)
    graph = Graph((*forward.operators, *differentiate(forward, [forward.operators[-1].outputs[0].name]).operators))
    cases = [
        {tensor.name: _said(tensor, rng) for tensor in graph.tensors.values() if rng.random() < 0.3} for _ in range(12)
    ]
    claim, claims = propagation._make_claim, Counter[str]()

    def counted(
        site: propagation._Site, factor: str, state: propagation._PropagationState
    ) -> propagation._Claim | None:
        claims[when] += 1
        return claim(site, factor, state)

    monkeypatch.setattr(propagation, "_make_claim", counted)
    when = "some left out"
    found = [propagate(graph, case) for case in cases]
    monkeypatch.setattr(propagation._PropagationState, "is_settled", lambda *_: False)
    when = "all visits"
    assert found == [propagate(graph, case) for case in cases]
    assert claims["some left out"] < claims["all visits"] / 2
