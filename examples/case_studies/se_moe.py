"""SE-MoE, published and ours: all-to-alls, memory tiers, caches and uneven tasks of mixtures of experts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from common import Effort, percent, span, write_page
from se_moe_designs import (
    NODE,
    Assumed,
    Bandwidth,
    Change,
    Exchanged,
    Ring,
    Served,
    bandwidths,
    embedding_saving,
    exchanged,
    improved,
    rings,
    served,
    stored,
    tasks,
)

from cosmic.cluster import SharedAccelerators
from cosmic.model import fullest_rank, hit_rate, top_share
from cosmic.pages import Axis, Figure, Heading, Items, Part, Series, Table, Text, lines

PUBLISHED = {"communication": 0.155, "step": 0.103, "tokens": 209_970 / 157_728 - 1, "memory": 1 - 54.4 / 66.3}
TABLE_BYTES = 15.81e9 - 8.63e9
"""What SE-MoE saves by splitting an embedding."""
PER_GPU = (62.6, 74.0)
INFERENCE = 0.13
SKEWS = (0.5, 1.0, 1.5)
GIGA = 1e9


@dataclass(frozen=True)
class Story:
    """Everything that the page shows."""

    exchanged: Sequence[Exchanged]
    improved: dict[Assumed, list[Change]]
    tables: dict[tuple[int, bool], float]
    rings: Sequence[Ring]
    served: Sequence[Served]
    tasks: dict[tuple[str, int | None], tuple[SharedAccelerators, SharedAccelerators]]
    """By model, and by NICs of a node; None where all GPUs are in one."""
    bandwidths: Sequence[Bandwidth]

    @property
    def gains(self) -> list[float]:
        """By what share the 104.1B model is faster than the baseline, for all that may be assumed."""
        return [rows[-1].tokens_per_s / rows[0].tokens_per_s - 1 for rows in self.improved.values()]

    @property
    def saved(self) -> list[float]:
        """The share of memory that it saves."""
        return [1 - rows[-1].memory_bytes / rows[0].memory_bytes for rows in self.improved.values()]

    @property
    def ring_saved(self) -> list[float]:
        """The share of memory that experts in the host save, with two to six layers on the GPU."""
        whole = {ring.batch: ring.memory_bytes for ring in self.rings if ring.resident is None}
        return [1 - ring.memory_bytes / whole[ring.batch] for ring in self.rings if ring.resident is not None]


def told(effort: Effort) -> Story:
    """Return the contents of the page."""
    micro = (4,) if effort.quick else (1, 4, 8)
    nics = (2,) if effort.quick else (8, 4, 2)
    cases = [Assumed(each, active, size, pad) for each in nics for active in (1, 2) for size in micro[:2]
             for pad in (None, 1.25)]  # fmt: skip
    degrees = (8, 64) if effort.quick else (8, 16, 32, 64)
    return Story(
        exchanged(nics, (1, 2), micro),
        {each: improved(each) for each in cases},
        {(dp, wide): embedding_saving(dp, wide) for dp in degrees for wide in (False, True)},
        rings((8, 64, 256), (None, 2, 4, 6)),
        served(nics, (1, 2), (("prefill", 1), ("prefill", 8), ("decode", 8), ("decode", 64))),
        {(model, each): tasks(model, each) for model in ("vit-large", "vit-huge") for each in (None, *nics)},
        bandwidths(),
    )


def make(effort: Effort) -> list[Part]:
    """Return the page."""
    story = told(effort)
    return [
        *opening(story),
        *all_to_alls(story.exchanged),
        *large_model(story),
        *embeddings(story.tables),
        *ring_memory(story),
        *inference(story.served),
        *storage(),
        *caching(),
        *balancing(),
        *uneven_tasks(story.tasks),
        *deepep(story.bandwidths),
        *learned(story),
        *LIMITS,
    ]


def opening(story: Story) -> list[Part]:
    """Return the question, and all ratios beside the published ones."""
    apart = [even.samples_per_s_per_npu / one.samples_per_s_per_npu - 1 for one, even in story.tasks.values()]
    sent = [each.communication for each in story.exchanged]
    saved = span([100 * each for each in story.saved], ".0f")
    tables = span([each / GIGA for each in story.tables.values()])
    rows = [
        ("hierarchical all-to-all, 32 GPUs: communication", "+15.5 %", _plus(sent)),
        ("the same: step", "+10.3 %", _plus([each.step for each in story.exchanged])),
        ("104.1B on 64 A100: tokens/s", _plus([PUBLISHED["tokens"]]), _plus(story.gains)),
        ("the same: memory", f"-{percent(PUBLISHED['memory'], 0)}", f"-({saved}) %"),
        ("embedding of 400 M parameters, GB saved", f"{TABLE_BYTES / GIGA:.2f}", tables),
        ("ring memory: memory saved", "at least 30 %", f"{span([100 * each for each in story.ring_saved], '.0f')} %"),
        ("inference: tokens/s", _plus([INFERENCE]), _plus([each.gains[-1] for each in story.served])),
        ("uneven tasks: samples/s for each GPU", _plus([PER_GPU[1] / PER_GPU[0] - 1]), _signed(apart)),
    ]  # fmt: skip
    return [
        Text(
            """SE-MoE (Shen et al., arXiv 2205.10034; later MoESys) trains and serves mixtures of experts on A100 with
            NVSwitch in nodes and NICs of 100 Gbit/s between them. How near do its gains come out of a model that was
            not fitted to them? Sequence length, experts of a token, batch and NICs of a node are not published: ours
            are 2,048 tokens, 1 or 2 experts, 1 to 8 sequences on a GPU, and 2 to 8 NICs, and the table has the range
            over all of them."""
        ),
        Table(("what", "published", "ours"), rows, "Ratios, published and ours."),
    ]


def _plus(shares: Sequence[float]) -> str:
    return f"+{span([100 * each for each in shares], '.1f')} %"


def _signed(shares: Sequence[float]) -> str:
    return f"{100 * min(shares):+.1f} to {100 * max(shares):+.1f} %"


def all_to_alls(rows: Sequence[Exchanged]) -> list[Part]:
    """Return flat against hierarchical."""
    cells = [
        (
            each.assumed.nics,
            each.assumed.active,
            each.assumed.micro_batch,
            f"{1e3 * each.flat_s:.0f}",
            f"{1e3 * each.staged_s:.0f}",
            f"+{percent(each.communication)}",
            f"+{percent(each.step)}",
        )
        for each in rows
    ]
    needed = (1 - 1 / (1 + PUBLISHED["step"])) / (1 - 1 / (1 + PUBLISHED["communication"]))
    shares = [
        each.flat_s / each.flat_step_s for each in rows if each.assumed.nics == min(row.assumed.nics for row in rows)
    ]
    columns = ("NICs of a node", "experts of a token", "sequences on a GPU", "flat, ms", "hierarchical, ms",
               "communication", "step")  # fmt: skip
    return [
        Heading("Flat or hierarchical"),
        Text(
            """`collective.all_to_all: hierarchical` first exchanges inside a node, over NVSwitch, then among GPUs of
            one rank, which share a leaf switch of a rail-optimized fabric. Flat, 7 of 8 messages to other nodes cross
            a spine: leaves choose an uplink for each by a hash (`fabric.routing: ecmp`), and the exchange ends when
            the busiest link does. Here 4 nodes fill a leaf of 4 ports down and 4 up, NCCL has two connections to each
            peer, and the busiest of 64 links gets 1.38 times the mean. That is all: nothing is fitted. The published
            model has 80.7B parameters in a shape that is not known; ours is the family's of 32 experts."""
        ),
        Table(columns, cells, "All-to-alls of a step on 32 A100, published +15.5 % and +10.3 %."),
        Text(
            f"""Communication gains somewhat more than was published. What a step gains follows from how much of it is
            communication. The published pair needs {percent(needed, 0)} of a flat step; ours is
            {span([100 * each for each in shares], ".0f")} % with two NICs in a node."""
        ),
    ]


