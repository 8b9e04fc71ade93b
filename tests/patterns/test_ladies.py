import pytest
import torch

from graphtheory.patterns import LADIES, FastGCN, effective_adjacency
from tests.patterns.laws import GRAPHS, pairs, source, weighted

CLIQUE = weighted(GRAPHS["clique"])
SOME = torch.tensor([1, 4])


def test_with_all_targets_it_is_fastgcn() -> None:
    for replace in (True, False):
        one = LADIES(count=3, replace=replace)(CLIQUE, generator=source())
        assert pairs(one) == pairs(FastGCN(count=3, replace=replace)(CLIQUE, generator=source()))


def test_only_rows_in_use_count_and_are_filled() -> None:
    drawn, times = source(), torch.zeros(7, dtype=torch.float64)
    square = CLIQUE.to_dense()[SOME].square().sum(0)
    q = square / square.sum()
    mean = torch.zeros(7, 7, dtype=torch.float64)
    for _ in range(1500):
        out = LADIES(count=3)(CLIQUE, generator=drawn, targets=SOME)
        assert set(out.targets().tolist()) <= {1, 4}
        factor = torch.zeros(7, dtype=torch.float64)
        factor[out.indices] = out.weight / CLIQUE.to_dense()[out.targets(), out.indices]
        times += factor * 3 * q
        mean += out.to_dense() / 1500
    error = (3 * q * (1 - q) / 1500).sqrt()
    assert ((times / 1500 - 3 * q).abs() <= 4 * error + 1e-9).all()
    whole = torch.zeros(7, 7, dtype=torch.float64)
    whole[SOME] = CLIQUE.to_dense()[SOME]
    torch.testing.assert_close(mean, whole, atol=0.15, rtol=0)


def test_normalized_rows_sum_to_one_and_their_mean_is_estimated() -> None:
    nb = CLIQUE.replace(weight=CLIQUE.weight.abs())
    pattern = LADIES(count=3, normalize=True)
    drawn = pattern(nb, generator=source())
    filled = drawn.degree() > 0
    torch.testing.assert_close(
        drawn.to_dense().sum(1)[filled], torch.ones(int(filled.sum()), dtype=torch.float64)
    )
    assert pattern.expected(nb) is None
    found = effective_adjacency(pattern, nb, generator=source())
    assert found.draws == 1000 and found.error is not None
    off = (found.neighborhood.to_dense() - nb.to_dense()).abs()
    assert off.max() > 0.5  # the mean is not A


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(TypeError, match=r"targets: dtype torch\.bool, expected int64"):
        LADIES()(CLIQUE, targets=torch.ones(7, dtype=torch.bool))
    with pytest.raises(IndexError, match="targets: entry 0 is 7"):
        LADIES()(CLIQUE, targets=torch.tensor([7]))
    with pytest.raises(ValueError, match="count: got 9 together with share"):
        LADIES(count=9, share=0.5)
    with pytest.raises(TypeError, match="generator: got int"):
        LADIES()(CLIQUE, generator=1)
