"""A model of traces: fitted on jobs, it makes new ones of other lengths and numbers of ranks.

    traces ──▶ roles ──▶ grammar of each ──▶ other numbers of copies ──▶ templates ──▶ ranks on a mesh ──▶ traces
                          links between copies, amounts by class and place, channels of messages

What it makes is checked before it is returned; whole steps one after the other are always valid.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from cosmic.errors import SpecError, require
from cosmic.synthetic.grammar import Repeat, _numbered, parse
from cosmic.synthetic.meshes import Bindings, Mesh, Placement, bind, placement_of, scaled
from cosmic.synthetic.plans import STEPS, Counts, Plan, Structure, in_order, nodes_of, plans_of
from cosmic.synthetic.roles import Role, SourceJob, source_job
from cosmic.synthetic.tags import Channels, channels_of, tagged
from cosmic.synthetic.templates import make_template, with_messages
from cosmic.synthetic.waiting import deadlocks
from cosmic.traces.checks import problems
from cosmic.traces.trace import Ints, RankTrace, TraceSet

MOST_NODES = 20_000_000
"""Most nodes of the templates that are made."""
MOST_RANKS = 2**17
"""Most ranks that are made, each of which is a file."""
MOST_SCALE = 1_000_000


@dataclass(frozen=True, slots=True, eq=False)
class FittedJob:
    """What is known of one job."""

    source: SourceJob
    structures: tuple[Structure, ...]
    """By role."""
    plans: tuple[Plan, ...]
    channels: Channels
    placement: Placement | None


@dataclass(frozen=True, slots=True, eq=False)
class Model:
    """What is known of the jobs that it is fitted on."""

    jobs: tuple[FittedJob, ...]

    @property
    def notes(self) -> tuple[str, ...]:
        """What was mended in the traces."""
        return tuple(note for job in self.jobs for note in job.source.notes)

    @property
    def rules(self) -> int:
        """Nodes and repeats of the grammars of all roles: what is kept of the structure."""
        return sum(_rules(one.nodes, one.grammar[0].inside) for job in self.jobs for one in job.structures)

    @property
    def nodes(self) -> int:
        """Nodes of all roles, which the rules stand for."""
        return sum(one.nodes for job in self.jobs for one in job.structures)


def _rules(nodes: int, grammar: Sequence[Repeat]) -> int:
    """Return the nodes that are left if every block is written once, and one for each repeat."""
    for each in grammar:
        nodes += 1 + _rules(each.width, each.inside) - each.count * each.width
    return nodes


@dataclass(frozen=True, slots=True, eq=False)
class Synthetic:
    """Traces that a model made."""

    traces: TraceSet
    groups: dict[str, tuple[int, ...]]
    job: int
    """Which of the model's jobs they are made of."""
    block: str
    """What grew: `blocks` or `steps`; nothing if the length is that of the source."""
    copies_before: int
    copies: int
    width: int
    """Nodes of a copy of the largest block."""
    mesh_before: tuple[int, ...]
    mesh: tuple[int, ...]
    """Sizes of the axes, the innermost first; empty where the groups are no mesh."""


def fit(jobs: Sequence[tuple[TraceSet, Mapping[str, Sequence[int]] | None]]) -> Model:
    """Return a model of *jobs*: traces and their communicator groups."""
    require(bool(jobs), "traces", 0, "give the traces of at least one job")
    return Model(tuple(_fit(source_job(*each)) for each in jobs))


def _fit(source: SourceJob) -> FittedJob:
    structures = []
    for role in source.roles:
        inside = parse(role.classes)
        whole = _numbered((Repeat(0, role.template.nodes, 1, inside),), iter(range(2 * role.template.nodes + 1)))
        structures.append(Structure(role.template.nodes, whole, len(role.ranks)))
    return FittedJob(source, tuple(structures), tuple(plans_of(structures)), channels_of(source), placement_of(source))