def large_model(story: Story) -> list[Part]:
    """Return what each change does to the 104.1B model."""
    assumed = next(each for each in story.improved if each.capacity and each.active == 1 and each.nics == 2
                   and each.micro_batch == 4)  # fmt: skip
    rows = story.improved[assumed]
    cells = [
        (row.name, f"{row.tokens_per_s:,.0f}", f"+{percent(row.tokens_per_s / rows[0].tokens_per_s - 1)}",
         f"{row.memory_bytes / GIGA:.1f}")
        for row in rows
    ]  # fmt: skip
    return [
        Heading("The 104.1B model on 64 A100"),
        Text(
            f"""Published: 157,728 tokens/s and 66.3 GB with DeepSpeed, 209,970 and 54.4 GB with SE-MoE: +33.1 % and
            -17.9 %. The baseline here runs kernel by kernel, experts one by one, flat all-to-alls and, in half of the
            cases, slots padded to a capacity factor of 1.25. The table has {assumed.nics} NICs of a node,
            {assumed.active} expert of a token and {assumed.micro_batch} sequences on a GPU; over all that may be
            assumed the gain is {span([100 * each for each in story.gains], ".0f")} %."""
        ),
        Table(("after", "tokens/s", "gain", "GB"), cells, "One change after another."),
        Text(
            """Which changes the published gain is made of is not known; padded slots and spines are most of ours, and
            without padded slots there is a third of it. Memory falls where dense weights are sharded; what DeepSpeed
            keeps for its dispatch masks, and what its allocator leaves unused, is not in the model."""
        ),
    ]


