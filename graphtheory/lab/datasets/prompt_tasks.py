"""Families of random functions that in-context learners are trained on, other than patterns."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields

import torch
from torch import Generator, Tensor

from graphtheory.lab.datasets.prompts import Prompts


@dataclass(frozen=True)
class FunctionFamily(ABC):
    """Draws one function for each prompt, of inputs N(0, I): Garg et al. (2022), 3 and 4."""

    def __post_init__(self) -> None:
        for field in fields(self):
            if getattr(self, field.name) < 1:
                value = getattr(self, field.name)
                raise ValueError(f"{field.name}: got {value}, expected at least 1")

    @abstractmethod
    def outputs(self, x: Tensor, generator: Generator) -> Tensor:
        """f_p(x_pi) with a function of its own for each prompt p, [P, n], of inputs x [P, n, d]."""

    def prompts(self, count: int, points: int, dim: int, generator: Generator) -> Prompts:
        """Prompts of a number of points, as `train.train_in_context` asks for them."""
        return self.sample(count, points - 1, dim, generator)

    def sample(
        self,
        count: int,
        length: int,
        dim: int,
        generator: Generator,
        *,
        classify: bool = False,
        noise: float = 0.0,
    ) -> Prompts:
        """Draw P prompts of l contexts with d_x coordinates, each with a function of its own.

        Outputs of contexts get `noise`, a standard deviation; then, with `classify`, all outputs
        become their signs, +1 where they are 0.
        """
        if noise < 0:
            raise ValueError(f"noise: got {noise}, expected 0 or more")
        x = torch.randn(count, length + 1, dim, generator=generator)
        y = self.outputs(x, generator)
        y[:, :-1] += noise * torch.randn(count, length, generator=generator)
        if classify:
            y = torch.where(y < 0, -1.0, 1.0)
        return Prompts(x, y, torch.tensor([[-1.0], [1.0]]))


@dataclass(frozen=True)
class Linear(FunctionFamily):
    r""":math:`f(x) = w^\top x` with w ~ N(0, I).

    Example:
        >>> Linear().sample(4, 10, 5, Generator().manual_seed(0)).columns().shape
        torch.Size([4, 11, 6])
    """

    def outputs(self, x: Tensor, generator: Generator) -> Tensor:
        w = torch.randn(len(x), x.size(2), 1, generator=generator)
        return (x @ w)[..., 0]


@dataclass(frozen=True)
class NoisyLinear(Linear):
    """`Linear` with N(0, noise^2) added to every output, that of the query too."""

    noise: float = 1.0  # standard deviation, above 0

    def __post_init__(self) -> None:
        if not self.noise > 0:
            raise ValueError(f"noise: got {self.noise}, expected a number above 0")

    def outputs(self, x: Tensor, generator: Generator) -> Tensor:
        y = super().outputs(x, generator)
        return y + self.noise * torch.randn(y.shape, generator=generator)


@dataclass(frozen=True)
class Quadratic(FunctionFamily):
    r""":math:`f(x) = \sum_i w_i x_i^2 / \sqrt 3` with w ~ N(0, I): as large as a `Linear` one.

    Source: Garg et al. (2022) name the class in their code; the factor makes E f(x)^2 = d.
    """

    def outputs(self, x: Tensor, generator: Generator) -> Tensor:
        w = torch.randn(len(x), x.size(2), 1, generator=generator)
        return (x.square() @ w)[..., 0] / 3**0.5


@dataclass(frozen=True)
class SparseLinear(FunctionFamily):
    r""":math:`f(x) = w^\top x` with w ~ N(0, I) in a few coordinates and 0 in the others."""

    nonzero: int = 3  # coordinates, drawn for each prompt; all where x has fewer

    def outputs(self, x: Tensor, generator: Generator) -> Tensor:
        w = torch.randn(len(x), x.size(2), generator=generator)
        key = torch.rand(w.shape, generator=generator)
        left = key.topk(min(self.nonzero, x.size(2)), dim=1).indices
        kept = torch.zeros_like(w).scatter_(1, left, w.gather(1, left))
        return (x @ kept[..., None])[..., 0]


@dataclass(frozen=True)
class TwoLayer(FunctionFamily):
    r""":math:`f(x) = \sum_{i \le r} v_i \max(w_i^\top x, 0)`, v_i ~ N(0, 2 / r), w_i ~ N(0, I)."""

    width: int = 100  # neurons, r

    def outputs(self, x: Tensor, generator: Generator) -> Tensor:
        w = torch.randn(len(x), x.size(2), self.width, generator=generator)
        v = torch.randn(len(x), self.width, 1, generator=generator) * (2 / self.width) ** 0.5
        return (torch.relu(x @ w) @ v)[..., 0]


@dataclass(frozen=True)
class DecisionTree(FunctionFamily):
    """A full binary tree; a node asks for the sign of a random coordinate, a leaf has a N(0, 1)."""

    depth: int = 4  # questions on the way to a leaf

    def outputs(self, x: Tensor, generator: Generator) -> Tensor:
        prompts, inner = len(x), 2**self.depth - 1
        question = torch.randint(x.size(2), (prompts, inner), generator=generator)
        leaf = torch.randn(prompts, inner + 1, generator=generator)
        node = torch.zeros(x.shape[:2], dtype=torch.int64)  # [P, n], children of k: 2k+1 and 2k+2
        for _ in range(self.depth):
            coordinate = question.gather(1, node)[..., None]
            node = 2 * node + 1 + (x.gather(2, coordinate)[..., 0] > 0).long()
        return leaf.gather(1, node - inner)
