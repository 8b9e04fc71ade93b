"""The concept class of the generalization bound, and the least risk that it has."""

from dataclasses import dataclass

import numpy as np
import torch
from scipy.optimize import lsq_linear
from torch import Generator, Tensor, nn
from torch.nn.functional import normalize

from graphtheory.graph import Neighborhood
from graphtheory.models.sampled_gcn import aggregate_rows


class TargetFunction(nn.Module):
    r"""A function F* of the concept class, with phi_1 = Phi = sin and phi_2 = tanh.

    .. math::
        F^* = A^* \bigl(\Phi(r_1) \odot r_2\bigr) C^*, \qquad
        r_k = A^*\, \phi_k(A^* X W_k^*)\, V_k^*

    The columns of W and V have norm 1 and the entries of C are in [-1, 1]; `project` restores that
    after a step. They are drawn from N(0, 1) first. A node with an empty row of A* has output 0.

    Source: Li (2024), eq. (5.12), which leaves the three functions open but for smoothness.
    """

    def __init__(self, features: int, size: int, outputs: int, generator: Generator) -> None:
        super().__init__()
        self.W, self.V, self.C = (
            nn.Parameter(torch.randn(shape, generator=generator))
            for shape in ((2, features, size), (2, size, size), (size, outputs))
        )
        self.project()

    def forward(self, x: Tensor, adjacency: Neighborhood) -> Tensor:
        """Outputs [N, K] of features [N, d]."""
        return self.hidden(x, adjacency) @ self.C

    def hidden(self, x: Tensor, adjacency: Neighborhood) -> Tensor:
        """What C* is applied to, [N, size]."""
        near = aggregate_rows(x, adjacency)
        first, second = (
            aggregate_rows(phi(near @ w), adjacency) @ v
            for phi, w, v in zip((torch.sin, torch.tanh), self.W, self.V, strict=True)
        )
        return aggregate_rows(first.sin() * second, adjacency)

    @torch.no_grad()
    def project(self) -> None:
        """Columns to norm 1, entries of C into [-1, 1]."""
        self.W.copy_(normalize(self.W, dim=1))
        self.V.copy_(normalize(self.V, dim=1))
        self.C.clamp_(-1, 1)

    @torch.no_grad()
    def fit_outputs(self, x: Tensor, y: Tensor, adjacency: Neighborhood) -> float:
        """Set C to the best of [-1, 1] for targets y [N, K]; the mean squared error that is left.

        The smaller of this and what C = 0 leaves, since the solver stops at a tolerance.
        """
        hidden, scale = self.hidden(x, adjacency).double(), float(y.abs().max())
        a, b = (hidden / scale).numpy(), (y.double() / scale).numpy()
        columns = [lsq_linear(a, column, bounds=(-1, 1)).x for column in b.T]
        self.C.copy_(torch.from_numpy(np.stack(columns, 1)))
        left = float((hidden @ self.C.double() - y).square().mean())
        return min(left, float(y.double().square().mean()))


@dataclass(frozen=True)
class Descent:
    """How the least risk is looked for.

    Adam on W and V with columns of norm 1, along a cosine to step size 0; C is solved for.
    """

    starts: int = 2
    rounds: int = 40  # solutions for C
    steps: int = 10  # of Adam after each
    step_size: float = 0.03


def least_risk(
    x: Tensor, y: Tensor, adjacency: Neighborhood, size: int, descent: Descent, generator: Generator
) -> float:
    r"""The least mean squared error found over the concept class: an upper bound of OPT_{A*}.

    .. math:: \mathrm{OPT}_{A^*} = \min_{W_k^*, V_k^*, C^*} E\, L(F^*_{A^*}(e_g, X), y)

    The expectation is over the node g, uniform; features and targets have no noise.

    Source: Li (2024), eq. (5.16).
    """
    least, size_of_y = float("inf"), y.square().mean()  # Adam is not told a gradient from rounding
    for _ in range(descent.starts):
        model = TargetFunction(x.size(1), size, y.size(1), generator)
        optimizer = torch.optim.Adam([model.W, model.V], lr=descent.step_size)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, descent.rounds)
        for _ in range(descent.rounds):
            least = min(least, model.fit_outputs(x, y, adjacency))
            for _ in range(descent.steps):
                optimizer.zero_grad()
                ((model(x, adjacency) - y).square().mean() / size_of_y).backward()
                optimizer.step()
                model.project()
            schedule.step()
        least = min(least, model.fit_outputs(x, y, adjacency))
    return least
