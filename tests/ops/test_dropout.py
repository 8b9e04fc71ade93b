"""Which weights drop: a function of counter and seed, the same in torch and compiled."""

import math

import pytest
import torch

from graphtheory.ops.backends.cpu.attention import rows
from graphtheory.ops.dropout import draw_seed, dropout_factor

SEED = torch.tensor(123456789)


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_the_share_and_the_scale_are_right(p: float) -> None:
    n = 400_000
    factor = dropout_factor(p, SEED, torch.empty(n // 4, 4, dtype=torch.float64))
    kept = factor > 0
    sigma = math.sqrt(p * (1 - p) / n)
    assert abs(kept.double().mean() - (1 - p)) < 4 * sigma and factor[kept].eq(1 / (1 - p)).all()
    by_head = kept.double().mean(0)
    assert (by_head - (1 - p)).abs().max() < 4 * 2 * sigma


def test_neighbors_and_seeds_are_independent() -> None:
    like = torch.empty(200_000, 1)
    here = dropout_factor(0.5, SEED, like) > 0
    other = dropout_factor(0.5, SEED + 1, like) > 0
    for same in (here[1:] == here[:-1], here[2:] == here[:-2], here == other):
        assert abs(same.double().mean() - 0.5) < 4 * 0.5 / math.sqrt(200_000)


def test_edges_of_the_range_and_a_counter_beyond_32_bits() -> None:
    like = torch.empty(1000, 2)
    assert dropout_factor(0.0, SEED, like).eq(1).all()
    almost = math.nextafter(1, 0)
    assert dropout_factor(almost, SEED, like).isfinite().all()
    assert dropout_factor(0.5, SEED, torch.empty(0, 3)).shape == (0, 3)
    assert dropout_factor(0.5, SEED, like.half()).dtype == torch.float16
    near, far = ([rows.kept(base + c, 0.5, 7) for c in range(64)] for base in (0, 2**32))
    assert near != far


@pytest.mark.parametrize("p", [1e-12, 0.1, 0.5, 0.999])
@pytest.mark.parametrize("seed", [0, 1, 2**31 - 2])
def test_the_compiled_rule_is_the_same(p: float, seed: int) -> None:
    factor = dropout_factor(p, torch.tensor(seed), torch.empty(500, 2)).flatten()
    assert [rows.kept(c, p, seed) for c in range(1000)] == (factor > 0).tolist()


def test_a_seed_comes_from_the_generator_or_lies_where_it_is_asked_for() -> None:
    one, same, other = (torch.Generator().manual_seed(s) for s in (1, 1, 2))
    first = draw_seed(one)
    assert first == draw_seed(same) and first != draw_seed(other)
    assert first != draw_seed(one)  # it moves on
    torch.manual_seed(1)
    assert draw_seed(None) == first and draw_seed(None, torch.device("meta")).device.type == "meta"
    assert draw_seed(torch.Generator(), torch.device("meta")).device.type == "cpu"
