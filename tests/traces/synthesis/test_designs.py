"""Models of the traces of designs, and of other tools: valid at every length and width, and close in time."""

from __future__ import annotations

import gzip
import tarfile
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from cosmic.accuracy.trace_fidelity import Fidelity, measure_fidelity, report_fidelity
from cosmic.base.errors import SpecError
from cosmic.design.loading import parse_overrides
from cosmic.evaluation import step_of
from cosmic.search.mapping.design_completion import load_design
from cosmic.simulate.trace_generation import generate_traces
from cosmic.traces.chakra.trace_reader import read_traces
from cosmic.traces.chakra.workload_files import read_layers, traces_of_layers
from cosmic.traces.synthesis.trace_model import TraceLength, fit_model, synthesize
from cosmic.traces.trace import TraceSet, read_groups
from cosmic.traces.trace_checks import list_problems
from tests.traces.synthesis.jobs import Given

REFERENCE = Path(__file__).parents[4] / "shared" / "reference"
needs_reference = pytest.mark.skipif(not REFERENCE.is_dir(), reason="the collection of traces is not there")
CLOSE = 0.05
"""The largest error of simulated time at the source's length and ranks."""
PLAIN = "cp=1 micro_batch=1 recompute=none weight_sharding=zero1"
DENSE = f"{PLAIN} tp=2 schedule=1f1b"
DESIGNS = {
    "dense": ("gpt3-1.3b@dgx-h100:16", f"{DENSE} pp=2 dp=4 global_batch=32", 16),
    "dualpipe": ("gpt3-1.3b@dgx-h100:16", f"{PLAIN} tp=2 pp=2 dp=4 schedule=dualpipe global_batch=32", 8),
    "sharded": (
        "llama3-8b@dgx-h100:16",
        "cp=1 micro_batch=1 tp=1 pp=1 dp=16 weight_sharding=zero3 global_batch=32",
        16,
    ),
    "ring": ("llama3-8b@dgx-h100:16", f"{PLAIN.replace('cp=1', 'cp=4')} tp=1 pp=1 dp=4 global_batch=8", 8),
    "experts": ("mixtral-8x7b@dgx-h100:16", f"{PLAIN} ep=8 tp=1 pp=1 dp=16 global_batch=32", 8),
    "prefill": ("llama3-8b@dgx-h100:8", "task=prefill tp=4 pp=2 dp=1 cp=1 micro_batch=1 global_batch=8", 16),
    "decode": ("llama3-8b@dgx-h100:8", "task=decode tp=8 pp=1 dp=1 cp=1 global_batch=8", 32),
}


@cache
def traced(design: str, settings: str, layers: int) -> Given:
    """Return the traces of a design with so many layers, and their groups."""
    stated = [f"workload.{each}" for each in settings.split()]
    job = generate_traces(step_of(load_design(design, parse_overrides([*stated, f"model.layers={layers}"]))))
    return job.traces, job.groups


def noisy(job: Given, *, each_rank: bool) -> Given:
    """Return traces as if they were recorded: kernels take a fifth more or less, in proportion to their work."""
    rng = np.random.default_rng(7)
    made = {}
    ranks = []
    for rank, trace in enumerate(job[0].ranks):
        key = rank if each_rank else id(trace.template)
        if key not in made:
            template = trace.template
            factor = np.exp(rng.normal(-0.02, 0.2, template.nodes))
            made[key] = replace(
                template,
                duration_us=np.rint(template.duration_us * factor).astype(np.int64),
                num_ops=np.where(template.num_ops > 0, np.rint(template.num_ops * factor), -1).astype(np.int64),
            )
        ranks.append(replace(trace, template=made[key]))
    return TraceSet(tuple(ranks)), job[1]


def errors(found: Fidelity) -> list[float]:
    """Return the errors of simulated times, without their signs."""
    return [abs(each) for each in found.seconds.values() if each is not None]


@pytest.mark.parametrize("name", ["dense", "decode"])
def test_recorded_traces_are_made_within_five_percent_and_the_baseline_is_not(name: str) -> None:
    found = report_fidelity(fit_model([noisy(traced(*DESIGNS[name]), each_rank=name == "decode")]), seed=1)
    assert 0 < max(errors(found.model)) < CLOSE
    assert max(errors(found.baseline)) > 4 * CLOSE
    assert (found.model.types, found.model.bigrams, found.model.in_degrees) == (0, 0, 0)
    assert max(found.model.sizes.values()) < 0.1


@pytest.mark.long
@pytest.mark.parametrize("each_rank", [False, True])
@pytest.mark.parametrize("name", DESIGNS)
def test_every_design_is_made_within_five_percent(name: str, each_rank: bool) -> None:
    model = fit_model([noisy(traced(*DESIGNS[name]), each_rank=each_rank)])
    for seed in range(4):
        found = report_fidelity(model, seed)
        assert all(error < CLOSE for error in errors(found.model))
        assert not errors(found.baseline) or max(errors(found.baseline)) > CLOSE


