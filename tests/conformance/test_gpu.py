"""The conformance suite on a GPU: Triton's kernels compiled, not interpreted."""

import itertools
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec

import pytest
import torch
from torch import Tensor, nn

from graphtheory import Neighborhood, bipartite, cliques, ops
from graphtheory.nn import SPDTransformerConv
from graphtheory.ops import reference
from graphtheory.ops.additive import additive_score
from graphtheory.ops.backend import BACKENDS
from graphtheory.ops.dropout import draw_seed
from graphtheory.ops.look_up import look_up
from graphtheory.vision.models.stvit_swin import stvit_r_swin
from graphtheory.vision.models.swin import swin
from graphtheory.vision.nn import Merge, PatchEmbedding
from graphtheory.vision.nn.reduce import pool
from tests.conformance import check
from tests.conformance.check import BIASES, GRAPHS, SIZES, assert_conforms, draw_inputs, expanded
from tests.conformance.check_edges import FORMS, assert_edges_conform, draw_edges
from tests.conformance.test_primitives import SHAPES, called, draw, results
from tests.ops.test_additive import case
from tests.ops.test_additive import definition as definition_of_score
from tests.ops.test_additive_attention import PARTS
from tests.ops.test_additive_attention import definition as definition_of_gat
from tests.ops.test_additive_attention import draw as draw_gat
from tests.ops.test_additive_attention import run as run_gat
from tests.ops.test_additive_attention import with_gradients as results_of
from tests.ops.test_topk import assert_same, halves, run, with_gradients

if not torch.cuda.is_available():
    pytest.skip("torch sees no GPU", allow_module_level=True)
if find_spec("triton") is None:
    pytest.skip("triton is not installed", allow_module_level=True)
TOLERANCE = BACKENDS["triton_csr"].tolerance
DTYPES = [torch.float64, torch.float32, torch.bfloat16, torch.float16]
COMMON = [(8, 16), (4, 64), (1, 128)]


def there(bias: Tensor | ops.BucketedBias | None) -> Tensor | ops.BucketedBias | None:
    """A bias on the GPU."""
    if isinstance(bias, ops.BucketedBias):
        return ops.BucketedBias(bias.bucket.cuda(), bias.table.cuda())
    return None if bias is None else bias.cuda()


def on_gpu(
    query: Tensor, key: Tensor, value: Tensor, nb: Neighborhood, *,
    bias: Tensor | ops.BucketedBias | None = None, **options: object,
) -> Tensor:  # fmt: skip
    """`ops.attention` of tensors on the CPU, computed on the GPU."""
    nodes = (query.cuda(), key.cuda(), value.cuda())
    out = ops.attention(*nodes, nb.to("cuda"), bias=there(bias), backend="triton_csr", **options)  # type: ignore[arg-type]
    return out.cpu()


def edges_on_gpu(
    *nodes: Tensor, edges: tuple[ops.EdgeFeatures, ...],
    bias: Tensor | ops.BucketedBias | None = None, **options: object,
) -> tuple[Tensor, tuple[Tensor, ...]]:  # fmt: skip
    """`ops.attention` with features of edges, of tensors on the CPU, computed on the GPU."""
    *given, nb = nodes
    moved = [
        ops.EdgeFeatures(*(None if t is None else t.cuda() for t in (e.features, e.query, e.row)))
        for e in edges
    ]
    options |= {"bias": there(bias), "edges": tuple(moved), "backend": "triton_csr"}
    out, sums = ops.attention(*(t.cuda() for t in given), nb.to("cuda"), **options)  # type: ignore[arg-type]
    return out.cpu(), tuple(s.cpu() for s in sums)


def nearest_on_gpu(inputs: check.Inputs, nb: Neighborhood, k: int, dropout: float) -> list[Tensor]:
    """Output and gradients of `ops.topk_attention` of tensors on the CPU, computed on the GPU."""
    nodes = (inputs.query.cuda(), inputs.key.cuda(), inputs.value.cuda())
    out = ops.topk_attention(
        *nodes, nb.to("cuda"), k, bias=there(inputs.bias), dropout=dropout,
        generator=torch.Generator().manual_seed(3), backend="blocks",
    )  # fmt: skip
    return with_gradients(out.cpu(), inputs)


