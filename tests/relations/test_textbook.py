"""Designs of the literature, part by part: every expected number is worked out here from papers and datasheets.

Counts and bytes are exact. Times of large messages lie within the bus bandwidths that nccl-tests reach; times of GEMMs
between the peak and half of it. Published step times are met within the tolerance that a test states.
"""

from __future__ import annotations

import pytest

from cosmic.design.design_point import DesignPoint
from tests.relations.textbook import (
    ADAM,
    BF16,
    FP32,
    causal,
    core_flop,
    design,
    flop,
    gpt_layer,
    korthikanti,
    llama_layer,
    near,
    refused,
    ring,
    run,
    sent,
    within,
)

A100, H100 = 312e12, 989.4e12
"""Dense 16-bit peaks of the datasheets."""
GIB = 2**30


# ---- 1
# GPT-3 175B on 64 A100 (Korthikanti et al., tables 3 and 5): t = 8, p = 8, interleaved with 3 chunks, 64 sequences of
# 2,048 tokens, one at a time, sequence parallelism, selective recomputation, dropout, scores written to memory.

S, H, L, V, T, P, M, CHUNKS = 2048, 12288, 96, 51200, 8, 8, 64, 3
TOKENS = M * S


@pytest.fixture(scope="module")
def gpt3() -> DesignPoint:
    return design(
        {"base": "gpt3-175b", "vocab": V},
        "dgx-a100:64",
        sequence=S,
        global_batch=M,
        tp=T,
        pp=P,
        sequence_parallel=True,
        schedule="interleaved",
        virtual_stages=CHUNKS,
        recompute="selective",
        recompute_to_end=True,
        attention="unfused",
        dropout=True,
        grad_reduce_in_fp32=True,
        precision="fp16",
    )


