import math
from dataclasses import replace

import pytest
import torch
from torch import Generator

from graphtheory.papers.mixture import training as mix
from graphtheory.papers.mixture.model import OneHidden
from graphtheory.papers.mixture.training import Learner, Setting, convergence

DOUBLE = torch.float64


def test_settings_share_teacher_and_numbers_and_turn_their_mixture() -> None:
    near, far = (mix.draw(Setting(means=(m, -1.0)), 50, 3) for m in (1.0, 4.0))
    assert torch.equal(near.teacher, far.teacher)
    off = far.x - near.x
    assert bool(((off.abs() < 1e-5) | ((off - 3).abs() < 1e-5)).all()) and bool((off > 2).any())
    assert not torch.equal(near.x, mix.draw(Setting(), 50, 4).x)
    small = mix.draw(Setting(size=0.1), 5, 0).teacher
    assert float(small.abs().max()) <= 0.1 and small.shape == (5, 3)
    setting = Setting(turned=True, deviations=(2.0, 1.0))
    spread = mix.draw(setting, 5, 0, DOUBLE).mixture.covariances
    wanted = torch.tensor([1, 1.1, 1.2, 1.3, 1.4], dtype=DOUBLE)
    torch.testing.assert_close(torch.linalg.eigvalsh(spread[1]), wanted)
    torch.testing.assert_close(spread[0], 4 * spread[1])
    assert setting.stretch == 1.4


def test_starts_fill_the_ball_and_step_sizes_follow_the_bound_or_not() -> None:
    teacher = torch.zeros(1, 2)
    starts = mix.near(teacher, 0.5, 4000, Generator().manual_seed(0))
    size = starts.flatten(1).norm(dim=1)
    assert float(size.max()) <= 0.5
    assert float((size < 0.25).float().mean()) == pytest.approx(0.25, abs=0.03)
    trials = [mix.draw(Setting(deviations=(s, s)), 5, 0) for s in (1.0, 3.0)]
    sizes = Learner(factor=2.0).step_sizes(trials)
    torch.testing.assert_close(sizes, torch.tensor([2 / 4, 2 / 16]))
    fixed = Learner(factor=2.0, fixed=True)
    assert fixed.step_sizes(trials).tolist() == [2, 2]
    assert fixed.name != replace(fixed, fixed=False).name


def test_descent_ends_at_the_critical_point_and_not_at_a_saddle() -> None:
    setting = Setting(dim=2, neurons=1, means=(0.0, 0.0))
    trials = [mix.draw(setting, 400, seed, DOUBLE) for seed in range(2)]
    learner = Learner(factor=4.0, steps=400)
    net = learner.run(learner.start(trials, 2, 0), trials)
    first = learner.start(trials, 2, 0)
    found, ended = mix.critical_point(first, trials)
    assert bool(ended.all())
    torch.testing.assert_close(found.W, net.W, atol=1e-6, rtol=0)
    x, y = mix.examples(trials)
    assert float(found.gradient(x, y).abs().max()) < 1e-9
    torch.testing.assert_close(first.W, learner.start(trials, 2, 0).W)
    # Two neurons that start alike stay alike: a critical point whose Hessian is not positive.
    trials = [mix.draw(Setting(dim=2, neurons=2, means=(1.0, 0.0)), 2000, 1, DOUBLE)]
    teacher = trials[0].teacher
    same = teacher.mean(1, keepdim=True).expand(2, 2)
    net = OneHidden(same[None, None].contiguous())
    net = Learner(factor=8.0, steps=300).run(net, trials)
    found, ended = mix.critical_point(net, trials)
    assert not bool(ended.any()) and torch.equal(found.W, net.W)


def test_risks_by_group_and_the_rate_of_a_straight_line() -> None:
    trial = mix.draw(Setting(weights=(0.8, 0.2), deviations=(1.0, 4.0)), 5, 0)
    found = mix.risks(trial.teacher, trial, 0, tested=20_000)
    assert found.excess == 0 == found.excess_groups[0]
    assert found.average == pytest.approx(0.8 * found.groups[0] + 0.2 * found.groups[1])
    other = mix.risks(trial.teacher + 1, trial, 0, tested=20_000)
    assert min(other.excess_groups) > 0
    assert other.excess == pytest.approx(other.average - found.average)
    gap = 3 * torch.tensor([0.9**t for t in range(0, 200, 2)])
    found = convergence(list(range(0, 200, 2)), gap.double())
    assert found["rate"] == pytest.approx(0.9, abs=1e-4)
    assert found["straight"] == pytest.approx(1, abs=1e-4)
    assert math.isnan(convergence([0, 1], torch.tensor([1.0, 0.5]))["rate"])