@dataclass(frozen=True, slots=True, kw_only=True)
class Length:
    """How long traces are to be: as long as the source if nothing is given."""

    scale: float | None = None
    """Times the nodes of the source."""
    blocks: int | None = None
    """Copies of a block."""
    of: int | None = None
    """The block that has so many copies in the source; that which covers most of it if not given."""
    width: int | None = None
    """The block whose copies have so many nodes."""

    def __post_init__(self) -> None:
        scale, blocks = self.scale, self.blocks
        require(blocks is None or scale is None, "blocks", blocks, "excludes scale: both say how long the traces are")
        require(blocks is None or 1 <= blocks <= MOST_SCALE, "blocks", blocks, f"must be from 1 to {MOST_SCALE:,}")
        require(
            scale is None or 0 < scale <= MOST_SCALE, "scale", scale, f"must be positive, and at most {MOST_SCALE:,}"
        )

    def choices(self, job: FittedJob) -> list[tuple[Plan, int]]:
        """Return what may grow, and to how many copies, best first."""
        if self.scale is not None:
            return in_order(job.plans, job.structures, self.scale)
        if self.blocks is None:
            return [(_steps(job), 1)]
        plans = [plan for plan in job.plans if self.of in (None, plan.copies) and self.width in (None, plan.width)]
        known = ", ".join(dict.fromkeys(f"{plan.copies}x{plan.width}" for plan in job.plans))
        wanted = f"{self.of}{'' if self.width is None else f'x{self.width}'}:{self.blocks}"
        require(bool(plans), "blocks", wanted, f"there is no such block; copies and their nodes are {known}")
        return [(plan, self.blocks) for plan in plans]


AS_LONG = Length()


