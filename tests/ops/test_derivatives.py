"""Second derivatives by `torch.func`, whose first pass has ended when the second one runs."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from graphtheory import Neighborhood, cliques, ops

EDGES = torch.tensor([[0, 1, 2, 2, 0, 1], [1, 2, 0, 2, 2, 2]])
NB = Neighborhood.from_edge_index(EDGES, num_nodes=3)
SETS = cliques([3])


def draw(seed: int, *shape: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64)


Q, K = draw(1, 3, 2, 3), draw(2, 3, 2, 3)
FEATURES, MATRIX, BIAS, ATT = draw(3, 6, 4), draw(4, 2, 4, 3), draw(5, 6, 2), draw(6, 2, 3)
BUCKETS = ops.BucketedBias(torch.tensor([0, 3, 1, 2, 2, 0], dtype=torch.uint8), draw(7, 4, 2))
ASKED = ops.EdgeFeatures(FEATURES, draw(8, 3, 2, 4))
Run = Callable[[Tensor, str], Tensor]
CALLS: dict[str, Run] = {
    "relu_sum": lambda v, by: ops.relu_sum(v, draw(9, 6, 2, 3), NB, backend=by),
    "relu_sum, matrix": lambda v, by: ops.relu_sum(
        v, FEATURES, NB, edge_matrix=MATRIX * v.sum(), backend=by
    ),
    "gated_sum": lambda v, by: ops.gated_sum(
        v, NB, source=v.sum(1), target=Q.sum(1), edge=v.mean() * draw(9, 6, 3), backend=by
    ),
    "additive_score": lambda v, by: ops.additive_score(
        v, Q, ATT, NB, edge_features=FEATURES, edge_matrix=MATRIX * v.mean(), backend=by
    ),
    "additive_attention": lambda v, by: ops.additive_attention(
        v, v.sum(-1), v.mean(-1), NB, backend=by
    ),
    "attention": lambda v, by: ops.attention(v, 2 * v, v.sin(), NB, bias=BIAS, backend=by),
    "attention, buckets": lambda v, by: ops.attention(v, Q, v, NB, bias=BUCKETS, backend=by),
    "attention, edges": lambda v, by: ops.attention(v, Q, v, NB, edges=ASKED, backend=by)[0],
    "topk_attention": lambda v, by: ops.topk_attention(v, v, v, NB, 2, backend=by),
    "topk_attention, sets": lambda v, by: ops.topk_attention(
        v, Q, v, SETS, 2, backend="blocks" if by == "numba_csr" else by
    ),
    "aggregate": lambda v, by: ops.aggregate(BIAS, v, NB, backend=by),
    "aggregate by max": lambda v, by: ops.aggregate(BIAS, v, NB, "max", backend=by),
}
BY = [
    (name, backend)
    for name in CALLS
    for backend in ("numba_csr", "torch_csr", "reference")
    if backend in ops.backend_names(name.partition(",")[0].partition(" by")[0])
]


@pytest.mark.parametrize(("name", "backend"), BY)
def test_jacrev_and_vjp_of_a_gradient(name: str, backend: str) -> None:
    weight = draw(10, 2, 3).requires_grad_()  # beside it, what torch.func follows says nothing

    def loss(v: Tensor) -> Tensor:
        return CALLS[name](v * weight, backend).pow(3).sum()

    v = draw(0, 3, 2, 3)
    wanted = torch.autograd.functional.hessian(loss, v)
    torch.testing.assert_close(torch.func.jacrev(torch.func.grad(loss))(v), wanted)
    up = draw(11, 3, 2, 3)
    _, back = torch.func.vjp(torch.func.grad(loss), v)
    torch.testing.assert_close(back(up)[0], torch.einsum("abc,abcdef->def", up, wanted))


@pytest.mark.parametrize(
    ("name", "backend"),
    [by for by in BY if by[0] in ("relu_sum, matrix", "gated_sum", "attention", "additive_score")],
)
def test_third_derivatives(name: str, backend: str) -> None:
    v, up = draw(0, 3, 2, 3), draw(11, 3, 2, 3)

    def loss(v: Tensor) -> Tensor:
        return CALLS[name](v, backend).pow(3).sum()

    def curved(v: Tensor) -> Tensor:
        """The product of the second derivatives and `up`."""
        _, back = torch.func.vjp(torch.func.grad(loss), v)
        return back(up)[0]

    _, back = torch.func.vjp(curved, v)
    eps = 1e-5
    slope = ((curved(v + eps * up) - curved(v - eps * up)) / (2 * eps) * up).sum()
    torch.testing.assert_close((back(up)[0] * up).sum(), slope, rtol=1e-5, atol=1e-5)
