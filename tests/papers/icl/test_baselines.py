"""Textbook methods on prompts: what they see, and which is best where."""

import numpy as np
import pytest
import torch

from graphtheory.papers.icl.in_context import BASELINES, GradientDescent, baseline
from graphtheory.papers.icl.prompts import Linear, SparseLinear, TwoLayer


def errors(method: object, family: Linear | SparseLinear, noise: float = 0.0) -> torch.Tensor:
    """Mean squared error by place."""
    draw = torch.Generator().manual_seed(0)
    prompts = family.prompts(20, 12, 4, draw)
    y = prompts.y + noise * torch.randn(prompts.y.shape, generator=draw)
    return (baseline(method, prompts.x, y) - prompts.y).square().mean(0)  # type: ignore[arg-type]


def test_every_method_sees_the_examples_before_a_place_alone() -> None:
    draw = np.random.default_rng(0)
    x, y = draw.normal(size=(2, 6, 3)), draw.normal(size=(2, 6))
    changed = y.copy()
    changed[:, 3] += 1
    for name in BASELINES:
        before, after = baseline(name, x, y), baseline(name, x, changed)
        assert torch.equal(before[:, :4], after[:, :4]) and not before[:, 0].any()
        assert not torch.equal(before[:, 4:], after[:, 4:]), name


def test_each_method_is_best_where_it_belongs() -> None:
    exact = errors("least squares", Linear())
    assert exact[4:].max() < 1e-9 < exact[3]  # from as many examples as dimensions on
    assert errors("ridge", Linear(), noise=1.0)[4] < errors("least squares", Linear(), noise=1.0)[4]
    assert errors("lasso", SparseLinear(1))[3] < errors("least squares", SparseLinear(1))[3]
    assert errors(GradientDescent(500), Linear())[11] < 1e-2
    assert errors("gradient descent", Linear())[11] < errors("averaging", Linear())[11]


def test_a_network_learns_a_network_from_examples() -> None:
    prompts = TwoLayer().prompts(8, 102, 4, torch.Generator().manual_seed(0))
    x, y = prompts.x.double().numpy(), prompts.y.double().numpy()
    found = {
        name: np.mean([
            (BASELINES[name](own[:100], told[:100], own[100]) - told[100]) ** 2
            for own, told in zip(x, y, strict=True)
        ])
        for name in ("two-layer network", "least squares")
    }  # fmt: skip
    assert found["two-layer network"] < found["least squares"] / 3


def test_names_and_shapes_are_checked() -> None:
    with pytest.raises(ValueError, match="method: got 'least', expected one of least squares"):
        baseline("least", np.zeros((1, 2, 2)), np.zeros((1, 2)))
    with pytest.raises(ValueError, match=r"x, y: shapes \(1, 2, 2\) and \(1, 3\)"):
        baseline("ridge", np.zeros((1, 2, 2)), np.zeros((1, 3)))
    with pytest.raises(ValueError, match=r"rate in \(0, 2\)"):
        GradientDescent(rate=2.0)
