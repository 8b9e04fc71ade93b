"""GPSConv beside PyG's, on batches of graphs of different sizes."""

import pytest
import torch
import torch_geometric.nn as pyg
from torch import nn

from graphtheory import ops
from graphtheory.graph import cliques
from graphtheory.integrations.pyg import accelerate
from graphtheory.nn import BucketBias, GPSConv, JointBias
from graphtheory.nn.conv.gps_conv import clique_edges, dense_attention
from tests.nn.conv.conftest import TOLERANCE

CHANNELS, SIZES = 8, (3, 0, 5, 1)
CONVS = {
    "none": lambda: None,
    "gcn": lambda: pyg.GCNConv(CHANNELS, CHANNELS),
    "gine": lambda: pyg.GINEConv(nn.Linear(CHANNELS, CHANNELS), edge_dim=2),
    "resgated": lambda: pyg.ResGatedGraphConv(CHANNELS, CHANNELS, edge_dim=2),
}


def draw(dtype=torch.float64):
    """x, edge_index, batch of graphs with these sizes, edge_attr."""
    batch = torch.arange(len(SIZES)).repeat_interleave(torch.tensor(SIZES))
    edges = (batch[:, None] == batch) & ~torch.eye(len(batch), dtype=torch.bool)
    edges = edges.nonzero().t()[:, ::2].contiguous()
    size = len(batch), CHANNELS
    return torch.randn(size, dtype=dtype), edges, batch, torch.randn(edges.size(1), 2, dtype=dtype)


def pair(conv, **options):
    """PyG's layer and ours with the same parameters, none of which is zero."""
    heads = options.pop("heads", 2)
    theirs, ours = (
        kind(CHANNELS, CONVS[conv](), heads, **options).double() for kind in (pyg.GPSConv, GPSConv)
    )
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.normal_(0, 0.5)
    ours.load_state_dict(theirs.state_dict(), strict=True)
    theirs.load_state_dict(ours.state_dict(), strict=True)
    return theirs, ours


def run(layer, x, *args, **kwargs):
    """Output, gradients of x and of every parameter, and the buffers that training changes."""
    x = x.clone().requires_grad_()
    layer.zero_grad()
    out = layer(x, *args, **kwargs)
    weight = torch.randn(out.shape, generator=torch.Generator().manual_seed(7), dtype=out.dtype)
    (out * weight).sum().backward()
    gradients = [torch.zeros(()) if p.grad is None else p.grad for p in layer.parameters()]
    return [out.detach(), x.grad, *gradients, *layer.buffers()]


def assert_close(found, wanted):
    scale = max(1.0, *(float(t.abs().max()) for t in wanted if t.numel()))
    for mine, other in zip(found, wanted, strict=True):
        tolerance = TOLERANCE[torch.float64] * scale
        torch.testing.assert_close(mine, other, rtol=0, atol=tolerance, check_dtype=False)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("norm", ["batch_norm", "layer_norm", "graph_norm", None])
@pytest.mark.parametrize("conv", CONVS)
def test_gives_what_pyg_gives(conv, norm, training) -> None:
    theirs, ours = (layer.train(training) for layer in pair(conv, norm=norm))
    x, edges, batch, edge_attr = draw()
    more = {"edge_attr": edge_attr} if conv in ("gine", "resgated") else {}
    wanted = run(theirs, x, edges, batch, **more)
    assert_close(run(ours, x, edges, batch, **more), wanted)


@pytest.mark.parametrize(
    "options", [{"act": "gelu"}, {"heads": 4}, {"attn_kwargs": {"bias": False}}]
)
def test_options_and_a_single_graph(options) -> None:
    theirs, ours = pair("gcn", **options)
    x, edges, _, _ = draw()
    assert_close(run(ours, x, edges), run(theirs, x, edges))
    assert repr(ours) == repr(theirs)


def test_features_and_attention_weights_are_dropped_where_pyg_drops_them() -> None:
    theirs, ours = pair("gcn", dropout=0.4)
    x, edges, batch, _ = draw()
    outputs = []
    for layer in (theirs, ours):
        torch.manual_seed(3)
        outputs.append(run(layer, x, edges, batch))
    assert_close(*outputs)
    _, ours = pair(conv="none", attn_kwargs={"dropout": 0.5}, norm=None)
    x, edges, batch, _ = draw()
    assert not torch.allclose(ours(x, edges, batch), ours(x, edges, batch))
    ours.eval()
    assert torch.equal(ours(x, edges, batch), ours(x, edges, batch))


