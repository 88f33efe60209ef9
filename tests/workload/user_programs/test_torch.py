"""PyTorch modules as programs, beside PyTorch's own count of flop."""

from __future__ import annotations

from typing import Any

import pytest

from cosmic.base.errors import SpecError
from cosmic.design import schema
from cosmic.search.mapping.design_completion import load_design
from cosmic.workload.user_programs.program_graph import Program, read_annotations
from cosmic.workload.user_programs.program_models import load_program, model_of
from cosmic.workload.user_programs.torch_programs import from_torch
from tests.workload.user_programs.test_models import EXAMPLES, MESH, PLAIN, design, sent

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
    from cosmic.workload.operator_kinds import operator_flop, unsharded_elements  # noqa: PLC0415

    repeat = {name: part.repeat for part in program.parts for name in part.operators}
    sizes = {**program.sizes, "visible": 1.0}
    kinds = ("einsum", "convolution", "attention")
    found = (each for each in program.graph.operators if each.kind in kinds)
    return sum(
        repeat.get(each.name, 1) * float(operator_flop(each, unsharded_elements(sizes), sizes)) for each in found
    )


@pytest.mark.long
def test_a_gpt_in_torch_is_the_one_in_yaml() -> None:
    program = load_program(f"{EXAMPLES / 'gpt_torch.py'}:GPT", dims=NAMES)
    model = model_of(read_annotations(program, MEGATRON))
    yaml = design("gpt", **MESH, **PLAIN)
    assert [part.repeat for part in program.parts] == [1, 24, 1]
    assert model.parameters == yaml.model.parameters  # type: ignore[union-attr]
    point = load_design({"model": schema.write_value(model), "system": "dgx-h100:64"}, {**MESH, **PLAIN})
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


def traced(module: Any, *shapes: tuple[int, ...], dims: dict[str, str] | None = None) -> Program:
    """Return a module as a program, after a check of its products' flop against those that PyTorch counts."""
    with torch.device("meta"):
        arguments = [torch.empty(shape) for shape in shapes]
        built = module().to("meta").eval()
        program = from_torch(built, *arguments, dims=dims)
        assert products(program) == counted(built, *arguments)
    assert model_of(program).parameters == sum(each.numel() for each in built.parameters())
    return program


def kinds_of(program: Program) -> list[str]:
    return [each.kind for each in program.graph.operators if each.kind != "view"]


class Grouped(torch.nn.Module):  # type: ignore[misc,name-defined]
    """Attention of 8 heads that share 2 of keys, with rotated halves: as LLaMA has it."""

    def __init__(self, how: str = "gqa") -> None:
        super().__init__()
        self.how = how
        self.q, self.k, self.v = (torch.nn.Linear(64, width, bias=False) for width in (64, 16, 16))
        self.out = torch.nn.Linear(64, 64, bias=False)

    def forward(self, x: Any) -> Any:
        """Rotate queries and keys, attend, and project."""
        batch, tokens, _ = x.shape
        q, k, v = (each(x).view(batch, tokens, -1, 8).transpose(1, 2) for each in (self.q, self.k, self.v))
        q, k = (each + torch.cat((-each[..., 4:], each[..., :4]), -1) for each in (q, k))
        if self.how == "gqa":
            mixed = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        else:
            k, v = (each.repeat_interleave(4, 1) for each in (k, v))
            mask = torch.full((tokens, tokens), -1e9, device=x.device).triu(1)
            mixed = (q @ k.transpose(2, 3) / 8**0.5 + mask).softmax(-1) @ v
        return self.out(mixed.transpose(1, 2).reshape(batch, tokens, 64))


@pytest.mark.parametrize("how", ["gqa", "eager"])
def test_grouped_heads_and_rotated_widths_are_one_attention(how: str) -> None:
    program = traced(lambda: Grouped(how), (4, 16, 64), dims={"batch": "0:0", "sequence": "0:1"})
    assert kinds_of(program) == [*["einsum"] * 3, "pointwise", "pointwise", "attention", "einsum"]
    (attention,) = (each for each in program.graph.operators if each.kind == "attention")
    shapes = [[program.sizes[dim] for dim in tensor.dims] for tensor in (*attention.inputs, *attention.outputs)]
    assert shapes == [[4, 16, 8, 8], [4, 16, 2, 8], [4, 16, 2, 8], [4, 16, 8, 8]]
    assert attention.inputs[1].dims[1] == "context"
    rotated = [each for each in program.graph.operators if each.kind == "pointwise"]
    assert [len(each.inputs) for each in rotated] == [1, 1]  # halves are read where they are


