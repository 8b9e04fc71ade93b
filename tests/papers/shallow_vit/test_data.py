import pytest
import torch
from torch import Generator

from graphtheory.papers.shallow_vit.training import TokenPatterns


def test_sets_have_their_shares_in_random_order(generator: Generator) -> None:
    data = TokenPatterns(20, 0.4, 0.2, c_0=0.0)
    mu = data.patterns(generator)
    torch.testing.assert_close(mu @ mu.t(), torch.eye(5))
    sets = data.sample(6, mu, generator)
    assert sets.y.tolist() == [1, -1, 1, -1, 1, -1]
    for pattern, y, relevant in zip(sets.pattern, sets.y, sets.relevant, strict=True):
        counts = pattern.bincount(minlength=5).tolist()
        assert counts[:2] == ([8, 4] if y > 0 else [4, 8]) and sorted(counts[2:]) == [2, 3, 3]
        assert torch.equal(relevant, pattern == (0 if y > 0 else 1))
    assert not torch.equal(sets.pattern[0], sets.pattern[2])
    torch.testing.assert_close(sets.x, mu[sets.pattern])


def test_some_tokens_are_noisier(generator: Generator) -> None:
    data = TokenPatterns(50, 0.6, 0.05, c_0=0.01, noisy=0.2, c_noisy=1.0)
    mu = data.patterns(generator)
    sets = data.sample(40, mu, generator)
    off = (sets.x - mu[sets.pattern]).norm(dim=2)
    assert ((off > 0.2).sum(1) == 10).all()
    assert float(off[off < 0.2].square().mean()) == pytest.approx(10 * 0.01**2, rel=0.1)
    again = data.sample(40, mu, Generator().manual_seed(1))
    assert torch.equal(again.x, data.sample(40, mu, Generator().manual_seed(1)).x)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("tokens", 0),
        ("alpha_star", 0.05),
        ("alpha_star", 1.0),
        ("alpha_confusion", -0.1),
        ("num_patterns", 2),
        ("dim", 4),
        ("c_0", -1.0),
        ("noisy", 1.1),
    ],
)
def test_parameters_out_of_range_are_named(name: str, value: object) -> None:
    with pytest.raises(ValueError, match=f"{name}: got {value!r}, expected"):
        TokenPatterns(**{name: value})