def test_distance_and_given_bias_are_added_to_the_logits() -> None:
    _, plain = pair("none", norm=None)
    biased = GPSConv(CHANNELS, None, 2, norm=None, bias=BucketBias(4, 2)).double()
    biased.load_state_dict(plain.state_dict(), strict=False)
    x, edges, batch, _ = draw()
    nb = cliques(SIZES)
    distance = torch.randint(6, (nb.num_edges,), dtype=torch.uint8)
    given = torch.randn(nb.num_edges, 2, dtype=torch.float64)
    torch.testing.assert_close(biased(x, edges, batch, distance=distance), plain(x, edges, batch))
    with torch.no_grad():
        biased.bias.table.normal_()
    both = biased.bias.table[distance.long().clamp(max=3)] + given
    for found, wanted in (
        (biased(x, edges, batch, distance=distance, attn_bias=given), both),
        (biased(x, edges, batch, distance=distance), both - given),
    ):
        torch.testing.assert_close(found, plain(x, edges, batch, attn_bias=wanted))
    # One softmax over each graph, by torch itself.
    query, key, value = nn.functional.linear(
        x, plain.attn.in_proj_weight, plain.attn.in_proj_bias
    ).view(-1, 3, 2, 4).unbind(1)  # fmt: skip
    rows = []
    for i in range(len(x)):
        mine = nb.targets() == i
        logits = torch.einsum("hd,shd->sh", query[i], key[nb.indices[mine]]) / 2 + both[mine]
        rows.append(torch.einsum("sh,shd->hd", logits.softmax(0), value[nb.indices[mine]]))
    h = x + plain.attn.out_proj(torch.stack(rows).flatten(1))
    torch.testing.assert_close(plain(x, edges, batch, attn_bias=both), h + plain.mlp(h))


def test_hops_and_resistance_together() -> None:
    _, plain = pair("none", norm=None)
    joint = JointBias(BucketBias(4, 2), BucketBias(6, 2))
    biased = GPSConv(CHANNELS, None, 2, norm=None, bias=joint).double()
    biased.load_state_dict(plain.state_dict(), strict=False)
    with torch.no_grad():
        for table in joint.parameters():
            table.normal_()
    x, edges, batch, _ = draw()
    distance = torch.randint(9, (cliques(SIZES).num_edges, 2), dtype=torch.uint8)
    tables = [part.table for part in joint.parts]
    rows = [distance[:, k].long().clamp(max=len(table) - 1) for k, table in enumerate(tables)]
    wanted = plain(x, edges, batch, attn_bias=tables[0][rows[0]] + tables[1][rows[1]])
    torch.testing.assert_close(biased(x, edges, batch, distance=distance), wanted)


def test_weights_of_attention_a_graph_without_nodes_and_a_reset() -> None:
    _, ours = pair("gcn")
    x, edges, batch, _ = draw()
    found = ours.attention_map(x, edges, batch)
    sums = torch.zeros(len(x), 2).double().index_add(0, found.neighborhood.targets(), found.weights)
    torch.testing.assert_close(sums, torch.ones_like(sums))
    layer, x = GPSConv(4, None, heads=2), torch.ones(0, 4, requires_grad=True)
    out = layer(x, torch.empty(2, 0, dtype=torch.long))
    out.sum().backward()
    assert out.shape == (0, 4) and x.grad is not None
    layer = GPSConv(8, pyg.GCNConv(8, 8), 2, bias=BucketBias(4, 2))
    nn.init.ones_(layer.bias.table)
    layer.reset_parameters()
    assert not layer.bias.table.any()


def test_a_changed_batch_is_noticed_and_what_was_read_in_inference_mode_trains() -> None:
    _, ours = pair("none", norm=None)
    x, edges, batch, _ = draw()
    with torch.inference_mode():
        before, _ = ours(x, edges, batch), ours(x, edges)
    run(ours, x, edges, batch)
    run(ours, x, edges)
    batch.zero_()
    torch.testing.assert_close(ours(x, edges, batch), ours(x, edges))
    assert not torch.allclose(before, ours(x, edges, batch))


def short(count):
    return torch.zeros(count, dtype=torch.uint8)


@pytest.mark.parametrize(("options", "given", "message"), [
    ({"attn_type": "performer"}, {}, "attn_type: got 'performer', expected 'multihead'"),
    ({"attn_kwargs": {"add_bias_kv": True}}, {}, "add_bias_kv=True, expected False"),
    ({"attn_kwargs": {"add_zero_attn": True}}, {}, "add_zero_attn=True, expected False"),
    ({"attn_kwargs": {"kdim": 4}}, {}, "kdim=4"),
    ({}, {"batch": draw()[2].flip(0)}, "batch: entry 1 is 2 behind 3, expected"),
    ({}, {"batch": draw()[2][1:]}, r"batch: shape \(8,\), expected one entry per node: \[9\]"),
    ({}, {"x": torch.randn(9, 3)}, r"x: shape \(9, 3\), expected \[num_nodes, 8\]"),
    ({}, {"distance": short(35)}, "distance: given, expected None"),
    ({"bias": BucketBias(4, 1)}, {}, "distance: got None, expected one value per pair"),
    ({"bias": BucketBias(4, 1)}, {"distance": short(2)},
     r"distance: shape \(2,\), expected one per pair \[35"),
    ({}, {"attn_bias": short(35)}, r"attn_bias: shape \(35,\), .* \[35, 1\]"),
])  # fmt: skip
def test_wrong_input_is_refused_in_words(options, given, message) -> None:
    x, edges, batch, _ = draw(torch.float32)
    with pytest.raises(ValueError, match=message):
        GPSConv(8, None, **options)(**{"x": x, "edge_index": edges, "batch": batch} | given)


