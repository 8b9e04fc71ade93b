from dataclasses import replace
from functools import partial
from itertools import product

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch_geometric.nn import GATConv, GCNConv, SAGEConv, SGFormer

from graphtheory import Neighborhood
from graphtheory.lab.zoo import node_models as zoo
from graphtheory.lab.zoo.node_models import NAMES, SAMPLED, NetworkConfig, build, pattern_of
from graphtheory.models import GraphTransformer, ResidualStack, Stack
from graphtheory.nn import attention_maps
from graphtheory.patterns import AddSelf, AtDistance, Compose, KHop, Sample
from tests.models.conftest import Tiny

TRANSFORMERS = ("gt", "gt-plain")
CONFIGS = {
    "classic": NetworkConfig(hidden=16, heads=2),
    "projected": NetworkConfig(hidden=16, heads=2, project=True, layers=1),
    "residual": NetworkConfig(hidden=16, heads=2, residual=True),
    "residual with ffn": NetworkConfig(hidden=16, heads=2, residual=True, ffn=True, layers=3),
    "linear output": NetworkConfig(
        hidden=16, heads=1, output="linear", linear_residual=True, batch_norm=True, project=True
    ),
    "gated": NetworkConfig(hidden=16, heads=1, output="linear", layer_norm=True, gate=True),
    "two hops": NetworkConfig(hidden=16, heads=4, neighbors="2", root_weight=False),
    "sampled": NetworkConfig(hidden=16, heads=2, neighbors="all:4", num_buckets=5),
}
every_name = pytest.mark.parametrize("name", NAMES)
STACKED = [name for name in NAMES if name not in ("sgformer", *SAMPLED)]
every_config = pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS.keys())


