"""SGD on the hinge loss of many networks at once, each on its own nodes."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Generator, Tensor

from graphtheory.graph import Neighborhood
from graphtheory.patterns import AddSelf, Compose, Pattern, Sample
from graphtheory.patterns.base import on_rows

Network = Callable[[Tensor, Neighborhood, Tensor], Tensor]
"""(x, rows, targets) -> outputs [T, R], such as `papers.shallow.ShallowAttention`."""


class Outcome(NamedTuple):
    """What a network does on data that it was not trained on."""

    hinge: float  # mean hinge loss
    error: float  # share whose sign is wrong; that of an output of 0 or NaN is

    @classmethod
    def of(cls, margin: Tensor) -> "Outcome":
        """The outcome of outputs times labels."""
        hinge = (1 - margin).clamp(min=0).mean()
        return cls(float(hinge), float((~(margin > 0)).float().mean()))


class HingeTask(NamedTuple):
    """T trials on disjoint graphs of N nodes each, those of trial 0 first."""

    x: Tensor  # features [T N, d]
    y: Tensor  # labels +1 or -1 [T N]
    labeled: Tensor  # ids of the labeled nodes [T, L]
    # [T N, T N], what a node may aggregate from; only rows of labeled nodes are read
    candidates: Neighborhood


class HingeBatch(NamedTuple):
    """What one step of T trials learns from."""

    x: Tensor  # features of all nodes of all trials [N, d]
    y: Tensor  # labels +1 or -1 of the targets [T, B]
    rows: Neighborhood  # what the targets aggregate from, [T B, N], those of trial 0 first
    targets: Tensor  # ids of the targets [T B]


@dataclass(frozen=True)
class Algorithm4:
    """How `train_hinge` and `descend` train.

    Source: Li (2024), algorithm 4 with T_0 = 0, without first steps on W_O alone; 60 nodes and the
        node itself, section 3.5.1.
    """

    step_size: float = 0.01  # eta
    steps: int = 1000  # T
    batch_size: int = 40  # B labeled nodes a step; all of them where there are fewer
    # draws S^{n,t} from the candidates of each node of the batch, again in each step
    pattern: Pattern = field(default_factory=lambda: Compose(Sample(60), AddSelf()))
    # training ends early after this many steps in a row without a loss on any node of any trial's
    # batch; 0 never ends early
    quiet: int = 0


def train_hinge(
    network: Network,
    task: HingeTask,
    parameters: Sequence[Tensor],
    options: Algorithm4,
    generator: Generator,
    *,
    watch: Callable[[int], bool] = lambda step: False,
) -> int:
    r"""Train T networks, each with its own batches and draws; the number of steps taken.

    .. math:: \psi \leftarrow \psi - \frac{\eta}{B} \sum_{n \in B_t}
        \nabla_\psi \max(1 - y_n F(x_n), 0)

    Parameters are changed in place. `watch` is called with the number of steps taken, before each
    step and after the last; training ends where it returns True.

    Source: Li (2024), algorithm 4, eqs. (3.3) and (B.2).
    """

    def draw(step: int) -> HingeBatch:
        batch = task.labeled  # [T, B]
        if options.batch_size < batch.size(1):
            key = torch.rand(batch.shape, generator=generator)
            batch = batch.gather(1, key.topk(options.batch_size, dim=1).indices)
        nodes = batch.flatten()
        rows = on_rows(options.pattern, task.candidates, nodes, generator=generator)
        return HingeBatch(task.x, task.y[batch], rows, nodes)

    return descend(network, draw, parameters, options, watch=watch)


def descend(
    network: Network,
    draw: Callable[[int], HingeBatch],
    parameters: Sequence[Tensor],
    options: Algorithm4,
    *,
    watch: Callable[[int], bool] = lambda step: False,
) -> int:
    """SGD on the hinge loss of T networks, on batches that may be new data in every step.

    `draw` gives the batch of each step; of the options, batch size and pattern are not read. All
    other arguments, and what is returned, as in `train_hinge`.

    Source: Li (2024), eq. (E.2), with fresh prompts in every step, and algorithm 4.
    """
    quiet = 0
    for step in range(options.steps):
        if watch(step):
            return step
        batch = draw(step)
        loss = (1 - batch.y * network(batch.x, batch.rows, batch.targets)).clamp(min=0)
        quiet = 0 if bool(loss.detach().any()) else quiet + 1
        if quiet:
            if quiet == options.quiet:
                return step + 1
            continue  # every gradient is 0
        total = loss.mean(1).sum()
        gradients = torch.autograd.grad(total, parameters, materialize_grads=True)
        with torch.no_grad():
            for value, gradient in zip(parameters, gradients, strict=True):
                value.sub_(gradient, alpha=options.step_size)
    watch(options.steps)
    return options.steps
