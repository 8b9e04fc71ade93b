import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import elu, gelu, relu

from graphtheory import Neighborhood, ops
from graphtheory import models as networks
from graphtheory.models import GraphTransformer, ResidualStack, Stack, StackOptions
from graphtheory.nn import GCNConv, attention_maps
from graphtheory.nn.conv.spd_transformer_conv import SPDTransformerConv
from graphtheory.patterns import AddSelf, Compose, KHop, Sample, TopK
from graphtheory.patterns.base import layers_on_rows
from graphtheory.structure import shortest_path_distance
from tests.models.conftest import Tiny

BALL = Compose(KHop(2), AddSelf())


def one_layer(tiny: Tiny, **options: object) -> GraphTransformer:
    stacked = {"stack": Stack, "options": StackOptions(0.0)}
    model = GraphTransformer(6, 8, 3, 1, heads=2, num_buckets=4, pattern=BALL, **stacked, **options)
    drawn = torch.Generator().manual_seed(1)
    for conv in model.attention_layers():
        with torch.no_grad():
            conv.bucket_bias.table.copy_(torch.randn(4, 2, generator=drawn))
    return model.eval()


def dense_weights(conv: SPDTransformerConv, x: Tensor, hops: Tensor, radius: int) -> Tensor:
    """Eq. (3.1) and (3.2) as matrices: [dst, src, heads], scores over 1/sqrt(d)."""
    query, key = (lin(x).view(len(x), conv.heads, -1) for lin in (conv.lin_query, conv.lin_key))
    scores = torch.einsum("nhd,shd->nsh", query, key) / conv.out_channels**0.5
    table = conv.bucket_bias.table
    scores = scores + table[hops.long().clamp(max=len(table) - 1)]
    return scores.masked_fill((hops > radius)[..., None], -torch.inf).softmax(1)


def test_weights_and_output_follow_the_equations(tiny: Tiny) -> None:
    model = one_layer(tiny)
    (conv,) = model.attention_layers()
    weights = dense_weights(conv, tiny.x, shortest_path_distance(tiny.graph), radius=2)
    ((nb, found),) = attention_maps(model, tiny.x, tiny.edge_index)
    torch.testing.assert_close(found, weights[nb.targets(), nb.indices])
    values = conv.lin_value(tiny.x).view(10, 2, 3)
    expected = torch.einsum("nsh,shd->nhd", weights, values).mean(1) + conv.lin_skip(tiny.x)
    torch.testing.assert_close(model(tiny.x, tiny.edge_index), expected)
    model = GraphTransformer(6, 8, 3, 3, heads=2, pattern=BALL)
    maps = attention_maps(model, tiny.x, tiny.graph)
    assert [m.weights.shape for m in maps] == [(maps[0].neighborhood.num_edges, 2)] * 3
    for nb, weight in maps:
        total = torch.zeros(10, 2).index_add(0, nb.targets(), weight)
        torch.testing.assert_close(total, torch.ones(10, 2))


def test_reading_weights_leaves_the_model_as_it_was(tiny: Tiny) -> None:
    undropped = StackOptions(0.0)
    model = GraphTransformer(6, 8, 3, 2, 2, attention_dropout=0.5, options=undropped)
    model.body.norm.eval()  # one part frozen in evaluation mode, the rest training
    assert not torch.equal(model(tiny.x, tiny.graph), model(tiny.x, tiny.graph))
    first, again = (attention_maps(model, tiny.x, tiny.graph)[1].weights for _ in range(2))
    assert torch.equal(first, again) and not first.requires_grad
    assert model.training and not model.body.norm.training
    assert not any(conv._forward_pre_hooks for conv in model.attention_layers())


