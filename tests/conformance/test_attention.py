"""Every backend against the definition: outputs, all gradients, memory, order of sums, threads."""

from collections.abc import Callable
from functools import partial
from itertools import product

import pytest
import torch
from torch import Tensor

from graphtheory import Neighborhood, cliques, ops
from graphtheory.ops.backend import BACKENDS
from graphtheory.ops.backends.cpu import launch, memory
from tests.conformance import check
from tests.conformance.check import BIASES, GRAPHS, SIZES, draw_inputs, outputs_and_gradients
from tests.conftest import case

TOLERANCE = {b.name: b.tolerance for b in BACKENDS.values()}
CSR = check.runs_here(ops.attention, *[torch.zeros(3, 1, 4)] * 3, check.FEW)
SMALL = GRAPHS | {"equal cliques": lambda nodes: cliques([4, 4])}  # of seven nodes or eight


def run_by(backend: str) -> partial[Tensor]:
    return partial(ops.attention, backend=backend)


def backends_of(graph: str) -> list[str]:
    return ["blocks", *CSR] if graph in (*check.OF_SETS, "equal cliques") else CSR


def conform(backends, nb: Neighborhood, inputs: check.Inputs, p=0.0, bound=None) -> None:
    """All of them, beside the same definition."""
    known = check.wanted(nb, inputs, p)
    for backend in backends:
        options = {"dropout": p, "tolerance": bound or TOLERANCE[backend], "known": known}
        with case(backend, inputs.query.dtype):
            check.assert_conforms(run_by(backend), nb, inputs, **options)


def test_blocks_take_every_graph_of_sets() -> None:
    for graph, make in GRAPHS.items():
        found = {check.has_sets(make(nodes)) for nodes in SIZES}
        assert found == {graph in check.OF_SETS}, graph


def conforms(graph: str, nodes: int, dtype: torch.dtype, backends: list[str]) -> None:
    nb = GRAPHS[graph](nodes)
    for bias in BIASES:
        with case(nodes, bias):
            conform(backends, nb, draw_inputs(nb, *SIZES[nodes], bias, dtype))


@pytest.mark.parametrize("graph", GRAPHS)
def test_outputs_and_gradients(graph: str) -> None:
    """Not of the definition in float64, which is what all are compared with."""
    for nodes, dtype in check.TYPED_SIZES:
        some = [b for b in backends_of(graph) if not check.is_slow(graph, dtype, b)]
        exact = dtype == torch.float64
        conforms(graph, nodes, dtype, [b for b in some if not exact or b != "reference"])


@pytest.mark.slow
def test_narrow_ids_with_sums_in_float64() -> None:
    for nodes in SIZES:
        conforms(check.NARROW, nodes, torch.float64, ["numba_csr"])


@pytest.mark.parametrize("bias", BIASES)
@pytest.mark.parametrize("p", [1e-12, 0.4, 0.999])
def test_dropout_drops_the_same_everywhere(p: float, bias: str) -> None:
    for backends, nb in ((["blocks"], cliques([31] * 2)), (CSR, GRAPHS["random"](63))):
        conform(backends, nb, draw_inputs(nb, 3, 5, bias), p)


@pytest.mark.parametrize("graph", SMALL)
def test_strides_do_not_matter(graph: str) -> None:
    nb = SMALL[graph](7)
    for bias in BIASES:
        inputs = check.expanded(draw_inputs(nb, 3, 5, bias))
        assert nb.num_edges == 0 or not inputs.query.is_contiguous()
        conform(backends_of(graph), nb, inputs)


@pytest.mark.usefixtures("poisoned_memory")
@pytest.mark.parametrize("graph", SMALL)
def test_nothing_is_read_before_it_is_written(graph: str) -> None:
    nb = SMALL[graph](7)
    for bias, dtype in product(BIASES, (torch.float32, torch.bfloat16)):
        conform(backends_of(graph), nb, draw_inputs(nb, 3, 5, bias, dtype))


@pytest.mark.parametrize("bias", BIASES)
@pytest.mark.parametrize("backend", ["blocks", *CSR])
def test_twice_gives_the_same_bits(backend: str, bias: str) -> None:
    nb = cliques([32] * 4) if backend == "blocks" else GRAPHS["random"](257)
    inputs = draw_inputs(nb, 3, 16, bias)
    once, again = (outputs_and_gradients(run_by(backend), nb, inputs, 0.3) for _ in range(2))
    assert all(torch.equal(once[name], again[name]) for name in once)


@pytest.mark.parametrize(
    ("whole", "handed", "launches"), [(2**62, 2**62, 2), (0, 2**62, 8), (0, 0, 3)]
)
@pytest.mark.parametrize("bias", BIASES)
def test_threads_do_not_change_a_bit(bias, whole, handed, launches, two_threads, monkeypatch):
    monkeypatch.setattr(memory, "WHOLE_ROWS_BELOW", whole)
    monkeypatch.setattr(memory, "KEPT_WEIGHTS_BELOW", handed)
    asked = []

    def counted(ask: Callable[..., None], own: int, job: Callable[[], None], threads: int) -> None:
        asked.append(threads - own)  # other threads than the calling one
        ask(job, threads)

    monkeypatch.setattr(launch.team, "run", partial(counted, launch.team.run, 1))
    monkeypatch.setattr(launch.helpers, "ask", partial(counted, launch.helpers.ask, 0))
    monkeypatch.setattr(launch, "_CHUNK", 64)
    monkeypatch.setattr(launch, "WORTH_A_THREAD", 1)
    nb = GRAPHS["random"](257)
    inputs = draw_inputs(nb, 3, 16, bias)
    two = outputs_and_gradients(run_by("numba_csr"), nb, inputs, 0.3)
    assert asked == [1] * launches
    torch.set_num_threads(1)
    one = outputs_and_gradients(run_by("numba_csr"), nb, inputs, 0.3)
    assert asked == [1] * launches and all(torch.equal(one[name], two[name]) for name in one)


