"""Arguments of Megatron-LM that the reader does not ask for: those without a cost, and those with one that it leaves out.

Names are those of megatron/training/arguments.py. An argument in neither list is unknown, and is said to be.
"""

from __future__ import annotations

import re

from cosmic.importing.arguments import Arguments
from cosmic.importing.shell_values import UNKNOWN

READ = frozenset(
    f"--{name}"
    for name in """
    num-layers decoder-num-layers hidden-size num-attention-heads swiglu quick-geglu ffn-hidden-size normalization
    untie-embeddings-and-output-weights padded-vocab-size vocab-size position-embedding-type seq-length encoder-seq-length
    relative-attention-num-buckets qk-layernorm qk-l2-norm multi-latent-attention kv-channels group-query-attention
    num-query-groups q-lora-rank kv-lora-rank qk-pos-emb-head-dim v-head-dim qk-head-dim softmax-type window-size
    window-attn-skip-freq num-experts moe-router-topk moe-ffn-hidden-size moe-shared-expert-intermediate-size
    moe-layer-freq moe-expert-capacity-factor moe-pad-expert-input-to-capacity moe-shared-expert-gate disable-bias-linear
    add-qkv-bias tensor-model-parallel-size pipeline-model-parallel-size context-parallel-size cp-comm-type
    sequence-parallel expert-model-parallel-size expert-tensor-parallel-size moe-token-dispatcher-type moe-grouped-gemm
    overlap-moe-expert-parallel-comm micro-batch-size global-batch-size fp16 bf16 fp8-format fp4-format
    grad-reduce-in-bf16 accumulate-allreduce-grads-in-fp32 use-precision-aware-optimizer exp-avg-dtype exp-avg-sq-dtype
    main-params-dtype main-grads-dtype data-parallel-sharding-strategy use-megatron-fsdp use-custom-fsdp use-torch-fsdp2
    torch-fsdp2-no-reshard-after-forward use-distributed-optimizer optimizer-cpu-offload optimizer-offload-fraction
    cpu-offloading-num-layers pipeline-model-parallel-layout decoder-first-pipeline-num-layers
    decoder-last-pipeline-num-layers num-virtual-stages-per-pipeline-rank num-layers-per-virtual-pipeline-stage
    overlap-grad-reduce overlap-param-gather tp-comm-overlap recompute-granularity recompute-activations recompute-method
    recompute-num-layers recompute-modules attention-backend use-flash-attn transformer-impl cross-entropy-loss-fusion
    cross-entropy-fusion-impl attention-dropout hidden-dropout use-tp-pp-dp-mapping max-position-embeddings
    use-rotary-position-embeddings no-position-embedding
    """.split()
)
"""Arguments that the readers ask for."""
FLAGS = frozenset(
    f"--{name}"
    for name in """
    use-mcore-models use-legacy-models mock-data log-throughput log-progress log-params-norm log-num-zeros-in-grad
    log-timers-to-tensorboard log-memory-to-tensorboard log-validation-ppl-to-tensorboard log-world-size-to-tensorboard
    log-loss-scale-to-tensorboard log-learning-rate-to-tensorboard log-batch-size-to-tensorboard log-straggler log-energy
    log-max-attention-logit log-device-memory-used profile use-pytorch-profiler record-memory-history
    finetune no-save-optim no-save-rng no-load-optim no-load-rng use-dist-ckpt auto-detect-ckpt-format async-save
    use-persistent-ckpt-worker ckpt-fully-parallel-save ckpt-fully-parallel-load no-ckpt-fully-parallel-save
    ckpt-assume-constant-structure use-checkpoint-args use-mp-args-from-checkpoint-args no-use-tokenizer-model-from-checkpoint-args
    exit-on-missing-checkpoint override-opt-param-scheduler use-checkpoint-opt-param-scheduler dist-ckpt-optim-fully-reshardable
    no-mmap-bin-files no-create-attention-mask-in-dataloader create-attention-mask-in-dataloader reset-position-ids
    reset-attention-mask eod-mask-loss data-sharding no-data-sharding full-validation s3-cache-path
    manual-gc check-weight-hash-across-dp-replicas-interval no-check-for-nan-in-loss-and-grad check-for-nan-in-loss-and-grad
    check-for-spiky-loss check-for-large-grads calculate-per-token-loss exit-signal-handler adlr-autoresume
    enable-ft-package calc-ft-timeouts enable-one-logger no-one-logger one-logger-async inprocess-restart
    inprocess-empty-cuda-cache use-cpu-initialization no-initialization lazy-mpu-init disable-straggler-on-startup
    apply-layernorm-1p no-persist-layer-norm apply-query-key-layer-scaling qk-clip use-rope-scaling rotary-interleaved
    no-rope-fusion apply-rope-fusion no-masked-softmax-fusion no-bias-gelu-fusion no-bias-swiglu-fusion
    no-bias-dropout-fusion no-gradient-accumulation-fusion no-async-tensor-model-parallel-allreduce openai-gelu squared-relu
    attention-softmax-in-fp32 no-query-key-layer-scaling no-position-embedding use-rotary-position-embeddings
    moe-router-pre-softmax moe-router-enable-expert-bias moe-router-force-load-balancing moe-per-layer-logging
    moe-router-fusion moe-permute-fusion moe-use-legacy-grouped-gemm moe-router-padding-for-fp8
    moe-router-padding-for-quantization moe-extended-tp moe-use-upcycling moe-token-dropping
    enable-experimental enable-gloo-process-groups disable-gloo-process-groups skip-train perform-rl-step
    deterministic-mode no-align-grad-reduce no-align-param-gather align-param-gather distributed-optimizer-average-in-collective
    ddp-average-in-collective data-parallel-random-init test-mode run-workload-inspector-server no-weight-decay-cond-type
    no-delay-grad-reduce delay-grad-reduce delay-param-gather use-ring-exchange-p2p no-scatter-gather-tensors-in-pipeline
    bf16-loss transformer-pipeline-model-parallel disable-mamba-mem-eff-path trust-remote-code
    tokenizer-hf-use-fast tokenizer-hf-include-special-tokens decrease-batch-size-if-needed keep-fp8-weight-transpose-cache
    """.split()
)
"""Flags without a cost that is modelled."""
VALUED = re.compile(
    r"""--(
    lr|min-lr|lr-.*|decoupled-(min-)?lr|override-lr.*|warmup|weight-decay.*|start-weight-decay|end-weight-decay
    |adam-.*|sgd-.*|muon-.*|clip-grad|loss-scale.*|initial-loss-scale|min-loss-scale|hysteresis|optimizer|seed|init-.*
    |train-iters|train-samples|eval-.*|save.*|load.*|pretrained-checkpoint|ckpt-.*|dist-ckpt-.*|non-persistent-.*
    |checkpoint-.*|exit-.*|log-.*|logging-.*|tensorboard-.*|wandb-.*|mlflow-.*|comet-.*|timing-.*|profile-.*|nsys-.*
    |one-logger-.*|app-tag-.*|config-logger-dir|straggler-.*|inprocess-.*|ft-.*|memory-snapshot-path
    |data-.*|train-data-path|valid-data-path|test-data-path|per-split-data-args-path|split|num-workers|dataloader-type
    |num-dataset-builder-threads|multiple-validation-sets|tokenizer-.*|vocab-file|merge-file|vocab-extra-ids
    |tiktoken-.*|make-vocab-size-divisible-by|null-tokenizer-.*|distributed-timeout-.*|distributed-backend|local-rank|rank
    |world-size|manual-gc-.*|empty-unused-memory-level|rotary-.*|rope-.*|mscale.*|yarn-.*|original-max-position-embeddings
    |norm-epsilon|layernorm-epsilon|fp8-margin|fp8-interval|fp8-amax-.*|fp8-wgrad|fp16-lm-cross-entropy|moe-aux-loss-coeff
    |moe-z-loss-coeff|moe-router-load-balancing-type|moe-router-score-function|moe-router-num-groups|moe-router-group-topk
    |moe-router-topk-scaling-factor|moe-router-bias-update-rate|moe-router-dtype|moe-input-jitter-eps
    |moe-token-drop-policy|moe-router-topk-limited-devices|moe-deepep-num-sms|moe-hybridep-num-sms|mtp-loss-scaling-factor
    |max-position-embeddings|relative-attention-max-distance|softmax-scale|beta-fast|beta-slow|spec|yaml-cfg|master-addr
    |master-port|node-rank|rdzv-.*|log-dir|redirects|tee|max-restarts|start-method|monitor-interval|ddp-bucket-size
    |ddp-num-buckets|high-priority-stream-groups|nccl-communicator-config-path|activation-func-clamp-value
    |glu-linear-offset|mup-.*|result-rejected-tracker-filename|rerun-mode|error-injection-.*|stored-.*
    |fp8-recipe|fp4-recipe|megatron-.*-path|max-tokens-to-oom|external-gpu-.*|mid-level-dataset-surplus|enable-msc
    |position-embedding-interpolation|sample-rate|mask-prob|short-seq-prob|retriever-seq-length|barrier-with-l1-time
    |hf-model-id|timers|moe-hybridep-.*|offload-min-.*|use-gloo-.*|logger-.*
    )""",
    re.VERBOSE,
)
"""Arguments with a value and without a cost that is modelled."""
MANY = re.compile(
    r"--((train-|valid-|test-)?data-path|blend.*|profile-ranks|logging-.*|high-priority-stream-groups|tokenizer-.*)"
)
"""Those of them that take several values."""
EFFECTS = {
    "--mtp-num-layers": "layers for multi-token prediction are left out",
    "--rampup-batch-size": "the batch is the one that it grows to",
    "--delay-wgrad-compute": "weight gradients are computed with the others",
    "--moe-shared-expert-overlap": "shared experts run after routed ones",
    "--moe-enable-deepep": "experts are dispatched by all-to-all",
    "--moe-flex-dispatcher-backend": "experts are dispatched by all-to-all",
    "--hierarchical-context-parallel-sizes": "context parallelism has one level",
    "--num-distributed-optimizer-instances": "optimizer states are sharded over all replicas",
    "--distribute-saved-activations": "checkpoints are kept whole on each rank",
    "--fp8-param-gather": "weights are gathered in 16 bits",
    "--fp8-param": "weights are gathered in 16 bits",
    "--fp4-param": "weights are gathered in 16 bits",
    "--first-last-layers-bf16": "all layers have the same precision",
    "--fp8-multi-head-attention": "attention between its projections is in 16 bits",
    "--fp8-dot-product-attention": "attention between its projections is in 16 bits",
    "--use-sharp": "set collective.algorithms for reductions in the network",
    "--use-nccl-ub": "collectives do not use registered buffers",
    "--nccl-ub": "collectives do not use registered buffers",
    "--fp32-residual-connection": "residuals are in 16 bits",
    "--account-for-embedding-in-pipeline-split": "only layers are shared out over stages",
    "--account-for-loss-in-pipeline-split": "only layers are shared out over stages",
    "--microbatch-group-size-per-virtual-pipeline-stage": "groups have as many microbatches as there are stages",
    "--no-overlap-p2p-communication": "pipelines exchange activations while they compute",
    "--defer-embedding-wgrad-compute": "weight gradients are computed with the others",
    "--overlap-param-gather-with-optimizer-step": "the optimizer's step does not overlap gathers",
    "--tp-comm-overlap-cfg": "overlap is that of the design's tp_overlap",
    "--enable-cuda-graph": "kernels are launched one by one where the host is late",
    "--cuda-graph-impl": "kernels are launched one by one where the host is late",
    "--cuda-graph-scope": "kernels are launched one by one where the host is late",
    "--external-cuda-graph": "kernels are launched one by one where the host is late",
    "--moe-layer-recompute": "use --recompute-modules moe",
    "--attention-output-gate": "output gates of attention are left out",
    "--no-rope-freq": "the rotation of queries and keys is in every layer",
    "--heterogeneous-layers-config-path": "all layers have the same sizes",
    "--kitchen-config-file": "all layers have the same precision",
    "--use-transformer-engine-op-fuser": "kernels are fused as Transformer Engine usually does",
    "--moe-latent-size": "experts work on the hidden size",
}
"""What the design has in place of an argument."""
REFUSED = {
    "--hybrid-override-pattern": "state-space layers are not modelled",
    "--hybrid-layer-pattern": "state-space layers are not modelled",
    "--hybrid-attention-ratio": "state-space layers are not modelled",
    "--hybrid-mlp-ratio": "state-space layers are not modelled",
    "--is-hybrid-model": "state-space layers are not modelled",
    "--linear-attention-freq": "layers with linear attention are not modelled",
    "--experimental-attention-variant": "only attention over all tokens, or in a window, is modelled",
}
"""Arguments that change what a layer is: without them, the design would be another."""
_OFF = ("", "none", "null", "false", "0", "0.0", "1.0e-0", "[]", "no")


