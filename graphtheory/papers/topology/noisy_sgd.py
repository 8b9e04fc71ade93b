"""Options of noisy SGD: perturbations, penalties, steps and decay."""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import Tensor


def _not_negative(**values: float) -> None:
    for name, value in values.items():
        if not 0 <= value < float("inf"):
            raise ValueError(f"{name}: got {value}, expected 0 or more")


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
    """Options of `train_on_samples`."""

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
