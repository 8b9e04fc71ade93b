from typing import Any

import pytest
import torch
import torch_geometric.nn as pyg
from torch import Tensor, nn
from torch.nn.utils import prune

import graphtheory.nn as gnn
from graphtheory import Neighborhood, bipartite, cliques
from graphtheory.nn import Attention, BucketBias, attention_maps
from graphtheory.patterns import AllSources, KHop, TopK


def drawn(layer: nn.Module) -> nn.Module:
    for parameter in layer.parameters():
        nn.init.normal_(parameter, generator=torch.Generator().manual_seed(0))
    return layer


def test_it_is_torchs_multihead_attention_on_a_clique_and_on_other_sources() -> None:
    ours = drawn(Attention(12, heads=3)).double()
    theirs = nn.MultiheadAttention(12, 3, batch_first=True).double()
    theirs.load_state_dict(
        {
            "in_proj_weight": ours.qkv.weight, "in_proj_bias": ours.qkv.bias,
            "out_proj.weight": ours.out.weight, "out_proj.bias": ours.out.bias,
        }
    )  # fmt: skip
    x, nb = torch.randn(2, 5, 12, dtype=torch.float64), cliques([5, 5])
    out, weights = theirs(x, x, x, average_attn_weights=False)
    torch.testing.assert_close(ours(x.flatten(0, 1), nb), out.flatten(0, 1))
    found = ours.weights(x.flatten(0, 1), nb).view(2, 5, 5, 3).permute(0, 3, 1, 2)
    torch.testing.assert_close(found, weights)
    layer, x, sources = drawn(Attention(8, 2)), torch.randn(2, 8), torch.randn(6, 8)
    both = torch.cat([x, sources])
    edges = torch.tensor([[2, 3, 4, 5, 6, 7], [0, 0, 0, 1, 1, 1]])
    whole = layer(both, Neighborhood.from_edge_index(edges, num_nodes=8))[:2]
    torch.testing.assert_close(layer(x, bipartite([1, 1], [3, 3]), sources=sources), whole)


@pytest.mark.parametrize("buckets", [3, 300])
def test_a_bias_is_read_by_relation_in_output_and_weights(buckets: int) -> None:
    layer, x = drawn(Attention(8, 2, bias=BucketBias(buckets, 2))), torch.randn(6, 8)
    nb = cliques([3, 3])
    relation = torch.arange(nb.num_edges) % 3
    plain = Attention(8, 2)
    plain.load_state_dict({n: t for n, t in layer.state_dict().items() if n != "bias.table"})
    plain.pattern = Shifted(layer.bias.table[relation])
    torch.testing.assert_close(layer(x, nb, relation=relation), plain(x, nb))
    torch.testing.assert_close(layer.weights(x, nb, relation=relation), plain.weights(x, nb))


class Shifted(AllSources):
    """Softmax of logits with a number more for each edge: the rule is an option, too."""

    def __init__(self, more: Tensor) -> None:
        object.__setattr__(self, "more", more)

    def __call__(self, *tensors: object, bias: object, **options: object) -> Tensor:
        return super().__call__(*tensors, bias=self.more, **options)

    def weights(self, *tensors: object) -> Tensor:
        return super().weights(*tensors[:-1], self.more)


def test_dropout_is_the_generators_and_only_in_training() -> None:
    layer, x, nb = drawn(Attention(8, 2, dropout=0.5)), torch.randn(6, 8), cliques([6])

    def out(seed: int) -> Tensor:
        return layer(x, nb, generator=torch.Generator().manual_seed(seed))

    assert torch.equal(out(1), out(1)) and not torch.equal(out(1), out(2))
    layer.eval()
    assert torch.equal(out(1), out(2))


def test_maps_are_those_of_evaluation_and_the_mode_stays() -> None:
    layer, x, nb = drawn(Attention(8, 2, dropout=0.5)), torch.randn(6, 8), cliques([6])
    model = nn.ModuleDict({"a": layer, "b": nn.Dropout()})
    model.b.eval()
    model.forward = lambda x, nb: layer(layer(x, nb), nb)
    first, second = attention_maps(model, x, nb)
    assert layer.training and not model.b.training and not layer._forward_pre_hooks
    layer.eval()
    torch.testing.assert_close(first.weights, layer.weights(x, nb))
    torch.testing.assert_close(second.weights, layer.weights(layer(x, nb), nb))
    assert first.neighborhood is nb and not first.weights.requires_grad


