"""A model of traces: fitted on jobs, it makes new ones of other lengths and numbers of ranks.

    traces ──▶ roles ──▶ grammar of each ──▶ other numbers of copies ──▶ templates ──▶ ranks on a mesh ──▶ traces
                          links between copies, amounts by class and place, channels of messages

What it makes is checked before it is returned, also for ranks that wait for each other in a circle
(`roles_deadlock`, seen from one rank of each role); whole steps one after the other are always valid.

Tags of messages say which sends belong to which receives, whatever the number of copies. Classes of sends and receives that meet in the source are a channel. Where messages of a channel arrive in the order in
which they are sent, the n-th send meets the n-th receive; elsewhere the tag of the source says which receive it meets.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from cosmic.base.errors import SpecError, require
from cosmic.traces.dependencies import Dependencies, dependencies_of, topological_order
from cosmic.traces.synthesis.block_grammar import (
    STEPS,
    BlockRepeat,
    Counts,
    GrowthPlan,
    RoleStructure,
    _with_indices,
    count_nodes,
    find_plans,
    make_template,
    order_plans,
    parse_repeats,
    with_messages,
)
from cosmic.traces.synthesis.rank_roles import (
    JobMesh,
    MeshBindings,
    MeshPlacement,
    Role,
    SourceJob,
    bind_mesh,
    placement_of,
    scale_mesh,
    source_job,
)
from cosmic.traces.trace import ABSENT, Ints, NodeType, RankTrace, Template, TraceSet
from cosmic.traces.trace_checks import SEND, list_problems, messages_of


def roles_deadlock(traces: TraceSet, bindings: MeshBindings) -> bool:
    """Return whether nodes of different roles may wait for each other in a circle.

    Ranks of one role are one here. So a circle may be none among single ranks; there is none if this finds none.
    """
    of_role = [np.flatnonzero(bindings.role == role) for role in np.unique(bindings.role)]
    roles = [(traces.ranks[ranks[0]].template, ranks) for ranks in of_role]
    if len(roles) == 1:
        return False
    nodes = sum(template.nodes for template, _ in roles)
    starts = np.cumsum([0, *(template.nodes for template, _ in roles)])
    start_of = np.zeros(len(traces.ranks), np.int64)
    for (_, ranks), start in zip(roles, starts.tolist(), strict=False):
        start_of[ranks] = start
    late, early = [], []
    for (template, _), start in zip(roles, starts.tolist(), strict=False):
        dependencies = dependencies_of(template).within()
        late.append(dependencies.dependent + start)
        early.append(dependencies.row + start)
    # Sends, and the receives that wait for them; tags are distinct on a route
    messages = messages_of(traces)
    departures, arrivals = np.flatnonzero(messages.side == SEND), np.flatnonzero(messages.side != SEND)
    first = np.lexsort(
        (messages.row[departures], messages.tag[departures], messages.peer[departures], messages.rank[departures])
    )
    second = np.lexsort(
        (messages.row[arrivals], messages.tag[arrivals], messages.rank[arrivals], messages.peer[arrivals])
    )
    position = start_of[messages.rank] + messages.row
    sends, receives = (position[departures[first]], position[arrivals[second]])
    # Nodes that are one collective are merged into the first of them.
    collectives_of = _collectives(traces, bindings, start_of)
    representative = np.arange(nodes)
    for mine, theirs in collectives_of:
        np.minimum.at(representative, theirs, representative[mine])
    dependent, row = representative[np.concatenate([*late, receives])], representative[np.concatenate([*early, sends])]
    distinct = dependent != row
    pairs = np.unique(dependent[distinct] * nodes + row[distinct])
    dependent, row = np.divmod(pairs, nodes)
    merged = Dependencies(nodes, dependent, row, row, np.zeros(len(row), bool))
    return bool(len(topological_order(merged)) < nodes)


def _collectives(traces: TraceSet, bindings: MeshBindings, start_of: Ints) -> Iterator[tuple[Ints, Ints]]:
    """Yield nodes of different roles that are one collective."""
    everyone = tuple(range(len(traces.ranks)))
    seen = set()
    for name, members in ((None, everyone), *bindings.groups.items()):
        first: dict[int, int] = {}
        for rank in members:
            first.setdefault(int(bindings.role[rank]), rank)
        key = (name is None, tuple(sorted(first.values())), len(members))
        if len(first) < 2 or key in seen:
            continue
        seen.add(key)
        rows = [_rows(traces, rank, name) + start_of[rank] for rank in first.values()]
        for other in rows[1:]:
            yield rows[0], other


def _rows(traces: TraceSet, rank: int, name: str | None) -> Ints:
    trace = traces.ranks[rank]
    template = trace.template
    group = -1 if name is None else trace.groups.index(name) if name in trace.groups else -2
    return np.flatnonzero((template.type == NodeType.COMM_COLL) & (template.group == group))


MOST_NODES = 20_000_000
"""Most nodes of the templates that are made."""
MOST_RANKS = 2**17
"""Most ranks that are made, each of which is a file."""
MOST_SCALE = 1_000_000


@dataclass(frozen=True, slots=True, eq=False)
class FittedJob:
    """What is known of one job."""

    source: SourceJob
    structures: tuple[RoleStructure, ...]
    """By role."""
    plans: tuple[GrowthPlan, ...]
    channels: MessageChannels
    placement: MeshPlacement | None


@dataclass(frozen=True, slots=True, eq=False)
class TraceModel:
    """What is known of the jobs that it is fitted on."""

    jobs: tuple[FittedJob, ...]

    @property
    def notes(self) -> tuple[str, ...]:
        """What was mended in the traces."""
        return tuple(note for job in self.jobs for note in job.source.notes)

    @property
    def rules(self) -> int:
        """Nodes and repeats of the grammars of all roles: what is kept of the structure."""
        return sum(
            _rules(structure.nodes, structure.grammar[0].inside) for job in self.jobs for structure in job.structures
        )

    @property
    def nodes(self) -> int:
        """Nodes of all roles, which the rules stand for."""
        return sum(structure.nodes for job in self.jobs for structure in job.structures)


def _rules(nodes: int, grammar: Sequence[BlockRepeat]) -> int:
    """Return the nodes that are left if every block is written once, and one for each repeat."""
    for repeat in grammar:
        nodes += 1 + _rules(repeat.width, repeat.inside) - repeat.count * repeat.width
    return nodes


@dataclass(frozen=True, slots=True, eq=False)
class SyntheticTraces:
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


def fit_model(jobs: Sequence[tuple[TraceSet, Mapping[str, Sequence[int]] | None]]) -> TraceModel:
    """Return a model of *jobs*: traces and their communicator groups."""
    require(bool(jobs), "traces", 0, "give the traces of at least one job")
    return TraceModel(tuple(_fit_job(source_job(*job)) for job in jobs))


def _fit_job(source: SourceJob) -> FittedJob:
    structures = []
    for role in source.roles:
        inside = parse_repeats(role.classes)
        grammar = _with_indices(
            (BlockRepeat(0, role.template.nodes, 1, inside),), iter(range(2 * role.template.nodes + 1))
        )
        structures.append(RoleStructure(role.template.nodes, grammar, len(role.ranks)))
    return FittedJob(
        source, tuple(structures), tuple(find_plans(structures)), find_channels(source), placement_of(source)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceLength:
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

    def choices(self, job: FittedJob) -> list[tuple[GrowthPlan, int]]:
        """Return the plans of growth with their numbers of copies, best first."""
        if self.scale is not None:
            return order_plans(job.plans, job.structures, self.scale)
        if self.blocks is None:
            return [(_plan_of_steps(job), 1)]
        plans = [plan for plan in job.plans if self.of in (None, plan.copies) and self.width in (None, plan.width)]
        choices_text = ", ".join(dict.fromkeys(f"{plan.copies}x{plan.width}" for plan in job.plans))
        wanted = f"{self.of}{'' if self.width is None else f'x{self.width}'}:{self.blocks}"
        require(bool(plans), "blocks", wanted, f"there is no such block; copies and their nodes are {choices_text}")
        return [(plan, self.blocks) for plan in plans]


AS_LONG = TraceLength()


def synthesize(
    model: TraceModel, length: TraceLength = AS_LONG, *, ranks: int | None = None, seed: int = 0
) -> SyntheticTraces:
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
        nodes = sum(
            count_nodes([structure], [count]) // structure.ranks
            for structure, count in zip(job.structures, counts, strict=True)
        )
        require(nodes <= MOST_NODES, "nodes", nodes, f"at most {MOST_NODES:,} are made of the roles of a job")
        # The jobs that have the structure of job, itself first: their amounts are drawn from together
        own_classes = [role.classes for role in job.source.roles]
        others = [fitted.source for fitted in model.jobs if fitted is not job]
        same = []
        for other in others:
            classes = [role.classes for role in other.roles]
            if len(classes) == len(own_classes) and all(map(np.array_equal, own_classes, classes)):
                same.append(other)
        traces = _make_traces([job.source, *same], job, counts, bindings, np.random.default_rng([seed, 1]))
        problems = list_problems(traces, bindings.groups, shown=1)
        if not problems and (plan.name == STEPS or not roles_deadlock(traces, bindings) or _deadlocks_anyway(job)):
            before = job.placement.mesh.sizes if job.placement else ()
            name = "" if length == AS_LONG else plan.name
            return SyntheticTraces(traces, bindings.groups, number, name, plan.copies, copies, plan.width, before, mesh)
    rule = f"so many nodes cannot be made of it: {problems[0] if problems else 'its ranks would deadlock'}"
    raise SpecError(job.source.traces.where, nodes, rule)


def _deadlocks_anyway(job: FittedJob) -> bool:
    """Return whether ranks of a role, seen as one, wait in a circle in the source, too: then it says nothing."""
    bindings = _original_bindings(job.source)
    counts = _plan_of_steps(job).counts(1)
    return roles_deadlock(_make_traces([job.source], job, counts, bindings, np.random.default_rng(0)), bindings)


def _plan_of_steps(job: FittedJob) -> GrowthPlan:
    """Return the plan of steps, which is always possible."""
    return next(plan for plan in job.plans if plan.name == STEPS)


def _bindings(job: FittedJob, ranks: int | None) -> tuple[MeshBindings, tuple[int, ...]]:
    """Return the roles, groups and peers of all ranks, and the mesh."""
    before = len(job.source.traces.ranks)
    if ranks is None or ranks == before:
        return _original_bindings(job.source), job.placement.mesh.sizes if job.placement else ()
    mesh: JobMesh = scale_mesh(job.placement, before, ranks)
    if job.placement is None:  # `scaled` has said so
        raise SpecError("ranks", ranks, "the traces have no mesh")
    return bind_mesh(job.source, job.placement, mesh), mesh.sizes


def _original_bindings(source: SourceJob) -> MeshBindings:
    """Return the ranks of the source, with groups named by numbers from 1."""
    used = dict.fromkeys(name for role in source.roles for names in role.groups for name in names)
    numbers = {name: str(index + 1) for index, name in enumerate(used)}
    names: dict[int, tuple[str, ...]] = {}
    peers: dict[int, tuple[int, ...]] = {}
    for role in source.roles:
        for rank, own, others in zip(role.ranks, role.groups, role.peers, strict=True):
            names[rank] = tuple(numbers[name] for name in own)
            peers[rank] = (*others, *others)
    every = range(len(source.traces.ranks))
    groups = {number: source.groups[name] for name, number in numbers.items()}
    return MeshBindings(
        source.role_of, groups, tuple(names[rank] for rank in every), tuple(peers[rank] for rank in every)
    )


def _make_traces(
    sources: Sequence[SourceJob], job: FittedJob, counts: Counts, bindings: MeshBindings, rng: np.random.Generator
) -> TraceSet:
    """Return the traces with some numbers of copies, for the ranks of *bindings*."""
    templates_of_roles = []
    for index, structure in enumerate(job.structures):
        roles = [source.roles[index] for source in sources]
        first = roles[0]
        role = Role(
            tuple(template for role in roles for template in role.templates), first.ranks, first.groups, first.peers
        )
        of_rank = 0 if len(job.source.roles[index].templates) > 1 else None
        drawing = (job.channels.key[index], rng, of_rank)
        templates_of_roles.append(
            make_template(role, structure, counts[index], _groups_of_one_role(job.source, index), drawing)
        )
    tags = tag_messages([(made_template.template, made_template.keys) for made_template in templates_of_roles])
    templates = []
    for index, made_template in enumerate(templates_of_roles):
        template = with_messages(made_template.template, tags[index], _shares(job.source, index, bindings))
        ranks = int((bindings.role == index).sum()) if len(job.source.roles[index].templates) > 1 else 1
        templates.append(made_template.variants(template, min(ranks, 1 + MOST_NODES // template.nodes), rng))
    nth: Counter[int] = Counter()
    rank_traces = []
    for rank, own in enumerate(bindings.role.tolist()):
        template = templates[own][nth[own] % len(templates[own])]
        nth[own] += 1
        rank_traces.append(RankTrace(template, bindings.names[rank], bindings.peers[rank], rank))
    return TraceSet(tuple(rank_traces), where="synthetic traces")


def _shares(source: SourceJob, index: int, bindings: MeshBindings) -> list[float]:
    """Return how much larger a role's groups were, by the index of a group; the last entry is that of all ranks."""
    role = source.roles[index]
    role_ranks = np.flatnonzero(bindings.role == index)
    names = bindings.names[role_ranks[0]] if len(role_ranks) else ()
    before = [len(source.groups[name]) for name in role.groups[0]]
    now = [len(bindings.groups[name]) for name in names] or before
    return [*(old / new for old, new in zip(before, now, strict=True)), len(source.traces.ranks) / len(bindings.role)]


