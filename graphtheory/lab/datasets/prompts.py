"""In-context prompts: examples of a task and a query, as tensors and as star graphs."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch_geometric.data import Batch, Data

from graphtheory.graph import Neighborhood, query_stars


@dataclass(frozen=True, eq=False)
class Prompts:
    r"""P prompts of one length, the query in the last place.

    .. math:: P = \begin{pmatrix} x_1 & \dots & x_l & x_{query} \\ y_1 & \dots & y_l & 0
        \end{pmatrix}

    Attributes:
        x: Inputs, floating [P, l + 1, d_x].
        y: Outputs [P, l + 1]: +1 or -1, or any number of a regression; that of the query is the
            answer, which is in no column.
        labels: Embeddings of the outputs -1 and +1, [2, d_y]; other numbers lie on their line.
        pattern: Relevant pattern of every input, int64 [P, l + 1]; None where there is none.
        task: Decisive patterns of every prompt, mapped to +1 and -1, int64 [P, 2]; or None.

    Raises:
        ValueError: If the shapes do not fit.

    Source:
        Li (2024), eq. (6.1).
    """

    x: Tensor
    y: Tensor
    labels: Tensor
    pattern: Tensor | None = None
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

    def __getitem__(self, chosen: int | slice | Tensor) -> Prompts:
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

    def data(self) -> list[Data]:
        """A PyG graph for each prompt, edges from the contexts to the query.

        Shapes:
            x [l + 1, d_x + d_y]; edge_index [2, l]; y [1], the query's output; query_index [1],
            the query's node, also of a `Batch` of these graphs.
        """
        edges = torch.stack([torch.arange(self.length), torch.full((self.length,), self.length)])
        query = torch.tensor([self.length])
        return [
            Data(x=x, edge_index=edges, y=y[-1:], query_index=query)
            for x, y in zip(self.columns(), self.y, strict=True)
        ]

    def batch(self) -> Batch:
        """The graphs of `data` as one batch.

        Raises:
            ValueError: If there is no prompt.
        """
        if not len(self):
            raise ValueError("prompts: got none, expected at least one of a batch")
        return Batch.from_data_list(self.data())
