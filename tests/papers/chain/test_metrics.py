import pytest
import torch

from graphtheory.papers.chain.training import MASSES, chain_mass, cot_error, icl_error


def test_errors_count_steps_and_ends() -> None:
    found, wanted = torch.tensor([[0, 1, 2], [0, 0, 0]]), torch.tensor([[0, 1, 2], [0, 1, 2]])
    assert cot_error(found, wanted).tolist() == pytest.approx([0, 2 / 3])
    assert icl_error(found[:, 2], wanted[:, 2]).tolist() == [0, 1]
    with pytest.raises(ValueError, match=r"found: shape \(2,\), expected \(2, 3\)"):
        cot_error(torch.zeros(2), wanted)


def test_every_column_is_of_one_kind() -> None:
    """Powers of two as weights tell which columns were added up; two prompts are averaged."""
    weights = 2.0 ** torch.arange(5).expand(2, 1, 5)
    step = torch.tensor([[True, True, False, False], [False, False, False, True]])
    pattern = torch.tensor([[True, False, True, False], [True, True, False, True]])
    mass = chain_mass(weights, step, pattern)
    assert [mass[name].item() for name in MASSES] == [(1 + 8) / 2, 2 / 2, (4 + 3) / 2, (8 + 4) / 2]
    assert mass["own columns"].item() == 16