def _groups_of_one_role(source: SourceJob, index: int) -> set[int]:
    """Return the groups, by index, that no other role is a member of."""
    role_of, role = source.role_of, source.roles[index]
    indices = range(len(role.groups[0]))
    return {
        group
        for group in indices
        if all((role_of[list(source.groups[names[group]])] == index).all() for names in role.groups)
    }


@dataclass(frozen=True, slots=True, eq=False)
class MessageChannels:
    """The channel of each send and receive of the source, role by role."""

    key: tuple[Ints, ...]
    """By row of a role's template: equal for messages that are told apart by their order; `ABSENT` for other nodes."""


def find_channels(job: SourceJob) -> MessageChannels:
    """Return the channels of a job's messages."""
    role_of = job.role_of
    classes, starts = _class_numbers(job)
    messages = messages_of(job.traces)
    if not len(messages.rank):
        return MessageChannels(tuple(np.full(role.template.nodes, ABSENT) for role in job.roles))
    # Messages between two ranks with a tag and a size arrive in the order in which they were sent.
    side, rank, row, peer, tag, size = (
        getattr(messages, name) for name in ("side", "rank", "row", "peer", "tag", "size")
    )
    departures, arrivals = np.flatnonzero(side == SEND), np.flatnonzero(side != SEND)
    first = np.lexsort((row[departures], size[departures], tag[departures], peer[departures], rank[departures]))
    second = np.lexsort((row[arrivals], size[arrivals], tag[arrivals], rank[arrivals], peer[arrivals]))
    sends, receives = (departures[first], arrivals[second])
    class_of_message = classes[starts[role_of[messages.rank]] + messages.row]
    channel = _components(class_of_message[sends], class_of_message[receives], int(classes.max()) + 1)
    # In a channel between two ranks, receives in the order of their sends must be in the order of their rows.
    route = messages.rank[sends] * len(job.traces.ranks) + messages.rank[receives]
    among = channel[class_of_message[sends]]
    order = np.lexsort((messages.row[sends], among, route))
    same = (np.diff(route[order]) == 0) & (np.diff(among[order]) == 0)
    crossed = np.unique(among[order][1:][same & (np.diff(messages.row[receives][order]) < 0)])
    return MessageChannels(
        tuple(_keys(job, index, channel, classes, starts, crossed) for index in range(len(job.roles)))
    )


