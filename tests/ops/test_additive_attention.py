"""GAT's attention in one op against its definition in plain torch."""

import pytest
import torch
from torch import Tensor

from graphtheory import Neighborhood, ops
from graphtheory.ops import reference
from graphtheory.ops.additive import additive_attention
from graphtheory.ops.dropout import dropout_factor
from tests.conformance.check import FEW, GRAPHS, NARROW, runs_here

PARTS = ("both", "sent", "edge", "barred")
EVERY = runs_here(additive_attention, torch.zeros(3, 1, 4), *[torch.zeros(3, 1)] * 2, FEW)


def draw(nb: Neighborhood, heads: int, dim: int, parts: str, dtype: torch.dtype) -> list[Tensor]:
    generator = torch.Generator().manual_seed(nb.num_edges + dim)
    shapes = [(nb.num_src, heads, dim), (nb.num_src, heads)]
    shapes += [] if parts == "sent" else [(nb.num_dst, heads)]
    shapes += [(nb.num_edges, heads)] if parts in ("edge", "barred") else []
    out = [torch.randn(s, generator=generator, dtype=dtype) for s in shapes]
    if parts == "barred":
        out[3][torch.rand(nb.num_edges, heads, generator=generator) < 0.3] = -torch.inf
        out[3][nb.targets() == 0] = -torch.inf
    return [t.requires_grad_() for t in out]


def run(leaves: list[Tensor], nb: Neighborhood, **options: object) -> Tensor:
    value, sent, received, edge = [*leaves, None, None][:4]
    return additive_attention(value, sent, received, nb, edge=edge, **options)


def definition(leaves: list[Tensor], nb: Neighborhood, slope: float, p: float, seed: int) -> Tensor:
    value, sent, received, edge = [*leaves, None, None][:4]
    weights = reference.edge_softmax(reference.additive_logits(sent, received, edge, nb, slope), nb)
    if p:
        weights = weights * dropout_factor(p, torch.tensor(seed), weights)
    return reference.aggregate(weights, value, nb)


def with_gradients(out: Tensor, leaves: list[Tensor]) -> list[Tensor]:
    up = torch.linspace(-1, 1, out.numel(), dtype=out.dtype).view(out.shape).cos()
    return [out, *torch.autograd.grad(out, leaves, up.to(out.device))]


@pytest.mark.parametrize("parts", PARTS)
@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.usefixtures("poisoned_memory")
def test_outputs_and_gradients(graph: str, parts: str) -> None:
    narrow = graph == NARROW  # in float32, as everywhere: see `is_slow`
    for n, slope, p in ((1, 0.2, 0.0), (7, 0.0, 0.0), (20, 0.2, 0.4)):
        nb = GRAPHS[graph](n)
        leaves = draw(nb, 3, 5, parts, torch.float32 if narrow else torch.float64)
        seed = int(torch.randint(2**31 - 1, (), generator=torch.Generator().manual_seed(3)))
        exact = [t.detach().double().requires_grad_() for t in leaves]
        true = definition(exact, nb, slope, p, seed)
        wanted, close = with_gradients(true, exact), 1e-5 if narrow else 1e-10
        for backend in EVERY:
            generator = torch.Generator().manual_seed(3)
            options = {"negative_slope": slope, "dropout": p, "generator": generator}
            found = with_gradients(run(leaves, nb, backend=backend, **options), leaves)
            torch.testing.assert_close(
                found, wanted, rtol=close, atol=close, check_dtype=not narrow,
                msg=lambda said, backend=backend, n=n: f"{backend}, {n}: {said}",
            )  # fmt: skip


@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.bfloat16, 3e-2), (torch.float16, 3e-3)]
)
def test_narrower_numbers(dtype: torch.dtype, tolerance: float) -> None:
    nb = GRAPHS["random"](300)
    leaves = draw(nb, 2, 16, "edge", dtype)
    exact = [t.detach().double().requires_grad_() for t in leaves]
    found = with_gradients(run(leaves, nb), leaves)
    true = with_gradients(definition(exact, nb, 0.2, 0.0, 0), exact)
    for a, b in zip(found, true, strict=True):
        assert (a.double() - b).abs().max() <= tolerance * b.abs().max()


@pytest.mark.parametrize("backend", ["numba_csr", "torch_csr"])
@pytest.mark.parametrize("width", [3, 80])
def test_scores_of_another_type_than_the_values(backend: str, width: int) -> None:
    nb = GRAPHS["random"](40)
    value, *scores = draw(nb, 2, width, "edge", torch.float64)
    exact = [value, *scores]
    leaves = [value, *(t.detach().float().requires_grad_() for t in scores)]
    found = with_gradients(run(leaves, nb, backend=backend), leaves)
    true = with_gradients(definition(exact, nb, 0.2, 0.0, 0), exact)
    assert [t.dtype for t in found] == [torch.float64] * 2 + [torch.float32] * 3
    torch.testing.assert_close([t.double() for t in found], true, rtol=1e-5, atol=1e-5)


def test_nothing_with_edges_and_features_is_kept() -> None:
    nb = GRAPHS["random"](60)
    leaves, kept = draw(nb, 2, 32, "both", torch.float64), []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t) or t, lambda t: t):
        run(leaves, nb)
    assert kept and max(t.numel() for t in kept) <= max(nb.num_edges * 2, nb.num_src * 64)


def test_second_derivatives_of_weights_that_drop() -> None:
    nb = GRAPHS["more sources"](7)
    leaves = draw(nb, 2, 3, "edge", torch.float64)

    def second(backend: str) -> list[Tensor]:
        generator = torch.Generator().manual_seed(3)
        out = run(leaves, nb, dropout=0.4, generator=generator, backend=backend)
        first = torch.autograd.grad(out.sin().sum(), leaves, create_graph=True)
        return list(torch.autograd.grad(sum(g.square().sum() for g in first), leaves))

    for backend in ("numba_csr", "torch_csr"):
        torch.testing.assert_close(second(backend), second("reference"))


def test_bad_input() -> None:
    nb = Neighborhood.from_edge_index(torch.tensor([[0, 1], [1, 1]]), 2)
    value, flat = torch.ones(2, 1, 1), torch.zeros(2, 1)
    with pytest.raises(ValueError, match=r"src_score: shape \(3, 1\), expected \[2, 1\]"):
        ops.additive_attention(value, torch.zeros(3, 1), flat, nb)
    with pytest.raises(ValueError, match=r"dst_score: shape \(2, 2\), expected \[2, 1\]"):
        ops.additive_attention(value, flat, torch.zeros(2, 2), nb)
    with pytest.raises(TypeError, match=r"src_score: dtype torch.int64"):
        ops.additive_attention(value, flat.long(), flat, nb)
    with pytest.raises(ValueError, match="edge: shape"):
        ops.additive_attention(value, flat, flat, nb, edge=torch.zeros(3, 1))
    for dropout in (1, -0.1, float("nan")):
        with pytest.raises(ValueError, match=f"dropout: got {dropout}"):
            ops.additive_attention(value, flat, flat, nb, dropout=dropout)
