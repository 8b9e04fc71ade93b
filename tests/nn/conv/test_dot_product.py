"""Queries, keys and values that a backward pass makes again: same results, less memory."""

import gc
import weakref
from functools import partial

import pytest
import torch
from torch.profiler import ProfilerActivity, profile
from torch.utils.checkpoint import checkpoint

from graphtheory import Neighborhood, nn
from graphtheory.nn.conv.transformer_conv import Projections

pytestmark = pytest.mark.usefixtures("short_collections")
KINDS = [nn.TransformerConv, nn.SPDTransformerConv]
N, E = 40, 300


def graph(seed=0, dtype=torch.float64, edge_dim=3):
    """Edges, features of nodes, and of edges if these have some."""
    generator = torch.Generator().manual_seed(seed)
    edges = torch.randint(N, (2, E), generator=generator)
    x, features = (
        torch.randn(n, d, generator=generator, dtype=torch.float64).to(dtype).requires_grad_()
        for n, d in ((N, 5), (E, 3))
    )
    return edges, x, None if edge_dim is None else features


def twins(kind, dtype=torch.float64, **options):
    """The same layer with and without."""
    layers = [kind(5, 4, heads=2, **options).to(dtype) for _ in range(2)]
    layers[0].recompute = True
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for p in layers[1].parameters():
            p.copy_(torch.randn(p.shape, generator=generator))
    layers[0].load_state_dict(layers[1].state_dict())
    return layers


def results(layer, edges, x, features, **more):
    out = layer(x, edges, edge_attr=features, **more)
    leaves = [x, *layer.parameters(), *([] if features is None else [features])]
    return [out, *torch.autograd.grad(out.square().sum(), leaves)]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("edge_dim", [None, 3])
def test_gives_the_same(kind, edge_dim) -> None:
    edges, x, features = graph(edge_dim=edge_dim)
    more = {}
    if kind is nn.SPDTransformerConv:
        more["distance"] = torch.randint(9, (E,))
        more["attn_bias"] = torch.randn(E, 2, dtype=torch.float64)
    found, wanted = (
        results(one, edges, x, features, **more) for one in twins(kind, edge_dim=edge_dim)
    )
    torch.testing.assert_close(found, wanted)
    if edge_dim is None:  # the same kernels on the same numbers
        assert all(torch.equal(a, b) for a, b in zip(found, wanted, strict=True))


@pytest.mark.parametrize("edge_dim", [None, 3])
def test_vectors_in_the_values_and_a_bias_by_edge_stay_apart(edge_dim) -> None:
    edges, x, features = graph(edge_dim=edge_dim)
    more = {"distance": torch.randint(9, (E,)), "attn_bias": torch.randn(E, 2).double()}
    layers = twins(nn.SPDTransformerConv, edge_dim=edge_dim, value_encoding=True)
    found, wanted = (results(one, edges, x, features, **more) for one in layers)
    torch.testing.assert_close(found, wanted)
    x, table = x.detach(), layers[0].value_table
    before = layers[0](x, edges, edge_attr=features, **more)
    with torch.no_grad():
        table += 1
    moved = layers[0](x, edges, edge_attr=features, **more) - before
    torch.testing.assert_close(moved, torch.ones_like(moved) * (moved.abs() > 0.5))
    assert (moved.abs() > 0.5).any()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("edge_dim", [None, 3])
def test_dropout_drops_the_same_edges(kind, edge_dim) -> None:
    edges, x, features = graph(edge_dim=edge_dim)
    layers, found = twins(kind, edge_dim=edge_dim, dropout=0.5), []
    for layer in layers:
        torch.manual_seed(3)
        found.append(results(layer, edges, x, features))
    torch.testing.assert_close(*found)
    assert not torch.allclose(found[0][0], layers[0].eval()(x, edges, edge_attr=features))
    torch.manual_seed(3)
    with torch.no_grad():  # as a checkpoint does, which computes again with a gradient
        torch.testing.assert_close(layers[0].train()(x, edges, edge_attr=features), found[0][0])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("edge_dim", [None, 3])
def test_second_gradients(kind, edge_dim) -> None:
    edges, x, features = graph(edge_dim=edge_dim)
    found = []
    for layer in twins(kind, edge_dim=edge_dim):
        out = layer(x, edges, edge_attr=features)
        (slope,) = torch.autograd.grad(out.square().sum(), x, create_graph=True)
        leaves = [x, *(p for name, p in layer.named_parameters() if "skip" not in name)]
        found.append(torch.autograd.grad(slope.square().sum(), leaves))
    torch.testing.assert_close(*found)


def kept_bytes(layer, *given, **more) -> int:
    """What a forward pass leaves behind for the backward pass, with its output."""
    layer(*given, **more)  # the neighborhood is read once
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as seen:
        out = layer(*given, **more)
    assert out.requires_grad
    return sum(event.self_cpu_memory_usage for event in seen.key_averages())