def test_gpt3_gemms_have_the_flop_of_the_paper(gpt3: DesignPoint) -> None:
    # equation 7, the last stage: 12 layers of 24 s h² and the head's 2 s h V, a microbatch, over t
    forward = M * (L // P * 24 * S * H**2 + 2 * S * H * V) / T
    assert flop(gpt3, "einsum", "forward") == near(forward, 1e-9)
    assert flop(gpt3, "einsum", "backward") == near(2 * forward, 1e-9)


def test_gpt3_unfused_attention_computes_and_moves_whole_squares(gpt3: DesignPoint) -> None:
    # forward twice, for selective recomputation. QKᵀ writes a / t s² scores, softmax and dropout read and write them,
    # AV reads them: 6 passes of 16 bits and the masks; backward about twice that. At most, a mask costs another pass
    found = run(gpt3).breakdown
    scores = 96 // T * S**2
    once = M * L // P * scores * (6 * BF16 + 1) / 2.039e12
    work = M * L // P * 4 * S**2 * H / T / A100
    within(found["attention"] + found["recompute"], max(4 * once, 4 * work), 2 * 4 * (once + work))


def test_gpt3_gemms_take_between_the_peak_and_half_of_it(gpt3: DesignPoint) -> None:
    # large GEMMs on an A100 reach 271 TFLOP/s (Bekman, maximum achievable matmul), less at the power limit
    gemms = 3 * M * (L // P * (24 * S * H**2) + 2 * S * H * V) / T
    within(run(gpt3).breakdown["gemm"], gemms / 271e12, gemms / (0.6 * A100))


def test_gpt3_tensor_parallelism_gathers_and_scatters_as_figure_5_says(gpt3: DesignPoint) -> None:
    # a layer: forward g, ḡ, g, ḡ; backward their conjugates, and both gathered inputs again for the weight gradients.
    # the head gathers its input, too (and again in backward); its gradient is scattered
    layers, size = L // P, S * H * BF16
    assert sent(gpt3, "tp", "all_gather", "forward").bytes == M * (2 * layers + 1) * size
    assert sent(gpt3, "tp", "reduce_scatter", "forward").bytes == M * 2 * layers * size
    assert sent(gpt3, "tp", "all_gather", "backward").bytes == M * (2 * 2 * layers + 1) * size
    assert sent(gpt3, "tp", "reduce_scatter", "backward").bytes == M * (2 * layers + 1) * size


def test_gpt3_tensor_parallelism_takes_what_nvlink_takes(gpt3: DesignPoint) -> None:
    # nccl-tests, 8 A100: 230 of 300 GB/s. A call of 50 MB takes 0.19 ms, and at most 0.1 ms of latencies
    calls = M * (8 * (L // P) + 2 * (L // P) + 3)
    lowest = calls * ring(S * H * BF16, T, 300e9)
    expected = calls * ring(S * H * BF16, T, 230e9)
    found = run(gpt3).breakdown["tp"]
    within(found, lowest, expected + calls * 1e-4)


def test_gpt3_stages_exchange_activations_once_a_chunk(gpt3: DesignPoint) -> None:
    # 2 s b h bytes over t ranks, as sequence parallelism leaves them; each of 3 chunks of a stage in the middle sends
    # its result on, and its gradient back
    size = S * H * BF16 / T
    for phase in ("forward", "backward"):
        found = sent(gpt3, "pp", "send", phase)
        assert found.bytes / found.calls == size
        within(found.calls, M * (CHUNKS - 1), M * CHUNKS)


def test_gpt3_bubble_is_that_of_the_interleaved_schedule(gpt3: DesignPoint) -> None:
    # SC'21, section 2.2: (p - 1) / (v m) of the ideal time; the head makes the last stage longer than the mean
    found = run(gpt3)
    parts = ("gemm", "attention", "other", "recompute", "launch", "tp", "pp")
    ideal = sum(found.breakdown[part] for part in parts)
    within(found.breakdown["bubble"] / ideal, 0.85 * (P - 1) / (CHUNKS * M), 1.05 * (P - 1) / (CHUNKS * M))


def test_gpt3_step_takes_the_published_time(gpt3: DesignPoint) -> None:
    assert run(gpt3).step_s == near(13.75, 0.12)


def test_gpt3_utilisation_counts_the_models_flop(gpt3: DesignPoint) -> None:
    # the paper's 51.4 % counts whole squares; below a causal mask about half of them
    found = run(gpt3)
    dense = 24 * TOKENS * H**2 * L + 2 * TOKENS * H * V
    assert found.mfu * found.step_s == near(3 * (dense + M * L * core_flop(causal(S), H)) / (64 * A100), 1e-6)
    within(found.hfu / found.mfu, 1.0 + 1e-9, 1.06)


def test_gpt3_weights_of_the_first_stage(gpt3: DesignPoint) -> None:
    # 12 layers over t, and the embedding of tokens over t; positions and layer norms are on every rank
    layer = (12 * H**2 + 7 * H) / T + 6 * H  # biases of columns: 3 h + 4 h over t; of rows: 2 h; norms: 4 h
    first = L // P * layer + V * H / T + 2048 * H
    found = run(gpt3).memory
    assert found["weights"] == near(BF16 * first, 2e-3)
    assert found["gradients"] == near(FP32 * first, 2e-3)
    assert found["optimizer"] == near(ADAM * first, 2e-3)


def test_gpt3_activations_of_the_first_stage(gpt3: DesignPoint) -> None:
    # equation 5 and section 4.2.3: s b h L / t · 34 (1 + (p - 1) / (p v)); and embedding dropout, one mask each
    layers = 34 * S * H * L / T * (1 + (P - 1) / (P * CHUNKS))
    masks = S * H * P / T
    assert run(gpt3).memory["activations"] == near(layers + masks, 0.02)


# ---- 2
# GPT 22B on 8 A100 (Korthikanti et al., tables 2, 3 and 5): t = 8, 4 sequences of 2,048 tokens at once.

S2, B2, H2, A2, L2 = 2048, 4, 6144, 64, 48


def gpt22(layers: int = L2, tp: int = 8, *, sequence_parallel: bool = False, recompute: str = "full") -> DesignPoint:
    return design(
        {"base": "megatron-22b", "layers": layers},
        "dgx-a100:8",
        sequence=S2,
        global_batch=B2 * (8 // tp),
        micro_batch=B2,
        dp=8 // tp,
        tp=tp,
        sequence_parallel=sequence_parallel,
        recompute=recompute,
        recompute_to_end=True,
        attention="unfused",
        dropout=True,
        precision="fp16",
    )


@pytest.mark.parametrize("recompute", ["none", "selective", "full"])
@pytest.mark.parametrize(("tp", "sequence_parallel"), [(1, False), (8, False), (8, True)])
def test_a_gpt_layer_keeps_what_table_2_says(tp: int, sequence_parallel: bool, recompute: str) -> None:
    # one more layer, of few, so that all designs fit; statistics of layer norms are small buffers the paper neglects
    kept = [
        run(gpt22(layers, tp, sequence_parallel=sequence_parallel, recompute=recompute)).memory["activations"]
        for layers in (1, 2, 3)
    ]
    expected = korthikanti(S2, B2, H2, A2, t=tp, sequence_parallel=sequence_parallel, recompute=recompute)
    if sequence_parallel and recompute == "full":
        expected /= tp  # the input of a layer is split, too: Megatron-LM keeps its shard
    assert kept[2] - kept[1] == near(expected, 0.01)


def test_22b_steps_take_the_published_times() -> None:
    assert run(gpt22()).step_s == near(1.42, 0.15)
    assert run(gpt22(sequence_parallel=True, recompute="selective")).step_s == near(1.10, 0.15)


def test_22b_full_recomputation_repeats_the_forward_pass() -> None:
    # four passes in place of three: HFU / MFU = 4/3 but for the head, which no layer recomputes
    found = run(gpt22())
    layers = L2 * (24 * S2 * H2**2 + core_flop(causal(S2), H2))
    head = 2 * S2 * H2 * 51200
    assert found.hfu / found.mfu == near((4 * layers + 3 * head) / (3 * layers + 3 * head), 5e-3)


def test_22b_reduces_twice_a_layer_each_way() -> None:
    # Megatron-LM: f and g, two all-reduces forward, two backward, two of the recomputed forward pass
    size = S2 * B2 * H2 * BF16
    layers = sent(gpt22(), "tp", "all_reduce", least=size)
    assert layers.bytes == (6 * L2 + 2) * size  # the embedding's result, and the gradient of the head's input
    assert layers.calls == 6 * L2 + 2


# ---- 3
# GPT 145.6B on 1,536 A100 (Narayanan et al., SC'21, table 1): t = 8, p = 8, d = 24, 2,304 sequences of 2,048 tokens.

H3, L3, V3, D3, M3 = 12288, 80, 51200, 24, 96


@pytest.fixture(scope="module")
def sc21() -> DesignPoint:
    return design(
        "megatron-145.6b",
        "dgx-a100:1536",
        sequence=2048,
        global_batch=2304,
        tp=8,
        pp=8,
        dp=D3,
        recompute="full",
        recompute_to_end=True,
        attention="unfused",
        dropout=True,
        precision="fp16",
    )


def test_sc21_step_takes_the_published_time(sc21: DesignPoint) -> None:
    # equation 3: F = 96 B s l h² (1 + s / 6h + V / 16 l h), at 148 teraFLOP/s
    work = 96 * 2304 * 2048 * L3 * H3**2 * (1 + 2048 / (6 * H3) + V3 / (16 * L3 * H3))
    assert run(sc21).step_s == near(work / (148e12 * 1536), 0.15)


def test_sc21_bubble_is_that_of_1f1b(sc21: DesignPoint) -> None:
    found = run(sc21).breakdown
    ideal = sum(found[part] for part in ("gemm", "attention", "other", "recompute", "launch", "tp", "pp"))
    within(found["bubble"] / ideal, 0.85 * 7 / M3, 1.05 * 7 / M3)


def test_sc21_gradients_are_reduced_once_a_step(sc21: DesignPoint) -> None:
    # the last stage: 10 layers and the tied embedding, over t; Megatron-LM reduces fp16 gradients in fp16, one ring of
    # 24 nodes for each GPU of a node
    layer = (12 * H3**2 + 7 * H3) / 8 + 6 * H3
    last = 10 * layer + V3 * H3 / 8 + 2 * H3
    assert sent(sc21, "weights", "all_reduce").bytes == near(BF16 * last, 2e-3)
    # HDR: 25 GB/s; NCCL reaches 70 to 100 % of it
    fastest = 2 * ring(BF16 * last, D3, 25e9)
    within(run(sc21).breakdown["dp"], fastest, fastest / 0.7)


def test_sc21_tensor_parallelism_takes_what_nvlink_takes(sc21: DesignPoint) -> None:
    size = 2048 * H3 * BF16
    calls = sent(sc21, "tp", "all_reduce", least=size)
    assert calls.calls == M3 * (6 * 10 + 1)  # of the last stage: the gradient of the head's input
    found = run(sc21).breakdown["tp"]
    within(found, calls.calls * 2 * ring(size, 8, 300e9), calls.calls * (2 * ring(size, 8, 230e9) + 1.5e-4))


def test_sc21_states_of_the_fullest_stage(sc21: DesignPoint) -> None:
    layer = (12 * H3**2 + 7 * H3) / 8 + 6 * H3
    first = 10 * layer + V3 * H3 / 8 + 2048 * H3
    assert run(sc21).memory["weights"] == near(BF16 * first, 2e-3)
    # 1F1B: the first stage keeps p microbatches, and of each the inputs of its layers: 2 s b h, split over no one
    kept = 8 * 10 * 2 * 2048 * H3
    layer_at_once = korthikanti(2048, 1, H3, 96, t=8, sequence_parallel=False, recompute="none")
    backward = run(sc21.changed({"workload.grad_reduce_in_fp32": True}))  # in fp16 the update needs most, for copies
    within(backward.memory["activations"], kept, 1.05 * (kept + layer_at_once + 8 * 2 * 2048 * H3))


# ---- 4
# LLaMA-3 8B on eight H100 with FSDP: sequences of 8,192 tokens, one a GPU.

LAYER8 = llama_layer(4096, 1024, 14336)
EMBEDDING8 = 128256 * 4096
ALL8 = 32 * LAYER8 + 2 * EMBEDDING8 + 4096


@pytest.fixture(scope="module")
def fsdp() -> DesignPoint:
    return design("llama3-8b", "dgx-h100:8", sequence=8192, global_batch=8, dp=8, weight_sharding="zero3")


def test_fsdp_parameters_are_those_of_the_checkpoint() -> None:
    assert ALL8 == 8030261248


def test_fsdp_gathers_weights_twice_and_scatters_gradients_once(fsdp: DesignPoint) -> None:
    # ZeRO, section 7.2.2: 3 Ψ in all. The last layers may stay gathered, and nothing reads the embedding in backward
    gathered = sent(fsdp, "weights", "all_gather")
    within(gathered.bytes, BF16 * (2 * 32 * LAYER8 + EMBEDDING8), BF16 * 2 * ALL8)
    assert sent(fsdp, "weights", "reduce_scatter").bytes == near(FP32 * ALL8, 1e-4)


def test_fsdp_calls_are_few_and_large(fsdp: DesignPoint) -> None:
    # one group a layer, one for embedding, norm and head: 33 gathers each way, 33 scatters
    within(sent(fsdp, "weights", "all_gather").calls, 2 * 32 + 1, 2 * 35)
    within(sent(fsdp, "weights", "reduce_scatter").calls, 33, 35)


def test_fsdp_communication_takes_what_nvlink_takes(fsdp: DesignPoint) -> None:
    # nccl-tests, 8 H100: 320 to 370 of 450 GB/s
    lowest = ring(BF16 * 2 * 32 * LAYER8 + FP32 * 32 * LAYER8, 8, 450e9)
    found = run(fsdp).breakdown
    within(found["weights"] + found["dp"], lowest, ring((2 * BF16 + FP32) * ALL8, 8, 320e9))


def test_fsdp_hides_behind_compute() -> None:
    # a layer's gather, 436 MB at 360 GB/s: 1.1 ms; its forward pass, 3.8 TFLOP at 600 TFLOP/s: 6 ms. All but the first
    # gather and the last scatter can hide; what they take from compute meanwhile is half of their time or a bit more
    hidden = design(
        "llama3-8b", "dgx-h100:8", sequence=8192, global_batch=8, dp=8, weight_sharding="zero3", dp_overlap=True
    )
    found = run(hidden).breakdown
    within(found["weights"] + found["dp"], 0.0, 0.6 * ring((2 * BF16 + FP32) * ALL8, 8, 360e9))


def test_fsdp_work_and_utilisation(fsdp: DesignPoint) -> None:
    dense = 2 * 8192 * (32 * (LAYER8 - 2 * 4096) + EMBEDDING8)
    assert flop(fsdp, "einsum", "forward") == near(dense, 1e-9)
    assert flop(fsdp, "einsum", "backward") == near(2 * dense, 1e-9)
    found = run(fsdp)
    within(found.breakdown["gemm"], 3 * dense / H100, 3 * dense / (0.55 * H100))
    core = 32 * core_flop(causal(8192), 4096)
    # FlashAttention-3: 0.65 to 0.75 of the peak forward, 0.5 to 0.6 backward, where scores count again (5 for 4)
    within(found.breakdown["attention"], 3 * core / H100, 4.0 * core / (0.5 * H100))
    assert found.mfu * found.step_s == near(3 * (dense + core) / H100, 1e-6)
    within(found.mfu, 0.3, 0.6)


def test_fsdp_without_recomputation_hfu_is_mfu(fsdp: DesignPoint) -> None:
    found = run(fsdp)
    assert found.hfu == near(found.mfu, 1e-9)


def test_fsdp_states_are_split_over_all_ranks(fsdp: DesignPoint) -> None:
    found = run(fsdp).memory
    states = found["weights"] + found["gradients"] + found["optimizer"]
    # PyTorch keeps its shard in fp32 (4 + 4 + 8); ZeRO-3 keeps 16-bit weights beside the master copy (2 + 4 + 12)
    within(states, 16 * ALL8 / 8, 18.01 * ALL8 / 8)


def test_fsdp_activations(fsdp: DesignPoint) -> None:
    # a token of a layer in 16 bits: inputs and outputs of two norms (4 h), queries and attention's output (2 h), keys
    # and values (2 · 1024), gate, up and their product (3 f), with an unfused SiLU its result, too (4 f)
    fused = BF16 * (6 * 4096 + 2 * 1024 + 3 * 14336) + 4 * 32
    head = 8192 * BF16 * 3 * 4096
    found = run(fsdp).memory["activations"]
    within(found, 32 * 8192 * fused, 32 * 8192 * (fused + BF16 * 14336 + 16) + head)


def test_fsdp_logits(fsdp: DesignPoint) -> None:
    # PyTorch's cross entropy: logits in fp32, their log-softmax, and its gradient: 8 to 16 bytes a logit
    found = run(fsdp).memory["loss"]
    within(found, 8192 * 128256 * 8, 8192 * 128256 * 16)


# ---- 5
# DeepSeek-V3 on 2,048 H800 (technical report, sections 3 and 4.2): pp 16, ep 64 over eight nodes, dp 128, ZeRO-1;
# 15,360 sequences of 4,096 tokens. GEMMs and dispatch in fp8, combine in bf16.

S5, H5, M5 = 4096, 7168, 15360 // 128
ATTENTION5 = H5 * 1536 + 1536 * 128 * 192 + H5 * (512 + 64) + 512 * 128 * (128 + 128) + 128 * 128 * H5
"""Weights of MLA: down and up for queries, down for keys and values with the rotary part, up for both, output."""
EXPERT5 = 3 * H5 * 2048
DENSE5 = 3 * H5 * 18432
NORMS5 = 2 * H5 + 1536 + 512


def v3(**changes: object) -> DesignPoint:
    return design(
        "deepseek-v3",
        "dgx-h800:2048",
        **{
            "sequence": S5,
            "global_batch": 15360,
            "pp": 16,
            "dp": 128,
            "ep": 64,
            "weight_sharding": "zero1",
            "recompute": "full",
            "precision": "fp8",
            "grad_reduce_in_fp32": True,
            **changes,
        },
    )


def test_v3_parameters_are_those_of_the_report() -> None:
    moe = ATTENTION5 + NORMS5 + H5 * 256 + 257 * EXPERT5
    assert 3 * (ATTENTION5 + NORMS5 + DENSE5) + 58 * moe + 2 * 129280 * H5 + H5 == 671026419200 - 58 * 256
    active = 61 * ATTENTION5 + 3 * DENSE5 + 58 * (9 * EXPERT5 + 256 * H5) + 129280 * H5
    assert active == near(37e9, 0.02)


def test_v3_utilisation_counts_active_parameters() -> None:
    found = run(v3())
    active = 61 * ATTENTION5 + 3 * DENSE5 + 58 * (9 * EXPERT5 + 256 * H5) + 129280 * H5
    core = 61 * 2 * causal(S5) * 128 * (192 + 128)
    work = 3 * 15360 * (2 * S5 * active + core)
    assert found.mfu * found.step_s == near(work / (2048 * 1978.9e12), 1e-6)


def test_v3_dispatches_and_combines_eight_copies_of_every_token() -> None:
    # the last stage has 61 - 15 * 4 = 1 layer if stages are filled in order, and at most 4; forward and backward each
    # dispatch and combine once a layer and microbatch. Of 8 copies, those for experts of this rank stay
    point = v3(recompute="none", precision="bf16")
    found = sent(point, "ep", "all_to_all")
    size = S5 * 8 * H5 * BF16
    within(found.calls, 4 * M5 * 1, 4 * M5 * 4)
    assert found.bytes / found.calls == near(size, 1e-9)


def test_v3_dispatches_in_8_or_16_bits_and_combines_in_16() -> None:
    # section 3.3.3: dispatch in fp8 and combine in bf16; Megatron-LM dispatches in bf16 unless asked otherwise
    found = sent(v3(recompute="none"), "ep", "all_to_all", "forward")
    within(found.bytes / found.calls, S5 * 8 * H5 * (1 + BF16) / 2, S5 * 8 * H5 * BF16)


def test_v3_all_to_all_is_bound_by_infiniband() -> None:
    # 56 of 64 peers are on other nodes. Each copy by itself at 50 GB/s is the slowest way; a token sent once to each
    # of at most 4 nodes (section 3.2.2), of which 3 others, at 100 % the fastest. Four layers, two calls forward, two
    # again for recomputation (one, if it stops at what backward reads), two backward
    point = v3(precision="bf16")
    calls = M5 * 4 * 6
    found = run(point).breakdown["ep"]
    within(
        found, 5 / 6 * calls * S5 * 3 * H5 * BF16 / 50e9, calls * (S5 * 8 * H5 * BF16 * 56 / 64 / (0.75 * 50e9) + 2e-4)
    )


def test_v3_states_of_the_fullest_stage() -> None:
    # 61 layers on 16 stages: 4 on the fullest of them. Stage 0: embedding, three dense layers, one of experts; a stage
    # in the middle: four of experts, 4 of 256 experts each
    moe = ATTENTION5 + NORMS5 + 256 * H5 + EXPERT5
    first = 129280 * H5 + 3 * (ATTENTION5 + NORMS5 + DENSE5) + moe + 4 * EXPERT5
    middle = 4 * (moe + 4 * EXPERT5)
    assert first > middle
    found = run(v3()).memory
    assert found["weights"] == near(BF16 * first, 0.01)
    assert found["gradients"] == near(FP32 * first, 0.01)
    # ZeRO-1 splits Adam over the replicas of each weight: experts over 128 / 64, everything else over 128
    experts = 4 * EXPERT5
    assert found["optimizer"] == near(ADAM * (experts / 2 + (first - experts) / 128), 0.01)


def test_v3_weights_over_all_ranks_are_the_model() -> None:
    # the fullest stage is at least as full as the mean
    states = 671026419200 - 58 * 256
    experts = 58 * 256 * EXPERT5
    mean = (experts / 64 + states - experts) / 16
    assert run(v3()).memory["weights"] >= BF16 * mean


def test_v3_dualpipe_keeps_two_stages() -> None:
    # table 2: parameters 2x, activations of p + 1 microbatches
    one, two = run(v3()).memory, run(v3(schedule="dualpipe")).memory
    within(two["weights"], 1.5 * one["weights"], 2.0 * one["weights"])


def test_v3_trains_at_about_the_published_rate() -> None:
    # 180 thousand H800 hours for 10^12 tokens: 1,543 tokens/s a GPU, 19.9 s a step. DualPipe hides the all-to-alls
    # (which here carry every copy across nodes, not one a node), and recomputes less than every layer
    point = v3(schedule="dualpipe", ep_overlap=True, dp_overlap=True)
    within(run(point).step_s, 0.7 * 19.9, 1.6 * 19.9)


# ---- 6
# Ring attention at 131,072 tokens: LLaMA-3 8B on 16 H100, one sequence over two nodes (Liu et al., ICLR 2024).

S6, CP = 131072, 16


def ring_attention(**changes: object) -> DesignPoint:
    return design(
        "llama3-8b",
        "dgx-h100:16",
        **{
            "sequence": S6,
            "global_batch": 1,
            "cp": CP,
            "weight_sharding": "zero3",
            "recompute": "full",
            **changes,
        },
    )


def test_ring_passes_keys_and_values_past_every_rank() -> None:
    # a chunk of 8,192 tokens, 8 heads of 128 for keys and for values: 33.6 MB, 15 times a layer. Backward keys and
    # values go round again, and their gradients with them
    chunk = S6 // CP * 2 * 8 * 128 * BF16
    point = ring_attention(recompute="none")
    forward, backward = (sent(point, "ring", "collective_permute", phase) for phase in ("forward", "backward"))
    assert forward.bytes == 32 * (CP - 1) * chunk
    assert backward.bytes == 2 * 32 * (CP - 1) * chunk


def test_ring_shares_the_work_below_the_diagonal() -> None:
    found = run(ring_attention())
    core = 32 * core_flop(causal(S6), 4096) / CP
    # three times forward with full recomputation, and backward (5 products for 2); FlashAttention at 0.5 to 0.75
    within(
        found.breakdown["attention"] + found.breakdown["recompute"], 4 * core / H100, 4.5 * core / (0.5 * H100) + 0.5
    )
    dense = 2 * S6 // CP * (32 * (LAYER8 - 2 * 4096) + EMBEDDING8)
    assert found.mfu * found.step_s == near(3 * (core + dense) / H100, 1e-6)


def test_ring_hides_what_attention_is_long_enough_for() -> None:
    # a step of the ring crosses nodes at 50 GB/s: 0.67 ms; attention of 8,192 queries to 8,192 keys, on average half of
    # them visible, 0.55 TFLOP at 500 TFLOP/s: 1.1 ms. All but the start can hide; backward is as much better off
    whole = 3 * 32 * (CP - 1) * (S6 // CP * 2 * 1024 * BF16) / 50e9
    within(run(ring_attention(recompute="none")).breakdown["cp"], 0.0, 0.05 * whole)


def test_ring_of_recomputation_hides_behind_recomputed_attention() -> None:
    # as much attention and as many bytes again: nothing more is exposed
    whole = 4 * 32 * (CP - 1) * (S6 // CP * 2 * 1024 * BF16) / 50e9
    within(run(ring_attention(recompute="full")).breakdown["cp"], 0.0, 0.05 * whole)


def test_gathered_context_takes_the_time_of_its_bytes() -> None:
    # all-gather of keys and values, forward and again backward, and reduce-scatter of their gradients: nothing hides
    point = ring_attention(cp_comm_type="all_gather", recompute="none")
    size = S6 * 2 * 8 * 128 * BF16
    gathers = sent(point, "cp", "all_gather")
    within(gathers.bytes, 32 * size, 2 * 32 * size)
    assert sent(point, "cp", "reduce_scatter").bytes == near(32 * size, 1e-9)
    # 8 GPUs of a node share 8 NICs: each brings an eighth of the other node's half over its own 50 GB/s at best, and
    # NVLink spreads it; at worst one ring crosses with all of it
    fewest = gathers.calls / 2 + 32 if gathers.calls > 64 else 64
    best = 64 * size / 2 / 8 / 50e9
    within(run(point).breakdown["cp"], best, 1.5 * fewest * ring(size, CP, 45e9))


def test_ring_activations_are_those_of_a_sixteenth() -> None:
    # full recomputation keeps 2 h bytes a token and layer, then one layer at a time
    found = run(ring_attention()).memory["activations"]
    kept = 32 * S6 // CP * 4096 * BF16
    layer = S6 // CP * (BF16 * (6 * 4096 + 2 * 1024 + 4 * 14336) + 256)
    within(found, kept, 1.05 * (kept + layer + 3 * S6 // CP * 4096 * BF16))


# ---- 7
# Decoding: LLaMA-3 70B on 8 H200, tp 8, 64 sequences of 4,096 tokens: every weight and the whole cache is read.

LAYER70 = llama_layer(8192, 1024, 28672)
ALL70 = 80 * LAYER70 + 2 * 128256 * 8192 + 8192


@pytest.fixture(scope="module")
def decode70() -> DesignPoint:
    return design("llama3-70b", "dgx-h200:8", task="decode", sequence=4096, global_batch=64, micro_batch=64, tp=8)


def test_decode_reads_weights_and_cache(decode70: DesignPoint) -> None:
    weights = BF16 * (80 * LAYER70 + 128256 * 8192) / 8
    cache = 64 * 4096 * 80 * 2 * 1024 * BF16 / 8
    found = run(decode70)
    assert found.memory["kv_cache"] == near(cache, 1e-3)
    assert found.memory["weights"] == near(BF16 * ALL70 / 8, 2e-3)
    # 4.8 TB/s; kernels reach 70 to 95 % of it
    within(found.breakdown["gemm"], weights / 4.8e12, weights / (0.65 * 4.8e12) + 80 * 4 * 5e-6)
    within(found.breakdown["attention"], cache / 4.8e12, cache / (0.65 * 4.8e12) + 80 * 1e-5)


def test_decode_needs_little_beside_weights_and_cache(decode70: DesignPoint) -> None:
    # 64 tokens: the widest tensor is the gate and up of SwiGLU, 64 · 2 · 28,672 / 8 numbers; a dozen such are plenty
    assert run(decode70).memory["activations"] <= 12 * 64 * 2 * 28672 / 8 * BF16


def test_decode_reduces_twice_a_layer(decode70: DesignPoint) -> None:
    # 1 MiB, 8 ranks: 12 to 40 us each (nccl-tests 20 to 25 us, one-shot kernels of serving engines 12)
    size = 64 * 8192 * BF16
    found = sent(decode70, "tp", "all_reduce", least=size)
    within(found.calls, 160, 161)
    assert found.bytes / found.calls == size
    within(run(decode70).breakdown["tp"], 160 * 12e-6, 160 * 40e-6)


def test_decode_step_and_rate(decode70: DesignPoint) -> None:
    found = run(decode70)
    bound = (BF16 * (80 * LAYER70 + 128256 * 8192) / 8 + 64 * 4096 * 80 * 2 * 1024 * BF16 / 8) / 4.8e12
    within(found.step_s, bound, bound / 0.65 + 160 * 40e-6)
    assert found.tpot_s == found.step_s
    assert found.tokens_per_s == near(64 / found.step_s, 1e-9)
    dense = 2 * (80 * (LAYER70 - 2 * 8192) + 128256 * 8192)
    core = 80 * core_flop(4096, 8192)
    assert found.mfu * found.step_s == near(64 * (dense + core) / (8 * H100), 1e-3)


# ---- 8
# Prefill: LLaMA-3 70B on 8 H100, tp 8, one prompt of 8,192 tokens.


@pytest.fixture(scope="module")
def prefill70() -> DesignPoint:
    return design("llama3-70b", "dgx-h100:8", task="prefill", sequence=8192, global_batch=1, tp=8)


def test_prefill_work_and_time(prefill70: DesignPoint) -> None:
    # 2 flop a weight and token; the head sees the last token only, or all
    layers = 2 * 8192 * 80 * (LAYER70 - 2 * 8192) / 8
    core = 80 * core_flop(causal(8192), 8192) / 8
    found = run(prefill70)
    head = 2 * 8192 * 128256 * 8192 / 8
    within(flop(prefill70, "einsum", "forward"), layers, (layers + head) * (1 + 1e-9))
    # H100 GEMMs: 0.55 to 0.85 of the peak; FlashAttention 2 and 3 with a mask: 0.38 to 0.65
    within(found.breakdown["gemm"], layers / (0.85 * H100), (layers + head) / (0.55 * H100))
    within(found.breakdown["attention"], core / (0.7 * H100), core / (0.38 * H100))
    assert found.ttft_s == found.step_s


def test_prefill_communication(prefill70: DesignPoint) -> None:
    # 160 all-reduces of 128 MiB over NVLink with reduction in the switch, 360 to 480 GB/s bus bandwidth
    size = 8192 * 8192 * BF16
    found = sent(prefill70, "tp", "all_reduce", least=size)
    within(found.calls, 160, 161)
    assert found.bytes / found.calls == size
    within(run(prefill70).breakdown["tp"], 160 * 2 * ring(size, 8, 480e9), 161 * (2 * ring(size, 8, 340e9) + 5e-5))


def test_prefill_head_sees_the_last_token(prefill70: DesignPoint) -> None:
    # an engine computes logits where it samples: one token a prompt
    layers = 2 * 8192 * 80 * (LAYER70 - 2 * 8192) / 8
    assert flop(prefill70, "einsum", "forward") == near(layers + 2 * 128256 * 8192 / 8, 1e-6)


def test_prefill_keeps_the_logits_of_one_token() -> None:
    # LLaMA-3 8B reads 131,072 tokens on one H100: weights 16.1 GB, cache 17.2 GB, gate and up of a layer 7.5 GB
    point = design("llama3-8b", "dgx-h100:1", task="prefill", sequence=131072, global_batch=1)
    assert run(point).memory["loss"] <= 128256 * FP32


@pytest.mark.parametrize(("model", "sequence"), [("bert-large", 512), ("vit-large", 197)])
def test_an_encoder_keeps_no_cache(model: str, sequence: int) -> None:
    point = design(model, "dgx-h100:1", task="prefill", sequence=sequence, global_batch=32, micro_batch=32)
    assert run(point).memory["kv_cache"] == 0


# ---- 9
# DLRM on Criteo (MLPerf) on 8 A100: 65,536 samples a step, 26 tables of 204 million rows, width 128.

LARGE_ROWS = [40000000] * 5 + [3067956, 590152, 405282]
SMALL_ROWS = [39060, 17295, 7424, 20265, 3, 7122, 1543, 63, 10, 2209, 11938, 155, 4, 976, 14, 12973, 108, 36]
ROWS = LARGE_ROWS + SMALL_ROWS
MLP = 13 * 512 + 512 * 256 + 256 * 128 + (351 + 128) * 1024 + 1024 * 1024 + 1024 * 512 + 512 * 256 + 256
"""Weights of both MLPs; 351 = 27 · 26 / 2 pairs of 26 embeddings and the dense features."""


@pytest.fixture(scope="module")
def dlrm() -> DesignPoint:
    return design("dlrm-criteo", "dgx-a100:8", sequence=1, global_batch=65536, micro_batch=8192, dp=8)


def test_dlrm_work(dlrm: DesignPoint) -> None:
    # and 351 dot products, or products of whole 27 x 27 matrices, which are not GEMMs of weights
    found = flop(dlrm, "einsum", "forward")
    assert found == 8192 * 2 * MLP
    within(run(dlrm).breakdown["gemm"], 3 * found / A100, 3 * found / (0.15 * A100) + 27 * 1e-5)


def test_dlrm_exchanges_embeddings_each_way(dlrm: DesignPoint) -> None:
    # a rank has its tables' rows for all samples and needs all tables' rows for its own: 8,192 · 26 · 128 numbers
    for phase in ("forward", "backward"):
        found = [sent(dlrm, role, "all_to_all", phase) for role in ("ep", "dp", "weights", "tables", "tp")]
        size = sum(each.bytes for each in found)
        within(size, 8192 * 26 * 128 * BF16, 8192 * 26 * 128 * FP32)


def test_dlrm_tables_are_split_and_dense_weights_are_not(dlrm: DesignPoint) -> None:
    found = run(dlrm).memory
    within(found["weights"], BF16 * sum(ROWS) * 128 / 8, 1.05 * FP32 * sum(ROWS) * 128 / 8 + FP32 * MLP)


def test_dlrm_tables_are_split_by_rows_or_by_tables(dlrm: DesignPoint) -> None:
    # by rows: an eighth of all. By tables: the largest are alone on a rank, 40 million rows
    found = run(dlrm).memory["weights"]
    ways = [size * rows * 128 for size in (BF16, FP32) for rows in (sum(ROWS) / 8, max(ROWS))]
    assert any(found == near(way + FP32 * MLP / 2, 0.02) for way in ways)


def test_dlrm_gradients_are_of_the_rows_touched(dlrm: DesignPoint) -> None:
    # at most one row a sample and table, over 8 ranks: 65,536 · 26 / 8 rows of 128 numbers
    touched = sum(min(rows, 65536) for rows in ROWS) / 8
    assert run(dlrm).memory["gradients"] <= 2 * FP32 * (touched * 128 + MLP)


def test_dlrm_step_takes_milliseconds(dlrm: DesignPoint) -> None:
    # MLPerf 1.0 on one DGX A100: 2.0 minutes for 0.75 epochs of 4.2 billion samples: 2.4 ms
    found = run(dlrm)
    within(found.step_s, 1e-3, 5e-3)
    assert found.breakdown["optimizer"] < 1e-3


# ---- 10
# ViT-H/14 on 8 A100 with DDP: 512 images of 257 tokens.

S10, H10, B10 = 257, 1280, 64
LAYERS10 = 32 * gpt_layer(H10)
ALL10 = LAYERS10 + (3 * 14 * 14 + 1) * H10 + S10 * H10 + H10 + 2 * H10 + (H10 + 1) * 1000


@pytest.fixture(scope="module")
def vit() -> DesignPoint:
    return design("vit-huge", "dgx-a100:8", sequence=S10, global_batch=8 * B10, micro_batch=B10, dp=8)


def test_vit_parameters_are_those_of_the_checkpoint() -> None:
    assert ALL10 == 632045800


def test_vit_work(vit: DesignPoint) -> None:
    # 24 h² a token and layer; the patches' projection of 256; classes of one token; attention has no mask
    dense = 32 * 24 * H10**2 * S10 + 2 * 256 * 588 * H10 + 2 * H10 * 1000
    assert flop(vit, "einsum", "forward") == near(B10 * dense, 5e-3)
    core = 32 * core_flop(S10**2, H10)
    assert flop(vit, "attention", "forward") == near(B10 * core, 1e-9)
    found = run(vit)
    assert found.mfu * found.step_s == near(3 * B10 * (dense + core) / A100, 5e-3)
    within(found.breakdown["gemm"], 3 * B10 * dense / 271e12, 3 * B10 * dense / (0.5 * A100))
    within(found.mfu, 0.3, 0.65)


def test_vit_gradients_are_reduced_once(vit: DesignPoint) -> None:
    assert sent(vit, "weights", "all_reduce").bytes == near(FP32 * ALL10, 1e-6)
    found = run(vit).breakdown["dp"]
    within(found, 2 * ring(FP32 * ALL10, 8, 300e9), 2 * ring(FP32 * ALL10, 8, 220e9) + 35 * 1e-4)


def test_vit_memory(vit: DesignPoint) -> None:
    found = run(vit).memory
    assert found["weights"] + found["gradients"] + found["optimizer"] == near(18 * ALL10, 0.12)  # PyTorch's AMP: 16
    # Korthikanti's 34 without two dropout masks, without scores: log-sum-exp, 4 bytes a head and token, in their place
    layer = S10 * B10 * (32 * H10 + 4 * 16)
    assert found["activations"] == near(32 * layer, 0.03)


# ---- 11
# Mixtral 8x7B on 16 H200, ep 8 inside a node, ZeRO-1: sequences of 4,096 tokens.

S11, H11 = 4096, 4096
ATTENTION11 = 2 * H11**2 + 2 * H11 * 1024
EXPERT11 = 3 * H11 * 14336
REST11 = 32 * (ATTENTION11 + 2 * H11 + 8 * H11) + 2 * 32000 * H11 + H11


def mixtral(system: str = "dgx-h200:16", **changes: object) -> DesignPoint:
    return design(
        "mixtral-8x7b",
        system,
        **{
            "sequence": S11,
            "global_batch": 16,
            "dp": 16,
            "ep": 8,
            "weight_sharding": "zero1",
            **changes,
        },
    )


def test_mixtral_parameters_are_those_of_the_checkpoint() -> None:
    assert REST11 + 32 * 8 * EXPERT11 == 46702792704


def test_mixtral_states() -> None:
    found = run(mixtral()).memory
    own = 32 * EXPERT11
    assert found["weights"] == near(BF16 * (REST11 + own), 1e-3)
    assert found["gradients"] == near(FP32 * (REST11 + own), 1e-3)
    assert found["optimizer"] == near(ADAM * (REST11 / 16 + own / 2), 1e-3)


def test_mixtral_does_not_fit_on_eight_h100() -> None:
    # weights and gradients 6 · 7.24 G, Adam of experts that no other rank has 12 · 5.64 G: 111 GB
    assert any("memory" in reason or "GiB" in reason for reason in refused(mixtral("dgx-h100:8", dp=8, global_batch=8)))


def test_mixtral_all_to_alls() -> None:
    # two copies of every token each way: 67 MB, of which a rank keeps an eighth; 8 H200: 300 to 370 GB/s all-to-all
    size = S11 * 2 * H11 * BF16
    found = sent(mixtral(), "ep", "all_to_all")
    assert found.calls == 4 * 32
    assert found.bytes == 4 * 32 * size
    within(run(mixtral()).breakdown["ep"], 128 * ring(size, 8, 450e9), 128 * (ring(size, 8, 300e9) + 1e-4))


def test_mixtral_reduces_experts_over_their_replicas_only() -> None:
    own = 32 * EXPERT11
    assert sent(mixtral(), "weights", "reduce_scatter").bytes == near(FP32 * (REST11 + own), 1e-3)
    found = sent(mixtral(), "updated", "all_gather")
    assert found.bytes == near(BF16 * (REST11 + own), 1e-3)
    # experts: 22.6 GB of gradients between two nodes, each GPU with its partner over its own NIC
    fastest = ring((FP32 + BF16) * own, 2, 50e9)
    within(run(mixtral()).breakdown["dp"], fastest, 1.6 * (fastest + ring((FP32 + BF16) * REST11, 16, 45e9)))


def test_mixtral_work() -> None:
    # two experts of eight for each token
    dense = 2 * S11 * (32 * (ATTENTION11 + 8 * H11 + 2 * EXPERT11) + 32000 * H11)
    core = 32 * core_flop(causal(S11), H11)
    found = run(mixtral())
    assert found.mfu * found.step_s == near(3 * (dense + core) / H100, 1e-6)
    within(found.breakdown["gemm"], 3 * dense / (0.85 * H100), 3 * dense / (0.45 * H100))


# ---- 12
# LLaMA-3 405B on 8,192 GPUs (Grattafiori et al., table 4): tp 8, pp 16, dp 64, 2,048 sequences of 8,192 tokens; 430
# TFLOP/s, 43 % MFU on H100. Here on H200, whose memory takes the activations without Meta's own ways to save some.

S12, H12, M12 = 8192, 16384, 32
LAYER12 = llama_layer(H12, 1024, 53248)


def llama405(**changes: object) -> DesignPoint:
    return design(
        "llama3-405b",
        "dgx-h200:8192",
        **{
            "sequence": S12,
            "global_batch": 2048,
            "tp": 8,
            "pp": 16,
            "dp": 64,
            "sequence_parallel": True,
            "weight_sharding": "zero1",
            "schedule": "interleaved",
            "virtual_stages": 4,
            "tp_overlap": True,
            "dp_overlap": True,
            **changes,
        },
    )


def test_405b_reaches_the_published_utilisation() -> None:
    # the paper counts whole squares of attention: 6 N and 12 L h s a token
    found = run(llama405())
    work = 2048 * S12 * (6 * 405.85e9 + 12 * 126 * H12 * S12)
    within(work / (8192 * found.step_s), 0.85 * 430e12, 1.15 * 430e12)


def test_405b_bubble_of_the_interleaved_schedule() -> None:
    # (p - 1) / (v m) of the ideal; 126 layers on 4 · 16 chunks of 2, so that some stages have less than the fullest
    found = run(llama405(tp_overlap=False, dp_overlap=False)).breakdown
    ideal = sum(found[part] for part in ("gemm", "attention", "other", "launch", "tp", "pp"))
    within(found["bubble"] / ideal, 0.8 * 15 / (4 * M12), 1.05 * 15 / (4 * M12))


def test_405b_gradients_and_weights_cross_nodes_once() -> None:
    # a stage of 8 layers and the head: 4 bytes of gradient scattered, 2 bytes of weight gathered, over 64 nodes
    point = llama405(tp_overlap=False, dp_overlap=False)
    last = (8 * (LAYER12 - 2 * H12) + 128256 * H12) / 8 + 17 * H12
    lowest = last - (2 * (LAYER12 - 2 * H12)) / 8  # 126 = 15 · 8 + 6 where the last stage is the shorter one
    found = sent(point, "weights", "reduce_scatter", least=1e6)
    within(found.bytes, 0.999 * FP32 * lowest, 1.001 * FP32 * last)
    fastest = ring((FP32 + BF16) * lowest, 64, 50e9)
    within(run(point).breakdown["dp"], fastest, 1.3 * ring((FP32 + BF16) * last, 64, 45e9))


def test_405b_activations_of_the_first_stage() -> None:
    # 8 layers in 4 chunks: L (1 + (p - 1) / (p v)) layers' worth, split over tp
    token = BF16 * (6 * H12 + 2 * 1024 + 3 * 53248) + 4 * 128
    layers = 126 * (1 + 15 / (16 * 4))
    found = run(llama405()).memory["activations"]
    within(found, 0.97 * layers * S12 * token / 8, 1.03 * 128 / 126 * layers * S12 * (token + BF16 * 53248 + 64) / 8)


# ---- 13
# DeepSeek-V3 decoding on 8 H200 in fp8: data-parallel attention, ep 8, 256 sequences of 4,096 tokens.


@pytest.fixture(scope="module")
def v3_decode() -> DesignPoint:
    return design(
        "deepseek-v3",
        "dgx-h200:8",
        task="decode",
        sequence=4096,
        global_batch=256,
        micro_batch=32,
        dp=8,
        ep=8,
        precision="fp8",
    )


def test_v3_decode_cache_is_the_latent(v3_decode: DesignPoint) -> None:
    # 512 + 64 numbers a token and layer, whatever the heads: 32 sequences a rank, in 8 bits or 16
    numbers = 32 * 4096 * 61 * 576
    within(run(v3_decode).memory["kv_cache"], numbers, 1.001 * BF16 * numbers)


def test_v3_decode_never_expands_the_latent(v3_decode: DesignPoint) -> None:
    # DeepSeek-V2, section 2.1.2: up-projections are absorbed, so that attention reads the latent itself. What is left:
    # queries of 128 heads in the latent's width, dispatched tokens
    within(run(v3_decode).memory["activations"], 0.0, 8 * 32 * (128 * 576 + 8 * H5) * BF16)


def test_v3_decode_reads_every_weight_it_has(v3_decode: DesignPoint) -> None:
    # 256 tokens choose 8 of 256: every expert of a rank is hit (1 - (1 - 1/32)^256 = 99.97 %)
    own = 61 * ATTENTION5 + 3 * DENSE5 + 58 * (EXPERT5 + 32 * EXPERT5)
    head = 129280 * H5
    found = run(v3_decode)
    within(found.memory["weights"], own + 2 * BF16 * head, 1.05 * (own + 2 * BF16 * head + BF16 * 58 * 256 * H5))
    within(found.breakdown["gemm"], own / 4.8e12, own / (0.6 * 4.8e12) + 61 * 12 * 6e-6 + BF16 * head / 3e12)


def test_v3_decode_all_to_all(v3_decode: DesignPoint) -> None:
    # 32 tokens, 8 copies of 7,168 numbers, in 8 bits out and 16 back; 15 to 80 us each
    found = sent(v3_decode, "ep", "all_to_all")
    assert found.calls == 2 * 58
    within(found.bytes, 2 * 58 * 32 * 8 * H5, 2 * 58 * 32 * 8 * H5 * BF16)
    within(run(v3_decode).breakdown["ep"], 116 * 15e-6, 116 * 80e-6)


# ---- 14
# Mistral 7B, a window of 4,096 keys, at 131,072 tokens; T5 11B, an encoder-decoder.


def test_mistral_attends_to_its_window_only() -> None:
    s, w = 131072, 4096
    point = design(
        "mistral-7b", "dgx-h100:8", sequence=s, global_batch=1, cp=8, weight_sharding="zero3", recompute="full"
    )
    pairs = w * (w + 1) // 2 + (s - w) * w
    dense = 2 * s * (32 * (2 * 4096**2 + 2 * 4096 * 1024 + 3 * 4096 * 14336) + 32000 * 4096)
    found = run(point)
    assert found.mfu * found.step_s == near(3 * (dense + 32 * core_flop(pairs, 4096)) / (8 * H100), 1e-3)
    assert found.mfu < 0.65
    assert found.hfu > found.mfu


def test_t5_work_is_that_of_both_stacks() -> None:
    # encoder: 4 projections of h x 16,384, two MLP matrices, no mask; decoder: as many again for cross-attention
    h, inner, f, s = 1024, 128 * 128, 65536, 512
    point = design("t5-11b", "dgx-a100:8", sequence=s, global_batch=8, tp=8, recompute="full")
    encoder = 24 * (s * 2 * (4 * h * inner + 2 * h * f) + core_flop(s * s, inner))
    decoder = 24 * (s * 2 * (8 * h * inner + 2 * h * f) + core_flop(causal(s) + s * s, inner))
    head = 2 * s * h * 32128
    found = run(point)
    assert found.mfu * found.step_s == near(3 * 8 * (encoder + decoder + head) / (8 * A100), 0.01)


def test_t5_decodes_with_its_decoder_only() -> None:
    # the encoder's output is projected to keys and values once, at the start. A token passes 4 projections of its own
    # attention, 2 of cross-attention and the MLP of 24 decoder layers, and the head
    h, inner, f = 1024, 128 * 128, 65536
    point = design("t5-11b", "dgx-h100:1", task="decode", sequence=512, global_batch=32, micro_batch=32)
    token = 24 * 2 * (6 * h * inner + 2 * h * f) + 2 * h * 32128
    assert flop(point, "einsum", "forward") == near(32 * token, 1e-3)


# ---- the optimizer


def test_adam_moves_its_states_once(fsdp: DesignPoint) -> None:
    # a parameter: gradient read, master copy and two moments read and written, weight written: 28 to 30 bytes at least;
    # norm, clipping and clearing of gradients another 16; kernels reach 0.7 of the bandwidth or more
    shard = ALL8 / 8
    within(run(fsdp).breakdown["optimizer"], 28 * shard / 3.35e12, (30 + 16) * shard / (0.65 * 3.35e12))
