"""The names of the package: those of the commands, each a function that gives what the command prints."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import subprocess
import sys
from html import escape
from pathlib import Path
from types import ModuleType

import pytest

import cosmic
from cosmic import evaluation
from cosmic.base.lazy_names import offer_names
from cosmic.cli import dispatch
from cosmic.design.answer import Answered

NOUNS = ("calibrate", "catalog", "cluster", "design", "model", "network", "space", "study", "trace")
PYTHON = {
    "design import": "design import_launch",  # import is a keyword
    "study leaderboard new": "study make_board",
    "study leaderboard enter": "study enter_agent",
    "study leaderboard show": "study leaderboard",
}
"""Commands whose functions have other names."""
FOR_SHELLS = ("completion",)
TREE = {name: PYTHON.get(name, name) for name in dispatch.COMMANDS if name not in FOR_SHELLS}
"""Every command, and its function: the noun and the name, or the name alone."""
SMALL = Path("examples/proof/small.yaml")
PROFILES = Path("examples/profiles")
LLAMA = "llama3-8b@dgx-h100:8"


# ---- names


def module_of(noun: str) -> ModuleType:
    return importlib.import_module(f"cosmic.{noun}") if noun else cosmic


def test_there_are_25_names_on_top_at_most() -> None:
    assert len(cosmic.__all__) <= 25
    assert set(NOUNS) <= set(cosmic.__all__)


@pytest.mark.parametrize("command", TREE)
def test_every_command_is_a_function_of_its_name(command: str) -> None:
    noun, _, name = TREE[command].rpartition(" ")
    module = module_of(noun)
    assert name in module.__all__
    assert inspect.isfunction(getattr(module, name))
    assert inspect.getdoc(getattr(module, name))


def test_every_noun_of_the_commands_is_one_of_the_package() -> None:
    assert {noun for noun in dispatch.NOUNS if " " not in noun} == set(NOUNS)


@pytest.mark.parametrize("noun", ["", *NOUNS])
def test_every_name_is_there_for_python_and_for_type_checkers(noun: str) -> None:
    module = module_of(noun)
    names = set(module.__all__)
    for name in names:
        getattr(module, name)
    assert dir(module) == sorted(names)
    tree = ast.parse(Path(str(module.__file__)).read_text(encoding="utf-8"))
    imports = [node for part in tree.body if isinstance(part, ast.If) for node in part.body]
    typed = {each.asname or each.name for node in imports if isinstance(node, ast.ImportFrom) for each in node.names}
    assert typed - {"Any"} == names - {"__version__"}
    for node in imports:
        assert isinstance(node, ast.ImportFrom)
        for each in node.names:
            home = importlib.import_module(str(node.module))
            assert getattr(home, each.name) is getattr(module, each.asname or each.name), each.name


@pytest.mark.parametrize("noun", ["cluster", "design", "network"])
def test_no_name_of_a_room_is_one_of_its_modules(noun: str) -> None:
    module = module_of(noun)
    assert not {part.name for part in pkgutil.iter_modules(module.__path__)} & set(module.__all__)


def test_importing_the_package_imports_nothing_else() -> None:
    program = "import sys, cosmic, cosmic.trace; print([m for m in sys.modules if m.startswith(('cosmic', 'numpy'))])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ast.literal_eval(done.stdout) == [
        "cosmic.base",
        "cosmic.base._version",
        "cosmic.base.lazy_names",
        "cosmic",
        "cosmic.trace",
    ] or set(ast.literal_eval(done.stdout)) == {
        "cosmic",
        "cosmic.base",
        "cosmic.base._version",
        "cosmic.base.lazy_names",
        "cosmic.trace",
    }


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'cosmic' has no attribute 'serch'"):
        cosmic.serch  # type: ignore[attr-defined]  # noqa: B018
    get_name, _ = offer_names("cosmic", {"one": "cosmic.base.errors:require"})
    assert get_name("one").__name__ == "require"


def test_rooms_do_not_take_the_place_of_functions() -> None:
    import cosmic.report.page  # noqa: PLC0415  binds a name of the package, were it an ordinary one
    import cosmic.search.agent  # noqa: PLC0415
    import cosmic.simulate.metrics  # noqa: PLC0415

    assert all(map(inspect.isfunction, (cosmic.report, cosmic.search, cosmic.simulate)))


# ---- commands of no noun, once each


def test_evaluate_takes_a_name_or_a_design_point() -> None:
    point = cosmic.load_design("gpt3-175b@cosmic-1024", {"tp": 8})
    outcome = cosmic.evaluate("gpt3-175b@cosmic-1024", settings={"tp": 8})
    assert isinstance(outcome, cosmic.design.Metrics)
    assert outcome == cosmic.evaluate(point) == evaluation.evaluate(point)
    assert cosmic.load_design(point, {"tp": 4}).workload.tp == 4


def test_a_batch_is_evaluated_at_once() -> None:
    import numpy as np  # noqa: PLC0415  as a user would

    space = cosmic.load_space("cosmic-1024-full-stack")
    columns = space.columns(space.sample(100, np.random.default_rng(0)))
    outcome = cosmic.evaluate_batch(cosmic.design.Batch(space.base, columns))
    assert 0 < outcome.feasible.sum() < 100
    assert outcome.columns["step_s"].shape == (100,)


def test_size_holds_its_limit() -> None:
    found = cosmic.size("llama3-8b", tokens="1T", accelerators=16, systems=["dgx-h100"])
    assert found.question.tokens == 1e12
    assert found.best is not None
    assert found.best.best.accelerators <= 16
    with pytest.raises(cosmic.SpecError, match="write a number of tokens"):
        cosmic.size("llama3-8b", tokens="many", accelerators=16)


@pytest.mark.long
def test_serve_simulate_and_schema(tmp_path: Path) -> None:
    answer = cosmic.serve(LLAMA, {"tp": 8, "serving.load.isl": 512, "serving.load.osl": 64, "serving.load.rate": 1})
    assert answer.design.workload.tp == 8
    network, prefix = "examples/astra_sim/network.yml", tmp_path / "text"
    cosmic.trace.convert("examples/astra_sim/text_workload.txt", network=network, out=prefix)
    result = cosmic.simulate(
        workload=prefix, comm_groups=f"{prefix}.json", system="examples/astra_sim/system.json", network=network
    )
    assert result.cycles > 0
    assert len(result.per_npu) == 16
    assert "json-schema.org" in cosmic.schema("evaluate")["$schema"]


def test_search_report_and_what_is_asked_of_the_study(tmp_path: Path) -> None:
    folders = [tmp_path / "a", tmp_path / "b"]
    for seed, folder in enumerate(folders):
        found = cosmic.search(SMALL, agent="random", trials=40, seed=seed, out=folder)
        assert found.trials.evaluated == 40
    assert cosmic.report(folders[0]).verdict

    shown = cosmic.study.show(folders[0])
    assert (shown["trials"], shown["seed"], shown["agent"]) == (40, 0, "random")
    assert [row["trials"] for row in cosmic.study.compare(folders).rows()] == [40, 40]
    factors = cosmic.study.importance(folders[0]).factors
    assert {"workload.dp", "collective.chunks"} <= {factor.name for factor in factors}
    assert cosmic.study.replay(folders[0]).same
    assert cosmic.study.doctor(folders[0], check=True).before.whole
    assert cosmic.study.export(folders[0], to=tmp_path / "trials.csv")[0] == 40
    rows = tmp_path / "rows.csv"
    rows.write_text("trial,step_s\n0,30\n", encoding="utf-8")
    assert cosmic.study.tell(folders[0], rows) == (1, 1)
    assert cosmic.study.show(folders[0])["measured"] is not None


@pytest.mark.long
def test_demo_keeps_a_study_and_a_report(tmp_path: Path) -> None:
    demo = cosmic.demo(trials=50, out=tmp_path / "demo")
    assert demo.page.is_file()
    assert demo.searches.full_stack.path == tmp_path / "demo"
    assert set(demo.searches.layers) == {"workload", "collective", "network"}


def test_ui_needs_a_directory() -> None:
    with pytest.raises(cosmic.CosmicError):
        cosmic.ui("tests/test_api.py", browser=False)


def test_run_looks_up_what_was_run(tmp_path: Path) -> None:
    recipe = {"steps": [{"id": "one", "evaluate": {"design": LLAMA, "set": {"tp": 8}}}]}
    found = [cosmic.run(recipe, store=tmp_path) for _ in range(2)]
    assert [(each["status"], each["executed"], each["cached"]) for each in found] == [("ok", 1, 0), ("ok", 0, 1)]


# ---- nouns


def test_design() -> None:
    assert cosmic.design.show(LLAMA, settings={"tp": 4})["workload"]["tp"] == 4
    rows = cosmic.design.sweep(LLAMA, vary={"tp": [4, 8]})
    assert [row.values["tp"] for row in rows] == [4, 8]
    slower = {"compute.bf16": "400 TFLOP/s"}
    found = cosmic.design.diff(LLAMA, LLAMA, settings={"tp": 8}, settings_b=slower)
    before, after = (side.metrics["step_s"] for side in (found.contrast.a, found.contrast.b))
    assert before is not None
    assert after is not None
    assert after > before
    work = cosmic.design.workload(LLAMA, settings={"tp": 8})
    assert {use.group for use in work.collectives} == {1, 8}  # tp is all of the eight
    experts = cosmic.design.experts("deepseek-v3@dgx-h200:32", settings={"ep": 32, "tp": 1, "pp": 1}, skew=[0.0])
    assert [row.skew for row in experts.rows] == [0.0]
    launch = cosmic.design.export(LLAMA, to="megatron", settings={"tp": 8})
    assert launch.arguments["--tensor-model-parallel-size"] == 8
    imported = cosmic.design.import_launch("examples/launch/train.sh", "megatron", system="dgx-h100:64")
    assert imported.point.network.npus == 64


def test_an_exported_design_can_run(tmp_path: Path) -> None:
    with pytest.raises(cosmic.SpecError, match="cannot run"):
        cosmic.design.export("llama3-405b@dgx-h100:8", to="megatron", settings={"tp": 8, "global_batch": 8})
    cosmic.design.export(LLAMA, to="nccl", settings={"tp": 8}, out=tmp_path / "launch")
    assert list((tmp_path / "launch").iterdir())


def test_space() -> None:
    shown = cosmic.space.show(SMALL)
    assert shown["objective"] == "perf_per_bandwidth"
    size = cosmic.space.count(SMALL, stacks=["workload"])
    assert (size.raw, size.valid) == (4, 4)  # 2 values of dp, 2 of cp, 1 of weight_sharding; 64 × 2 <= 512
    points = cosmic.space.sample(SMALL, number=5, seed=3)
    assert len(points) == 5
    assert all(point["workload.dp"] in (16, 64) for point in points)
    assert cosmic.space.schema(SMALL)["type"] == "object"
    proven = cosmic.space.certify(cosmic.load_space(SMALL).restrict(["workload"]))
    assert proven.proven
    assert cosmic.space.check_certificate(proven.certificate)


def test_network(tmp_path: Path) -> None:
    limits = cosmic.network.bound("dgx-h100:8", collective="all-gather", size="8 GB")
    assert limits.node_s == pytest.approx(7e9 / 450e9)  # 7 of 8 GB into each NPU, at 450 GB/s
    schedule = cosmic.network.synthesize("dgx-h100:8", collective="all-gather", size="8 GB")
    assert schedule.time_s >= limits.seconds * (1 - 1e-12)
    assert cosmic.network.check(schedule).valid
    file = str(tmp_path / "ag.csv")
    assert cosmic.network.convert(schedule, to="csv", out=file) == [file]
    stated = {"network": "dgx-h100:8", "collective": "all-gather", "size": "8 GB"}
    assert cosmic.network.check(file, **stated).valid
    assert cosmic.network.convert(file, to="msccl", out=tmp_path / "ag.xml", **stated) == [str(tmp_path / "ag.xml")]
    found = cosmic.network.provision("gpt3-175b@cosmic-1024", budget="500 GB/s")
    assert sum(dim.bandwidth_bytes_per_s for dim in found.dims) == pytest.approx(500e9)
    with pytest.raises(cosmic.SpecError, match="goes with a design"):
        cosmic.network.provision("cosmic-1024-paper", settings={"tp": 8})


def test_cluster() -> None:
    job = {"model": "llama3-8b", "npus": 8, "duration": "1 h"}
    fleet = cosmic.cluster.fleet({"jobs": [{"name": "a", **job}, {"name": "b", **job}]}, "dgx-h100:8")
    assert [round(each.wait_s) for each in fleet.jobs] == [0, 3600]
    shared = cosmic.cluster.tasks("bert-large@dgx-a100", batch=[512, 256, 128], npus=[8])[8]
    assert isinstance(shared, cosmic.cluster.SharedAccelerators)
    assert [task.npus for task in shared.tasks] == [5, 2, 1]


def test_model() -> None:
    shown = cosmic.model.show("examples/programs/gpt.yaml")
    assert shown["flop"] >= sum(row["flop"] for row in shown["operators"]) > 0  # of every layer, not of one alone
    assert {"llama3-8b", "gpt3-175b"} <= {row["name"] for row in cosmic.model.list()}
    sharded = cosmic.model.shard("gpt3-125m", {"x": 2, "y": 2}, batch=4, sequence=128, mode="as_compiled")
    assert sharded.mesh.sizes == {"x": 2, "y": 2}


@pytest.mark.long
def test_trace(tmp_path: Path) -> None:
    step = cosmic.trace.generate(LLAMA, settings={"tp": 8}, out=tmp_path / "step")
    prefix, groups = tmp_path / "step", tmp_path / "step.json"
    assert len(step.traces.ranks) == 8
    assert cosmic.trace.check(prefix, groups=groups) == []
    assert cosmic.trace.stats(prefix, groups=groups).recorded == ()
    assert len(cosmic.trace.show(f"{prefix}.0.et", limit=2)) == 2
    assert cosmic.trace.diff(str(prefix), str(prefix)).identical
    repaired = cosmic.trace.repair(prefix, groups=groups, out=tmp_path / "repaired")
    assert (repaired.done, repaired.left) == ((), ())
    hidden = cosmic.trace.anonymize(prefix, groups=groups, policy={"names": "drop"}, seed=1, out=tmp_path / "hidden")
    assert hidden.visible.ranks == 8
    larger = cosmic.trace.synthesize(prefix, groups=[groups], ranks=4, out=tmp_path / "fewer")
    assert len(larger.traces.ranks) == 4
    assert cosmic.trace.check(tmp_path / "fewer", groups=tmp_path / "fewer.json") == []


def test_recorded_traces(tmp_path: Path) -> None:
    files = [PROFILES / "gpt.et.json.gz", PROFILES / "gpt.kineto.json.gz"]
    converted = cosmic.trace.convert(files, out=tmp_path / "gpt")
    assert converted.traces.nodes > 0
    (recorded,) = cosmic.trace.stats(tmp_path / "gpt").recorded
    projected = cosmic.trace.project(tmp_path / "gpt", accelerator="b200", out=tmp_path / "b200")
    assert projected.old.span_s == pytest.approx(recorded.span_s)
    assert cosmic.trace.check(tmp_path / "b200") == []
    text = cosmic.trace.convert("examples/astra_sim/text_workload.txt", npus=4)
    assert len(text.traces.ranks) == 4


def test_the_suite_of_traces_can_be_run_case_by_case() -> None:
    (case,) = cosmic.trace.suite(only="dense-8")
    assert case.cycles == case.expected


def test_catalog() -> None:
    kinds = {row["kind"]: row["entries"] for row in cosmic.catalog.list()}
    assert kinds["models"] == len(cosmic.catalog.list("models"))
    assert cosmic.catalog.show("models", "llama3-8b")["model"]["layers"] == 32
    with pytest.raises(cosmic.catalog.UnknownName, match="no such kind"):
        cosmic.catalog.list("modles")


def test_calibrate(tmp_path: Path) -> None:
    (tmp_path / "gemm.csv").write_text("dtype,m,n,k,ms\nbf16,4096,4096,4096,0.2\n")
    (gemm,) = cosmic.calibrate.validate([tmp_path / "gemm.csv"]).summary
    assert gemm.rows == 1
    found = cosmic.calibrate.run(["examples/calibrate/runs.csv"])
    assert found.files
    with pytest.raises(cosmic.SpecError, match="must be above 0"):
        cosmic.calibrate.probe(minutes=0)


def test_boards_of_agents(tmp_path: Path) -> None:
    ranked = cosmic.study.tournament(SMALL, agents=["random", "genetic"], trials=30, seeds=1)
    assert {row["agent"] for row in ranked.rows()} == {"random", "genetic"}
    cosmic.study.make_board(tmp_path / "board", str(SMALL), trials=20, seeds=1)
    cosmic.study.enter_agent(tmp_path / "board", "random")
    (line,) = cosmic.study.leaderboard(tmp_path / "board")
    assert line.name == "random"


@pytest.mark.long
def test_answers_are_lines_in_a_notebook() -> None:
    served = cosmic.serve("llama3-8b@dgx-h100:2", input=1000, output=100, rate=1.0)
    cannot = cosmic.serve("llama3-405b@dgx-h100:1", input=1000, output=100, rate=1.0)
    sized = cosmic.size("llama3-8b", tokens="1T", budget="50 M USD", systems=["dgx-h100"])
    texts = [
        repr(answer) for answer in (served, cannot, sized, cosmic.search(SMALL, trials=5), cosmic.load_space(SMALL))
    ]
    assert max(map(len, texts)) < 200
    assert texts[0].startswith("<Answer: llama3-8b on 2 accelerators, 1 × tp 2: P95 TTFT ")
    assert texts[1].startswith("<Answer: llama3-405b on 1 accelerator cannot serve: ")
    assert " accelerators of dgx-h100, train_days " in texts[2]
    assert "5 designs, best " in texts[3]
    assert texts[4].endswith(" valid points>")


# ---- every question is answered with one value


def check_answer(found: Answered, question: str) -> None:
    """Check that a result says its question, a verdict in one sentence, and what it follows from."""
    answer = found.answer
    assert answer.question == question
    assert answer.verdict == found.verdict
    assert "\n" not in answer.verdict
    assert len(answer.verdict) > 10
    assert answer.provenance.version == cosmic.__version__
    assert answer.provenance.inputs
    assert escape(answer.verdict) in found._repr_html_()


def test_every_question_is_answered_with_one_value() -> None:
    found = cosmic.search(SMALL, trials=5, seed=3)
    check_answer(found, "mapping")
    assert found.answer.provenance.seed == 3
    check_answer(cosmic.size("llama3-8b", tokens="1T", accelerators=16, systems=["dgx-h100"]), "purchase")
    check_answer(cosmic.network.bound("dgx-h100:8"), "collective")
    made = cosmic.network.synthesize("dgx-h100:8", collective="all-to-all")
    check_answer(made, "collective")
    assert made.answer.gap is not None
    assert made.answer.gap == pytest.approx(made.time_s / made.limits.seconds - 1)
    sharded = cosmic.model.shard("gpt3-125m", {"x": 2}, batch=2, objective="bytes")
    check_answer(sharded, "sharding")
    assert sharded.answer.memory is not None
    assert sharded.answer.memory.used_bytes == sharded.memory_bytes
    check_answer(cosmic.design.diff(LLAMA, LLAMA, settings={"tp": 8}, settings_b={"tp": 4}), "difference")


def test_a_design_that_cannot_run_is_answered_with_its_reasons() -> None:
    runs = cosmic.evaluate(LLAMA, settings={"tp": 8})
    check_answer(runs, "evaluation")
    assert isinstance(runs, cosmic.design.Metrics)
    assert runs.answer.memory is not None
    memory = cosmic.load_design(LLAMA, {"tp": 8}).memory
    assert runs.answer.memory.capacity_bytes == memory.left_bytes
    assert 0.98 * 80 * 2**30 < memory.left_bytes < 80 * 2**30  # the driver keeps some
    assert runs.answer.memory.fits == runs.fits
    refused = cosmic.evaluate("gpt3-175b@dgx-h100:8", settings={"tp": 1})
    check_answer(refused, "evaluation")
    assert isinstance(refused, cosmic.design.Infeasible)
    assert refused.answer.reasons == refused.reasons
    assert refused.answer.memory is None


@pytest.mark.long
def test_deployments_are_answered_with_what_would_help() -> None:
    served = cosmic.serve("llama3-8b@dgx-h100:2", input=1000, output=100, rate=1.0)
    check_answer(served, "deployment")
    assert [each.what for each in served.answer.improvements] == [move.tried.what for move in served.moves]
    assert all(each.command.startswith("cosmic serve llama3-8b@") for each in served.answer.improvements)
    plan = cosmic.design.plan_serving("llama3-8b@dgx-h100:8", input=500, output=50, rate=5, tpot="1 us")
    check_answer(plan, "deployment")
    assert plan.answer.reasons == plan.reasons != ()