def embeddings(tables: dict[tuple[int, bool], float]) -> list[Part]:
    """Return what a split embedding saves."""
    cells = [(dp, 18 if wide else 16, f"{saved / GIGA:.2f}") for (dp, wide), saved in tables.items()]
    return [
        Heading("An embedding split over ranks"),
        Text(
            f"""`strategies: [embedding_parallel]` splits the table on its columns over data-parallel ranks.
            All-to-alls of rows and of their gradients, and a gather of token numbers, follow by propagation; the
            all-reduce of the table's gradient is gone. Published for 400 M parameters: 15.81 to 8.63 GB,
            {TABLE_BYTES / GIGA:.2f} less. That is {TABLE_BYTES / 4e8:.1f} bytes of each parameter: 18, with gradients
            in fp32, over many ranks."""
        ),
        Table(("ranks", "bytes of a parameter", "GB saved"), cells, "Saved on each GPU."),
    ]


def ring_memory(story: Story) -> list[Part]:
    """Return inference with experts in the host."""
    whole = {ring.batch: ring for ring in story.rings if ring.resident is None}
    cells = [
        (ring.batch, "all, no host" if ring.resident is None else ring.resident, f"{1e3 * ring.step_s:.0f}",
         f"{ring.memory_bytes / GIGA:.2f}", percent(1 - ring.memory_bytes / whole[ring.batch].memory_bytes, 0))
        for ring in story.rings
    ]  # fmt: skip
    return [
        Heading("Ring memory"),
        Text(
            """The 13.9B model on 8 A100, prompts of 1,024 tokens. Experts of 12 layers live in the host's memory (25
            GB/s for each GPU), those of some layers in a ring of buffers on the GPU; while one layer computes,
            another is copied. A layer's experts take 11 ms to come: at 8 prompts compute is shorter and waits, from
            64 on nothing waits but the first. Published is that at least 30 % of memory are saved: so it is where
            weights are most of the memory, and not where the KV cache of a large batch is."""
        ),
        Table(("prompts", "layers on the GPU", "ms", "GB", "saved"), cells, "Experts in the host's memory."),
    ]


