"""Every operation alike: derivatives, registration with torch, threads, strides, no features."""

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

from graphtheory import Neighborhood, causal, cliques, ops
from graphtheory.ops.backends.cpu import launch
from tests.conformance.check import GRAPHS
from tests.ops.declared import Calls, declared_operators

CSR = ("numba_csr", "torch_csr", "reference")
ONE = ("numba_csr", "reference")
BUCKETS = 4
Shapes = list[tuple[int, ...]]


class Operation(NamedTuple):
    """Shapes of its tensors, from (neighborhood, heads, head_dim); its call with (nb, backend)."""

    shapes: Callable[[Neighborhood, int, int], Shapes]
    run: Callable[..., Tensor]

    backends: tuple[str, ...] = CSR

    def leaves(self, nb: Neighborhood, heads: int = 2, dim: int = 3) -> list[Tensor]:
        generator, shapes = torch.Generator().manual_seed(nb.num_edges), self.shapes(nb, heads, dim)
        drawn = (torch.randn(s, generator=generator, dtype=torch.float64) for s in shapes)
        return [t.requires_grad_() for t in drawn]


def nodes(nb: Neighborhood, h: int, d: int) -> Shapes:
    return [(nb.num_dst, h, d), (nb.num_src, h, d), (nb.num_src, h, d)]


def by_edge(nb: Neighborhood, h: int, d: int) -> Shapes:
    return [*nodes(nb, h, d), (nb.num_edges, h)]


def buckets(nb: Neighborhood, table: Tensor) -> ops.BucketedBias:
    return ops.BucketedBias((torch.arange(nb.num_edges) % BUCKETS).to(torch.uint8), table)