def _class_numbers(job: SourceJob) -> tuple[Ints, Ints]:
    """Return the classes of all roles' rows, one role after the other, and where each role begins."""
    numbers, first, starts = [], 0, []
    position = 0
    for role in job.roles:
        numbers.append(role.classes + first)
        starts.append(position)
        first += int(role.classes.max()) + 1
        position += role.template.nodes
    return np.concatenate(numbers), np.array(starts)


def _components(left: Ints, right: Ints, nodes: int) -> Ints:
    """Return the number of each node's component in a graph of pairs.

    >>> _components(np.array([0, 2]), np.array([1, 1]), 4).tolist()
    [0, 0, 0, 3]
    """
    label = np.arange(nodes)
    pairs = np.unique(np.stack([left, right]), axis=1)
    while True:
        least = np.minimum(label[pairs[0]], label[pairs[1]])
        new = label.copy()
        np.minimum.at(new, pairs[0], least)
        np.minimum.at(new, pairs[1], least)
        if np.array_equal(new, label):
            return label
        label = new


def _keys(job: SourceJob, index: int, channel: Ints, classes: Ints, starts: Ints, crossed: Ints) -> Ints:
    template = job.roles[index].template
    exchanges = np.isin(template.type, (NodeType.COMM_SEND, NodeType.COMM_RECV))
    own = channel[classes[starts[index] : starts[index] + template.nodes]]
    tags = 1 + int(max(role.template.comm_tag.max() for role in job.roles))
    by_tag = np.where(np.isin(own, crossed), template.comm_tag + 1, 0)
    return np.where(exchanges, own * (tags + 1) + by_tag, ABSENT)


