"""Rows that stay whole and rows that are cut must say the same."""

import pytest
import torch
from torch import Tensor

from graphtheory import Neighborhood, ops
from graphtheory.ops import BucketedBias
from graphtheory.ops.backends.cpu import regimes


def graph() -> Neighborhood:
    """A hub that aggregates from every node, rows without edges, the rest at random."""
    generator = torch.Generator().manual_seed(0)
    edges = torch.randint(180, (2, 3000), generator=generator)
    hub = torch.stack([torch.arange(257), torch.full((257,), 3)])
    return Neighborhood.from_edge_index(torch.cat([edges, hub], 1), 257)


@pytest.mark.parametrize("dim", [5, 16])
@pytest.mark.parametrize("option", ["nothing", "bias", "table", "dropout"])
def test_both_forms_agree(monkeypatch: pytest.MonkeyPatch, option: str, dim: int) -> None:
    nb, generator = graph(), torch.Generator().manual_seed(1)
    leaves = [
        torch.randn(257, 2, dim, generator=generator, dtype=torch.float64).requires_grad_()
        for _ in range(3)
    ]
    options: dict[str, object] = {}
    if option == "bias":
        leaves.append(torch.randn(nb.num_edges, 2, dtype=torch.float64).requires_grad_())
        options["bias"] = leaves[-1]
    if option == "table":
        leaves.append(torch.randn(5, 2, dtype=torch.float64).requires_grad_())
        bucket = torch.randint(5, (nb.num_edges,), generator=generator).to(torch.uint8)
        options["bias"] = BucketedBias(bucket, leaves[-1])

    def run(limit: int) -> tuple[Tensor, ...]:
        monkeypatch.setattr(regimes, "WHOLE_ROWS_BELOW", limit)
        if option == "dropout":
            drawn = {"dropout": 0.4, "generator": torch.Generator().manual_seed(2)}
            options.update(drawn)
        out = ops.attention(*leaves[:3], nb, backend="numba_csr", **options)
        weight = torch.linspace(-1, 1, out.numel(), dtype=out.dtype).view_as(out)
        return out, *torch.autograd.grad((out * weight).sum(), leaves)

    for whole, cut in zip(run(2**62), run(0), strict=True):
        assert whole.abs().sum() > 0
        torch.testing.assert_close(whole, cut, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("dim", [5, 16])
@pytest.mark.parametrize("option", ["nothing", "received", "edge", "dropout"])
def test_both_forms_of_additive_attention_agree(
    monkeypatch: pytest.MonkeyPatch, option: str, dim: int
) -> None:
    nb, generator = graph(), torch.Generator().manual_seed(1)

    def drawn(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64).requires_grad_()

    given = {"value": drawn(257, 2, dim), "src_score": drawn(257, 2), "dst_score": None}
    if option != "nothing":
        given["dst_score"] = drawn(257, 2)
    if option == "edge":
        barred = torch.arange(nb.num_edges)[:, None] % 7 == 0
        given["edge"] = drawn(nb.num_edges, 2).detach().masked_fill(barred, -torch.inf)
        given["edge"].requires_grad_()
    leaves = [t for t in given.values() if t is not None]

    def run(limit: int) -> tuple[Tensor, ...]:
        monkeypatch.setattr(regimes, "WHOLE_ROWS_BELOW", limit)
        options = {}
        if option == "dropout":
            options = {"dropout": 0.4, "generator": torch.Generator().manual_seed(2)}
        out = ops.additive_attention(**given, neighborhood=nb, **options)
        weight = torch.linspace(-1, 1, out.numel(), dtype=out.dtype).view_as(out)
        return out, *torch.autograd.grad((out * weight).sum(), leaves)

    for whole, cut in zip(run(2**62), run(0), strict=True):
        assert whole.abs().sum() > 0
        torch.testing.assert_close(whole, cut, rtol=1e-12, atol=1e-13)


def test_rows_stay_whole_below_a_number_of_multiply_adds() -> None:
    edges = torch.empty(2**12, dtype=torch.int64)
    value = torch.empty(3, 4, 2**8)  # 2^12 edges x 4 heads x 2^8 features: 2^22
    assert not regimes.rows_stay_whole(edges, value)
    assert regimes.rows_stay_whole(edges[1:], value)
    assert regimes.rows_stay_whole(edges, value[:, 1:])
    assert regimes.rows_stay_whole(edges, value[:, :, 1:])
    assert regimes.rows_stay_whole(edges[:0], value)


def test_weights_are_kept_below_a_number_of_bytes() -> None:
    for edges, heads, itemsize in ((2**20, 16, 4), (2**19, 16, 8), (2**22, 4, 4)):  # 2^26 bytes
        assert not regimes.keeps_weights(edges, heads, itemsize)
        assert regimes.keeps_weights(edges - 1, heads, itemsize)
    assert regimes.keeps_weights(0, 16, 4)