def test_layers_that_share_weights_have_them_once() -> None:
    class Shared(torch.nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.up, self.down = torch.nn.Linear(16, 64), torch.nn.Linear(64, 16)

        def forward(self, x: Any) -> Any:
            for _ in range(5):
                x = x + self.down(torch.relu(self.up(x)))
            return x

    program = traced(Shared, (8, 16))
    assert program.parts == ()
    assert model_of(program).parameters == 16 * 64 + 64 + 64 * 16 + 16


def test_layers_whose_windows_differ_are_not_one() -> None:
    nn = torch.nn
    layers = [
        nn.Sequential(nn.Conv1d(8, 8, 3, padding=2**n, dilation=2**n), nn.ReLU(), nn.BatchNorm1d(8)) for n in (0, 1)
    ]
    program = traced(lambda: nn.Sequential(*layers), (4, 8, 32))
    assert [each.halo[0][1:] for each in program.graph.operators if each.halo] == [(1, 1), (2, 2)]


def test_groups_of_channels_make_groups_of_filters() -> None:
    program = traced(lambda: torch.nn.Conv2d(8, 12, 3, padding=1, groups=4, bias=False), (2, 8, 6, 6))
    (convolution,) = program.graph.operators
    assert products(program) == 2 * (2 * 12 * 6 * 6) * (3 * 3 * 2)  # each filter reads two channels
    read, weight = convolution.inputs
    assert [program.sizes[dim] for dim in read.dims] == [2, 4, 2, 6, 6]
    assert [program.sizes[dim] for dim in weight.dims] == [4, 3, 2, 3, 3]


def test_a_bag_of_embeddings_is_one_lookup() -> None:
    class Bag(torch.nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.tables = torch.nn.ModuleList(torch.nn.EmbeddingBag(100, 8, mode="sum") for _ in range(2))

        def forward(self, index: Any) -> Any:
            return self.tables[0](index[:, 0]) + self.tables[1](index[:, 1])

    with torch.device("meta"):
        program = from_torch(Bag(), torch.empty((4, 2, 5), dtype=torch.int64))
    bags = [each for each in program.graph.operators if each.kind == "embedding"]
    assert [[program.sizes[dim] for dim in each.inputs[0].stored_dims] for each in bags] == [[4, 5], [4, 5]]
    assert [[program.sizes[dim] for dim in each.outputs[0].dims] for each in bags] == [[4, 8], [4, 8]]
    assert kinds_of(program) == ["embedding", "embedding", "add"]


def test_what_is_written_in_place_counts() -> None:
    class InPlace(torch.nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two = torch.nn.Linear(16, 16), torch.nn.Linear(16, 16)

        def forward(self, x: Any) -> Any:
            y = self.one(x)
            y.add_(self.two(x))
            return torch.relu_(y)

    traced(InPlace, (4, 16))


def test_a_batch_of_one_is_spread_over_the_other() -> None:
    class Spread(torch.nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.empty(1, 6, 4))

        def forward(self, x: Any) -> Any:
            return torch.matmul(self.weight, x) + torch.matmul(self.weight[0], x)

    program = traced(Spread, (8, 4, 5))
    assert sorted(program.sizes[dim] for dim in program.graph.operators[-1].outputs[0].dims) == [5, 6, 8]


def test_rows_picked_in_the_middle_leave_the_batch_split() -> None:
    class Picked(torch.nn.Module):  # type: ignore[misc,name-defined]
        def forward(self, x: Any) -> Any:
            one, two = torch.triu_indices(4, 4, 1, device=x.device)
            return torch.bmm(x, x.transpose(1, 2))[:, one, two]

    program = traced(Picked, (8, 4, 16), dims={"batch": "0:0"})
    gather = program.graph.operators[-1]
    assert gather.outputs[0].dims[0] == "batch"
    assert "batch" not in gather.whole
    assert [program.sizes[dim] for dim in gather.outputs[0].dims] == [8, 6]


def test_two_arguments_have_one_batch_where_both_are_named() -> None:
    class Towers(torch.nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two = torch.nn.Linear(16, 4, bias=False), torch.nn.Linear(12, 4, bias=False)

        def forward(self, x: Any, y: Any) -> Any:
            return self.one(x) @ self.two(y).t()

    program = traced(Towers, (8, 16), (8, 12), dims={"batch": "0:0, 1:0"})
    assert [each.inputs[0].dims[0] for each in program.graph.operators[:2]] == ["batch", "batch"]
    assert set(program.graph.operators[-1].outputs[0].dims) == {"batch", "samples"}
    assert program.like == {"samples": "batch"}
    with pytest.raises(SpecError, match=r"--dim batch = '1:1': is 12 long, where the first is 8"):
        traced(Towers, (8, 16), (8, 12), dims={"batch": "0:0, 1:1"})


def test_rows_of_padding_are_a_copy() -> None:
    class Padded(torch.nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.filters = torch.nn.Conv1d(4, 8, 3, bias=False)

        def forward(self, x: Any) -> Any:
            return self.filters(torch.nn.functional.pad(x, (2, 0)))

    program = traced(Padded, (2, 4, 10), dims={"batch": "0:0"})
    copy, convolution = program.graph.operators
    assert [program.sizes[dim] for dim in copy.outputs[0].dims] == [2, 4, 12]
    assert "batch" not in copy.whole
    assert [program.sizes[dim] for dim in convolution.outputs[0].dims] == [2, 8, 10]
