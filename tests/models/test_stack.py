import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import elu, gelu, relu

from graphtheory import Neighborhood, ops
from graphtheory.models import LinearOutputStack, ResidualStack, Stack, StackOptions
from graphtheory.nn import GCNConv
from graphtheory.patterns import Compose
from graphtheory.patterns.base import layers_on_rows
from tests.models.conftest import Tiny


class Sum(nn.Linear):
    """Adds up the sources' projected features."""

    def __init__(self, width_in: int, width_out: int, last: bool = False) -> None:
        super().__init__(width_in, width_out, bias=False)
        self.made_with = (width_in, width_out, last)

    def forward(self, x: Tensor, neighborhood: Neighborhood) -> Tensor:
        return ops.aggregate(None, super().forward(x)[:, None], neighborhood)[:, 0]


class Loud(nn.Module):
    """A layer whose output shows what came in."""

    def forward(self, x: Tensor, neighborhood: Neighborhood) -> Tensor:
        return x


@pytest.mark.parametrize(
    ("layers", "project", "expected"),
    [
        (1, False, [(6, 3, True)]),
        (3, False, [(6, 8, False), (8, 8, False), (8, 3, True)]),
        (1, True, [(8, 3, True)]),
        (2, True, [(8, 8, False), (8, 3, True)]),
        (2, None, [(8, 8, False), (8, 8, False)]),  # a residual stack
    ],
)
def test_widths(layers: int, project: bool | None, expected: list[tuple[int, int, bool]]) -> None:
    stack = ResidualStack(Sum, 6, 8, 3, layers)
    if project is not None:
        stack = Stack(Sum, 6, 8, 3, layers, project=project)
    assert [m.made_with for m in stack.modules() if isinstance(m, Sum)] == expected


def test_stacks_by_hand(tiny: Tiny) -> None:
    stack = Stack(Sum, 6, 8, 3, 2, StackOptions(0.5), project=True).eval()
    first, second = stack.layers
    hidden = elu(stack.input(tiny.x))
    expected = second(elu(first(hidden, tiny.graph)), tiny.graph)
    torch.testing.assert_close(stack(tiny.x, tiny.graph), expected)
    stack = ResidualStack(Sum, 6, 8, 3, 1, StackOptions(0.5), ffn=True).eval()
    block = stack.blocks[0]
    hidden = gelu(stack.input(tiny.x))
    hidden = hidden + gelu(block.layer(block.norm(hidden), tiny.graph))
    norm, wider, _, _, narrower, _ = block.ffn
    hidden = hidden + narrower(gelu(wider(norm(hidden))))
    torch.testing.assert_close(stack(tiny.x, tiny.graph), stack.output(stack.norm(hidden)))
    assert ResidualStack(Sum, 6, 8, 3, 1).blocks[0].ffn is None


@pytest.mark.parametrize("project", [False, True])
@pytest.mark.parametrize("linear_residual", [False, True])
@pytest.mark.parametrize("norm", [None, "batch_norm", "layer_norm"])
@pytest.mark.parametrize("gate", [False, True])
def test_a_stack_with_a_linear_output_by_hand(
    tiny: Tiny, project: bool, linear_residual: bool, norm: str | None, gate: bool
) -> None:
    options = {"project": project, "linear_residual": linear_residual, "gate": gate} | (
        {norm: True} if norm else {}
    )
    stack = LinearOutputStack(Sum, 6, 8, 3, 2, StackOptions(0.5), **options).eval()
    if gate:
        nn.init.normal_(stack.mix)
    widths = [m.made_with for m in stack.layers]
    assert widths == [(8 if project else 6, 8, False), (8, 8, False)]
    x = stack.input(tiny.x) if project else tiny.x
    for i, (layer, normed) in enumerate(zip(stack.layers, stack.norms, strict=True)):
        out = layer(x, tiny.graph)
        if linear_residual:
            own = stack.residuals[i]
            out = out + x @ own.weight.t() + own.bias
        if gate:
            by, share = stack.gates[i], 1 / (1 + (-stack.mix[i]).exp())
            factor = relu(x @ by.weight.t() + by.bias)
            x = (1 - share) * normed(factor * relu(out)) + share * relu(out)
        else:
            x = relu(normed(out))
    torch.testing.assert_close(stack(tiny.x, tiny.graph), stack.output(x))
    dropped = stack.train()(tiny.x, tiny.graph)
    assert not torch.allclose(dropped, stack(tiny.x, tiny.graph))


def test_each_layer_of_a_classic_stack_has_its_own_neighborhood(tiny: Tiny) -> None:
    stack = Stack(Sum, 6, 8, 3, 2, StackOptions(0.0))
    other = Neighborhood.from_edge_index(tiny.graph.edge_index()[:, :5], 10)
    first, second = stack.layers
    expected = second(elu(first(tiny.x, other)), tiny.graph)
    torch.testing.assert_close(stack(tiny.x, [other, tiny.graph]), expected)
    convs = Stack(lambda a, b, _: GCNConv(a, b, normalize=False), 6, 8, 3, 2, StackOptions(0.0))
    rows = torch.tensor([4, 0])
    nodes, layers = layers_on_rows(Compose(), tiny.graph, rows, 2)
    torch.testing.assert_close(convs(tiny.x[nodes], layers), convs(tiny.x, tiny.graph)[rows])
    with pytest.raises(ValueError, match="neighborhood: got 3, expected one or 2"):
        stack(tiny.x, [tiny.graph] * 3)


@pytest.mark.parametrize("layers", [1, 2, 3])
@pytest.mark.parametrize("kind", [Stack, ResidualStack])
def test_an_output_sees_exactly_so_many_hops(kind: type, layers: int) -> None:
    nodes = torch.arange(6)
    edges = torch.stack([torch.cat([nodes[:-1], nodes]), torch.cat([nodes[1:], nodes])])
    with_self = Neighborhood.from_edge_index(edges, 6)
    stack = kind(Sum, 4, 8, 3, layers, StackOptions(0.0))
    x = torch.randn(6, 4, generator=torch.Generator().manual_seed(0), requires_grad=True)
    stack(x, with_self)[5].sum().backward()
    seen = x.grad.abs().sum(1).nonzero().flatten().tolist()
    assert seen == list(range(5 - layers, 6))


@pytest.mark.parametrize("kind", [Stack, ResidualStack])
def test_dropout_acts_in_training_alone_and_no_layer_is_refused(kind: type, tiny: Tiny) -> None:
    stack = kind(Sum, 6, 8, 3, 2, StackOptions(0.5))
    assert not torch.equal(stack(tiny.x, tiny.graph), stack(tiny.x, tiny.graph))
    stack.eval()
    assert torch.equal(stack(tiny.x, tiny.graph), stack(tiny.x, tiny.graph))
    with pytest.raises(ValueError, match="num_layers: got 0, expected at least 1"):
        kind(Sum, 6, 8, 3, 0)


def test_dropout_comes_before_every_classic_layer(tiny: Tiny) -> None:
    stack = Stack(lambda *_: Loud(), 6, 6, 6, 1, StackOptions(0.5))
    out = stack(tiny.x, tiny.graph)
    kept = out != 0
    assert 0 < int(kept.sum()) < out.numel()
    torch.testing.assert_close(out[kept], 2 * tiny.x[kept])
