from dataclasses import replace

import pytest
import torch
from torch import Generator, Tensor

from graphtheory.papers.mixture.figures_images import (
    Grouped,
    Recipe,
    TwoKinds,
    covariance_norm,
    errors,
    learn,
    with_noisy_copies,
)


def drawn(seed: int = 0) -> Generator:
    return Generator().manual_seed(seed)


def images(count: int = 40) -> tuple[Tensor, Tensor]:
    pixels = torch.randint(0, 256, (count, 1, 3, 3), dtype=torch.uint8, generator=drawn(1))
    return pixels, torch.arange(count) % 2


def test_both_kinds_are_zero_on_average_and_differ_by_a_turn_and_a_half() -> None:
    pixels, y = images()
    found = TwoKinds.of(pixels).both(pixels, y)
    bright, faint = (found.x[found.of(group)] for group in range(2))
    torch.testing.assert_close(faint[:, 0, 0, 0], bright[:, 0, 0, 2] / 2)  # a quarter to the left
    torch.testing.assert_close(bright.mean(0), torch.zeros(1, 3, 3), atol=1e-5, rtol=0)
    assert float(bright.square().mean()) == pytest.approx(1, abs=1e-4)
    assert covariance_norm(bright) == pytest.approx(4 * covariance_norm(faint), rel=1e-5)
    cov = bright.flatten(1).t().cov(correction=0)
    assert covariance_norm(bright) == pytest.approx(float(torch.linalg.eigvalsh(cov)[-1]), rel=1e-4)
    assert torch.equal(found.y, torch.cat([y, y]))


def test_no_image_is_in_both_groups() -> None:
    pixels, _ = images()
    kinds = TwoKinds(torch.zeros(1, 3, 3), 1.0)
    found = kinds.draw(pixels, torch.arange(40), (25, 10), drawn())
    assert found.group.bincount().tolist() == [25, 10]
    assert len(set(found.y.tolist())) == 35
    torch.testing.assert_close(found.x[:25], pixels[found.y[:25]].float())
    fewer = kinds.draw(pixels, torch.arange(40), (30, 5), drawn())
    assert torch.equal(fewer.y, found.y)
    with pytest.raises(ValueError, match=r"counts: got \(30, 11\), expected 0 or more, 40 at most"):
        kinds.draw(pixels, torch.arange(40), (30, 11), drawn())


def test_copies_have_the_noise_and_the_rest_has_none() -> None:
    given = Grouped(torch.zeros(60, 1, 9, 9), torch.arange(60), torch.arange(60) // 40)
    found = with_noisy_copies(given, 1, 15, 4.0, drawn())
    assert torch.equal(found.x[:60], given.x) and len(found.x) == 75
    assert float(found.x[60:].std()) == pytest.approx(2, abs=0.1)
    assert found.group[60:].tolist() == [1] * 15
    chosen = found.y[60:].tolist()
    assert len(set(chosen)) == 15 and min(chosen) >= 40
    twice = with_noisy_copies(given, 1, 15, 1.0, drawn())
    torch.testing.assert_close(2 * twice.x, found.x)
    with pytest.raises(ValueError, match="copies: got 21, expected 0 to 20"):
        with_noisy_copies(given, 1, 21, 1.0, drawn())
    with pytest.raises(ValueError, match="variance: got -1"):
        with_noisy_copies(given, 1, 2, -1.0, drawn())


def test_a_network_learns_and_errors_are_of_each_group() -> None:
    y = torch.arange(64) % 2
    x = torch.where(y == 1, 1.0, -1.0)[:, None, None, None].expand(64, 1, 4, 4).contiguous()
    examples = Grouped(x, y, torch.arange(64) // 32)
    recipe = replace(Recipe(), epochs=20, batch_size=20, widths=(8,))
    net = learn(examples, recipe, 0)
    assert errors(net, examples) == [0, 0]
    wrong = examples._replace(y=torch.where(examples.group == 1, 1 - y, y))
    assert errors(net, wrong) == [0, 1]