@pytest.mark.parametrize("pattern", [BALL, None, Sample(3, whole_graph=True)])
def test_an_edge_list_and_a_neighborhood_of_the_same_edges_are_alike(tiny: Tiny, pattern) -> None:
    model = GraphTransformer(6, 8, 3, 2, heads=2, pattern=pattern).eval()
    torch.manual_seed(1)
    from_edges = model(tiny.x, tiny.edge_index)
    torch.manual_seed(1)
    assert torch.equal(from_edges, model(tiny.x, tiny.graph))
    draws = (torch.Generator().manual_seed(2) for _ in range(2))
    one = model(tiny.x, tiny.edge_index, generator=next(draws))
    other = model(tiny.x, tiny.graph, generator=next(draws))
    assert torch.equal(one, other)
    assert torch.equal(one, from_edges) == (pattern is None or not pattern.is_random)


def test_the_neighborhood_is_the_given_graph_or_one_hop_and_the_node_itself(tiny: Tiny) -> None:
    model = GraphTransformer(6, 8, 3, 2, heads=2, pattern=BALL).eval()
    as_given = GraphTransformer(6, 8, 3, 2, heads=2, pattern=None).eval()
    as_given.load_state_dict(model.state_dict())
    assert torch.equal(model(tiny.x, tiny.graph), as_given(tiny.x, BALL(tiny.graph)))
    assert as_given.neighborhood(tiny.graph) is tiny.graph
    nb = GraphTransformer(6, 8, 3).neighborhood(tiny.edge_index, 10)
    assert torch.equal(nb.to_dense(), tiny.graph.to_dense() + torch.eye(10))
    assert nb.distance is not None


def set_table(model: GraphTransformer, values: list[float]) -> None:
    with torch.no_grad():
        for conv in model.attention_layers():
            conv.bucket_bias.table.copy_(torch.tensor(values)[:, None].expand(-1, conv.heads))


def test_the_encoding_steers_attention_by_differences_between_distances(tiny: Tiny) -> None:
    model = one_layer(tiny)
    before = model(tiny.x, tiny.graph)
    with torch.no_grad():
        model.attention_layers()[0].bucket_bias.table.add_(3.0)
    torch.testing.assert_close(model(tiny.x, tiny.graph), before)
    for z in (0, 1, 2):
        set_table(model, [50.0 * (i == z) for i in range(4)])
        assert not torch.allclose(model(tiny.x, tiny.edge_index), before, atol=1e-3)
        ((nb, weights),) = attention_maps(model, tiny.x, tiny.graph)
        mass = torch.zeros(10, 2).index_add(0, nb.targets(), weights * (nb.distance == z)[:, None])
        torch.testing.assert_close(mass[:9], torch.ones(9, 2))  # the ring has all three distances


def test_tables_share_the_last_bucket_are_for_all_layers_and_of_zeros_no_encoding(tiny) -> None:
    model = GraphTransformer(6, 8, 3, 1, heads=2, num_buckets=2, pattern=None, stack=Stack).eval()
    nb = Compose(KHop(3), AddSelf())(tiny.graph)
    set_table(model, [0.0, 2.0])
    clipped = nb.replace(distance=nb.distance.clamp(max=1))
    assert torch.equal(model(tiny.x, nb), model(tiny.x, clipped))
    encoded = GraphTransformer(6, 8, 3, 2, heads=2, pattern=BALL).eval()
    plain = GraphTransformer(6, 8, 3, 2, heads=2, pattern=BALL, num_buckets=None).eval()
    left = plain.load_state_dict(encoded.state_dict(), strict=False)
    assert not left.missing_keys
    assert all(key.endswith("bucket_bias.table") for key in left.unexpected_keys)
    found, wanted = (model(tiny.x, tiny.edge_index) for model in (encoded, plain))
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-6)
    model = GraphTransformer(6, 8, 3, 3, heads=2, num_buckets=5)
    assert model.bucket_bias_table().shape == (3, 5, 2)
    assert not model.bucket_bias_table().any() and not model.bucket_bias_table().requires_grad
    with pytest.raises(ValueError, match="num_buckets: this network has None"):
        GraphTransformer(6, 8, 3, num_buckets=None).bucket_bias_table()


