"""In-context prompts, as tensors and as star graphs, and families of functions behind them."""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from graphtheory.graph import Neighborhood, query_stars
from graphtheory.lab.train.contract import check_each


@dataclass(frozen=True, eq=False)
class Prompts:
    r"""P prompts of one length, the query in the last place.

    .. math:: P = \begin{pmatrix} x_1 & \dots & x_l & x_{query} \\ y_1 & \dots & y_l & 0
        \end{pmatrix}

    Raises:
        ValueError: If the shapes do not fit.

    Source: Li (2024), eq. (6.1).
    """

    x: Tensor  #: Inputs, floating [P, l + 1, d_x].
    #: Outputs [P, l + 1]: +1 or -1, or any number of a regression; that of the query is the answer,
    #: which is in no column.
    y: Tensor
    #: Embeddings of the outputs -1 and +1, [2, d_y]; other numbers lie on their line.
    labels: Tensor
    #: Relevant pattern of every input, int64 [P, l + 1]; None where there is none.
    pattern: Tensor | None = None
    #: Decisive patterns of every prompt, mapped to +1 and -1, int64 [P, 2]; or None.
    task: Tensor | None = None

    def __post_init__(self) -> None:
        if self.x.dim() != 3 or not self.x.size(1):
            raise ValueError(f"x: shape {tuple(self.x.shape)}, expected [P, l + 1, d_x]")
        if self.labels.dim() != 2 or len(self.labels) != 2:
            raise ValueError(f"labels: shape {tuple(self.labels.shape)}, expected [2, d_y]")
        count, places, _ = self.x.shape
        shapes = {"y": (count, places), "pattern": (count, places), "task": (count, 2)}
        for name, wanted in shapes.items():
            given = getattr(self, name)
            if given is not None and given.shape != wanted:
                shape = tuple(given.shape)
                raise ValueError(f"{name}: shape {shape}, expected {wanted}, as x has it")

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, chosen: int | slice | Tensor) -> "Prompts":
        """Some of the prompts, or one of them, as `Prompts`."""
        if isinstance(chosen, int):
            at = range(len(self))[chosen]  # raises IndexError
            chosen = slice(at, at + 1)
        pattern, task = (None if t is None else t[chosen] for t in (self.pattern, self.task))
        return Prompts(self.x[chosen], self.y[chosen], self.labels, pattern, task)

    @property
    def length(self) -> int:
        """The number of contexts, l."""
        return self.x.size(1) - 1

    @property
    def answer(self) -> Tensor:
        """The output of every query, [P]."""
        return self.y[:, -1]

    def columns(self) -> Tensor:
        """p_1 to p_l and p_query, [P, l + 1, d_x + d_y]; the label part of the query is 0."""
        low, high = self.labels
        middle, half = (high + low) / 2, (high - low) / 2
        outputs = torch.addcmul(middle, self.y[..., None], half)
        outputs[:, -1] = 0
        return torch.cat([self.x, outputs], 2)

    def graph(self) -> tuple[Tensor, Neighborhood, Tensor]:
        """Columns as nodes [P (l + 1), d], the rows of the queries, and the queries' ids [P]."""
        rows = query_stars(len(self), self.length)
        queries = torch.arange(1, len(self) + 1) * (self.length + 1) - 1
        return self.columns().flatten(0, 1), rows, queries

    def same_pattern(self) -> Tensor:
        """Whether a context has the query's relevant pattern, bool [P, l].

        Raises:
            ValueError: If the prompts have no patterns.
        """
        if self.pattern is None:
            raise ValueError("prompts: have no patterns, expected those of a PromptSource")
        return self.pattern[:, :-1] == self.pattern[:, -1:]


@dataclass(frozen=True)
class FunctionFamily(ABC):
    """Draws one function for each prompt, of inputs N(0, I): Garg et al. (2022), 3 and 4."""

    def __post_init__(self) -> None:
        check_each("at least 1", lambda value: value >= 1, **vars(self))

    @abstractmethod
    def outputs(self, x: Tensor, generator: Generator) -> Tensor:
        """f_p(x_pi) with a function of its own for each prompt p, [P, n], of inputs x [P, n, d]."""

    def prompts(self, count: int, points: int, dim: int, generator: Generator) -> Prompts:
        """Draw P prompts of n points, each of its own function, as `train_in_context` asks."""
        x = torch.randn(count, points, dim, generator=generator)
        return Prompts(x, self.outputs(x, generator), torch.tensor([[-1.0], [1.0]]))


@dataclass(frozen=True)
class Linear(FunctionFamily):
    r""":math:`f(x) = w^\top x` with w ~ N(0, I).

    Example:
        >>> Linear().prompts(4, 11, 5, Generator().manual_seed(0)).columns().shape
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
        check_each("a number above 0", lambda value: value > 0, noise=self.noise)

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