@pytest.mark.parametrize("kind", KINDS)
def test_queries_keys_and_values_are_not_kept(kind) -> None:
    edges, x, _ = graph(dtype=torch.float32)
    less, more = (
        kept_bytes(one, x, edges) for one in twins(kind, torch.float32, root_weight=False)
    )
    assert more - less == 3 * N * 2 * 4 * 4  # three times [N, heads, out_channels] of 4 bytes


@pytest.mark.parametrize("edge_dim", [None, 3])
def test_a_change_in_place_is_an_error(edge_dim) -> None:
    edges, x, features = graph(edge_dim=edge_dim)
    layer = twins(nn.TransformerConv, edge_dim=edge_dim)[0]
    out = layer(x.detach(), edges, edge_attr=features)
    with torch.no_grad():
        layer.lin_value.weight.add_(1)
    ours, torchs = "a tensor .8, 5. .* was changed in place", "modified by an inplace .*8, 5"
    with pytest.raises(RuntimeError, match=ours if edge_dim is None else torchs):
        out.sum().backward()


def changed(what):
    """(layer, arguments, what to change before the backward pass), nothing of it a projection."""
    edges, x, features = graph()
    nb = Neighborhood.from_edge_index(edges, num_nodes=N)
    given = {"edge_attr": features.detach()}
    if what == "returned weights":
        layer, given = twins(nn.TransformerConv)[0], {"return_attention_weights": True}
    elif what == "lin_edge":
        layer = twins(nn.TransformerConv, edge_dim=400)[0]  # few edges with wide features
        given = {"edge_attr": torch.randn(E, 400, dtype=torch.float64, requires_grad=True)}
    else:
        layer = twins(nn.SPDTransformerConv, edge_dim=3, value_encoding=True)[0]
    for linear in (layer.lin_query, layer.lin_key, layer.lin_value):
        linear.requires_grad_(what == "returned weights")
    out = layer(x, nb, **given)
    out, weights = out if isinstance(out, tuple) else (out, (None, None))
    found = {"returned weights": weights[1], "features": given.get("edge_attr")}
    if what == "lin_edge":
        found[what] = layer.lin_edge.weight
    if what == "value_table":
        found[what] = layer.value_table
    return out, found[what]


@pytest.mark.parametrize("what", ["returned weights", "features", "value_table", "lin_edge"])
def test_a_change_of_anything_else_is_an_error_too(what) -> None:
    out, tensor = changed(what)
    tensor.detach().mul_(2)
    with pytest.raises(RuntimeError, match=r"changed in place|modified by an inplace operation"):
        out.sum().backward()


def test_a_sparse_x() -> None:
    edges, x, features = graph()
    for edge_dim in (None, 3):
        outs = [
            layer(x.detach().to_sparse_csr(), edges, features if edge_dim else None)
            for layer in twins(nn.TransformerConv, edge_dim=edge_dim)
        ]
        torch.testing.assert_close(*outs)
        outs[0].sum().backward()


def test_where_nothing_can_be_made_again_all_is_kept() -> None:
    edges, x, _ = graph()
    layer, plain = twins(nn.TransformerConv)
    with torch.autograd.graph.disable_saved_tensors_hooks("none here"):
        assert torch.equal(layer(x, edges), plain(x, edges))
    edges, x, _ = graph()
    with torch.inference_mode():
        fixed = x * 1
    layer = twins(nn.SPDTransformerConv, root_weight=False)[0]
    for name, parameter in layer.named_parameters():
        parameter.requires_grad_("table" in name)
    layer(fixed, edges).sum().backward()


def test_nothing_outlives_its_output() -> None:
    edges, x, features = graph()
    for kind in KINDS:
        layer = twins(kind, edge_dim=3)[0]
        gc.collect()
        gc.disable()
        try:
            given = x * 1
            out, seen = layer(given, edges, edge_attr=features), weakref.ref(given)
            del given
            assert seen() is not None
            del out
            assert seen() is None
        finally:
            gc.enable()


def test_a_graph_can_be_used_twice() -> None:
    edges, x, features = graph()
    layer = twins(nn.TransformerConv, edge_dim=3)[0]
    loss = layer(x, edges, edge_attr=features).square().sum()
    first = torch.autograd.grad(loss, x, retain_graph=True)
    assert torch.equal(*first, *torch.autograd.grad(loss, x))


