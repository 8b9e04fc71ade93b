"""Gradient descent of algorithm 1 on mixtures: trials drawn, trained and tested."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Generator, Tensor

from graphtheory.papers.mixture.model import GaussianMixture, OneHidden, risk
from graphtheory.patterns.draw import generator_of

_STRETCH = 1.4  # D of section 4.5.1 is 1, 1.1, ..., 1.4 for d = 5; here evenly up to it for any d
_LOOKS = 100
_ROUNDING = 1e-9  # distances below it are rounding errors
_NEAR_END, _ROUNDS = 1e-10, 12  # a last step of Newton's method, and how many there are
_TESTED = 100_000  # fresh features of each group that a risk is estimated on


@dataclass(frozen=True)
class Setting:
    """Two groups and a teacher, in the letters of section 4.5.1."""

    means: tuple[float, float] = (1.0, -1.0)  # m_l; mu_l = m_l (1, ..., 1)
    # sigma_l; Sigma_l = sigma_l^2 I, or what `turned` says
    deviations: tuple[float, float] = (1.0, 1.0)
    weights: tuple[float, float] = (0.5, 0.5)  # lambda_l
    dim: int = 5  # d
    neurons: int = 3  # K
    # Sigma_l = sigma_l^2 Lambda^T D Lambda with a random rotation, the same for both groups, and D
    # from 1 to 1.4
    turned: bool = False
    # entries of W* are N(0, 1) where it is None, else uniform up to +-size
    size: float | None = None

    @property
    def stretch(self) -> float:
        r"""The norm :math:`\|\Sigma_l\|` of a group over its sigma_l^2."""
        return _STRETCH if self.turned else 1.0

    def mixture(self, generator: Generator, dtype: torch.dtype) -> GaussianMixture:
        """The mixture that features are drawn from."""
        even = GaussianMixture.isotropic(
            self.weights, [[m] * self.dim for m in self.means], self.deviations, dtype
        )
        if not self.turned:
            return even
        turn = torch.randn(self.dim, self.dim, generator=generator).to(dtype)
        turn = torch.linalg.svd(turn)[0]
        spread = turn.t() @ torch.linspace(1, _STRETCH, self.dim, dtype=dtype).diag() @ turn
        spread = (spread + spread.t()) / 2
        scale = torch.tensor(self.deviations, dtype=dtype).square()
        return GaussianMixture(even.weights, even.means, scale[:, None, None] * spread)

    def teacher(self, generator: Generator, dtype: torch.dtype) -> Tensor:
        """The weights W* of the teacher, [d, K]."""
        shape = (self.dim, self.neurons)
        if self.size is None:
            return torch.randn(shape, generator=generator).to(dtype)
        return (self.size * (2 * torch.rand(shape, generator=generator) - 1)).to(dtype)


class Trial(NamedTuple):
    """One teacher and its examples."""

    mixture: GaussianMixture  # of the features
    teacher: Tensor  # W*, [d, K]
    x: Tensor  # [n, d]
    y: Tensor  # [n]


def draw(setting: Setting, examples: int, seed: int, dtype: torch.dtype = torch.float32) -> Trial:
    """The trial of one seed; settings of the same d and K share W* and the normal draws."""
    generator = generator_of(seed)
    teacher = setting.teacher(generator, dtype)
    mixture = setting.mixture(generator, dtype)
    x, y, _ = mixture.labeled(examples, lambda x: predicted(teacher, x), generator)
    return Trial(mixture, teacher, x, y)


@torch.no_grad()
def predicted(weights: Tensor, x: Tensor) -> Tensor:
    """H(W, x) of one network [d, K] on features [n, d]."""
    return OneHidden(weights[None, None])(x[None])[0, 0]


def near(teacher: Tensor, radius: float, starts: int, generator: Generator) -> Tensor:
    """Starts [S, d, K], uniform in the ball of that radius around the teacher."""
    off = torch.randn(starts, *teacher.shape, generator=generator)
    off = off / off.flatten(1).norm(dim=1)[:, None, None]
    part = torch.rand(starts, 1, 1, generator=generator) ** (1 / teacher.numel())
    return teacher + radius * (part * off).to(teacher)


def examples(trials: Sequence[Trial]) -> tuple[Tensor, Tensor]:
    """Features [T, n, d] and labels [T, n] of all trials."""
    return torch.stack([t.x for t in trials]), torch.stack([t.y for t in trials])


@dataclass(frozen=True)
class Learner:
    r"""How a network starts and descends.

    .. math:: W_{t+1} = W_t - \eta_0 \nabla f_n(W_t)

    Source: Li (2024), eq. (4.6) without noise, and appendix C.1.
    """

    # eta_0 over the bound of algorithm 1, which is printed with an O(): its constant
    factor: float = 6.0
    steps: int = 1000  # T
    radius: float = 0.1  # epsilon, of the ball around W* where it starts
    fixed: bool = False  # eta_0 = factor for every mixture, instead of factor times its bound

    @property
    def name(self) -> str:
        """The name in tables and pictures."""
        return "the same step size" if self.fixed else "step size by the bound"

    def start(self, trials: Sequence[Trial], starts: int, seed: int) -> OneHidden:
        """S networks of each trial."""
        generator = generator_of(seed, starts)
        found = [near(t.teacher, self.radius, starts, generator) for t in trials]
        return OneHidden(torch.stack(found))

    def step_sizes(self, trials: Sequence[Trial]) -> Tensor:
        """The step size eta_0 of each trial."""
        bounds = [1.0 if self.fixed else t.mixture.step_bound for t in trials]
        return self.factor * torch.tensor(bounds)

    @torch.no_grad()
    def run(
        self, net: OneHidden, trials: Sequence[Trial],
        watch: Callable[[int], None] = lambda step: None,
    ) -> OneHidden:  # fmt: skip
        """Descend from the start, in place.

        `watch` is called with the number of steps taken, before each step and after the last.
        """
        x, y = examples(trials)
        size = self.step_sizes(trials).to(net.W.dtype).view(-1, 1, 1, 1)
        for step in range(self.steps):
            watch(step)
            net.W.sub_(size * net.gradient(x, y))
        watch(self.steps)
        return net


def descend(learner: Learner, net: OneHidden, trials: Sequence[Trial]) -> tuple[list[int], Tensor]:
    """The steps, and weights [n, T, M, d, K] after them, 100 of them evenly spread; in place."""
    count = min(learner.steps, _LOOKS) + 1
    looks = {round(s) for s in np.linspace(0, learner.steps, count)}
    kept: list[Tensor] = []

    def watch(step: int) -> None:
        if step in looks:
            kept.append(net.W.detach().clone())

    learner.run(net, trials, watch)
    return sorted(looks), torch.stack(kept)


def convergence(steps: Sequence[int], gap: Tensor) -> dict[str, Any]:
    """The rate v of gap ~ v^t over the second half of its fall, on the logarithmic axis.

    The first half holds directions that vanish early, the end rounding errors.

    Returns:
        The steps and gaps of the looks as lists; `rate`, v, and `straight`, R^2 of the line, both
        nan where the second half has fewer than three points.
    """
    size = gap.clamp(min=1e-300).log().numpy()
    last = max((i for i in range(len(size)) if gap[i] > _ROUNDING), default=0)
    middle = (size[0] + size[last]) / 2
    chosen = [i for i in range(last + 1) if size[i] <= middle]
    found = {"steps": list(steps), "gap": gap.tolist()}
    if len(chosen) < 3:
        return found | {"rate": float("nan"), "straight": float("nan")}
    x, y = np.array(steps, float)[chosen], size[chosen]
    slope, shift = np.polyfit(x, y, 1)
    left = y - slope * x - shift
    return found | {"rate": float(np.exp(slope)), "straight": float(1 - left.var() / y.var())}


@torch.no_grad()
def critical_point(net: OneHidden, trials: Sequence[Trial]) -> tuple[OneHidden, Tensor]:
    """Where descent would end if it went on: Newton's method from the present weights.

    Networks whose Hessian is not positive definite, or that Newton's method would move by more than
    1, are left where they are. The Hessian needs double precision.

    Returns: The networks, in double precision, and which of them are at a minimum, bool [T, S].
    """
    x, y = (values.double() for values in examples(trials))
    begun = net.W.double()
    found = OneHidden(begun)
    for _ in range(_ROUNDS):
        values, vectors = torch.linalg.eigh(found.hessian(x, y))
        inside = vectors.transpose(2, 3) @ found.gradient(x, y).flatten(2)[..., None]
        move = (vectors @ (inside / values.clamp(min=1e-12)[..., None])).view_as(found.W)
        off = (found.W - move - begun).flatten(2).norm(dim=2)
        good = (values[..., 0] > 0) & (off < 1)
        found.W.sub_(torch.where(good[..., None, None], move, 0))
        ended = good & (move.flatten(2).norm(dim=2) < _NEAR_END)
        if torch.equal(ended, good):
            break
    return OneHidden(torch.where(ended[..., None, None], found.W, begun)), ended


class Risks(NamedTuple):
    """Cross-entropy of a network, and its excess over that of the teacher."""

    average: float  # of the mixture, (4.4)
    groups: tuple[float, ...]  # of each group, (4.5)
    excess: float  # `average` less the teacher's
    excess_groups: tuple[float, ...]  # `groups` less the teacher's


def risks(weights: Tensor, trial: Trial, seed: int, tested: int = _TESTED) -> Risks:
    """Risks of one network [d, K]; on the same features for every network of a seed."""
    generator = generator_of(seed, tested)
    pairs = []
    for group in range(len(trial.mixture.weights)):
        x = trial.mixture.of_group(group, tested, generator)
        true = predicted(trial.teacher, x)
        pairs.append([float(risk(predicted(w, x), true)) for w in (weights, trial.teacher)])
    own, least = zip(*pairs, strict=True)
    share = trial.mixture.weights.tolist()

    def mean(values: Sequence[float]) -> float:
        return sum(w * v for w, v in zip(share, values, strict=True))

    return Risks(mean(own), own, mean(own) - mean(least), tuple(a - b for a, b in pairs))