def power_law(nodes: int = 600) -> Neighborhood:
    """In-degrees and out-degrees in every bin, up to some chunks."""
    generator = torch.Generator().manual_seed(0)
    draws = torch.rand(2, 12 * nodes, generator=generator).pow(4)
    return Neighborhood.from_edge_index((draws * nodes).long(), nodes)


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: str(d)[6:])
@pytest.mark.parametrize("nodes", SIZES)
@pytest.mark.parametrize("graph", GRAPHS)
def test_outputs_and_gradients(graph: str, nodes: int, dtype: torch.dtype) -> None:
    nb = GRAPHS[graph](nodes)
    for bias in BIASES:
        inputs = draw_inputs(nb, *SIZES[nodes], bias, dtype)
        assert_conforms(on_gpu, nb, inputs, tolerance=TOLERANCE)


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: str(d)[6:])
@pytest.mark.parametrize(("heads", "dim"), [*COMMON, (3, 33), (5, 1), (2, 300)])
def test_in_every_bin(heads: int, dim: int, dtype: torch.dtype) -> None:
    nb = power_law()
    assert nb.degree().max() > 1000 and nb.transpose().degree().max() > 1000
    for bias in ("none", "buckets"):
        inputs = draw_inputs(nb, heads, dim, bias, dtype)
        assert_conforms(on_gpu, nb, inputs, dropout=0.3, tolerance=TOLERANCE)


@pytest.mark.parametrize("degree", [1, 5, 16, 64])
def test_equal_rows(degree: int) -> None:
    generator = torch.Generator().manual_seed(0)
    src = torch.randint(90, (90 * degree,), generator=generator)
    edges = torch.stack([src, torch.arange(90).repeat_interleave(degree)])
    nb = Neighborhood.from_edge_index(edges, 90)
    for heads, dim in COMMON:
        inputs = draw_inputs(nb, heads, dim, "buckets")
        assert_conforms(on_gpu, nb, inputs, dropout=0.3, tolerance=TOLERANCE)


@pytest.mark.parametrize("bias", BIASES)
def test_strides_do_not_matter(bias: str) -> None:
    nb = GRAPHS["random"](63)
    assert_conforms(on_gpu, nb, expanded(draw_inputs(nb, 3, 5, bias)), tolerance=TOLERANCE)


@pytest.mark.usefixtures("poisoned_memory")
@pytest.mark.parametrize("graph", GRAPHS)
def test_nothing_is_read_before_it_is_written(graph: str) -> None:
    nb = GRAPHS[graph](63)
    for bias in BIASES:
        assert_conforms(on_gpu, nb, draw_inputs(nb, 3, 5, bias), tolerance=TOLERANCE)


@pytest.mark.parametrize("bias", BIASES)
def test_twice_gives_the_same_bits(bias: str) -> None:
    nb = power_law()
    inputs = draw_inputs(nb, 3, 16, bias)
    once, again = (check.outputs_and_gradients(on_gpu, nb, inputs, 0.3) for _ in range(2))
    assert all(torch.equal(once[name], again[name]) for name in once)


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: str(d)[6:])
@pytest.mark.parametrize("name", [n for n in SHAPES if " by " not in n])
def test_primitives(name: str, dtype: torch.dtype) -> None:
    for nodes in SIZES:
        for make in GRAPHS.values():
            nb = make(nodes)
            leaves = draw(name, nb, nodes, dtype)
            exact = [t.detach().double().requires_grad_() for t in leaves]
            true = results(called(name, reference), exact, nb)
            plain = results(called(name, reference), leaves, nb)
            there = [t.detach().cuda().requires_grad_() for t in leaves]
            up = torch.linspace(-1, 1, true[0].numel()).view_as(true[0]).cuda()
            found = results(called(name, ops), there, nb.to("cuda"), up)
            check.assert_within(found, plain, true, TOLERANCE)