def test_a_hub_of_a_hundred_thousand(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "WHOLE_ROWS_BELOW", 0)  # the hub is shared out
    nb = GRAPHS["hub"](100_000)
    conform(["torch_csr", "numba_csr"], nb, draw_inputs(nb, 1, 2), bound={torch.float32: 1e-4})


@pytest.mark.parametrize("backend", ["blocks", *CSR])
def test_half_precision_does_not_lose_count(backend: str) -> None:
    nodes = 1100  # in bfloat16 a running count stops at 256, in float16 at 2048
    nb = cliques([nodes]) if backend == "blocks" else GRAPHS["hub"](70_000)
    for dtype in (torch.bfloat16, torch.float16):
        query = torch.zeros(nb.num_dst, 1, 1, dtype=dtype)
        value = torch.full((nb.num_src, 1, 1), 3.0, dtype=dtype)
        out = ops.attention(query, torch.zeros_like(value), value, nb, backend=backend)
        torch.testing.assert_close(out[0].item(), 3.0, rtol=1e-2, atol=0)


@pytest.mark.parametrize("backend", ["blocks", *CSR])
def test_a_row_masked_by_minus_infinity(backend: str) -> None:
    nb = cliques([4, 4])
    inputs = draw_inputs(nb, 2, 3, "edges")
    masked = inputs.bias.detach().clone()
    masked[nb.targets() == 5] = -torch.inf
    masked.requires_grad_()
    out = ops.attention(inputs.query, inputs.key, inputs.value, nb, bias=masked, backend=backend)
    assert out[5].eq(0).all() and out[4].ne(0).all()
    leaves = [inputs.query, inputs.key, inputs.value, masked]
    grads = torch.autograd.grad(out[5].sum(), leaves)
    assert all(g.eq(0).all() for g in grads)


@pytest.mark.parametrize("backend", ["blocks", *CSR])
def test_nan_stays_where_it_is(backend: str) -> None:
    nb = cliques([4, 4]) if backend == "blocks" else GRAPHS["random"](63)
    inputs = draw_inputs(nb, 2, 8)
    before = ops.attention(inputs.query, inputs.key, inputs.value, nb, backend=backend)
    bad = 3
    touched = nb.targets()[nb.indices == bad].unique()
    for name in ("key", "value"):
        poisoned = {n: t.detach().clone() for n, t in inputs.leaves().items()}
        poisoned[name][bad] = torch.nan
        after = ops.attention(**poisoned, neighborhood=nb, backend=backend)
        assert after[touched].isnan().all()
        elsewhere = torch.ones(nb.num_dst, dtype=torch.bool).index_fill(0, touched, False)
        assert elsewhere.any() and torch.equal(after[elsewhere], before[elsewhere])


def relabeled(nb: Neighborhood, order: Tensor) -> Neighborhood:
    """The graph in which node order[i] of `nb` is called i."""
    name = torch.empty_like(order)
    name[order] = torch.arange(len(order))
    return Neighborhood.from_edge_index(name[nb.edge_index()], len(order))


@pytest.mark.parametrize("backend", CSR)
def test_names_of_nodes_and_order_of_edges_do_not_matter(backend, generator) -> None:
    nb = GRAPHS["random"](63)
    inputs = draw_inputs(nb, 3, 5)
    order = torch.randperm(63, generator=generator)
    plain = ops.attention(inputs.query, inputs.key, inputs.value, nb, backend=backend)
    leaves = [t[order] for t in (inputs.query, inputs.key, inputs.value)]
    out = ops.attention(*leaves, relabeled(nb, order), backend=backend)
    torch.testing.assert_close(out, plain[order], rtol=1e-5, atol=1e-6)
    nb = GRAPHS["random"](63)
    inputs = draw_inputs(nb, 3, 5, "edges")
    order = torch.randperm(nb.num_edges, generator=generator)
    shuffled = Neighborhood.from_edge_index(nb.edge_index()[:, order], 63)
    leaves = (inputs.query, inputs.key, inputs.value)
    plain = ops.attention(*leaves, nb, bias=inputs.bias, backend=backend)
    bias = inputs.bias[order][shuffled.perm]
    out = ops.attention(*leaves, shuffled, bias=bias, backend=backend)
    torch.testing.assert_close(out, plain, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("backend", CSR)
def test_a_batch_is_its_graphs_side_by_side(backend: str) -> None:
    graphs = [GRAPHS[name](7) for name in ("no edges", "random", "hub", "clique", "no edges")]
    edges = torch.cat([nb.edge_index() + 7 * b for b, nb in enumerate(graphs)], 1)
    batch = Neighborhood.from_edge_index(edges, 7 * len(graphs))
    inputs = draw_inputs(batch, 3, 5)
    leaves = (inputs.query, inputs.key, inputs.value)
    together = ops.attention(*leaves, batch, backend=backend)
    for b, nb in enumerate(graphs):
        rows = slice(7 * b, 7 * b + 7)
        alone = ops.attention(*(t[rows] for t in leaves), nb, backend=backend)
        assert torch.equal(together[rows], alone)
