import random

import numpy as np
import pytest
import torch

from graphtheory.lab.train.watch import borrowed_randomness, seed_all
from graphtheory.patterns.draw import derive


def draws() -> list[float]:
    return [float(torch.rand(())), np.random.rand(), random.random()]  # noqa: NPY002


def test_places_have_seeds_of_their_own() -> None:
    seeds = {derive(a, b, c) for a in range(10) for b in range(10) for c in range(10)}
    assert len(seeds) == 1000
    assert all(0 <= seed < 2**63 for seed in seeds)
    assert derive(1) != derive(1, 0)


def test_a_seed_fixes_what_all_three_draw() -> None:
    with borrowed_randomness():
        seed_all(derive(3, 4))
        first = draws()
        seed_all(derive(3, 4))
        assert draws() == first
        seed_all(derive(3, 5))
        assert all(a != b for a, b in zip(draws(), first, strict=True))


@pytest.mark.parametrize("fails", [False, True])
def test_the_callers_random_state_comes_back(fails: bool) -> None:
    torch.manual_seed(1)
    np.random.seed(1)  # noqa: NPY002
    random.seed(1)
    expected = draws()
    torch.manual_seed(1)
    np.random.seed(1)  # noqa: NPY002
    random.seed(1)
    try:
        with borrowed_randomness():
            seed_all(7)
            draws()
            if fails:
                raise KeyError
    except KeyError:
        pass
    assert draws() == expected
