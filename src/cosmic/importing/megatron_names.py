"""Arguments of Megatron-LM by what becomes of them: read, without a cost, not modelled, refused.

An argument in none of the lists is unknown, and is said to be.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from cosmic.catalog import load_mapping
from cosmic.importing.arguments import Arguments
from cosmic.importing.shell_values import UNKNOWN

_NAMES: dict[str, Any] = load_mapping(Path(__file__).with_suffix(".yaml"))
READ = frozenset(f"--{name}" for name in _NAMES["read"].split())
"""Arguments that the readers ask for."""
FLAGS = frozenset(f"--{name}" for name in _NAMES["flags"].split())
"""Flags without a cost that is modelled."""
EFFECTS: dict[str, str] = {f"--{name}": why for name, why in _NAMES["effects"].items()}
"""What the design has in place of an argument."""
REFUSED: dict[str, str] = {f"--{name}": why for name, why in _NAMES["refused"].items()}
"""Arguments that change what a layer is: without them, the design would be another."""
VALUED = re.compile(
    r"""--(
    lr|min-lr|lr-.*|decoupled-(min-)?lr|override-lr.*|warmup|weight-decay.*|start-weight-decay|end-weight-decay
    |adam-.*|sgd-.*|muon-.*|clip-grad|loss-scale.*|initial-loss-scale|min-loss-scale|hysteresis|optimizer|seed|init-.*
    |train-iters|train-samples|eval-.*|save.*|load.*|pretrained-checkpoint|ckpt-.*|dist-ckpt-.*|non-persistent-.*
    |checkpoint-.*|exit-.*|log-.*|logging-.*|tensorboard-.*|wandb-.*|mlflow-.*|comet-.*|timing-.*|profile-.*|nsys-.*
    |one-logger-.*|app-tag-.*|config-logger-dir|straggler-.*|inprocess-.*|ft-.*|memory-snapshot-path
    |data-(?!parallel).*|train-data-path|valid-data-path|test-data-path|per-split-data-args-path|split|num-workers|dataloader-type
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
    |cuda-graph-warmup-steps|fp4-recipe|megatron-.*-path|max-tokens-to-oom|external-gpu-.*|mid-level-dataset-surplus|enable-msc
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
    off = (*_OFF, "1") if name == "--num-distributed-optimizer-instances" else _OFF
    return len(values) == 1 and values[0].strip().lower() in off


def _check_values(arguments: Arguments, name: str) -> None:
    """Refuse a variable of unknown content in the place of further arguments."""
    argument = arguments.given[name]
    own = 0 if name in FLAGS else 1
    if MANY.fullmatch(name) or argument.doubt:
        return
    for word in argument.values[own:]:
        if UNKNOWN.fullmatch(word):
            arguments.known(argument, word)