def built(name: str, config: NetworkConfig = CONFIGS["classic"], seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return build(name, config, num_features=6, num_classes=3)


def seen_by(name: str, config: NetworkConfig, tiny: Tiny) -> Neighborhood:
    return pattern_of(name, config)(tiny.graph, generator=torch.Generator().manual_seed(0))


def sparse(x: Tensor) -> Tensor:
    return torch.where(x > 0.5, x, 0).to_sparse_csr()


@every_config
@every_name
def test_overfits_a_tiny_graph(name: str, config: NetworkConfig, tiny: Tiny) -> None:
    model = built(name, replace(config, dropout=0.0))
    nb = seen_by(name, config, tiny)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    for _ in range(200):
        optimizer.zero_grad()
        logits = model(tiny.x, nb)
        if torch.equal(logits.argmax(1), tiny.y):
            return
        cross_entropy(logits, tiny.y).backward()
        optimizer.step()
    pytest.fail(f"{name} never fitted 10 nodes")


@every_config
@every_name
def test_sparse_features_give_what_dense_do(name: str, config: NetworkConfig, tiny: Tiny) -> None:
    model, nb, x = built(name, config).eval(), seen_by(name, config, tiny), sparse(tiny.x)
    gradients = []
    for features in (x, x.to_dense()):
        model.zero_grad()
        logits = model(features, nb)
        cross_entropy(logits, tiny.y).backward()
        gradients.append([logits, *(p.grad for p in model.parameters())])
    for found, true in zip(*gradients, strict=True):
        torch.testing.assert_close(found, true, rtol=1e-5, atol=1e-6)


@every_name
def test_a_seed_fixes_weights_and_dropout_draws(name: str, tiny: Tiny) -> None:
    nb, x = seen_by(name, CONFIGS["classic"], tiny), sparse(tiny.x)
    first, again, other = (built(name, seed=s).eval()(tiny.x, nb) for s in (1, 1, 2))
    assert torch.equal(first, again) and not torch.allclose(first, other)
    model = built(name)
    assert not torch.equal(model(x, nb), model(x, nb))


@pytest.mark.parametrize("name", STACKED)
def test_residual_ffn_and_project_are_the_config_s(name: str) -> None:
    def made(config: NetworkConfig) -> tuple[nn.Module, int]:
        model = built(name, config)
        body = model.body if isinstance(model, GraphTransformer) else model
        return body, sum(p.numel() for p in model.parameters())

    (plain, _), (residual, size) = made(CONFIGS["classic"]), made(CONFIGS["residual"])
    assert (type(plain), type(residual)) == (Stack, ResidualStack)
    ffn = 2 * (2 * 16 + 16 * 32 + 32 + 32 * 16 + 16)  # in each of two blocks
    assert made(replace(CONFIGS["residual"], ffn=True))[1] == size + ffn
    first = made(replace(CONFIGS["classic"], project=True))[0].input
    assert (first.in_features, first.out_features) == (6, 16)


@every_name
def test_depth_and_width_are_the_config_s(name: str) -> None:
    count = [sum(p.numel() for p in built(name, replace(CONFIGS["classic"], layers=n)).parameters())
             for n in (2, 3, 4)]  # fmt: skip
    assert count[0] < count[1] < count[2]
    assert count[2] - count[1] == count[1] - count[0]  # a hidden layer more each time


@every_name
def test_all_but_the_mlp_look_at_the_graph(name: str, tiny: Tiny) -> None:
    model, config = built(name).eval(), CONFIGS["classic"]
    empty = Neighborhood.from_edge_index(torch.zeros(2, 0, dtype=torch.int64), 10)
    alone = model(tiny.x, pattern_of(name, config)(empty))
    seen = model(tiny.x, seen_by(name, config, tiny))
    if name == "mlp":
        assert torch.equal(seen, alone)
    else:
        assert not torch.allclose(seen, alone, atol=1e-3)


def test_gt_with_zero_table_is_gt_plain(tiny: Tiny) -> None:
    config = CONFIGS["residual with ffn"]
    encoded, plain = built("gt", config).eval(), built("gt-plain", config).eval()
    assert all(conv.bucket_bias is None for conv in plain.attention_layers())
    plain.load_state_dict(encoded.state_dict(), strict=False)
    nb = seen_by("gt", config, tiny)
    torch.testing.assert_close(encoded(tiny.x, nb), plain(tiny.x, nb), rtol=0, atol=1e-6)
    with torch.no_grad():
        encoded.attention_layers()[0].bucket_bias.table[0] = 2.0
    assert not torch.allclose(encoded(tiny.x, nb), plain(tiny.x, nb), atol=1e-3)


@pytest.mark.parametrize("name", zoo.ATTENDING)
def test_frozen_query_looks_the_same_way_from_everywhere(name: str, tiny: Tiny) -> None:
    model = built(name, replace(CONFIGS["classic"], frozen_query=True))
    nb = AddSelf()(tiny.graph)
    (_, first), _ = attention_maps(model, tiny.x, nb)
    torch.testing.assert_close(first, (1 / nb.degree()[nb.targets()])[:, None].expand(-1, 2))
    frozen = {n for n, p in model.named_parameters() if not p.requires_grad}
    assert frozen == {n for n, _ in model.named_parameters() if "lin_query" in n} != set()


@pytest.mark.parametrize("name", ["gcn", "gat"])
def test_residual_rows_have_a_term_of_the_node_s_own(name: str, tiny: Tiny) -> None:
    config = replace(CONFIGS["classic"], layers=1)
    plain, with_root = built(name, config).eval(), built(f"{name}-res", config).eval()
    (layer,) = with_root.layers
    plain.layers[0].load_state_dict(layer.layer.state_dict())
    nb = seen_by(name, config, tiny)
    expected = plain(tiny.x, nb) + tiny.x @ layer.root.weight.t()
    torch.testing.assert_close(with_root(tiny.x, nb), expected)
    without = built(f"{name}-res", replace(config, root_weight=False))
    assert [p.shape for p in without.parameters()] == [p.shape for p in plain.parameters()]


def test_attention_dropout_reaches_the_layers(tiny: Tiny) -> None:
    config = replace(CONFIGS["classic"], dropout=0.0, attention_dropout=0.5)
    for name in ("gt", "gt-plain", "gat"):
        model, nb = built(name, config), seen_by(name, config, tiny)
        assert not torch.equal(model(tiny.x, nb), model(tiny.x, nb))
        model.eval()
        assert torch.equal(model(tiny.x, nb), model(tiny.x, nb))


@pytest.mark.parametrize(("text", "pattern"), [
    ("1", Compose(KHop(1), AddSelf())),
    ("3", Compose(KHop(3), AddSelf())),
    ("2:60", Compose(KHop(2), Sample(60), AddSelf())),
    ("all:20", Compose(Sample(20, whole_graph=True), AddSelf())),
    ("=3", Compose(AtDistance(3))),
    ("=0", Compose(AtDistance(0))),
    ("=3:20", Compose(AtDistance(3), Sample(20))),
])  # fmt: skip
def test_forms_of_neighbors(text: str, pattern: Compose) -> None:
    assert zoo.parse_neighbors(text) == pattern
    for name in TRANSFORMERS:
        assert pattern_of(name, NetworkConfig(neighbors=text)) == pattern


@pytest.mark.parametrize(
    "text",
    ["", *["0", "255", "-1", "x", "1.5", "2:", "2:0", "2:x", "2:3:4", "all", "all:", "all:0", "="]],
)
def test_neighbors_of_another_form(text: str) -> None:
    with pytest.raises(ValueError, match=f"neighbors: got {text!r}, expected hops such as"):
        zoo.parse_neighbors(text)


def test_pattern_of_the_others() -> None:
    assert set(zoo.COMPARED) <= set(NAMES)
    config = NetworkConfig(neighbors="2")  # which is for transformers
    graph = Neighborhood.from_edge_index(torch.tensor([[0, 1], [1, 0]]), 2)
    for name in ("gat", "gat-res", "mlp"):
        assert pattern_of(name, config) == AddSelf()
    for name in ("gcn", "gcn-res", "sampled-gcn"):
        found = pattern_of(name, config)(graph).to_dense()
        torch.testing.assert_close(found, torch.full((2, 2), 0.5))
    assert pattern_of("sage", config)(graph).to_dense().tolist() == [[0.0, 1.0], [1.0, 0.0]]
    assert pattern_of("sgformer", config) == Compose()


@pytest.mark.parametrize("hops", ["1", "2"])
def test_the_convolution_beside_attention_is_that_of_the_gcn(tiny: Tiny, hops: str) -> None:
    config = NetworkConfig(hidden=16, heads=2, dropout=0.0, residual=True, neighbors=hops)
    model, alone = built("gt-gcn", config).eval(), built("gt", config).eval()
    convolution = built("gcn", config).eval()
    nb, x = seen_by("gt-gcn", config, tiny), torch.randn(len(tiny.x), 16)
    assert torch.equal(nb.indices, seen_by("gt", config, tiny).indices)
    layer = model.body.blocks[0].layer
    attention, conv = layer.layers
    alone.body.blocks[0].layer.load_state_dict(attention.state_dict())
    convolution.blocks[0].layer.load_state_dict(conv.state_dict())
    expected = alone.body.blocks[0].layer(x, seen_by("gt", config, tiny))
    expected = expected + convolution.blocks[0].layer(x, seen_by("gcn", config, tiny))
    torch.testing.assert_close(layer(x, nb), expected)


def test_refusals_name_the_option() -> None:
    with pytest.raises(ValueError, match="neighbors: got '=2', expected a ball such as '2'"):
        pattern_of("gt-gcn", NetworkConfig(neighbors="=2"))
    for call in (pattern_of, lambda n, c: build(n, c, num_features=1, num_classes=2)):
        with pytest.raises(ValueError, match="model: got 'sag', expected one of gt, gt-plain"):
            call("sag", NetworkConfig())
    with pytest.raises(ValueError, match="layer_norm: got True beside batch_norm=True"):
        built("gcn", replace(CONFIGS["classic"], batch_norm=True, layer_norm=True))
    for wrong in ({"output": "mlp"}, {"output": "linear", "residual": True}):
        told = r"output: got '(mlp|linear)', expected 'conv' or, wit"
        with pytest.raises(ValueError, match=told):
            built("gcn", replace(CONFIGS["classic"], **wrong))
    with pytest.raises(ValueError, match="layer_norm: got True, expected False with residual"):
        built("gcn", replace(CONFIGS["residual"], layer_norm=True))


@every_name
def test_layers_are_one_or_more_and_heads_divide_the_width_where_there_are_some(name: str) -> None:
    with pytest.raises(ValueError, match="num_layers: got 0"):
        built(name, replace(CONFIGS["classic"], layers=0))
    if name in ("gt", "gt-plain", "gat", "gat-res"):
        for heads in (0, 3):
            message = f"heads: got {heads}, expected a divisor of hidden=16"
            with pytest.raises(ValueError, match=message):
                built(name, replace(CONFIGS["classic"], heads=heads))
    elif name in ("gcn", "gcn-res", "sage", "mlp"):
        built(name, replace(CONFIGS["classic"], heads=3))


class Theirs(nn.Module):
    """The network of Luo et al. (2024) on PyG's layers: edges with loops, three layers."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        make = {
            "gcn": GCNConv, "sage": SAGEConv,
            "gat": partial(GATConv, heads=1, add_self_loops=False, bias=False),
        }[kind]  # fmt: skip
        widths = [(6, 16), (16, 16), (16, 16)]
        self.convs = nn.ModuleList(make(*ends) for ends in widths)
        self.own = nn.ModuleList(nn.Linear(*ends) for ends in widths)
        self.norms = nn.ModuleList(nn.LayerNorm(16) for _ in widths)
        self.out = nn.Linear(16, 3)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        for conv, own, norm in zip(self.convs, self.own, self.norms, strict=True):
            x = norm(conv(x, edge_index) + own(x)).relu()
        return self.out(x)


@pytest.mark.parametrize("kind", ["gcn", "sage", "gat"])
def test_networks_with_a_linear_output_are_those_of_pyg_s_layers(kind: str, tiny: Tiny) -> None:
    config = NetworkConfig(
        hidden=16, heads=1, layers=3, output="linear", linear_residual=True, layer_norm=True,
        bias=False, self_loops=True,
    )  # fmt: skip
    model, theirs = built(kind, config).eval(), Theirs(kind).eval()
    assert sum(p.numel() for p in model.parameters()) == sum(p.numel() for p in theirs.parameters())
    for conv, layer in zip(theirs.convs, model.layers, strict=True):
        own = layer.state_dict()
        if kind == "sage":
            names = {"layer.lin.weight": "lin_l.weight", "layer.bias": "lin_l.bias"}
            own = {names.get(n, "lin_r.weight"): value for n, value in own.items()}
        conv.load_state_dict(own)
    for mine, its in ((theirs.own, model.residuals), (theirs.norms, model.norms)):
        mine.load_state_dict(its.state_dict())
    theirs.out.load_state_dict(model.output.state_dict())
    loops = AddSelf()(tiny.graph).edge_index()
    expected = theirs(tiny.x, loops)
    torch.testing.assert_close(model(tiny.x, seen_by(kind, config, tiny)), expected)


def test_a_gated_transformer_is_that_of_a_loop_in_float64(tiny: Tiny) -> None:
    config = NetworkConfig(
        hidden=8, heads=2, neighbors="2", num_buckets=3, root_weight=False, output="linear",
        linear_residual=True, layer_norm=True, gate=True,
    )  # fmt: skip
    model = built("gt", config).eval().double()
    body, nb = model.body, seen_by("gt", config, tiny)
    sizes = [5 * (width * 8 + 8) + 8 + 2 * 8 + 3 * 2 for width in (6, 8)]  # Q, K, V, own, gate, ...
    assert sum(p.numel() for p in model.parameters()) == sum(sizes) + 8 * 3 + 3
    nn.init.normal_(body.mix)
    for conv in model.attention_layers():
        nn.init.normal_(conv.bucket_bias.table)
    x, edges = tiny.x.double(), list(zip(*nb.edge_index().tolist(), nb.distance, strict=True))
    found = model(x, nb)
    for i, conv in enumerate(body.layers):
        q, k, v = conv.lin_query(x), conv.lin_key(x), conv.lin_value(x)
        y = body.residuals[i](x)
        for node, head in product(range(len(x)), range(2)):
            of, seen = slice(4 * head, 4 * head + 4), [(s, d) for s, t, d in edges if t == node]
            bias = [conv.bucket_bias.table[min(int(d), 2), head] for _, d in seen]
            logits = [q[node, of] @ k[s, of] / 2 + b for (s, _), b in zip(seen, bias, strict=True)]
            for (s, _), weight in zip(seen, torch.stack(logits).softmax(0), strict=True):
                y[node, of] += weight * v[s, of]
        y = y.clamp(min=0)
        z = body.gates[i](x).clamp(min=0) * y
        z = (z - z.mean(1, keepdim=True)) / (z.var(1, correction=0, keepdim=True) + 1e-5).sqrt()
        share = 1 / (1 + (-body.mix[i]).exp())
        x = (1 - share) * z + share * y
    torch.testing.assert_close(found, body.output(x), rtol=1e-10, atol=1e-12)


def test_sage_is_the_node_and_the_mean_of_its_neighbors(tiny: Tiny) -> None:
    config = NetworkConfig(hidden=16, layers=1, dropout=0.0)
    model = built("sage", config).eval()
    layer = SAGEConv(6, 3)
    own = model.layers[0]
    layer.load_state_dict({
        "lin_l.weight": own.layer.lin.weight, "lin_l.bias": own.layer.bias,
        "lin_r.weight": own.root.weight,
    })  # fmt: skip
    expected = layer(tiny.x, tiny.graph.edge_index())
    torch.testing.assert_close(model(tiny.x, seen_by("sage", config, tiny)), expected)


def test_sgformer_is_that_of_pyg(tiny: Tiny) -> None:
    model = built("sgformer", CONFIGS["classic"]).eval()
    theirs = SGFormer(6, 16, 3, trans_num_layers=1, gnn_num_layers=2).eval()
    theirs.load_state_dict(model.network.state_dict())
    batch = torch.zeros(len(tiny.x), dtype=torch.int64)
    expected = theirs(tiny.x, tiny.graph.edge_index(), batch)
    torch.testing.assert_close(model(tiny.x, tiny.graph), expected)