@pytest.mark.usefixtures("poisoned_memory")
@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: str(d)[6:])
@pytest.mark.parametrize("edge_dim", [0, 3, 40])
def test_additive_score(edge_dim: int, dtype: torch.dtype) -> None:
    # Few enough sums that none is so near to 0 that rounding decides its slope.
    for edges, heads, dim in ((3000, 2, 5), (1000, 4, 32), (300, 3, 200)):
        nb, leaves = case(1, 80, 90, edges, heads, dim, edge_dim, dtype)
        used = 5 if edge_dim else 3
        exact = [t.detach().double().requires_grad_() for t in leaves]
        true = results_of(definition_of_score(nb, *exact, 0.3), exact[:used])
        plain = results_of(definition_of_score(nb, *leaves, 0.3), leaves[:used])
        there = [t.detach().cuda().requires_grad_() for t in leaves]
        given = {"edge_features": there[3], "edge_matrix": there[4]} if edge_dim else {}
        score = additive_score(*there[:3], nb.to("cuda"), negative_slope=0.3, **given)
        found = results_of(score, there[:used])
        check.assert_within(found, plain, true, TOLERANCE)


@pytest.mark.usefixtures("poisoned_memory")
@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: str(d)[6:])
@pytest.mark.parametrize("parts", PARTS)
def test_additive_attention(parts: str, dtype: torch.dtype) -> None:
    for nodes, p in itertools.product(SIZES, (0.0, 0.4)):
        for make in GRAPHS.values():
            nb, seed = make(nodes), draw_seed(torch.Generator().manual_seed(3))
            leaves = draw_gat(nb, 2, 24, parts, dtype)
            exact = [t.detach().double().requires_grad_() for t in leaves]
            true = results_of(definition_of_gat(exact, nb, 0.2, p, int(seed)), exact)
            plain = results_of(definition_of_gat(leaves, nb, 0.2, p, int(seed)), leaves)
            there = [t.detach().cuda().requires_grad_() for t in leaves]
            options = {"dropout": p, "generator": torch.Generator().manual_seed(3)}
            found = results_of(run_gat(there, nb.to("cuda"), **options), there)
            check.assert_within(found, plain, true, TOLERANCE, check.rounding(true, dtype))


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: str(d)[6:])
@pytest.mark.parametrize("form", FORMS)
def test_features_of_edges(form: str, dtype: torch.dtype) -> None:
    nb = power_law()
    for bias, dropout in (("buckets", 0.4), ("masked", 0.0)):
        given = draw_edges(nb, 3, 5, form, bias, dtype)
        assert_edges_conform(edges_on_gpu, nb, given, TOLERANCE, dropout)


# Of blocks: neighborhood, heads, head_dim, k.
BLOCKS = {
    "images": (cliques([197, 197]), 2, 64, 100),
    "small": (bipartite([5] * 3, [7] * 3), 3, 1, 4),
    "wide heads": (bipartite([70], [40]), 1, 128, 1),
    "longest rows": (bipartite([9, 9], [1024, 1024]), 2, 16, 900),
    "all of a row": (cliques([33]), 1, 16, 1000),
}


@pytest.mark.usefixtures("poisoned_memory")
@pytest.mark.parametrize(
    ("dtype", "tolerance"),
    [(torch.float32, 1e-5), (torch.bfloat16, 2e-2), (torch.float16, 2e-3)],
    ids=["float32", "bfloat16", "float16"],
)
@pytest.mark.parametrize("name", BLOCKS)
def test_k_nearest_on_blocks(name: str, dtype: torch.dtype, tolerance: float) -> None:
    nb, heads, dim, k = BLOCKS[name]
    for bias in BIASES:
        # Products are exact, so that float64 chooses the same; many are equal.
        inputs = halves(draw_inputs(nb, heads, dim, bias, dtype))
        for given, dropout in ((inputs, 0.0), (expanded(inputs), 0.4)):
            exact = given.to(torch.float64)
            options = {"dropout": dropout, "generator": torch.Generator().manual_seed(3)}
            true = with_gradients(run(exact, nb, k, "reference", **options), exact)
            assert_same(nearest_on_gpu(given, nb, k, dropout), true, tolerance)


