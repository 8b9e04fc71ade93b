"""Algorithm 2: SGD with noise on sampled adjacency matrices."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.functional import cross_entropy, mse_loss

from graphtheory.graph import Neighborhood
from graphtheory.lab.train.contract import check_each
from graphtheory.lab.train.watch import borrowed_randomness, seed_all
from graphtheory.models.sampled_gcn import NUM_LAYERS
from graphtheory.patterns import Compose, Pattern, per_layer

_not_negative = partial(check_each, "0 or more", lambda value: 0 <= value < float("inf"))


@dataclass(frozen=True)
class Perturbation:
    """Random perturbations that the analysis needs and practice does not; none by default.

    Source: Li (2024), section 5.3.3.
    """

    # standard deviations, 0 or more: of W^rho, which smooths W, and of V^rho
    sigma_w: float = 0.0
    sigma_v: float = 0.0
    signs: bool = False  # multiply the learned changes by a random diagonal matrix Sigma of signs
    noise: float = 0.0  # standard deviation of the noise that is added to every gradient

    def __post_init__(self) -> None:
        _not_negative(sigma_w=self.sigma_w, sigma_v=self.sigma_v, noise=self.noise)


@dataclass(frozen=True)
class Regularizers:
    r""":math:`\lambda_w \|\sqrt{\lambda_t} W\|_{2,4}^4 + \lambda_v \|\sqrt{\lambda_t} V\|_F^2`.

    The first norm is over columns: :math:`\|W\|_{2,4}^4 = \sum_i \|w_i\|_2^4`. None by default.

    Source: Li (2024), eqs. (5.1), (5.11).
    """

    lambda_w: float = 0.0  # of W, 0 or more
    lambda_v: float = 0.0  # of V, 0 or more

    def __post_init__(self) -> None:
        _not_negative(lambda_w=self.lambda_w, lambda_v=self.lambda_v)

    def __call__(self, w: Tensor, v: Tensor, scale: float) -> Tensor:
        """The two terms of eq. (5.11) for the learned changes W, V and lambda_t = `scale`."""
        columns = w.square().sum(0)
        return (
            self.lambda_w * scale**2 * columns.square().sum()
            + self.lambda_v * scale * v.square().sum()
        )


@dataclass(frozen=True)
class Algorithm2:
    """The options with which `train_on_samples` trains."""

    step_size: float = 1e-3  # eta, above 0 and below 1
    outer: int = 1  # T, at least 1
    inner: int = 1000  # T_w steps in each outer loop, at least 1
    batch_size: int = 5  # labeled nodes per step, at least 1; all of them where there are fewer
    decay: bool = True  # lambda_{t+1} = (1 - eta) lambda_t; otherwise lambda stays 1
    # use the same A^s in all three layers; otherwise each layer draws its own
    one_draw: bool = False
    perturbation: Perturbation = field(default_factory=Perturbation)  # smoothing, signs and noise
    # penalties on the learned changes
    regularizers: Regularizers = field(default_factory=Regularizers)

    def __post_init__(self) -> None:
        if not 0 < self.step_size < 1:
            raise ValueError(f"step_size: got {self.step_size}, expected above 0 and below 1")
        for name in ("outer", "inner", "batch_size"):
            value = getattr(self, name)
            if not isinstance(value, int) or value < 1:
                raise ValueError(f"{name}: got {value!r}, expected a whole number, at least 1")


_DEFAULT = Algorithm2()
Loss = Callable[[Tensor, Tensor], Tensor]


class SampledRun(NamedTuple):
    """What a run of `train_on_samples` gives."""

    learned_w: Tensor  # W_T, the learned change of W^(0)
    learned_v: Tensor  # V_T
    scale: float  # lambda_(T-1)
    losses: list[float]  # of every step, on its batch, without penalties


def train_on_samples(
    model: nn.Module,
    x: Tensor,
    y: Tensor,
    labeled: Tensor,
    adjacency: Neighborhood,
    sampler: Pattern | None = None,
    *,
    algorithm: Algorithm2 = _DEFAULT,
    loss: Loss = mse_loss,
    generator: torch.Generator | None = None,
) -> SampledRun:
    r"""Train the weights W and V of a model by SGD, on a new sample of the graph in every step.

    .. math::
        \min_{W, V}\; L_{\Omega^s}\bigl(\sqrt{\lambda_t}(W^{(0)} + W^\rho + W \Sigma),
        \sqrt{\lambda_t}(V^{(0)} + V^\rho + \Sigma V)\bigr)
        + \lambda_w \|\sqrt{\lambda_t} W\|_{2,4}^4 + \lambda_v \|\sqrt{\lambda_t} V\|_F^2

    W^(0) and V^(0) are the model's weights before training; W and V start at 0. Afterwards the
    model has :math:`W^{out} = \sqrt{\lambda_{T-1}} (W^{(0)} + W^\rho + W_T \Sigma)` and V^out
    likewise, with new perturbations. Its other trained parameters take the same steps without
    perturbation or decay. The result is a function of the arguments and the generator's state;
    dropout is seeded from it, and the caller's global random state does not change.

    Args:
        model: `model(x, [first, second, third]) -> [N, K]` with parameters named W [d, m_1] and
            V [m_1, m_2], such as `models.SampledGCN`.
        x: Features [N, d].
        y: What the loss compares with, [N, ...].
        labeled: Omega, Bool [N].
        adjacency: A, with weights.
        sampler: Draws A^s; without one A is used.
        algorithm: Steps and options.
        loss: Mean over a batch, of outputs and entries of y; `cross_entropy` for classes.
        generator: Source of all randomness; None draws a seed from torch's global state.

    Source:
        Li (2024), algorithm 2 and eq. (5.11). With `Algorithm2(decay=False)` it is SGD on samples.
    """
    _check(model, x, y, labeled)
    nodes = labeled.nonzero().flatten()
    if generator is None:
        generator = torch.Generator().manual_seed(int(torch.randint(2**62, ())))
    with borrowed_randomness():
        seed_all(int(torch.randint(2**62, (), generator=generator, device=generator.device)))
        was_training = model.training
        model.train()
        try:
            run = _Run(
                model, x, y, nodes, adjacency, sampler or Compose(), algorithm, loss, generator
            )
            return run.all_steps()
        finally:
            model.train(was_training)


def _check(model: nn.Module, x: Tensor, y: Tensor, labeled: Tensor) -> None:
    learning = {name for name, p in model.named_parameters() if p.requires_grad}
    if not {"W", "V"} <= learning:
        raise TypeError(f"model: learns {sorted(learning)}, expected W and V among them")
    if labeled.dtype != torch.bool or labeled.shape != (x.size(0),):
        raise TypeError(
            f"labeled: {labeled.dtype} of shape {tuple(labeled.shape)}, expected bool [{x.size(0)}]"
        )
    if not bool(labeled.any()):
        raise ValueError("labeled: no node, expected at least one")
    if not isinstance(y, Tensor) or y.dim() == 0 or y.size(0) != x.size(0):
        shape = tuple(y.shape) if isinstance(y, Tensor) else type(y).__name__
        raise ValueError(f"y: got {shape}, expected a row for each of the {x.size(0)} nodes")


def _check_targets(loss: Loss, y: Tensor, outputs: int) -> None:
    """Raise unless y [S, ...] of the labeled nodes is what a known loss compares [S, K] with."""
    classes = loss is cross_entropy and not y.is_floating_point()
    if loss not in (mse_loss, cross_entropy):
        return
    if not y.is_floating_point() and not (classes and y.dtype == torch.int64):
        kinds = "floating numbers" + (" or int64 classes" if loss is cross_entropy else "")
        raise TypeError(f"y: dtype {y.dtype}, expected {kinds}")
    expected = (len(y),) if classes else (len(y), outputs)
    if y.shape != expected:
        raise ValueError(
            f"y: shape {tuple(y.shape)} of the labeled nodes, expected {expected}, for the model "
            f"has {outputs} outputs"
        )
    if classes and not 0 <= int(y.min()) <= int(y.max()) < outputs:
        raise ValueError(
            f"y: classes {int(y.min())} to {int(y.max())}, expected 0..{outputs - 1}, for the "
            f"model has {outputs} outputs"
        )


@dataclass
class _Run:
    model: nn.Module
    x: Tensor
    y: Tensor
    nodes: Tensor
    adjacency: Neighborhood
    sampler: Pattern
    algorithm: Algorithm2
    loss: Loss
    generator: torch.Generator
    checked: bool = False  # whether y was compared with the outputs

    def __post_init__(self) -> None:
        own = dict(self.model.named_parameters())
        self.start = [own.pop(name).detach().clone() for name in ("W", "V")]
        self.learned = [torch.zeros_like(value).requires_grad_() for value in self.start]
        self.others = [value for value in own.values() if value.requires_grad]

    def all_steps(self) -> SampledRun:
        a, scale, losses = self.algorithm, 1.0, list[float]()
        for t in range(a.outer):
            if a.decay and t > 0:
                scale *= 1 - a.step_size
            losses += [self._step(scale) for _ in range(a.inner)]
        with torch.no_grad():
            for name, value in self._weights(scale).items():
                self.model.get_parameter(name).copy_(value)
        w, v = (value.detach() for value in self.learned)
        return SampledRun(w, v, scale, losses)

    def _step(self, scale: float) -> float:
        order = torch.randperm(
            len(self.nodes), generator=self.generator, device=self.generator.device
        )
        batch = self.nodes[order[: self.algorithm.batch_size].to(self.nodes.device)]
        out = functional_call(self.model, self._weights(scale), (self.x, self._layers(batch)))
        if not self.checked:
            _check_targets(self.loss, self.y[self.nodes], out.size(1))
            self.checked = True
        loss = self.loss(out[batch], self.y[batch])
        if not bool(loss.isfinite()):
            raise FloatingPointError(
                f"loss: {float(loss.detach())}, expected a finite one, which a smaller step than "
                f"step_size={self.algorithm.step_size} may give"
            )
        w, v = self.learned
        objective = loss + self.algorithm.regularizers(w, v, scale)
        values = [*self.learned, *self.others]
        with torch.no_grad():
            for value, gradient in zip(values, torch.autograd.grad(objective, values), strict=True):
                value -= self.algorithm.step_size * self._noisy(gradient)
        return float(loss.detach())

    def _layers(self, batch: Tensor) -> list[Neighborhood]:
        if self.algorithm.one_draw:
            return [self.sampler(self.adjacency, generator=self.generator)] * NUM_LAYERS
        return per_layer(
            self.sampler, self.adjacency, NUM_LAYERS, generator=self.generator, targets=batch
        )

    def _weights(self, scale: float) -> dict[str, Tensor]:
        """W and V of the model with new perturbations."""
        p, (w, v) = self.algorithm.perturbation, self.learned
        if p.signs:
            sign = self._normal(w[0]).sign()
            w, v = w * sign, sign[:, None] * v
        w, v = w + self.start[0], v + self.start[1]
        if p.sigma_w > 0:
            w = w + p.sigma_w * self._normal(w)
        if p.sigma_v > 0:
            v = v + p.sigma_v * self._normal(v)
        return {"W": scale**0.5 * w, "V": scale**0.5 * v}

    def _noisy(self, gradient: Tensor) -> Tensor:
        noise = self.algorithm.perturbation.noise
        return gradient + noise * self._normal(gradient) if noise > 0 else gradient

    def _normal(self, like: Tensor) -> Tensor:
        g = self.generator
        return torch.randn(like.shape, generator=g, device=g.device, dtype=like.dtype).to(like)
