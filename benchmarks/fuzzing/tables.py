"""Files of other programs: CSV files of measurements and Hugging Face's configurations, spoilt."""

from __future__ import annotations

import csv
import io
import json

from .documents import garble, spoil
from .trial import Maker
from .values import awkward, near, plain

CONFIGURATIONS = (
    {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": 512,
        "intermediate_size": 1024,
        "num_hidden_layers": 4,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "max_position_embeddings": 2048,
        "vocab_size": 32000,
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
    },
    {
        "architectures": ["MixtralForCausalLM"],
        "model_type": "mixtral",
        "hidden_size": 512,
        "intermediate_size": 1024,
        "num_hidden_layers": 4,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "num_local_experts": 8,
        "num_experts_per_tok": 2,
        "max_position_embeddings": 2048,
        "vocab_size": 32000,
    },
)


def rows(maker: Maker) -> list[str]:
    """Return the words of a validation of spoilt rows."""
    rng = maker.rng
    name = rng.choice(maker.stock.rows)
    cells = list(csv.reader((maker.stock.folder / name).read_text(encoding="utf-8").splitlines()))
    for _ in range(rng.choice((1, 1, 2, 4))):
        row = rng.choice(cells)
        place = rng.randrange(len(row)) if row else 0
        drawn = rng.random()
        if drawn < 0.1:
            row[place : place + 1] = []
        elif drawn < 0.2:
            row.insert(place, awkward(rng))
        elif drawn < 0.3:
            cells.insert(rng.randrange(len(cells)), list(row))
        elif row:
            row[place] = (
                near(rng, row[place]) if maker.chance(0.3) else rng.choice((awkward(rng), str(plain(rng))[:9999]))
            )
    text = io.StringIO()
    csv.writer(text).writerows(cells)
    data = text.getvalue().encode("utf-8", "surrogatepass")
    made = maker.write(garble(maker, data) if maker.chance(0.15) else data, ".csv")
    words = [
        "calibrate",
        "validate",
        made,
        *(["--by", rng.choice(("set", "model", "nothing"))] if maker.chance(0.2) else []),
    ]
    return [*words, *(["--json"] if maker.chance(0.3) else []), *(["--page", "p.md"] if maker.chance(0.2) else [])]


def configurations(maker: Maker) -> list[str]:
    """Return the words of a command that reads a spoilt configuration of Hugging Face."""
    rng = maker.rng
    tree = spoil(maker, dict(rng.choice(CONFIGURATIONS)))
    folder = maker.folder / "hf"
    folder.mkdir()
    data = json.dumps(tree, default=str, skipkeys=True).encode("utf-8", "surrogatepass")
    (folder / "config.json").write_bytes(garble(maker, data) if maker.chance(0.15) else data)
    design = f"{rng.choice(('hf', './hf', 'hf/config.json'))}@dgx-h100:8"
    command = rng.choice((["evaluate"], ["design", "show"], ["design", "workload"]))
    return [*command, design, *(["--json"] if maker.chance(0.3) else [])]