def barred(nb: Neighborhood, bias: Tensor) -> Tensor:
    """A third of the edges, and all of one row."""
    out = (torch.arange(nb.num_edges) % 3 == 0) | (nb.targets() == nb.num_dst // 2)
    return bias.masked_fill(out[:, None], -torch.inf)


def attention(q: Tensor, k: Tensor, v: Tensor, nb: Neighborhood, by: str, bias: Any) -> Tensor:
    """Dropout, too, except by `blocks`, which draws none on ragged sets."""
    options = {} if by == "blocks" else {"generator": torch.Generator().manual_seed(0)}
    return ops.attention(
        q, k, v, nb, bias=bias, backend=by, dropout=0.3 if options else 0.0, **options
    )


def edge_features(nb: Neighborhood, by: str, q: Tensor, k: Tensor, v: Tensor, *edges: Tensor):
    out, sums = ops.attention(q, k, v, nb, edges=ops.EdgeFeatures(*edges), backend=by)
    return torch.cat([out, sums], 2)


def matrix(nb: Neighborhood, h: int, d: int) -> Shapes:
    return [(nb.num_edges, 5), (h, 5, d)]


OPERATIONS = {
    "edge_dot": Operation(
        lambda nb, h, d: nodes(nb, h, d)[:2],
        lambda nb, by, q, k: ops.edge_dot(q, k, nb, backend=by),
    ),
    "edge_softmax": Operation(
        lambda nb, h, d: [(nb.num_edges, h)],
        lambda nb, by, logits: ops.edge_softmax(logits, nb, backend=by),
    ),
    **{
        f"aggregate by {reduce}": Operation(
            lambda nb, h, d: [(nb.num_edges, h), (nb.num_src, h, d)],
            lambda nb, by, w, v, r=reduce: ops.aggregate(w, v, nb, r, backend=by),
        )
        for reduce in ("sum", "mean", "max", "min")
    },
    **{
        f"aggregate without weights by {reduce}": Operation(
            lambda nb, h, d: [(nb.num_src, h, d)],
            lambda nb, by, v, r=reduce: ops.aggregate(None, v, nb, r, backend=by),
        )
        for reduce in ("mean", "max", "min")
    },
    **{
        f"relu_sum{', given order' * given}": Operation(
            lambda nb, h, d: [(nb.num_src, h, d), (nb.num_edges, h, d)],
            lambda nb, by, v, e, g=given: ops.relu_sum(v, e, nb, given_order=g, backend=by),
        )
        for given in (False, True)
    },
    **{
        f"relu_sum of a matrix{', given order' * given}": Operation(
            lambda nb, h, d: [(nb.num_src, h, d), *matrix(nb, h, d)],
            lambda nb, by, v, e, m, g=given: ops.relu_sum(
                v, e, nb, edge_matrix=m, given_order=g, backend=by
            ),
        )
        for given in (False, True)
    },
    "gated_sum": Operation(
        lambda nb, h, d: [(nb.num_src, h, d), (nb.num_src, d), (nb.num_dst, d), (nb.num_edges, d)],
        lambda nb, by, v, s, t, e: ops.gated_sum(v, nb, source=s, target=t, edge=e, backend=by),
        ONE,
    ),
    "gated_sum by nodes": Operation(
        lambda nb, h, d: [(nb.num_src, h, d), (nb.num_src, d), (nb.num_dst, d)],
        lambda nb, by, v, s, t: ops.gated_sum(v, nb, source=s, target=t, backend=by),
        ONE,
    ),
    "gated_sum by edge": Operation(
        lambda nb, h, d: [(nb.num_src, h, d), (nb.num_edges, d)],
        lambda nb, by, v, e: ops.gated_sum(v, nb, edge=e, backend=by),
        ONE,
    ),
    "additive_score": Operation(
        lambda nb, h, d: [*nodes(nb, h, d)[1::-1], (h, d)],
        lambda nb, by, s, t, att: ops.additive_score(s, t, att, nb, backend=by),
    ),
    "additive_score with edges": Operation(
        lambda nb, h, d: [*nodes(nb, h, d)[1::-1], (h, d), *matrix(nb, h, d)],
        lambda nb, by, s, t, att, e, m: ops.additive_score(
            s, t, att, nb, edge_features=e, edge_matrix=m, backend=by
        ),
    ),
    "additive_attention": Operation(
        lambda nb, h, d: [(nb.num_src, h, d), (nb.num_src, h), (nb.num_dst, h)],
        lambda nb, by, v, s, t: ops.additive_attention(v, s, t, nb, backend=by),
    ),
    "additive_attention by sources": Operation(
        lambda nb, h, d: [(nb.num_src, h, d), (nb.num_src, h)],
        lambda nb, by, v, s: ops.additive_attention(v, s, None, nb, backend=by),
    ),
    "additive_attention by edge": Operation(
        lambda nb, h, d: [(nb.num_src, h, d), (nb.num_src, h), (nb.num_dst, h), (nb.num_edges, h)],
        lambda nb, by, v, s, t, e: ops.additive_attention(v, s, t, nb, edge=e, backend=by),
    ),
    "attention": Operation(
        nodes, lambda nb, by, q, k, v: attention(q, k, v, nb, by, None)
    ),
    "attention, bias by edge": Operation(
        by_edge, lambda nb, by, q, k, v, b: attention(q, k, v, nb, by, b)
    ),
    "attention, barred": Operation(
        by_edge, lambda nb, by, q, k, v, b: attention(q, k, v, nb, by, barred(nb, b))
    ),
    "attention, buckets": Operation(
        lambda nb, h, d: [*nodes(nb, h, d), (BUCKETS, h)],
        lambda nb, by, q, k, v, table: attention(q, k, v, nb, by, buckets(nb, table)),
    ),
    "edge features": Operation(
        lambda nb, h, d: [*nodes(nb, h, d), (nb.num_edges, 4), (nb.num_dst, h, 4)], edge_features
    ),
    "topk_attention": Operation(
        by_edge,
        lambda nb, by, q, k, v, b: ops.topk_attention(q, k, v, nb, 3, bias=b, backend=by),
    ),
    "topk_attention, buckets": Operation(
        lambda nb, h, d: [*nodes(nb, h, d), (BUCKETS, h)],
        lambda nb, by, q, k, v, t: ops.topk_attention(
            q, k, v, nb, 3, bias=buckets(nb, t), backend=by
        ),
    ),
}  # fmt: skip
SETS = {"equal": cliques([4, 4]), "ragged": cliques([2, 3]), "causal": causal([3, 3])}
WITH_SETS = [  # (operation, graph, backend)
    *((name, graph, "blocks") for name in OPERATIONS if name[:3] == "att" for graph in SETS),
    *((name, "equal", "blocks") for name in OPERATIONS if name[:4] == "topk"),
]
every = pytest.mark.parametrize("name", OPERATIONS)


def graph_of(graph: str, nodes: int = 4) -> Neighborhood:
    return SETS[graph] if graph in SETS else GRAPHS[graph](nodes)


def results(name: str, nb: Neighborhood, by: str, leaves: list[Tensor]) -> list[Tensor]:
    out, wanted = OPERATIONS[name].run(nb, by, *leaves), [t for t in leaves if t.requires_grad]
    up = torch.linspace(-1, 1, out.numel(), dtype=out.dtype).view_as(out)
    return [out.detach(), *torch.autograd.grad(out, wanted, up)]


@pytest.mark.parametrize(("name", "graph", "backend"), [
    *((n, g, b) for n in OPERATIONS for b in OPERATIONS[n].backends
      for g in ("random", "more sources", "more targets")),
    *((n, g, "numba_csr") for n in OPERATIONS for g in ("hub", "transposed")),
    *WITH_SETS,
])  # fmt: skip
def test_first_and_second_derivatives(name: str, graph: str, backend: str) -> None:
    """Entry by entry by one backend on one graph, elsewhere along random directions."""
    nb = graph_of(graph)
    leaves = OPERATIONS[name].leaves(nb)

    def run(*tensors: Tensor) -> Tensor:
        return OPERATIONS[name].run(nb, backend, *tensors)

    fast = (graph, backend) not in (("random", "numba_csr"), ("equal", "blocks"))
    assert torch.autograd.gradcheck(run, leaves, nondet_tol=0.0, fast_mode=fast)
    assert torch.autograd.gradgradcheck(run, leaves, fast_mode=True)


@every
def test_a_gradient_alone_and_what_inference_gives_are_the_same_bits(name: str) -> None:
    nb = GRAPHS["random"](7)
    leaves = OPERATIONS[name].leaves(nb)
    out, *grads = results(name, nb, "numba_csr", leaves)
    for which, grad in enumerate(grads):
        some = [t.detach().requires_grad_(k == which) for k, t in enumerate(leaves)]
        assert torch.equal(results(name, nb, "numba_csr", some)[1], grad)
    with torch.inference_mode():
        assert torch.equal(OPERATIONS[name].run(nb, "numba_csr", *leaves), out)


@pytest.mark.parametrize("graph", ["random", "hub"])
@pytest.mark.parametrize(  # torch's own products with a matrix may round otherwise
    ("name", "backend"),
    [(n, b) for n in OPERATIONS for b in CSR[:2] if b in OPERATIONS[n].backends
     if b == "numba_csr" or not n.startswith(("relu_sum of a matrix", "additive_score with"))],
)  # fmt: skip
def test_threads_do_not_change_a_bit(name, graph, backend, two_threads, monkeypatch) -> None:
    monkeypatch.setattr(launch, "WORTH_A_THREAD", 1)
    monkeypatch.setattr(launch, "_CHUNK", 64)
    nb, found = GRAPHS[graph](500), []
    leaves = [t.detach().float().requires_grad_() for t in OPERATIONS[name].leaves(nb, 2, 16)]
    for threads in (1, 2, 2):
        torch.set_num_threads(threads)
        found.append(results(name, nb, backend, leaves))
    for other in found[1:]:
        assert all(torch.equal(a, b) for a, b in zip(found[0], other, strict=True))


@every
def test_strided_tensors_give_the_same(name: str) -> None:
    nb = GRAPHS["more sources"](7)
    leaves = OPERATIONS[name].leaves(nb)
    odd = [t.detach().transpose(0, -1).contiguous().transpose(0, -1) for t in leaves]
    assert not any(t.is_contiguous() for t in odd)
    odd = [t.requires_grad_() for t in odd]
    for backend in OPERATIONS[name].backends[:2]:
        torch.testing.assert_close(
            results(name, nb, backend, odd), results(name, nb, backend, leaves)
        )


@pytest.mark.parametrize(
    ("name", "backend"),
    [(n, b) for n in OPERATIONS for b in OPERATIONS[n].backends
     if n in ("attention", "attention, buckets", "additive_score") or n.startswith("gated")],
)  # fmt: skip
def test_no_heads_and_no_features(name: str, backend: str) -> None:
    nb = GRAPHS["random"](7)
    for heads, dim in ((0, 3), (2, 0)):
        leaves = OPERATIONS[name].leaves(nb, heads, dim)
        out, *grads = results(name, nb, backend, leaves)
        assert out.shape == ((21, heads) if "score" in name else (7, heads, dim)) and not out.any()
        assert [g.shape for g in grads] == [t.shape for t in leaves]


def _again(given: Any) -> Any:
    if isinstance(given, (list, tuple)):
        return type(given)(map(_again, given))
    if isinstance(given, Tensor):
        return given.detach().clone().requires_grad_(given.requires_grad)
    return given


AT = ("random", "numba_csr"), ("no edges", "torch_csr"), ("equal", "blocks")
NAMES = {n for n in declared_operators() if "::projected" not in n} | {"graphtheory::csr_transpose"}


@cache
def operators(graph: str, backend: str) -> dict[str, tuple[Any, tuple[Any, ...]]]:
    with Calls() as recorded:
        for name, operation in OPERATIONS.items():
            if backend in operation.backends or (name, graph, backend) in WITH_SETS:
                nb = graph_of(graph)
                operation.run(nb, backend, *operation.leaves(nb)).square().sum().backward()
    first = [call for call in reversed(recorded.seen) if "csr_from" not in call[0].name()]
    return {op.name(): (op, _again(args)) for op, args, _ in first}  # of each the first call


@pytest.mark.parametrize("name", sorted(NAMES))
def test_operators_are_registered_as_torch_demands(name: str) -> None:
    """Schema, fake tensors, autograd, and traced with shapes that vary."""
    calls = [operators(*at).get(name) for at in AT]
    assert any(calls)
    for call in filter(None, calls):
        torch.library.opcheck(*call)