def test_every_parameter_learns_and_features_have_to_fit_the_graph(tiny: Tiny) -> None:
    model = GraphTransformer(6, 8, 3, 2, heads=2, pattern=BALL, options=StackOptions(0.0))
    model(tiny.x, tiny.edge_index).square().sum().backward()
    silent = [
        name
        for name, p in model.named_parameters()
        # A constant added to all keys of a target changes no softmax.
        if not name.endswith("lin_key.bias") and (p.grad is None or not p.grad.any())
    ]
    assert silent == []
    model = GraphTransformer(6, 8, 3)
    with pytest.raises(ValueError, match=r"edge_index: has \d+ sources, expected 4"):
        model(tiny.x[:4], tiny.graph)
    with pytest.raises(IndexError, match=r"expected a node id in 0\.\.3"):
        model(tiny.x[:4], tiny.edge_index)


def test_names_of_nodes_do_not_matter_and_a_node_that_sees_nobody_keeps_its_own_term(tiny) -> None:
    model = GraphTransformer(6, 8, 3, 2, heads=2, pattern=BALL).eval()
    name = torch.randperm(10, generator=torch.Generator().manual_seed(3))
    renamed = model(tiny.x[name.argsort()], name[tiny.edge_index])
    torch.testing.assert_close(renamed[name], model(tiny.x, tiny.edge_index))
    model = one_layer(tiny)
    model.pattern = KHop(2)
    (conv,) = model.attention_layers()
    out = model(tiny.x, tiny.graph)  # node 9 has an empty row
    torch.testing.assert_close(out[9], conv.lin_skip(tiny.x)[9])
    without = one_layer(tiny, root_weight=False)
    without.pattern = KHop(2)
    assert not without(tiny.x, tiny.graph)[9].any()


def test_a_sampled_neighborhood_is_drawn_afresh(tiny: Tiny) -> None:
    model = GraphTransformer(6, 8, 3, 1, heads=2, pattern=Sample(3, whole_graph=True)).eval()
    drawn = torch.Generator().manual_seed(0)
    first, second = (model.neighborhood(tiny.edge_index, 10, generator=drawn) for _ in range(2))
    assert first.degree().tolist() == [3] * 10
    assert not torch.equal(first.indices, second.indices)
    again = model.neighborhood(tiny.graph, generator=torch.Generator().manual_seed(0))
    assert torch.equal(first.indices, again.indices)
    assert not torch.equal(model(tiny.x, tiny.edge_index), model(tiny.x, tiny.edge_index))


@pytest.mark.parametrize("heads", [0, 3, -2])
def test_heads_that_do_not_divide_the_width(heads: int) -> None:
    message = f"heads: got {heads}, expected a divisor of hidden_channels=8"
    with pytest.raises(ValueError, match=message):
        GraphTransformer(6, 8, 3, heads=heads)


def test_features_of_another_width_are_refused() -> None:
    with pytest.raises(ValueError, match=r"x: shape \(3, 5\), expected \[N, 6\]"):
        GraphTransformer(6, 8, 3)(torch.randn(3, 5), torch.tensor([[0], [1]]))


@pytest.mark.parametrize("pattern", [TopK(2), "khop", KHop])
def test_what_is_no_pattern_is_refused(pattern: object) -> None:
    with pytest.raises(TypeError, match=r"pattern: got .*, expected a Pattern such as KHop\(2\)"):
        GraphTransformer(6, 8, 3, pattern=pattern)


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
def test_a_stack_with_a_linear_output_by_hand(tiny, project, linear_residual, norm, gate) -> None:
    options = {"project": project, "linear_residual": linear_residual, "gate": gate}
    options |= {norm: True} if norm else {}
    stack = networks.LinearOutputStack(Sum, 6, 8, 3, 2, StackOptions(0.5), **options).eval()
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