def tag_messages(columns: Sequence[tuple[Template, Ints]]) -> list[Ints]:
    """Return new tags for templates, each given with the keys of its messages: other numbers for each key."""
    ordinals = [_ordinals(template, keys) for template, keys in columns]
    every = np.unique(np.concatenate([keys for _, keys in columns]))
    every = every[every != ABSENT]
    lengths = np.zeros(len(every) + 1, np.int64)
    for (_, keys), nth in zip(columns, ordinals, strict=True):
        own = keys != ABSENT
        np.maximum.at(lengths, 1 + np.searchsorted(every, keys[own]), nth[own] + 1)
    base = np.cumsum(lengths)
    return [
        np.where(keys == ABSENT, ABSENT, base[np.searchsorted(every, keys)] + nth)
        for (_, keys), nth in zip(columns, ordinals, strict=True)
    ]


def _ordinals(template: Template, keys: Ints) -> Ints:
    """Return which message of its key, side and peer each is."""
    rows = np.flatnonzero(keys != ABSENT)
    order = rows[np.lexsort((rows, template.peer[rows], template.type[rows], keys[rows]))]
    marks = np.stack([keys[order], template.type[order], template.peer[order]])
    new = np.concatenate([[True], (marks[:, 1:] != marks[:, :-1]).any(axis=0)]) if len(order) else np.empty(0, bool)
    first = np.maximum.accumulate(np.where(new, np.arange(len(order)), 0))
    nth = np.zeros(template.nodes, np.int64)
    nth[order] = np.arange(len(order)) - first
    return nth