@pytest.mark.long
@pytest.mark.parametrize("name", DESIGNS)
def test_whatever_length_and_width_are_asked_for_the_traces_are_valid(name: str) -> None:
    model = fit_model([noisy(traced(*DESIGNS[name]), each_rank=False)])
    made = 0
    for seed in range(3):
        for ranks in (8, 16, 64, 256, 1024):
            for scale in (0.3, 1.0, 2.5, 8.0):
                found = synthesize(model, TraceLength(scale=scale), ranks=ranks, seed=seed)
                assert list_problems(found.traces, found.groups) == []
                made += 1
    assert made == 60


@pytest.mark.parametrize(("name", "layers", "most"), [("decode", 48, 1e-9), ("dense", 32, 0.06)])
def test_a_model_of_few_layers_makes_the_step_of_many(name: str, layers: int, most: float) -> None:
    design, settings, few = DESIGNS[name]
    stages = 2 if "pp=2" in settings else 1
    wanted = traced(design, settings, layers)
    made = synthesize(
        fit_model([traced(design, settings, few)]), TraceLength(blocks=layers // stages, of=few // stages)
    )
    found = measure_fidelity((made.traces, made.groups), wanted)
    assert (found.nodes, found.types, found.bigrams, found.in_degrees, found.out_degrees) == (1, 0, 0, 0, 0)
    assert max(errors(found)) < most  # what a stage gathers at its end grows with its layers; the model keeps it


def test_a_model_of_few_ranks_makes_the_step_of_many() -> None:
    design, settings, layers = DESIGNS["dense"]
    wide = settings.replace("dp=4", "dp=16").replace("global_batch=32", "global_batch=128")
    wanted = traced(design.replace(":16", ":64"), wide, layers)
    made = synthesize(fit_model([traced(design, settings, layers)]), ranks=64)
    assert set(made.groups.values()) == set(wanted[1].values())
    found = measure_fidelity((made.traces, made.groups), wanted)
    assert max(errors(found)) < 0.02


def test_text_workloads_are_made_longer_and_wider(tmp_path: Path) -> None:
    file = tmp_path / "text.txt"
    file.write_text("".join(f"l{at} -1 10 ALLREDUCE 64 20 NONE 0 30 ALLREDUCE 64 5\n" for at in range(6)))
    made = traces_of_layers(read_layers(file), (8,))
    model = fit_model([(made.traces, made.groups)])
    for ranks in (2, 24, 1024):
        found = synthesize(model, TraceLength(scale=4), ranks=ranks)
        assert list_problems(found.traces, found.groups) == []
        assert found.traces.nodes / ranks == pytest.approx(4 * made.traces.nodes / 8, rel=0.1)


@needs_reference
@pytest.mark.parametrize("name", ["n8", "n64", "n8fsdp"])
def test_traces_of_another_generator_are_made_as_they_are_longer_and_wider(name: str, tmp_path: Path) -> None:
    with tarfile.open(REFERENCE / "astra_sim" / "workloads" / f"{name}.tar.xz") as archive:
        archive.extractall(tmp_path, filter="data")
    prefix = tmp_path / name / "gpt"
    model = fit_model([(read_traces(prefix), read_groups(f"{prefix}.json"))])
    found = report_fidelity(model)
    assert set(errors(found.model)) == {0.0}
    assert max(errors(found.baseline)) > 0.3
    for seed, (ranks, scale) in enumerate([(8, 3.0), (128, 0.5), (1024, 2.0)]):
        made = synthesize(model, TraceLength(scale=scale), ranks=ranks, seed=seed)
        assert list_problems(made.traces, made.groups) == []


@needs_reference
def test_a_recorded_trace_is_mended_and_made_longer(tmp_path: Path) -> None:
    file = tmp_path / "chakra.0.et"
    file.write_bytes(gzip.decompress((REFERENCE / "chakra" / "chakra_tests" / "chakra.0.et.gz").read_bytes()))
    model = fit_model([(read_traces(tmp_path / "chakra"), None)])
    assert len(model.notes) == 3
    made = synthesize(model, TraceLength(scale=2), ranks=4)
    assert list_problems(made.traces, made.groups) == []
    assert made.traces.nodes == 8 * 3664


def test_stages_that_do_not_divide_the_ranks_are_refused() -> None:
    with pytest.raises(SpecError, match=r"ranks = 31: must be a multiple of 2"):
        synthesize(fit_model([traced(*DESIGNS["dense"])]), ranks=31)
