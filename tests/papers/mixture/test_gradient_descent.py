import pytest
import torch
from torch import Generator

from graphtheory.papers.mixture.training import Algorithm1, gradient_descent


def test_steps_are_those_of_each_trial() -> None:
    weights = torch.tensor([[1.0, 2.0], [1.0, 2.0]])
    seen: list[int] = []
    steps = gradient_descent(
        weights, lambda: weights.clone(), Algorithm1(torch.tensor([0.5, 0.1]), 5),
        watch=lambda step: seen.append(step) or step == 3,
    )  # fmt: skip
    assert steps == 3 and seen == [0, 1, 2, 3]
    torch.testing.assert_close(
        weights, torch.tensor([[1.0, 2.0]]) * torch.tensor([[0.125], [0.729]])
    )


def test_noise_is_the_mean_of_bounded_coins() -> None:
    weights = torch.zeros(50, 100)
    generator = Generator().manual_seed(0)
    options = Algorithm1(1.0, 1, noise=3.0, examples=100)
    gradient_descent(weights, lambda: torch.zeros(50, 100), options, generator)
    assert float(weights.std()) == pytest.approx(0.3, rel=0.05)
    assert abs(float(weights.mean())) < 0.02
    one = torch.zeros(200)
    gradient_descent(one, lambda: torch.zeros(200), Algorithm1(1.0, 1, 3.0), generator)
    assert set(one.tolist()) == {3.0, -3.0}


@pytest.mark.parametrize(
    ("name", "work"),
    [
        ("step_size", lambda: Algorithm1(0.0, 3)),
        ("step_size", lambda: Algorithm1(torch.tensor([1.0, -1]), 3)),
        ("steps", lambda: Algorithm1(1.0, -1)),
        ("noise", lambda: Algorithm1(1.0, 1, noise=-1)),
        ("examples", lambda: Algorithm1(1.0, 1, examples=0)),
    ],
)
def test_bad_options_are_named(name: str, work) -> None:
    with pytest.raises(ValueError, match=name):
        work()