def synthesize(model: Model, length: Length = AS_LONG, *, ranks: int | None = None, seed: int = 0) -> Synthetic:
    """Return new traces of a *length*, with *ranks* ranks, or as many as the source.

    Of several jobs, *seed* draws the one whose structure is taken; amounts come from all jobs of that structure.
    """
    require(ranks is None or 1 <= ranks <= MOST_RANKS, "ranks", ranks, f"must be from 1 to {MOST_RANKS:,}")
    require(seed >= 0, "seed", seed, "must be a whole number from 0 on")
    number = int(np.random.default_rng(seed).integers(len(model.jobs)))
    job = model.jobs[number]
    bindings, mesh = _bindings(job, ranks)
    for plan, copies in length.choices(job):
        counts = plan.counts(copies)
        nodes = sum(nodes_of([one], [each]) // one.ranks for one, each in zip(job.structures, counts, strict=True))
        require(nodes <= MOST_NODES, "nodes", nodes, f"at most {MOST_NODES:,} are made of the roles of a job")
        traces = _traces(_alike(model, job), job, counts, bindings, np.random.default_rng([seed, 1]))
        wrong = problems(traces, bindings.groups, shown=1)
        if not wrong and (plan.name == STEPS or not deadlocks(traces, bindings) or _deadlocks_anyway(job)):
            before = job.placement.mesh.sizes if job.placement else ()
            name = "" if length == AS_LONG else plan.name
            return Synthetic(traces, bindings.groups, number, name, plan.copies, copies, plan.width, before, mesh)
    rule = f"so many nodes cannot be made of it: {wrong[0] if wrong else 'its ranks would deadlock'}"
    raise SpecError(job.source.traces.where, nodes, rule)


def _deadlocks_anyway(job: FittedJob) -> bool:
    """Return whether ranks of a role, seen as one, wait in a circle in the source, too: then it says nothing."""
    bindings = _as_before(job.source)
    counts = _steps(job).counts(1)
    return deadlocks(_traces([job.source], job, counts, bindings, np.random.default_rng(0)), bindings)


def _steps(job: FittedJob) -> Plan:
    """Return the plan of steps, which is always possible."""
    return next(plan for plan in job.plans if plan.name == STEPS)


def _alike(model: Model, job: FittedJob) -> list[SourceJob]:
    """Return the jobs that have the structure of *job*, itself first: their amounts are drawn from together."""
    mine = [role.classes for role in job.source.roles]
    others = [each.source for each in model.jobs if each is not job]
    same = [each for each in others if _same(mine, [role.classes for role in each.roles])]
    return [job.source, *same]


def _same(mine: Sequence[Ints], theirs: Sequence[Ints]) -> bool:
    return len(mine) == len(theirs) and all(np.array_equal(*pair) for pair in zip(mine, theirs, strict=True))


def _bindings(job: FittedJob, ranks: int | None) -> tuple[Bindings, tuple[int, ...]]:
    """Return the roles, groups and peers of all ranks, and the mesh."""
    before = len(job.source.traces.ranks)
    if ranks is None or ranks == before:
        return _as_before(job.source), job.placement.mesh.sizes if job.placement else ()
    mesh: Mesh = scaled(job.placement, before, ranks)
    if job.placement is None:  # `scaled` has said so
        raise SpecError("ranks", ranks, "the traces have no mesh")
    return bind(job.source, job.placement, mesh), mesh.sizes


def _as_before(source: SourceJob) -> Bindings:
    """Return the ranks of the source, with groups named by numbers from 1."""
    used = dict.fromkeys(name for role in source.roles for names in role.groups for name in names)
    numbers = {name: str(place + 1) for place, name in enumerate(used)}
    names: dict[int, tuple[str, ...]] = {}
    peers: dict[int, tuple[int, ...]] = {}
    for role in source.roles:
        for rank, own, others in zip(role.ranks, role.groups, role.peers, strict=True):
            names[rank] = tuple(numbers[name] for name in own)
            peers[rank] = (*others, *others)
    every = range(len(source.traces.ranks))
    groups = {number: source.groups[name] for name, number in numbers.items()}
    return Bindings(source.role_of, groups, tuple(names[rank] for rank in every), tuple(peers[rank] for rank in every))


def _traces(
    sources: Sequence[SourceJob], job: FittedJob, counts: Counts, bindings: Bindings, rng: np.random.Generator
) -> TraceSet:
    """Return the traces with some numbers of copies, for the ranks of *bindings*."""
    made = []
    for index, structure in enumerate(job.structures):
        role = _pooled([source.roles[index] for source in sources])
        each = 0 if len(job.source.roles[index].templates) > 1 else None
        drawing = (job.channels.key[index], rng, each)
        made.append(make_template(role, structure, counts[index], _alone(job.source, index), drawing))
    tags = tagged([(one.template, one.keys) for one in made])
    templates = []
    for index, one in enumerate(made):
        template = with_messages(one.template, tags[index], _shares(job.source, index, bindings))
        ranks = int((bindings.role == index).sum()) if len(job.source.roles[index].templates) > 1 else 1
        templates.append(one.variants(template, min(ranks, 1 + MOST_NODES // template.nodes), rng))
    nth: Counter[int] = Counter()
    found = []
    for rank, own in enumerate(bindings.role.tolist()):
        template = templates[own][nth[own] % len(templates[own])]
        nth[own] += 1
        found.append(RankTrace(template, bindings.names[rank], bindings.peers[rank], rank))
    return TraceSet(tuple(found), where="synthetic traces")


def _shares(source: SourceJob, index: int, bindings: Bindings) -> list[float]:
    """Return how much larger a role's groups were, by the index of a group; the last entry is that of all ranks."""
    role = source.roles[index]
    mine = np.flatnonzero(bindings.role == index)
    names = bindings.names[mine[0]] if len(mine) else ()
    before = [len(source.groups[name]) for name in role.groups[0]]
    now = [len(bindings.groups[name]) for name in names] or before
    return [*(old / new for old, new in zip(before, now, strict=True)), len(source.traces.ranks) / len(bindings.role)]


def _pooled(roles: Sequence[Role]) -> Role:
    first = roles[0]
    return Role(tuple(each for role in roles for each in role.templates), first.ranks, first.groups, first.peers)


def _alone(source: SourceJob, index: int) -> set[int]:
    """Return the groups, by index, that no other role is a member of."""
    role_of, role = source.role_of, source.roles[index]
    places = range(len(role.groups[0]))
    return {
        place
        for place in places
        if all((role_of[list(source.groups[names[place]])] == index).all() for names in role.groups)
    }
