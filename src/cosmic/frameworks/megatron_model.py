"""A decoder as arguments of Megatron-LM, read and written, and the model of the catalog that has its sizes.

Models of the catalog are recognised by writing each of them as arguments, and reading those.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from typing import Any

from cosmic.base.errors import SpecError
from cosmic.design import catalog_entries, schema
from cosmic.design.model_layer import MLA, Experts, Model, Transformer, is_moe_layer
from cosmic.design.workload_layer import Workload
from cosmic.frameworks.launch import Draft, quote_options
from cosmic.frameworks.launch_arguments import NamedArguments, parse_arguments

# ---- A decoder as arguments of Megatron-LM


def add_model_arguments(draft: Draft, model: Transformer, workload: Workload) -> None:
    """Add the arguments of *model*, and warn of what Megatron-LM cannot express."""
    draft.add("--num-layers", model.layers)
    draft.add("--hidden-size", model.hidden)
    draft.add("--ffn-hidden-size", model.ffn)
    draft.add("--swiglu", when=model.gated)
    draft.add("--normalization", "RMSNorm", when=model.norm == "rmsnorm")
    draft.add("--untie-embeddings-and-output-weights", when=not model.tied_embeddings)
    _add_attention(draft, model)
    _add_positions(draft, model, workload)
    _add_biases(draft, model)
    if model.experts is not None:
        _add_model_experts(draft, model, model.experts)
    _warn_unexpressed(draft, model)


def _add_attention(draft: Draft, model: Transformer) -> None:
    draft.add("--num-attention-heads", model.heads)
    if model.mla is not None:
        _add_mla(draft, model, model.mla)
        return
    grouped = model.kv_heads < model.heads
    draft.add("--group-query-attention", when=grouped)
    draft.add("--num-query-groups", model.kv_heads, when=grouped)
    draft.add("--kv-channels", model.head_dim, when=model.head_dim * model.heads != model.hidden)
    draft.add("--qk-layernorm", when=model.qk_norm)
    draft.add("--softmax-type", "learnable", when=model.sinks)
    if model.window is not None:  # that many tokens back, besides the token itself
        draft.add("--window-size", f"{model.window - 1},0")
        every = model.full_attention_every
        draft.add("--window-attn-skip-freq", every or 0, when=every is not None)


def _add_mla(draft: Draft, model: Transformer, mla: MLA) -> None:
    draft.add("--multi-latent-attention")
    draft.add("--q-lora-rank", mla.q_lora_rank or 0, when=mla.q_lora_rank is not None)
    draft.add("--kv-lora-rank", mla.kv_lora_rank)
    draft.add("--qk-head-dim", model.head_dim)
    draft.add("--qk-pos-emb-head-dim", mla.qk_rope_head_dim)
    draft.add("--v-head-dim", mla.v_head_dim)
    draft.add("--qk-layernorm")  # the norms of both compressed vectors


def _add_positions(draft: Draft, model: Transformer, workload: Workload) -> None:
    draft.add("--seq-length", workload.sequence)
    draft.add("--max-position-embeddings", max(workload.sequence, model.positions))
    if model.positions:
        draft.add("--position-embedding-type", "learned_absolute")
    elif model.position_buckets:
        draft.add("--position-embedding-type", "relative")
        draft.add("--relative-attention-num-buckets", model.position_buckets)
    else:
        draft.add("--position-embedding-type", "rope")


def _add_biases(draft: Draft, model: Transformer) -> None:
    """Add which projections have biases: all, none, or those of queries, keys and values."""
    moe = [is_moe_layer(model, layer) for layer in range(model.layers)]
    usual = {"qkv", "out"} | {"experts" for _ in range(any(moe))} | {"ffn" for _ in range(not all(moe))}
    biased = set(model.biases) & usual
    draft.add("--disable-bias-linear", when=biased != usual and biased <= {"qkv"})
    draft.add("--add-qkv-bias", when=biased == {"qkv"})
    partly = biased != usual and not biased <= {"qkv"}
    draft.warn(f"Megatron-LM adds biases to all projections, the design to {', '.join(sorted(biased))}", when=partly)
    for part in sorted(set(model.biases) & {"head", "router"}):
        draft.warn(f"Megatron-LM has no argument for a bias of the {part}")


def _add_model_experts(draft: Draft, model: Transformer, experts: Experts) -> None:
    draft.add("--num-experts", experts.count)
    draft.add("--moe-router-topk", experts.active)
    draft.add("--moe-ffn-hidden-size", experts.ffn)
    draft.add("--moe-shared-expert-intermediate-size", experts.shared_ffn, when=experts.shared_ffn > 0)
    draft.add("--moe-layer-freq", moe_layer_pattern(model), when=experts.dense_first > 0 or experts.every > 1)
    factor = experts.capacity_factor
    draft.add("--moe-expert-capacity-factor", factor or 0.0, when=factor is not None)
    draft.add("--moe-pad-expert-input-to-capacity", when=factor is not None)
    draft.warn("Megatron-LM has no argument for the gate of shared experts", when=experts.shared_gate)
    draft.warn(
        "the design's experts are evenly loaded: add --moe-router-force-load-balancing to time it with mock data",
        when=factor is None,
    )


def moe_layer_pattern(model: Transformer) -> str:
    """Return which layers are MoE layers, as a Python expression: runs of equal layers.

    >>> from cosmic.design.model_layer import Experts
    >>> sizes = {"layers": 8, "hidden": 8, "heads": 1, "ffn": 8, "vocab": 8}
    >>> moe_layer_pattern(Transformer(**sizes, experts=Experts(count=4, active=1, ffn=8, dense_first=3)))
    '([0]*3+[1]*5)'
    >>> moe_layer_pattern(Transformer(**sizes, experts=Experts(count=4, active=1, ffn=8, every=2)))
    '([0]*1+[1]*1)*4'
    """
    experts = model.experts
    if experts is not None and experts.every > 1 and not experts.dense_first and model.layers % experts.every == 0:
        return f"([0]*{experts.every - 1}+[1]*1)*{model.layers // experts.every}"
    runs: list[list[int]] = []
    for layer in range(model.layers):
        kind = int(is_moe_layer(model, layer))
        if runs and runs[-1][0] == kind:
            runs[-1][1] += 1
        else:
            runs.append([kind, 1])
    return "(" + "+".join(f"[{kind}]*{count}" for kind, count in runs) + ")"


def _warn_unexpressed(draft: Draft, model: Transformer) -> None:
    """Warn of what has no argument."""
    draft.warn("Megatron-LM runs attention before the feed-forward network, not in parallel", when=model.parallel_block)
    draft.warn(
        f"Megatron-LM has 2 norms per layer, the design {model.norms_per_layer}", when=model.norms_per_layer != 2
    )
    draft.warn("Megatron-LM does not normalise embeddings", when=model.embedding_norm)
    draft.warn("Megatron-LM has a norm after the last layer", when=not model.final_norm)
    draft.warn("Megatron-LM's layer norm has a bias", when=model.norm == "layernorm" and not model.norm_bias)


# ---- A decoder from arguments of Megatron-LM

Tree = dict[str, Any]
MOST_LAYERS = 10_000
LONGEST_PATTERN = 2_000


def megatron_model_tree(arguments: NamedArguments) -> Tree:
    """Return a model as in a design file; its vocabulary is missing if the arguments leave it to a tokenizer."""
    layers = _required_sizes(arguments, "--num-layers", also="--decoder-num-layers")
    hidden, heads = _required_sizes(arguments, "--hidden-size"), _required_sizes(arguments, "--num-attention-heads")
    gated = arguments.flag("--swiglu") or arguments.flag("--quick-geglu")
    usual = int(4 * hidden * 2 / 3 / 64) * 64 if gated else 4 * hidden
    tree: Tree = {
        "layers": layers,
        "hidden": hidden,
        "heads": heads,
        "ffn": arguments.whole("--ffn-hidden-size") or usual,
        "gated": gated,
        "norm": {"RMSNorm": "rmsnorm", "LayerNorm": "layernorm"}[
            arguments.text("--normalization", ("LayerNorm", "RMSNorm")) or "LayerNorm"
        ],
        "tied_embeddings": not arguments.flag("--untie-embeddings-and-output-weights"),
        **_vocabulary(arguments),
        **_positions(arguments),
        **_attention(arguments, hidden, heads),
    }
    experts = _experts(arguments, layers, tree["ffn"])
    return tree | experts | _biases(arguments, layers, experts)


def _required_sizes(arguments: NamedArguments, name: str, also: str = "") -> int:
    value = arguments.whole(name) or (arguments.whole(also) if also else None)
    if value is None:
        raise arguments.error(name, "is needed to know the model: give it, or name the model with --model")
    return value


def _vocabulary(arguments: NamedArguments) -> Tree:
    padded, unpadded = arguments.whole("--padded-vocab-size"), arguments.whole("--vocab-size")
    return {"vocab": unpadded or padded} if unpadded or padded else {}


def _positions(arguments: NamedArguments) -> Tree:
    kinds = ("learned_absolute", "rope", "mrope", "yarn", "relative", "none")
    kind = arguments.text("--position-embedding-type", kinds) or "learned_absolute"
    if arguments.flag("--use-rotary-position-embeddings") or arguments.flag("--no-position-embedding"):
        kind = "rope" if kind == "learned_absolute" else kind
    max_positions = arguments.whole("--max-position-embeddings")
    if kind == "learned_absolute":
        return {"positions": max_positions or arguments.whole("--seq-length") or 1}
    if kind == "relative":
        return {"position_buckets": arguments.whole("--relative-attention-num-buckets") or 32}
    return {}


def _attention(arguments: NamedArguments, hidden: int, heads: int) -> Tree:
    normed = arguments.flag("--qk-layernorm") or arguments.flag("--qk-l2-norm")
    if arguments.flag("--multi-latent-attention"):
        arguments.asked |= {"--kv-channels", "--group-query-attention", "--num-query-groups"}
        if arguments.text("--softmax-type", ("learnable", "vanilla", "off-by-one")) == "learnable":
            arguments.leave_out("--softmax-type", "sinks are left out of MLA")
        mla = {
            "q_lora_rank": arguments.whole("--q-lora-rank"),
            "kv_lora_rank": arguments.whole("--kv-lora-rank") or 32,
            "qk_rope_head_dim": arguments.whole("--qk-pos-emb-head-dim", least=0) or 64,
            "v_head_dim": arguments.whole("--v-head-dim") or 128,
        }
        dims = {key: value for key, value in mla.items() if value is not None}
        return {"head_dim": arguments.whole("--qk-head-dim") or 128, "mla": dims}
    groups = arguments.whole("--num-query-groups")
    grouped = arguments.flag("--group-query-attention")
    if groups is not None and not grouped and groups != heads:
        arguments.leave_out("--num-query-groups", "it has no effect without --group-query-attention")
    width = arguments.whole("--kv-channels")
    if width is None and hidden % heads:
        raise arguments.error("--hidden-size", f"does not divide by {heads} attention heads; give --kv-channels")
    return {
        "kv_heads": (groups or 1) if grouped else heads,
        "head_dim": width or hidden // heads,
        "qk_norm": normed,
        "sinks": arguments.text("--softmax-type", ("learnable", "vanilla", "off-by-one")) == "learnable",
        **_window(arguments),
    }


def _window(arguments: NamedArguments) -> Tree:
    """Return the sliding window: Megatron-LM counts the tokens before a token, besides the token itself."""
    words = arguments.words("--window-size")
    if not words:
        return {}
    numbers = re.findall(r"-?\d+", " ".join(words))
    if len(numbers) != 2:
        raise arguments.error("--window-size", "must be two whole numbers, as in 127,0")
    left_width = int(numbers[0])
    if left_width < 0:
        return {}
    every = _window_interval(arguments)
    return {"window": left_width + 1} | ({} if every is None else {"full_attention_every": every})


def _window_interval(arguments: NamedArguments) -> int | None:
    """Return the interval of layers with full attention: a number, or a pattern in which 0 is full attention."""
    text = arguments.text("--window-attn-skip-freq")
    if text is None:
        return None
    if re.fullmatch(r"\d{1,6}", text.strip()):
        return arguments.whole("--window-attn-skip-freq")
    pattern = _pattern(arguments, "--window-attn-skip-freq", text)
    full = [index for index, entry in enumerate(pattern, 1) if entry == 0]
    if not full:
        return None
    if full != list(range(full[0], len(pattern) + 1, full[0])):
        raise arguments.error("--window-attn-skip-freq", "full attention must come in every n-th layer")
    return full[0]


def _experts(arguments: NamedArguments, layers: int, ffn: int) -> Tree:
    count = arguments.whole("--num-experts", least=0)
    names = ("--moe-router-topk", "--moe-ffn-hidden-size", "--moe-shared-expert-intermediate-size", "--moe-layer-freq")
    if not count:
        arguments.asked |= {*names, "--moe-expert-capacity-factor", "--moe-pad-expert-input-to-capacity"}
        return {}
    active = arguments.whole("--moe-router-topk") or 2
    if active > count:
        raise arguments.error("--moe-router-topk", f"must be at most {count}, the experts there are")
    dense, every = _expert_layers(arguments, layers)
    factor = arguments.number("--moe-expert-capacity-factor")
    padded = arguments.flag("--moe-pad-expert-input-to-capacity")
    experts: Tree = {
        "count": count,
        "active": active,
        "ffn": arguments.whole("--moe-ffn-hidden-size") or ffn,
        "shared_ffn": arguments.whole("--moe-shared-expert-intermediate-size", least=0) or 0,
        "shared_gate": arguments.flag("--moe-shared-expert-gate"),
        "dense_first": dense,
        "every": every,
    }
    return {"experts": experts | ({"capacity_factor": factor} if padded and factor is not None else {})}


def _expert_layers(arguments: NamedArguments, layers: int) -> tuple[int, int]:
    """Return how many dense layers come first, and the interval of MoE layers after them."""
    text = arguments.text("--moe-layer-freq")
    if text is None or text.strip() == "1":
        return 0, 1
    if re.fullmatch(r"\d{1,6}", text.strip()):
        every = arguments.whole("--moe-layer-freq") or 1
        if layers % every:
            raise arguments.error("--moe-layer-freq", f"must divide the number of layers, {layers}")
        return 0, every
    pattern = _pattern(arguments, "--moe-layer-freq", text)
    if len(pattern) != layers:
        raise arguments.error("--moe-layer-freq", f"has {len(pattern)} entries for {layers} layers")
    expert_indices = [index for index, entry in enumerate(pattern) if entry]
    if not expert_indices:
        return layers, 1
    every = expert_indices[1] - expert_indices[0] if len(expert_indices) > 1 else 1
    dense = expert_indices[0] - every + 1
    if dense >= 0:
        experts = Experts(count=1, active=1, ffn=1, dense_first=dense, every=every)
        if [int(_is_moe(experts, layer)) for layer in range(layers)] == [int(bool(entry)) for entry in pattern]:
            return dense, every
    raise arguments.error("--moe-layer-freq", "MoE layers must follow some dense layers at a fixed interval")


def _is_moe(experts: Experts, layer: int) -> bool:
    return layer >= experts.dense_first and (layer - experts.dense_first + 1) % experts.every == 0


def _biases(arguments: NamedArguments, layers: int, experts: Tree) -> Tree:
    """Return which projections have biases: Megatron-LM has them in all, unless it is told otherwise."""
    none, query = arguments.flag("--disable-bias-linear"), arguments.flag("--add-qkv-bias")
    if none:
        return {"biases": ["qkv"] if query else []}
    expert_biases = experts.get("experts", {})
    moe = [
        bool(expert_biases) and _is_moe(Experts(**expert_biases), layer) for layer in range(min(layers, MOST_LAYERS))
    ]
    return {"biases": ["qkv", "out", *(["ffn"] if not all(moe) else []), *(["experts"] if any(moe) else [])]}


# ---- patterns


def _pattern(arguments: NamedArguments, name: str, text: str) -> list[int]:
    """Return the list that an expression such as ``([0]*3+[1]*58)`` writes; it is read, never evaluated."""
    rule = "must be a number, or a list made of whole numbers, + and *, such as ([0]*3+[1]*58)"
    if len(text) > LONGEST_PATTERN:
        raise arguments.error(name, rule)
    try:
        pattern = _listed(ast.parse(text.strip().strip("'\""), mode="eval").body)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise arguments.error(name, rule) from None
    if not isinstance(pattern, list):
        pattern = [pattern]
    return pattern


def _listed(node: ast.expr) -> int | list[int]:
    match node:
        case ast.Constant(value=int() as value) if not isinstance(value, bool) and 0 <= value <= MOST_LAYERS:
            return value
        case ast.List(elts=entries) | ast.Tuple(elts=entries):
            numbers = [_listed(entry) for entry in entries]
            return [number for number in numbers if isinstance(number, int)] if entries else []
        case ast.BinOp(left=first, op=sign, right=second):
            first_list, second_list = _listed(first), _listed(second)
            if isinstance(sign, ast.Add) and isinstance(first_list, list) and isinstance(second_list, list):
                pattern = first_list + second_list
                if len(pattern) > MOST_LAYERS:
                    raise ValueError("too long")
                return pattern
            if isinstance(sign, ast.Mult) and isinstance(first_list, int) and isinstance(second_list, list):
                first_list, second_list = second_list, first_list
            if isinstance(sign, ast.Mult) and isinstance(first_list, list) and isinstance(second_list, int):
                if len(first_list) * second_list > MOST_LAYERS:
                    raise ValueError("too long")
                return first_list * second_list
    raise ValueError("not a list")


# ---- Models of the catalog that have the sizes that somebody's arguments state

VOCABULARY_PADDING = 0.02
"""Share by which a vocabulary may be padded."""


def recognise_model(tree: dict[str, Any], sequence: int) -> str | dict[str, Any] | None:
    """Return the model of the catalog with the sizes in *tree*: its name, or its name with another vocabulary.

    A vocabulary may be missing, or padded. Of several such models, the one that is trained with *sequence* is taken,
    and then the last by name, which is the youngest of a family.

    >>> sizes = {"layers": 32, "hidden": 4096, "heads": 32, "kv_heads": 8, "head_dim": 128, "ffn": 14336, "gated": True}
    >>> more = {"norm": "rmsnorm", "tied_embeddings": False, "biases": [], "vocab": 128256}
    >>> recognise_model({**sizes, **more}, 8192)
    'llama3-8b'
    """
    wanted_sizes = _complete_sizes({**tree, "vocab": tree.get("vocab", 1)})
    matches: list[tuple[bool, bool, str]] = []
    for name, sizes, trained in _catalog_decoders(catalog_entries.entry_names("models")):
        model_sizes = dict(sizes)
        vocab = model_sizes["vocab"]
        same_vocabulary = "vocab" not in tree or vocab <= tree["vocab"] <= (1 + VOCABULARY_PADDING) * vocab
        if same_vocabulary and {**model_sizes, "vocab": 0} == {**wanted_sizes, "vocab": 0}:
            matches.append((tree.get("vocab", vocab) == vocab, trained == sequence, name))
    if not matches:
        return None
    exact, _, name = max(matches)
    return name if exact else {"base": name, "vocab": tree["vocab"]}


@cache
def _catalog_decoders(names: tuple[str, ...]) -> tuple[tuple[str, dict[str, Any], int], ...]:
    """Return the decoders of the catalog as arguments can state them, with the sequences they are trained with."""
    return tuple(_read_decoders(names))


def _read_decoders(names: tuple[str, ...]) -> Iterator[tuple[str, dict[str, Any], int]]:
    for name in names:
        entry = catalog_entries.read_entry("models", name)
        try:
            model: Model = schema.read_value(Model, {"name": name, **entry["model"]}, "model")
            if isinstance(model, Transformer) and model.family == "decoder":
                yield name, _complete_sizes(express_model(model)), entry.get("workload", {}).get("sequence", 0)
        except SpecError:  # an entry of the user's that is not right is no reason to refuse a script
            continue


def express_model(model: Transformer) -> dict[str, Any]:
    """Return what arguments of Megatron-LM say of a model, as in a design file."""
    draft = Draft()
    add_model_arguments(draft, model, Workload(sequence=1, global_batch=1))
    draft.add("--vocab-size", model.vocab)
    words = [word for option in quote_options(draft.arguments) for word in option.replace("'", "").split()]
    return megatron_model_tree(parse_arguments(words, model.name, ()))


def _complete_sizes(tree: dict[str, Any]) -> dict[str, Any]:
    """Return all fields of a model but its name, with defaults filled in."""
    model: Transformer = schema.read_value(Model, {"family": "decoder", **tree}, "model")
    return {key: value for key, value in schema.leaf_fields(model) if key != "name"}