def finish(arguments: Arguments) -> None:
    """List what nobody asked for: unmodelled and unknown arguments; those without a cost are left out."""
    for name, rule in REFUSED.items():
        if name in arguments and not _is_off(arguments, name):
            raise arguments.error(name, rule)
    for name in [name for name in arguments.given if name not in arguments.asked]:
        _check_values(arguments, name)
        if name in EFFECTS:
            if not _is_off(arguments, name):
                arguments.leave_out(name, EFFECTS[name])
        elif not is_without_cost(name):
            arguments.leave_out(name, "unknown to COSMIC")


def is_without_cost(name: str) -> bool:
    """Return whether an argument says nothing about time or memory.

    >>> is_without_cost("--lr-decay-iters"), is_without_cost("--tensor-model-parallel-size")
    (True, False)
    """
    return name in FLAGS or VALUED.fullmatch(name) is not None


def _is_off(arguments: Arguments, name: str) -> bool:
    values = arguments.given[name].values
    return len(values) == 1 and values[0].strip().lower() in _OFF


def _check_values(arguments: Arguments, name: str) -> None:
    """Refuse a variable of unknown content in the place of further arguments."""
    argument = arguments.given[name]
    own = 0 if name in FLAGS else 1
    if MANY.fullmatch(name) or argument.doubt:
        return
    for word in argument.values[own:]:
        if UNKNOWN.fullmatch(word):
            arguments.known(argument, word)
