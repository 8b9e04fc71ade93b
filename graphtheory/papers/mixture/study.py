"""The synthetic study of chapter 4: figures 4.2 to 4.7 and C.1."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
from torch import Generator, Tensor

from graphtheory.papers.mixture import training as mix
from graphtheory.papers.mixture.bounds import weight_error
from graphtheory.papers.mixture.model import OneHidden
from graphtheory.papers.mixture.tensor_init import TensorInit
from graphtheory.papers.mixture.training import Learner, Setting, Trial
from graphtheory.papers.study import Row, Step, Study
from graphtheory.patterns.draw import derive

SUCCESS = 1e-3  # V_W
Axis = Literal[
    "d", "mean 1", "mean 2", "means", "sigma", "sigma 1", "sigma 2", "lambda 2", "K", "n"
]
TENSOR, PRINTED, NEAR, FAR = "tensor", "tensor as printed", "near W*", "N(0, 25)"

_USUAL, _LEARNER = Setting(), Learner()


def at(setting: Setting, axis: Axis, value: float) -> Setting:
    r"""The setting with one letter changed; a mean is m_l, a sigma :math:`\|\Sigma_l\|`."""
    m, s = setting.means, setting.deviations
    root = (value / setting.stretch) ** 0.5
    changes: dict[str, dict[str, Any]] = {
        "d": {"dim": int(value)}, "K": {"neurons": int(value)}, "n": {},
        "mean 1": {"means": (value, m[1])}, "mean 2": {"means": (m[0], value)},
        "means": {"means": (value, -value)}, "sigma": {"deviations": (root, root)},
        "sigma 1": {"deviations": (root, s[1])}, "sigma 2": {"deviations": (s[0], root)},
        "lambda 2": {"weights": (1 - value, value)},
    }  # fmt: skip
    return replace(setting, **changes[axis])


@dataclass(frozen=True)
class MixtureStudy(Study):
    """What all studies of the mixture share.

    Attributes:
        axis: What varies.
        values: Of the axis.
        setting: All other letters.
        learners: How the network learns.
        seeds: Teachers, each with examples of its own.
        first: The first seed.
    """

    axis: Axis
    values: tuple[float, ...]
    setting: Setting = _USUAL
    learners: tuple[Learner, ...] = (_LEARNER,)
    seeds: int = 20
    first: int = 0

    def steps(self) -> list[Step]:
        """A step for each learner, value and number of examples."""
        return [
            self._step(learner, value, n)
            for learner in self.learners
            for value in self.values
            for n in self.counts(value)
        ]

    def counts(self, value: float) -> tuple[int, ...]:
        """Numbers of examples."""
        raise NotImplementedError

    def rows(self, learner: Learner, value: float, trials: Sequence[Trial]) -> list[Row]:
        """Rows of all trials of one step, in the order of the seeds."""
        raise NotImplementedError

    def about(self) -> dict[str, Any]:
        """What else decides the rows."""
        return {}

    def _step(self, learner: Learner, value: float, n: int) -> Step:
        setting = at(self.setting, self.axis, value)
        settings = {
            "kind": type(self).__name__, "setting": asdict(setting), "learner": asdict(learner),
            "n": n, "value": value, "seeds": [self.first, self.seeds],
        } | self.about()  # fmt: skip

        def run() -> list[Row]:
            seeds = range(self.first, self.first + self.seeds)
            trials = [mix.draw(setting, n, seed, self.dtype) for seed in seeds]
            known = {"learner": learner.name, "value": value, "n": n}
            return [known | row for row in self.rows(learner, value, trials)]

        return Step(f"{learner.name}, {self.axis} = {value:g}, n = {n}", settings, run)

    @property
    def dtype(self) -> torch.dtype:
        """Of features and weights."""
        return torch.float32

    def seed_of(self, index: int) -> int:
        """The seed of the trial at that place."""
        return self.first + index


@dataclass(frozen=True)
class SampleStudy(MixtureStudy):
    """From how many examples on all starts end alike: figures 4.2 and 4.3.

    Where descent ends is found by Newton's method from its last step, so that V_W does not tell
    of slowness; a start that has no minimum near stays where descent left it.

    Attributes:
        examples: n.
        starts: M.
    """

    examples: tuple[int, ...] = ()
    starts: int = 20

    def counts(self, value: float) -> tuple[int, ...]:
        """The same for every value."""
        return self.examples

    def about(self) -> dict[str, Any]:
        """M."""
        return {"starts": self.starts}

    def rows(self, learner: Learner, value: float, trials: Sequence[Trial]) -> list[Row]:
        """Rows: seed, V_W and how far the mean is from W*."""
        net = learner.run(learner.start(trials, self.starts, self.first), trials)
        net, _ = mix.critical_point(net, trials)
        mean = net.W.mean(1, keepdim=True)
        spread = (net.W - mean).square().sum((2, 3)).mean(1).sqrt()
        off = [weight_error(m[0], t.teacher) for m, t in zip(mean, trials, strict=True)]
        return [
            {"seed": self.seed_of(i), "spread": float(v), "off": float(e)}
            for i, (v, e) in enumerate(zip(spread.detach(), off, strict=True))
        ]


@dataclass(frozen=True)
class RateStudy(MixtureStudy):
    """How fast descent converges: figures 4.4 and 4.5a.

    Attributes:
        examples: n.
    """

    examples: int = 10_000

    def counts(self, value: float) -> tuple[int, ...]:
        """One n."""
        return (self.examples,)

    @property
    def dtype(self) -> torch.dtype:
        """Curves end near a critical point."""
        return torch.float64

    def rows(self, learner: Learner, value: float, trials: Sequence[Trial]) -> list[Row]:
        """Rows: seed, rate v, straight (R^2 of the line), steps and distances to the end."""
        net = learner.start(trials, 1, self.first)
        looks, path = _path(learner, net, trials)
        end, ended = mix.critical_point(net, trials)
        gap = (path - end.W).detach().flatten(3).norm(dim=3)[..., 0]
        return [
            {"seed": self.seed_of(i)} | _line(looks, gap[:, i]) | {"ended": bool(e)}
            for i, e in enumerate(ended[:, 0])
        ]


def _path(learner: Learner, net: OneHidden, trials: Sequence[Trial]) -> tuple[list[int], Tensor]:
    """Descend in place: up to 100 steps, evenly spread, and the weights there [n, T, M, d, K]."""
    looks = {round(s) for s in np.linspace(0, learner.steps, min(learner.steps, 100) + 1)}
    kept: list[Tensor] = []

    def watch(step: int) -> bool:
        if step in looks:
            kept.append(net.W.detach().clone())
        return False

    learner.run(net, trials, watch)
    return sorted(looks), torch.stack(kept)


def _line(steps: Sequence[int], gap: Tensor) -> dict[str, Any]:
    """The rate v of gap ~ v^t over the second half of its fall, on the logarithmic axis.

    The first part holds directions that are gone soon; the end, below 1e-9, rounding.
    """
    size = gap.clamp(min=1e-300).log().numpy()
    last = max((i for i in range(len(size)) if gap[i] > 1e-9), default=0)
    middle = (size[0] + size[last]) / 2
    chosen = [i for i in range(last + 1) if size[i] <= middle]
    found = {"steps": list(steps), "gap": gap.tolist()}
    if len(chosen) < 3:
        return found | {"rate": float("nan"), "straight": float("nan")}
    x, y = np.array(steps, float)[chosen], size[chosen]
    slope, shift = np.polyfit(x, y, 1)
    left = y - slope * x - shift
    return found | {"rate": float(np.exp(slope)), "straight": float(1 - left.var() / y.var())}


@dataclass(frozen=True)
class RiskStudy(MixtureStudy):
    """What is learned: figures 4.5b, 4.6 and 4.7; at the minimum, as in `SampleStudy`.

    Attributes:
        examples: n, where it is not the axis.
    """

    examples: int = 20_000

    def counts(self, value: float) -> tuple[int, ...]:
        """One n."""
        return (int(value) if self.axis == "n" else self.examples,)

    def rows(self, learner: Learner, value: float, trials: Sequence[Trial]) -> list[Row]:
        """Rows: seed, distance to W*, risks of the mixture and of group 2, and their excess."""
        net = learner.run(learner.start(trials, 1, self.first), trials)
        net, ended = mix.critical_point(net, trials)
        rows = []
        for i, (w, t) in enumerate(zip(net.W.detach()[:, 0].to(self.dtype), trials, strict=True)):
            found = mix.risks(w, t, self.seed_of(i))
            rows.append(
                {"seed": self.seed_of(i), "off": float(weight_error(w, t.teacher)),
                 "average": found.average, "minority": found.groups[1],
                 "excess": found.excess, "excess minority": found.excess_groups[1],
                 "ended": bool(ended[i, 0])}
            )  # fmt: skip
        return rows


@dataclass(frozen=True)
class StartStudy(MixtureStudy):
    """Descent from several starts: figure C.1.

    Attributes:
        examples: n.
    """

    examples: int = 200_000

    def counts(self, value: float) -> tuple[int, ...]:
        """One n."""
        return (self.examples,)

    def rows(self, learner: Learner, value: float, trials: Sequence[Trial]) -> list[Row]:
        """Rows: seed, start, steps, relative errors to W*, gaps to a minimum near it, rate."""
        rows = []
        for i, trial in enumerate(trials):
            named = starting_points(trial, learner.radius, self.seed_of(i))
            net = OneHidden.of(torch.stack(list(named.values()))[None])
            looks, weights = _path(learner, net, [trial])
            last = weights[-1, 0, list(named).index(NEAR)]
            minimum, ended = mix.critical_point(OneHidden.of(last[None, None]), [trial])
            end = minimum.W.detach()[0, 0].to(self.dtype)
            scale = float(trial.teacher.norm())
            for s, name in enumerate(named):
                path = weights[:, 0, s]
                rows.append(
                    {"seed": self.seed_of(i), "start": name, "ended": bool(ended),
                     "error": (weight_error(path, trial.teacher) / scale).tolist()}
                    | _line(looks, weight_error(path, end).double() / scale)
                )  # fmt: skip
        return rows


def starting_points(trial: Trial, radius: float, seed: int) -> dict[str, Tensor]:
    """W_0 of each start, [d, K]."""
    generator = Generator().manual_seed(derive(seed, trial.teacher.numel()))
    neurons = trial.teacher.size(1)
    found = {
        name: start(trial.mixture, trial.x, trial.y, generator)
        for name, start in (
            (TENSOR, TensorInit(neurons, third=True)),
            (PRINTED, TensorInit.printed(neurons)),
        )
    }
    found[NEAR] = mix.near(trial.teacher, radius, 1, generator)[0]
    found[FAR] = 5 * torch.randn(trial.teacher.shape, generator=generator).to(trial.teacher)
    return found