@pytest.mark.parametrize("house", [gnn, pyg])
@pytest.mark.parametrize("kind", ["GATConv", "GATv2Conv", "TransformerConv"])
@pytest.mark.parametrize("flow", ["source_to_target", "target_to_source"])
def test_maps_of_layers_that_return_their_weights(house: Any, kind: str, flow: str) -> None:
    edges = torch.tensor([[3, 0, 2, 1, 0], [0, 1, 1, 2, 3]])
    if (house, kind, flow) == (gnn, "TransformerConv", "target_to_source"):
        pytest.skip("this layer has one flow")
    conv = getattr(house, kind)(4, 4, heads=2, concat=False, flow=flow)
    x = torch.randn(4, 4)
    first, second = attention_maps(pyg.Sequential("x, e", [(conv, "x, e -> x")] * 2), x, edges)
    targets = first.neighborhood.targets()
    sums = torch.zeros(4, 2).index_add(0, targets, first.weights)
    torch.testing.assert_close(sums, torch.ones(4, 2))
    ends, alpha = conv(x, edges, return_attention_weights=True)[1]
    if flow == "target_to_source":
        ends = ends.flip(0)
    expected = torch.zeros(4, 4, 2).index_put(tuple(ends.flip(0)), alpha)
    found = torch.zeros(4, 4, 2).index_put((targets, first.neighborhood.indices), first.weights)
    torch.testing.assert_close(found, expected)
    assert not torch.allclose(first.weights, second.weights)


@pytest.mark.filterwarnings("ignore:Sparse invariant checks")
def test_maps_of_a_layer_on_a_neighborhood_and_on_a_sparse_matrix() -> None:
    nb, x, conv = cliques([3]), torch.randn(3, 4), gnn.GATConv(4, 4, add_self_loops=False)
    ((found, weights),) = attention_maps(conv, x, nb)
    assert torch.equal(found.indices, nb.indices) and len(weights) == 9
    with pytest.raises(TypeError, match="GATConv got a sparse matrix, expected an edge list"):
        attention_maps(conv, x, torch.eye(3).to_sparse())


@pytest.mark.parametrize(("call", "message"), [
    (lambda: Attention(8, 3), "heads: got 3, expected a divisor of dim=8"),
    (lambda: Attention(8, 2, dropout=1.0), "dropout: got 1.0, expected a probability"),
    (lambda: Attention(4, 1)(torch.zeros(1, 4), cliques([1]), relation=torch.zeros(1)),
     "relation: got a relation, expected none without a bias"),
    (lambda: Attention(4, 1, bias=BucketBias(2, 1))(torch.zeros(1, 4), cliques([1])),
     "relation: got no relation, expected one, for this layer has a bias"),
])  # fmt: skip
def test_bad_options_are_named(call, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize("pattern", [KHop(2), "topk", TopK, 3])
def test_a_pattern_that_does_not_read_scores_is_refused(pattern: object) -> None:
    with pytest.raises(TypeError, match=r"pattern: got .*, expected a ScorePattern such as TopK"):
        Attention(8, 2, pattern=pattern)


class Adapted(nn.Module):
    """A linear map with another one beside it, as adapters of low rank are."""

    def __init__(self, base: nn.Linear) -> None:
        super().__init__()
        self.base, self.up = base, nn.Linear(base.in_features, base.out_features)

    weight, bias = property(lambda self: self.base.weight), property(lambda self: self.base.bias)

    def forward(self, x: Tensor) -> Tensor:
        return self.base(x) + self.up(x)


def adapted(layer: Attention) -> None:
    layer.qkv = Adapted(layer.qkv)


def doubled(layer: Attention) -> None:
    layer.qkv.register_forward_hook(lambda module, args, out: 2 * out)


def pruned(layer: Attention) -> None:
    prune.l1_unstructured(layer.qkv, "weight", 0.5)
    with torch.no_grad():
        layer.qkv.weight_orig.mul_(2)


@pytest.mark.parametrize("change", [adapted, doubled, pruned])
def test_what_was_put_on_the_map_counts_for_other_sources_too(change) -> None:
    layer, x, nb = drawn(Attention(4, 2)), torch.randn(3, 4), cliques([3])
    change(layer)
    torch.testing.assert_close(layer(x, nb, sources=x), layer(x, nb))