@pytest.mark.parametrize("how", ["a hook", "another forward"])
def test_a_projection_with_more_to_it_is_named(how) -> None:
    edges, x, _ = graph()
    layer = twins(nn.TransformerConv)[0]
    if how == "a hook":
        layer.lin_key.register_forward_hook(lambda *_: None)
    else:
        layer.lin_key.forward = layer.lin_key.forward
    with pytest.raises(TypeError, match=r"recompute: got a Linear that is wrapped or has hooks"):
        layer(x, edges)
    with torch.no_grad():  # nothing is kept, nor made again
        wanted = twins(nn.TransformerConv)[1](x, edges)
        assert torch.equal(layer(x, edges), wanted)


@pytest.mark.parametrize("edge_dim", [None, 3])
def test_under_autocast(edge_dim) -> None:
    edges, x, features = graph(dtype=torch.float32, edge_dim=edge_dim)
    found = []
    for layer in twins(nn.TransformerConv, torch.float32, edge_dim=edge_dim):
        with torch.autocast("cpu", torch.bfloat16):
            out = layer(x, edges, edge_attr=features)
        found.append([out, *torch.autograd.grad(out.float().square().sum(), [x])])
    torch.testing.assert_close(*found)


def test_what_is_made_again_has_the_same_bits_and_shape() -> None:
    linear, x = nn.TransformerConv(5, 4, heads=2).lin_key, torch.randn(7, 5)
    made, seen = Projections(), []
    with made.saving():
        out = made(linear, x)
        query = out.view(7, 2, 4).transpose(0, 1)
        product = query * query  # saves it twice
    (of_weight,) = torch.autograd.grad(product.sum(), linear.weight, retain_graph=True)
    seen = product.grad_fn._saved_self
    assert seen.shape == query.shape and seen.stride() == query.stride()
    assert torch.equal(seen, query)
    torch.testing.assert_close(of_weight, 2 * out.detach().T @ x)


@pytest.mark.parametrize("edge_dim", [None, 3])
@pytest.mark.parametrize("reentrant", [False, True])
def test_inside_a_checkpoint(edge_dim, reentrant) -> None:
    edges, x, features = graph(edge_dim=edge_dim)
    layer = twins(nn.TransformerConv, edge_dim=edge_dim, dropout=0.3)[0]

    def run(x):
        return layer(x, edges, edge_attr=features)

    found = []
    for call in (run, partial(checkpoint, run, use_reentrant=reentrant)):
        torch.manual_seed(5)
        out = call(x)
        out.square().sum().backward()
        leaves = [x, *layer.parameters()]
        found.append([p.grad for p in leaves])
        for p in leaves:
            p.grad = None
    torch.testing.assert_close(*found)


@pytest.mark.parametrize("edge_dim", [None, 3])
def test_a_checkpoint_keeps_what_it_keeps_without(edge_dim) -> None:
    edges, x, features = graph(dtype=torch.float32, edge_dim=edge_dim)
    again, plain = (
        kept_bytes(lambda x, one=one: checkpoint(one, x, edges, features, use_reentrant=False), x)
        for one in twins(nn.TransformerConv, torch.float32, edge_dim=edge_dim)
    )
    assert again < plain + 64  # a number more or less


def test_gradients_of_torch_func() -> None:
    edges, x, features = graph()
    found = [
        torch.func.grad(lambda x, one=one: one(x, edges, edge_attr=features).square().sum())(x)
        for one in twins(nn.TransformerConv, edge_dim=3)
    ]
    torch.testing.assert_close(*found)


@pytest.mark.parametrize("kind", KINDS)
def test_weights_that_the_first_call_makes(kind) -> None:
    edges, x, features = graph(dtype=torch.float32)
    layer = kind(-1, 4, heads=2, edge_dim=3)
    layer.recompute = True
    first = layer(x, edges, edge_attr=features)
    torch.testing.assert_close(layer(x, edges, edge_attr=features), first)


@pytest.mark.parametrize("again", [False, True])
def test_a_backward_pass_under_autocast(again) -> None:
    edges, x, features = graph(dtype=torch.float32)
    layer = twins(nn.TransformerConv, torch.float32, edge_dim=3, root_weight=False)[0]
    found = []
    for on in (False, True):
        loss = layer(x, edges, edge_attr=features).square().sum()
        with torch.autocast("cpu", torch.bfloat16, enabled=on):
            found.append(torch.autograd.grad(loss, [x, features], create_graph=again))
    torch.testing.assert_close(*found)


@pytest.mark.parametrize("checkpointed", [False, True])
def test_batches_of_gradients(checkpointed) -> None:
    edges, x, features = graph()
    layer, ups = twins(nn.TransformerConv, edge_dim=3)[0], torch.eye(8, dtype=torch.float64)

    def gradients(ups, **options):
        run = partial(checkpoint, layer, use_reentrant=False) if checkpointed else layer
        return torch.autograd.grad(run(x, edges, edge_attr=features).sum(0), x, ups, **options)[0]

    wanted = torch.stack([gradients(up) for up in ups])
    torch.testing.assert_close(gradients(ups, is_grads_batched=True), wanted)
