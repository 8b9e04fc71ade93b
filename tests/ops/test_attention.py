"""Attention as its user meets it: derivatives, dropout, compilation, any graph at all."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from graphtheory import Neighborhood, causal, cliques, ops
from graphtheory.ops import BucketedBias
from graphtheory.ops.backends.cpu import memory
from tests.conformance.check import BIASES, GRAPHS, assert_conforms, draw_inputs, has_sets

CSR = ["numba_csr", "torch_csr", "reference"]
EDGES = torch.tensor([[0, 1, 2, 2, 3, 3], [1, 0, 2, 0, 0, 0]])


@pytest.mark.parametrize("graph", ["random", "unequal cliques", "ragged causal"])
def test_a_third_derivative_and_those_of_functions(graph: str) -> None:
    nb = GRAPHS[graph](7)
    inputs = draw_inputs(nb, 2, 3, "none", torch.float64)
    x = inputs.query.detach()

    def derivatives(backend: str | None) -> list[Tensor]:
        def loss(x: Tensor) -> Tensor:
            return ops.attention(x, x, inputs.value.detach(), nb, backend=backend).square().sum()

        def slope(x: Tensor) -> Tensor:
            return torch.func.grad(loss)(x).square().sum()

        leaf = x.clone().requires_grad_()
        found, value = [], loss(leaf)
        for _ in range(3):
            (found_now,) = torch.autograd.grad(value, leaf, create_graph=True)
            found.append(found_now.detach())
            value = found_now.square().sum()
        return [*found, torch.func.grad(loss)(x), torch.func.grad(slope)(x)]

    names = ["numba_csr", "torch_csr", *(["blocks"] if has_sets(nb) else [])]
    true = derivatives("reference")
    for name in names:
        torch.testing.assert_close(derivatives(name), true, rtol=1e-9, atol=1e-9)


def test_a_second_derivative_where_weights_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "KEPT_WEIGHTS_BELOW", 0)
    nb = GRAPHS["random"](7)
    inputs = draw_inputs(nb, 2, 3, "edges", torch.float64)

    def second(backend: str) -> tuple[Tensor, ...]:
        leaves = list(inputs.leaves().values())
        out = ops.attention(*leaves[:3], nb, bias=leaves[3], backend=backend)
        first = torch.autograd.grad(out, leaves, inputs.grad, create_graph=True)
        return torch.autograd.grad(sum(g.square().sum() for g in first), leaves)

    torch.testing.assert_close(second("numba_csr"), second("reference"))


@pytest.mark.parametrize("backend", ["numba_csr", "blocks"])
def test_forces_are_trained_on(backend: str) -> None:
    """As molecular models do: the energy depends on positions, and its slope is fitted."""
    torch.manual_seed(0)
    nb = cliques([5, 6])  # two molecules
    features, place = torch.randn(11, 2, 4), torch.randn(11, 3, requires_grad=True)
    teacher, student = (
        torch.nn.ModuleList([torch.nn.Linear(1, 2), torch.nn.Linear(8, 1)]) for _ in range(2)
    )
    optimizer = torch.optim.Adam(student.parameters(), lr=0.05)

    def forces(model: torch.nn.ModuleList) -> Tensor:
        sources, targets = nb.edge_index()
        apart = (place[sources] - place[targets]).square().sum(1, keepdim=True)
        bias = model[0](apart)
        out = ops.attention(features, features, features, nb, bias=bias, backend=backend)
        energy = model[1](out.flatten(1)).sum()
        return -torch.autograd.grad(energy, place, create_graph=True)[0]

    wanted, losses = forces(teacher).detach(), []
    for _ in range(40):
        optimizer.zero_grad()
        loss = (forces(student) - wanted).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.3 * losses[0]


@st.composite
def neighborhoods(draw: st.DrawFn) -> Neighborhood:
    """Any graph: no nodes, no edges, loops, duplicates, a hub, one node set or two."""
    num_src = draw(st.integers(0, 40))
    num_dst = num_src if draw(st.booleans()) else draw(st.integers(0, 40))
    most = 6 * max(num_src, num_dst) if num_src and num_dst else 0
    edges = draw(st.integers(0, most))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))
    src = torch.randint(max(num_src, 1), (edges,), generator=generator)
    dst = torch.randint(max(num_dst, 1), (edges,), generator=generator)
    if draw(st.booleans()):
        dst = torch.where(torch.rand(edges, generator=generator) < 0.5, 0, dst)  # a hub
    built = torch.stack([src, dst])
    return Neighborhood.from_edge_index(built, num_src=num_src, num_dst=num_dst)


@settings(max_examples=60)
@given(
    neighborhoods(),
    st.integers(1, 4),
    st.integers(1, 9),
    st.sampled_from(BIASES),
    st.sampled_from([torch.float32, torch.float64, torch.bfloat16]),
    st.sampled_from([0.0, 0.5]),
)
def test_on_any_graph(nb, heads, dim, bias, dtype, dropout) -> None:
    inputs = draw_inputs(nb, heads, dim, bias, dtype)
    tolerance = {torch.float64: 1e-12, torch.float32: 5e-6}
    assert_conforms(ops.attention, nb, inputs, dropout=dropout, tolerance=tolerance)


@pytest.mark.parametrize("backend", CSR)
def test_the_scale_is_the_inverse_root_of_the_head_size(backend: str) -> None:
    nb = GRAPHS["random"](7)
    inputs = draw_inputs(nb, 2, 16)
    leaves = (inputs.query, inputs.key, inputs.value)
    default = ops.attention(*leaves, nb, backend=backend)
    assert torch.equal(default, ops.attention(*leaves, nb, scale=0.25, backend=backend))
    assert not torch.allclose(default, ops.attention(*leaves, nb, scale=1, backend=backend))


@pytest.mark.parametrize("backend", CSR)
def test_dropout_keeps_the_expectation(backend: str) -> None:
    nb = Neighborhood.from_edge_index(torch.stack([torch.arange(50), torch.zeros(50).long()]), 50)
    inputs = draw_inputs(nb, 2, 3)
    leaves = (inputs.query.detach(), inputs.key.detach(), inputs.value.detach())
    generator = torch.Generator().manual_seed(0)
    draws = torch.stack(
        [
            ops.attention(*leaves, nb, dropout=0.3, generator=generator, backend=backend)[0]
            for _ in range(400)
        ]
    )
    exact = ops.attention(*leaves, nb, backend=backend)[0]
    error = (draws.mean(0) - exact) / (draws.std(0) / math.sqrt(400))
    assert draws.std(0).min() > 0 and error.abs().max() < 4.5


def test_dropout_takes_its_seed_from_the_generator() -> None:
    nb = GRAPHS["random"](63)
    inputs = draw_inputs(nb, 2, 3)

    def run(generator: torch.Generator | None) -> Tensor:
        leaves = (inputs.query, inputs.key, inputs.value)
        return ops.attention(*leaves, nb, dropout=0.5, generator=generator)

    one, same, other = (torch.Generator().manual_seed(s) for s in (1, 1, 2))
    first = run(one)
    assert torch.equal(first, run(same)) and not torch.equal(first, run(one))
    assert not torch.equal(first, run(other))
    state = torch.get_rng_state()
    run(one)
    assert torch.equal(torch.get_rng_state(), state)  # the global generator is left alone
    torch.manual_seed(1)
    assert torch.equal(run(None), first)


def test_without_dropout_nothing_is_drawn() -> None:
    nb = GRAPHS["random"](7)
    inputs = draw_inputs(nb, 2, 3)
    generator = torch.Generator().manual_seed(0)
    before = generator.get_state()
    ops.attention(inputs.query, inputs.key, inputs.value, nb, generator=generator)
    assert torch.equal(generator.get_state(), before)


def leaves(nodes: int = 4) -> list[Tensor]:
    generator = torch.Generator().manual_seed(5)
    return [torch.randn(nodes, 2, 3, generator=generator, requires_grad=True) for _ in range(3)]


def from_edges(q: Tensor, k: Tensor, v: Tensor, edges: Tensor, table: Tensor) -> Tensor:
    return ops.attention(q, k, v, Neighborhood.from_edge_index(edges, q.size(0)))


def with_bias(q: Tensor, k: Tensor, v: Tensor, edges: Tensor, table: Tensor) -> Tensor:
    nb = Neighborhood.from_edge_index(edges, q.size(0))
    return ops.attention(q, k, v, nb, bias=table[nb.indices % 2])


def with_buckets(q: Tensor, k: Tensor, v: Tensor, edges: Tensor, table: Tensor) -> Tensor:
    nb = Neighborhood.from_edge_index(edges, q.size(0))
    bucket = (nb.targets() % 2).to(torch.uint8)
    return ops.attention(q, k, v, nb, bias=BucketedBias(bucket, table))


def in_parts(q: Tensor, k: Tensor, v: Tensor, edges: Tensor, table: Tensor) -> Tensor:
    weight = table.mean(1)[edges[0] % 2]
    nb = Neighborhood.from_edge_index(edges, q.size(0), weight=weight)
    weights = ops.edge_softmax(ops.edge_dot(q, k, nb), nb)
    return ops.aggregate(weights, v, nb) + ops.aggregate(None, v, nb)


def on_cliques(q: Tensor, k: Tensor, v: Tensor, edges: Tensor, table: Tensor) -> Tensor:
    return ops.attention(q, k, v, cliques([2, 2]), backend="blocks")


def on_ragged_cliques(q: Tensor, k: Tensor, v: Tensor, edges: Tensor, table: Tensor) -> Tensor:
    nb = cliques([3, 1])
    bias = table[nb.indices % 2]
    return ops.attention(q, k, v, nb, bias=bias, backend="blocks") + ops.attention(
        q, k, v, nb, backend="blocks"
    )


def on_causal_cliques(q: Tensor, k: Tensor, v: Tensor, edges: Tensor, table: Tensor) -> Tensor:
    nb = causal([1, 3])
    bias = BucketedBias((nb.indices % 2).to(torch.uint8), table)
    out = ops.attention(q, k, v, nb, bias=bias, backend="blocks")
    return out + ops.attention(q, k, v, causal([2, 2]), backend="blocks")


def compare(compiled: Callable[..., Tensor], eager: Callable[..., Tensor], *rest: Any) -> None:
    found, true = compiled(*rest), eager(*rest)
    torch.testing.assert_close(found, true, rtol=1e-5, atol=1e-6)
    wanted = [t for t in rest if t.requires_grad]
    ours, theirs = (
        torch.autograd.grad(out.square().sum(), wanted, allow_unused=True) for out in (found, true)
    )
    assert [g is None for g in ours] == [g is None for g in theirs]
    some = [[g for g in grads if g is not None] for grads in (ours, theirs)]
    torch.testing.assert_close(*some, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("run", [
    from_edges, with_bias, with_buckets, in_parts, on_cliques, on_ragged_cliques, on_causal_cliques,
])  # fmt: skip
def test_compiled_without_a_break_it_is_the_same(run: Callable[..., Tensor]) -> None:
    torch._dynamo.reset()
    compiled = torch.compile(run, fullgraph=True, backend="aot_eager")
    compare(compiled, run, *leaves(), EDGES, torch.randn(2, 2, requires_grad=True))


def test_compiled_to_machine_code_it_is_the_same() -> None:
    torch._dynamo.reset()
    compiled = torch.compile(with_buckets, fullgraph=True)
    compare(compiled, with_buckets, *leaves(), EDGES, torch.randn(2, 2, requires_grad=True))


def test_one_compilation_serves_graphs_of_any_size() -> None:
    torch._dynamo.reset()
    counter = torch._dynamo.testing.CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(with_buckets, fullgraph=True, dynamic=True, backend=counter)
    table = torch.randn(2, 2, requires_grad=True)
    for nodes in (4, 5, 9):
        edges = torch.cat([EDGES, torch.arange(nodes).expand(2, -1)], 1)
        compare(compiled, with_buckets, *leaves(nodes), edges, table)
    assert counter.frame_count <= 2


def test_a_neighborhood_enters_a_compiled_function() -> None:
    torch._dynamo.reset()
    nb = Neighborhood.from_edge_index(EDGES, 4)

    @torch.compile(fullgraph=True, backend="aot_eager")
    def run(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return ops.attention(q, k, v, nb)

    compare(run, lambda q, k, v: ops.attention(q, k, v, nb), *leaves())
    assert type(nb.transpose().perm) is Tensor  # what tracing cached is real


@pytest.mark.parametrize(("first", "bias"), [("compiled", "none"), ("eager", "edges")])
def test_ragged_sets_enter_a_compiled_function(first: str, bias: str) -> None:
    torch._dynamo.reset()
    nb = causal([3, 20, 0, 5])
    inputs = draw_inputs(nb, 2, 3, bias)

    def eager(*leaves: Tensor) -> Tensor:
        return ops.attention(*leaves[:3], nb, bias=(*leaves, None)[3], backend="blocks")

    compiled = torch.compile(eager, fullgraph=True, backend="aot_eager")
    tensors = list(inputs.leaves().values())
    if first == "eager":
        eager(*tensors)
    for _ in range(2):
        compare(compiled, eager, *tensors)
    assert all(type(g.targets) is Tensor for g in nb.groups())


def test_compiled_code_still_refuses_bad_indices() -> None:
    torch._dynamo.reset()
    compiled = torch.compile(with_buckets, fullgraph=True, backend="aot_eager")
    table = torch.randn(2, 2, requires_grad=True)
    compiled(*leaves(), EDGES, table)
    with pytest.raises(IndexError, match=r"edge_index\[0\]: entry 0 is 4, expected .* 0\.\.3"):
        compiled(*leaves(), EDGES + torch.tensor([[4], [0]]), table)
    with pytest.raises(IndexError, match="entry 0 is -1"):
        compiled(*leaves(), EDGES - torch.tensor([[1], [0]]), table)
    with pytest.raises(IndexError, match=r"bias\.bucket: entries 0 to 1"):
        compiled(*leaves(), EDGES, table[:1].detach().requires_grad_())


def test_compiled_dropout_drops_at_random() -> None:
    torch._dynamo.reset()
    nb = GRAPHS["hub"](2000)
    zeros, ones = torch.zeros(2000, 1, 1), torch.ones(2000, 1, 1)

    @torch.compile(fullgraph=True, backend="aot_eager")
    def run(value: Tensor) -> Tensor:
        return ops.attention(zeros, zeros, value, nb, dropout=0.25)[0]

    torch.manual_seed(0)
    draws = torch.stack([run(ones) for _ in range(20)]).flatten()
    assert len(draws.unique()) > 10
    sigma = math.sqrt(0.25 / 0.75 / 2000)
    assert draws.std().item() == pytest.approx(sigma, rel=0.6)
    assert draws.mean().item() == pytest.approx(1, abs=4 * sigma / math.sqrt(20))


@pytest.mark.parametrize("regime", ["whole", "loops", "tiles"])
def test_ids_that_lie_apart(regime: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if regime != "whole":
        monkeypatch.setattr(memory, "WHOLE_ROWS_BELOW", 0)
    if regime == "tiles":
        monkeypatch.setattr(memory, "KEPT_WEIGHTS_BELOW", 0)
    generator = torch.Generator().manual_seed(0)
    edges = torch.randint(60, (2, 2000), generator=generator)
    nb = Neighborhood.from_edge_index(edges, num_nodes=60)
    apart = torch.stack([nb.indices, nb.indices], 1)[:, 0]
    assert not apart.is_contiguous()
    strided = Neighborhood(nb.indptr, apart, 60)
    query, key, value = (
        torch.randn(60, 2, 16, generator=generator).requires_grad_() for _ in range(3)
    )
    features = torch.randn(2000, 8, generator=generator)
    found = []
    for rows in (nb, strided):
        out = ops.attention(query, key, value, rows, backend="numba_csr")
        more, sums = ops.attention(
            query, key, value, rows, edges=ops.EdgeFeatures(features), backend="numba_csr"
        )
        logits = ops.edge_dot(query, key, rows)
        total = out.square().sum() + more.square().sum() + sums.sum() + logits.square().sum()
        found.append([out, more, sums, logits, *torch.autograd.grad(total, (query, key, value))])
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))
    wanted = ops.attention(query, key, value, strided, backend="reference")
    torch.testing.assert_close(found[1][0], wanted)
