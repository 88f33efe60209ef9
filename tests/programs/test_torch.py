"""PyTorch modules as programs, beside PyTorch's own count of flop."""

from __future__ import annotations

from typing import Any

import pytest

from cosmic.design import schema
from cosmic.errors import SpecError
from cosmic.loading.designs import load_design
from cosmic.programs import Program, from_torch, load, model_of, read_annotations
from tests.programs.test_models import EXAMPLES, MESH, PLAIN, design, sent

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install '.[torch]'")
NAMES = {"batch": "0:0", "sequence": "0:1"}
MEGATRON = {
    "embedding_weight": ["tp", "_"],
    "head_weight": ["tp", "_"],
    **{f"layers_0_{name}_weight": ["tp", "_", "_"] for name in "qkv"},
    "layers_0_out_weight": ["_", "tp", "_"],
    "layers_0_up_weight": ["tp", "_"],
    "layers_0_down_weight": ["_", "tp"],
}


def counted(module: Any, *arguments: Any) -> float:
    """Return the flop that PyTorch counts: products alone."""
    from torch.utils.flop_counter import FlopCounterMode  # noqa: PLC0415  an extra

    with FlopCounterMode(display=False) as counter:
        module(*arguments)
    return float(counter.get_total_flops())


def products(program: Program) -> float:
    from cosmic.workload.operators import flop, unsharded  # noqa: PLC0415

    repeat = {name: part.repeat for part in program.parts for name in part.operators}
    sizes = {**program.sizes, "visible": 1.0}
    kinds = ("einsum", "convolution", "attention")
    found = (each for each in program.graph.operators if each.kind in kinds)
    return sum(repeat.get(each.name, 1) * float(flop(each, unsharded(sizes), sizes)) for each in found)


@pytest.mark.long
def test_a_gpt_in_torch_is_the_one_in_yaml() -> None:
    program = load(f"{EXAMPLES / 'gpt_torch.py'}:GPT", dims=NAMES)
    model = model_of(read_annotations(program, MEGATRON))
    yaml = design("gpt", **MESH, **PLAIN)
    assert [part.repeat for part in program.parts] == [1, 24, 1]
    assert model.parameters == yaml.model.parameters  # type: ignore[union-attr]
    point = load_design({"model": schema.write(model), "system": "dgx-h100:64"}, {**MESH, **PLAIN})
    assert sent(point) == sent(yaml)


def test_flop_of_a_small_network_are_those_that_pytorch_counts() -> None:
    nn = torch.nn
    with torch.device("meta"):
        module = nn.Sequential(
            nn.Conv2d(3, 16, 3, stride=2, padding=1),
            nn.BatchNorm2d(16),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3, padding=1),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(32, 10),
        ).eval()
        picture = torch.empty(4, 3, 64, 64)
        program = from_torch(module, picture, dims={"batch": "0:0"})
        assert products(program) == counted(module, picture)
    assert model_of(program).parameters == sum(each.numel() for each in module.parameters())


def test_an_unknown_operator_is_an_error_that_names_it() -> None:
    class Strange(torch.nn.Module):  # type: ignore[misc,name-defined]
        def forward(self, x: Any) -> Any:
            return torch.linalg.det(x)

    with pytest.raises(SpecError, match=r"aten\..*det"):
        from_torch(Strange(), torch.empty(8, 8, device="meta"))