def storage() -> list[Part]:
    """Return what the three rules ask for."""
    cells = []
    for experts in (8, 64, 128):
        for active in (0.05, 0.2, 1.0):
            each = stored(experts, active, experts // NODE)
            sizes = (each.gpu_bytes, each.host_bytes, each.drive_bytes)
            cells.append((experts, experts // NODE, active, *(f"{size / GIGA:,.0f}" for size in sizes)))
    return [
        Heading("What three tiers must hold"),
        Text(
            """With D dense and S sparse parameters, L layers and a share α of experts that is active, SE-MoE asks for
            16 D + 4 α S / L bytes on GPUs, 16 α S in hosts and 12 S on drives. A node of 8 A100 has 640 GB and, as a
            rule, 2,000 GB in its host and 30,000 GB of drives: with a node for 8 experts of each layer, all of these
            fit, and hosts are first at their limit as α grows."""
        ),
        Table(("experts", "nodes", "α", "GPUs, GB a node", "host, GB", "drives, GB"), cells, "SE-MoE's rules."),
    ]


def caching() -> list[Part]:
    """Return the curve of hits."""
    count, tokens = 64, 64
    sizes = range(0, count + 1, 4)
    series = [
        Series(f"skew {skew:g}", [(each / count, hit_rate(count, 1, skew, each, tokens)) for each in sizes])
        for skew in SKEWS
    ]
    found = [[hit_rate(count, 1, skew, each, tokens) - top_share(count, 1, skew, each, tokens) for each in (8, 16, 32)]
             for skew in SKEWS]  # fmt: skip
    worst = max(abs(each) for row in found for each in row)
    cells = [
        (skew, *(f"{percent(hit_rate(*case))} ({percent(top_share(*case))})"
                 for case in ((count, 1, skew, each, tokens) for each in (8, 16, 32))))
        for skew in SKEWS
    ]  # fmt: skip
    chart = lines(series, x=Axis("share of experts in the cache"), y=Axis("hits"), title="Hits of a cache of experts")
    return [
        Heading("A cache of experts"),
        Text(
            f"""Least frequently used, counts multiplied by 0.9 every 16 steps, an expert admitted if its count is
            higher by more than 1; 64 experts, 1 of a token, steps of 64 tokens, 512 steps from a seed. In brackets
            the most popular experts, which no cache that keeps its own can beat: counts come within {percent(worst)}
            of it, by chance above it too. With many tokens in a step all experts are in use, and hits are the share
            that is cached."""
        ),
        Figure(chart, "hits", "Share of the experts in use that are in the cache."),
        Table(("skew", "8 of 64", "16 of 64", "32 of 64"), cells, "Hits, and those of the most popular."),
    ]


def balancing() -> list[Part]:
    """Return what copies do for DeepSeek-V3."""
    cells = [
        (skew, *(f"{fullest_rank(f'256 8 0 {packs}', 32, skew, 0.0, copies)[0]:.2f}"
                 for packs, copies in ((0, 0), (1, 0), (1, 32), (1, 64))))
        for skew in (0.0, 0.25, *SKEWS)
    ]  # fmt: skip
    ways = {"by number": (0, 0), "packed": (1, 0), "32 copies": (1, 32)}
    curves = [
        Series(
            name,
            [(tenth / 10, fullest_rank(f"256 8 0 {packs}", 32, tenth / 10, 0.0, copies)[0]) for tenth in range(16)],
        )
        for name, (packs, copies) in ways.items()
    ]
    chart = lines(curves, x=Axis("skew"), y=Axis("load"), title="Load of the fullest rank")
    return [
        Heading("Copies of popular experts"),
        Text(
            """256 experts, 8 of a token, on 32 ranks, as DeepSeek-V3 is served: the load of the fullest rank over an
            even one. DeepSeek serves prefills with 32 redundant experts: one more on each rank levels all but extreme
            skews, for an eighth more memory of experts. `cosmic design experts` prints such tables for any design."""
        ),
        Figure(chart, "loads", "Load of the fullest of 32 ranks, over an even one."),
        Table(("skew", "by number", "packed", "32 copies", "64 copies"), cells, "Load of the fullest rank."),
    ]


def uneven_tasks(found: dict[tuple[str, int | None], tuple[SharedAccelerators, SharedAccelerators]]) -> list[Part]:
    """Return accelerators shared out among tasks."""
    cells = [
        (model, "one node" if nics is None else f"{nics} NICs", f"{one.step_s:.2f}", f"{two.step_s:.2f}",
         f"{one.samples_per_s_per_npu:.1f}", f"{two.samples_per_s_per_npu:.1f}",
         f"{100 * (two.samples_per_s_per_npu / one.samples_per_s_per_npu - 1):+.1f} %")
        for (model, nics), (one, two) in found.items()
    ]  # fmt: skip
    first, second = (1024 / (npus * rate) for npus, rate in zip((4, 8), PER_GPU, strict=True))
    slope = (first - second) / (512 - 128)
    columns = ("model", "between GPUs", "4 GPUs, s", "8 GPUs, s", "4 GPUs, samples/s each", "8 GPUs", "gain")
    return [
        Heading("Uneven tasks"),
        Text(
            f"""Four tasks of one model, with batches of 512, 256, 128 and 128, on 4 GPUs, one each, against 8 GPUs,
            shared out 4, 2, 1, 1 (`cosmic cluster tasks`). Published: 62.6 and 74.0 samples/s for each GPU, +18.2 %. The
            published rates are steps of {first:.2f} and {second:.2f} s, that is {1e3 * slope:.1f} ms for each sample
            of the fullest GPU and {second - 128 * slope:.2f} s besides, whatever the batch."""
        ),
        Text(
            """A step has such a part: all GPUs reduce the gradients of what tasks share, and update them. Inside one
            node it is a few hundredths of a second. SE-MoE's elastic tasks have nodes of their own; where GPUs are
            apart, each with its part of a node's NICs, it is tenths of a second, and decides the gain. Where the GPUs
            were, and how large the model was, is not published; over what is assumed the gain is on both sides of the
            published one. Neither the input of samples nor a network that others use is in the model."""
        ),
        Table(columns, cells, "Steps, and samples per second and GPU."),
    ]


def inference(rows: Sequence[Served]) -> list[Part]:
    """Return what the same changes do to inference."""
    cells = []
    for task in dict.fromkeys(each.task for each in rows):
        for padded in (False, True):
            some = [each for each in rows if each.task == task and bool(each.assumed.capacity) == padded]
            spans = (_signed([each.gains[place] for each in some]) for place in range(len(some[0].gains)))
            cells.append((task, "padded" if padded else "not padded", *spans))
    names = [each.name for each in rows[0].changes[1:]]
    plain = [each.gains[-1] for each in rows if each.task == "prefill" and not each.assumed.capacity]
    return [
        Heading("Inference"),
        Text(
            f"""Published: +{percent(INFERENCE, 0)} of throughput over DeepSpeed. Model, batch, lengths and what it is
            made of are not. One reading is the 104.1B model on 64 GPUs, prompts of 1,024 tokens or decoding after as
            many, 1 to 64 sequences on a GPU, and the mechanisms of training, one after another. Ring memory is none of
            them: it saves memory, and at best costs no time."""
        ),
        Table(("task", "baseline", *(f"and {name}" for name in names)), cells, "Tokens/s over the baseline's."),
        Text(
            f"""Prompts on a baseline that pads nothing gain {span([100 * each for each in plain], ".0f")} %, which is
            near the published gain; decoding, whose kernels read the same weights however they are started, gains a
            few percent. That is what these mechanisms are worth, not a reproduction: which of them SE-MoE compared is
            not known."""
        ),
    ]


def deepep(rows: Sequence[Bandwidth]) -> list[Part]:
    """Return bandwidths beside DeepEP's."""
    cells = [
        (f"EP{row.ranks} {row.what}", row.link, f"{row.published:.0f}", f"{row.ours:.0f}",
         "" if row.logical is None else f"{row.logical:.0f}")
        for row in rows
    ]  # fmt: skip
    return [
        Heading("DeepEP's bandwidths"),
        Text(
            """4,096 tokens of 7,168 numbers for 8 experts each, on H800 nodes with a NIC of 400 Gbit/s for each GPU;
            dispatch in 8 bits, combine in 16. Ours over the link, and with the copies for a rank's own node, which
            never cross it. EP16 is bound by NVLink here, EP32 by NICs. DeepEP sends a token once to a rank with
            several of its experts, and 4 groups of nodes at most; ours sends NVLink every copy, which is more than
            DeepEP sends."""
        ),
        Table(("exchange", "link", "published, GB/s", "ours, GB/s", "with own node"), cells, "Bottleneck bandwidth."),
    ]


def learned(story: Story) -> list[Part]:
    """Return what was learned."""
    gain = span([100 * each.communication for each in story.exchanged], ".0f")
    return [
        Heading("What was learned"),
        Items(
            [
                f"""Stages gain {gain} % of communication where messages of a flat all-to-all are hashed onto the
                uplinks of rails, and nothing where switches route adaptively or one switch joins all NICs.""",
                """The gain of 33 % is within reach only of a baseline that pads: half a dozen unpublished choices
                decide it, and a table of ratios is no test of a model.""",
                """One redundant expert on each rank is worth more than any placement: packing alone leaves the rank
                with the most popular expert alone with it.""",
                """A cache of experts helps small batches. In training, where a step uses all experts, it hits by its
                size, whatever the routing.""",
            ]
        ),
    ]


LIMITS: list[Part] = [
    Heading("Limits"),
    Items(
        [
            """Published figures but those of the abstract were read in notes of others, not in the paper's tables.""",
            """The fullest rank is the same one in every layer as far as memory goes, which is the worst case.""",
            """Popularity stands still: a cache that must follow it is hit less often.""",
            """What SE-MoE's gain in inference is made of is not known: ours is a reading, over what may be assumed.""",
        ]
    ),
]


if __name__ == "__main__":
    write_page("SE-MoE, published and ours", "se-moe", make)