def test_accelerate_keeps_what_would_differ() -> None:
    def two(**options):
        conv = pyg.GCNConv(CHANNELS, CHANNELS)
        return nn.ModuleList(pyg.GPSConv(CHANNELS, conv, 2, **options) for _ in range(2))

    for options, reason in (
        ({"attn_type": "performer"}, "'performer'"),
        ({"attn_kwargs": {"add_zero_attn": True}}, "add_zero_attn"),
    ):
        report = accelerate(two(**options))
        assert {entry.name for entry in report.kept} == {"0", "1"}
        assert all(reason in entry.reason for entry in report.kept)
    model = two()
    model[1].attn.register_forward_hook(lambda *args: None)
    (kept,) = accelerate(model).kept
    assert kept.name == "1" and "a hook on its attn" in kept.reason


def graphs(*sizes):
    """Features, edges within the graphs, and the graph of each node."""
    batch = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))
    pairs = cliques(sizes).edge_index()
    return torch.randn(len(batch), 8), pairs[:, torch.randperm(pairs.size(1))[:20]], batch


ANY = torch.export.Dim.DYNAMIC
SHAPES = {"x": {0: ANY}, "edge_index": {1: ANY}, "batch": {0: ANY}}


@pytest.mark.parametrize("norm", ["batch_norm", None])
@pytest.mark.parametrize("batched", [False, True])
def test_exports_for_any_number_of_nodes_and_edges(batched, norm) -> None:
    """Of one graph, or of any number of graphs."""
    conv = GPSConv(8, pyg.GCNConv(8, 8), heads=2, norm=norm).eval()
    assert accelerate(conv).swapped
    args = graphs(3, 5, 4) if batched else graphs(9)[:2]
    shapes = {name: SHAPES[name] for name in list(SHAPES)[: len(args)]}
    program = torch.export.export(conv, args, dynamic_shapes=shapes)
    assert all(found.upper > 2**62 for found in program.range_constraints.values())
    module = program.module()
    others = (graphs(3, 5, 4), graphs(2, 30, 3, 7)) if batched else (graphs(9)[:2], graphs(40)[:2])
    for other in others:
        torch.testing.assert_close(module(*other), conv(*other))
    if batched:
        x, edge_index, batch = others[1]
        apart = module(x, edge_index, torch.arange(len(batch)))
        assert not torch.allclose(apart, conv(x, edge_index, batch), atol=1e-3)


def test_exported_graphs_are_apart_and_their_pairs_are_cliques() -> None:
    conv = GPSConv(8, pyg.GCNConv(8, 8), heads=2).eval()
    module = torch.export.export(conv, graphs(3, 5, 4), dynamic_shapes=SHAPES).module()
    x, edge_index, batch = graphs(6, 2, 9)
    found, wanted = (
        torch.autograd.grad(run(x, edge_index, batch).square().sum(), given)[0]
        for given, run in ((x.requires_grad_(), module), (x, conv))
    )
    torch.testing.assert_close(found, wanted)
    for sizes in ((3, 1, 2), (4,), (1, 0, 5)):
        batch = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))
        found, wanted = clique_edges(batch), cliques(sizes)
        assert torch.equal(found.indptr, wanted.indptr)
        assert torch.equal(found.indices, wanted.indices)
        torch.testing.assert_close(
            dense_attention(*(q := torch.randn(3, len(batch), 2, 4)), batch, 0.0),
            ops.attention(*q, wanted),
        )


@pytest.mark.parametrize("batched", [False, True])
def test_exports_with_biases_of_pairs(batched) -> None:
    conv = GPSConv(8, None, heads=2, bias=BucketBias(4, 2)).eval()
    torch.nn.init.normal_(conv.bias.table)

    def given(*sizes):
        x, edge_index, batch = graphs(*sizes)
        pairs = cliques(sizes).num_edges
        more = {"distance": torch.arange(pairs) % 5, "attn_bias": torch.randn(pairs, 2)}
        return {"x": x, "edge_index": edge_index} | ({"batch": batch} if batched else {}) | more

    first, other = (given(3, 5), given(2, 4, 6)) if batched else (given(5), given(7))
    shapes = {name: SHAPES.get(name, {0: ANY}) for name in first}
    module = torch.export.export(conv, (), first, dynamic_shapes=shapes).module()
    torch.testing.assert_close(module(**other), conv(**other))
    with pytest.raises(RuntimeError, match="size"):  # other biases than there are pairs
        module(**other | {name: other[name][:-1] for name in ("distance", "attn_bias")})


@pytest.mark.parametrize("dynamic", [False, True])
def test_attention_among_all_nodes_compiles_as_one_graph(dynamic: bool) -> None:
    conv = GPSConv(8, None, heads=2).eval()
    compiled = torch.compile(conv, backend="eager", fullgraph=True, dynamic=dynamic)
    x, edges, _, _ = draw(torch.float32)
    torch.testing.assert_close(compiled(x, edges), conv(x, edges))