def test_k_nearest_of_views_of_one_projection() -> None:
    nb = cliques([70] * 3).to("cuda")
    both = torch.randn(210, 3, 4, 32, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    found = []
    for nodes in (both.unbind(1), [t.contiguous() for t in both.unbind(1)]):
        out = ops.topk_attention(*nodes, nb, 20, backend="blocks")
        found.append([out, *torch.autograd.grad(out.float().square().sum(), both)])
    assert all(map(torch.equal, *found))


def test_k_nearest_twice_gives_the_same_bits() -> None:
    nb, heads, dim, k = BLOCKS["images"]
    inputs = draw_inputs(nb, heads, dim, "buckets")
    once, again = (nearest_on_gpu(inputs, nb, k, 0.3) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(once, again, strict=True))


@pytest.mark.parametrize("k", [None, 7])
def test_a_recorded_graph_runs_again_and_draws_anew(k: int | None) -> None:
    nb = (power_law() if k is None else cliques([60] * 3)).to("cuda")
    attend = partial(ops.attention, backend="triton_csr")
    if k is not None:
        attend = partial(ops.topk_attention, k=k, backend="blocks")
    inputs = draw_inputs(nb, 8, 16)
    leaves = [t.detach().cuda().requires_grad_() for t in (inputs.query, inputs.key, inputs.value)]
    bucket = (torch.arange(nb.num_edges, device="cuda") % 5).to(torch.uint8)
    table = torch.randn(5, 8, device="cuda", requires_grad=True)
    up = inputs.grad.cuda()

    def step(dropout: float) -> tuple[Tensor, ...]:
        bias = ops.BucketedBias(bucket, table)
        out = attend(*leaves, nb, bias=bias, dropout=dropout)
        return out.detach(), *torch.autograd.grad(out, [*leaves, table], up)

    for dropout in (0.0, 0.5):
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            wanted = step(dropout)
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            found = step(dropout)
        graph.replay()
        first = [t.clone() for t in found]
        graph.replay()
        if dropout == 0:
            assert all(torch.equal(a, b) for a, b in zip(first, wanted, strict=True))
        assert torch.equal(first[0], found[0]) == (dropout == 0)


def by_sets(
    query: Tensor, key: Tensor, value: Tensor, nb: Neighborhood, *,
    bias: Tensor | ops.BucketedBias | None = None, **options: object,
) -> Tensor:  # fmt: skip
    """`ops.attention` of tensors on the CPU by the dense kernels of the GPU."""
    nodes = (query.cuda(), key.cuda(), value.cuda(), nb.to("cuda"))
    return ops.attention(*nodes, bias=there(bias), backend="blocks", **options).cpu()  # type: ignore[arg-type]


@pytest.mark.parametrize("bias", ["edges", "buckets"])
@pytest.mark.parametrize("graph", ["clique", "unequal cliques", "ragged causal"])
def test_a_bias_beside_dense_kernels(graph: str, bias: str) -> None:
    nb = GRAPHS[graph](63)
    inputs = draw_inputs(nb, 2, 16, bias)
    assert_conforms(by_sets, nb, inputs, tolerance=TOLERANCE)
    if bias == "buckets":
        once, again = (
            check.outputs_and_gradients(by_sets, nb, inputs)["bias.table"] for _ in range(2)
        )
        assert torch.equal(once, again)


def test_a_bias_that_heads_share_beside_dense_kernels() -> None:
    nb = cliques([13] * 4)
    inputs = draw_inputs(nb, 3, 16, "edges")
    shared = inputs.bias[:, :1].detach().expand(-1, 3)
    nodes = (inputs.query, inputs.key, inputs.value, nb)
    true = ops.attention(*nodes, bias=shared, backend="reference")
    torch.testing.assert_close(by_sets(*nodes, bias=shared), true)


@pytest.mark.parametrize("shape", [(20,), (3, 2, 5), (256, 3), (257, 2), (20, 128)])
def test_rows_of_a_table_and_two_gradients(shape: tuple[int, ...]) -> None:
    row = torch.randint(shape[0], (5000,), dtype=torch.int32)
    made = torch.randn(shape), torch.randn(5000, *shape[1:])

    def gradients(device: str) -> list[Tensor]:
        table, grad = (t.to(device, copy=True).requires_grad_() for t in made)
        out = look_up(table, row.to(device))
        (of_table,) = torch.autograd.grad(out, table, grad, create_graph=True)
        (of_grad,) = torch.autograd.grad(of_table.square().sum(), grad)
        return [t.detach().cpu() for t in (out, of_table, of_grad)]

    found = gradients("cuda")
    torch.testing.assert_close(found, gradients("cpu"), rtol=1e-4, atol=1e-4)
    if shape[0] <= 256:
        assert all(map(torch.equal, found, gradients("cuda")))


@pytest.mark.parametrize("given", [True, False], ids=["distances", "none"])
def test_a_recorded_layer_with_distances(given: bool) -> None:
    nb = power_law().to("cuda")
    hops = torch.arange(nb.num_edges, device="cuda") % 7 if given else None
    layer = SPDTransformerConv(16, 8, heads=2, num_buckets=5).to("cuda")
    x = torch.randn(nb.num_src, 16, device="cuda")
    wanted = layer(x, nb, distance=hops)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = layer(x, nb, distance=hops)
    graph.replay()
    assert torch.equal(found, wanted)


@pytest.mark.parametrize("made", [swin, stvit_r_swin], ids=lambda f: f.__name__)
def test_a_recorded_network_of_windows(made: Callable[..., nn.Module]) -> None:
    shape = {"depths": (2, 2, 2, 2), "heads": (1, 2, 4, 8)} if made is swin else {"heads": 1}
    model = made(8, **shape, window=4, drop_path=0.0).cuda().eval()
    images = torch.randn(2, 3, 40, 56, device="cuda")
    with torch.no_grad():
        wanted = model(images)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            found = model(images)
    graph.replay()
    assert torch.equal(found, wanted)


@pytest.mark.parametrize("edge_dim", [None, 3])
def test_what_is_made_again_gives_the_same_gradients(edge_dim: int | None) -> None:
    edges = torch.randint(50, (2, 400), device="cuda")
    x = torch.randn(50, 16, device="cuda", requires_grad=True)
    features = None if edge_dim is None else torch.randn(400, edge_dim, device="cuda")
    layer, found = SPDTransformerConv(16, 8, heads=4, edge_dim=edge_dim).cuda(), []
    for layer.recompute in (False, True):
        out = layer(x, edges, edge_attr=features)
        found.append([out, *torch.autograd.grad(out.square().sum(), [x, *layer.parameters()])])
    torch.testing.assert_close(*found)


def test_merged_tokens_are_those_of_a_cpu() -> None:
    values, slot = torch.randn(3, 9, 4), torch.randint(-1, 5, (3, 9))
    found = pool(values.cuda(), slot.cuda(), 5).cpu()
    torch.testing.assert_close(found, pool(values, slot, 5))
    for rule in (Merge(0), Merge(3), Merge(9)):
        sizes = torch.randint(1, 4, (3, 9)).float()
        found, wanted = rule(values.cuda(), size=sizes.cuda()), rule(values, size=sizes)
        torch.testing.assert_close([t.cpu() for t in found], list(wanted))


def test_patches_are_those_of_the_convolution_of_a_cpu() -> None:
    embed, images = PatchEmbedding(24, patch_size=8), torch.randn(3, 3, 16, 40)
    wanted, grid = embed(images)
    for laid in (images, images.to(memory_format=torch.channels_last)):
        found, same = embed.cuda()(laid.cuda())
        assert same == grid
        torch.testing.assert_close(found.cpu(), wanted, rtol=1e-4, atol=1e-4)


def test_compiled_without_a_break_it_is_the_same() -> None:
    nb = power_law().to("cuda")
    inputs = draw_inputs(nb, 2, 16)
    leaves = [t.detach().cuda().requires_grad_() for t in (inputs.query, inputs.key, inputs.value)]

    @torch.compile(fullgraph=True)
    def run(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return ops.attention(query, key, value, nb)

    found = torch.autograd.grad(run(*leaves).square().sum(), leaves)
    true = torch.autograd.grad(ops.attention(*leaves, nb).square().sum(), leaves)
    torch.testing.assert_close(found, true)
