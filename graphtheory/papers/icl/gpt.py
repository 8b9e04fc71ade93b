"""GPT-2-style in-context learners of chapter 6: network, training and test."""

from dataclasses import asdict, dataclass
from typing import Any, Literal

import torch
from torch import Generator, Tensor

from graphtheory.lab.progress import report_step
from graphtheory.lab.train.checkpoint import TrainingState, next_place, warn_if_unwritable
from graphtheory.lab.train.contract import digest
from graphtheory.papers.hinge import Outcome
from graphtheory.papers.icl.data import PromptSource
from graphtheory.papers.icl.prompts import Prompts
from graphtheory.papers.icl.training import DIM, World, prompts_of
from graphtheory.patterns.draw import derive
from graphtheory.vision.models import GPT, gpt

Tokens = Literal["columns", "in turn"]


@dataclass(frozen=True)
class GptLearner:
    """A network of blocks as GPT-2 has them and how it is trained, by Adam on the hinge loss."""

    tokens: Tokens = "columns"  # "columns" p_i of eq. (6.1), or "in turn" x_1, y_1, x_2 and so on.
    depth: int = 3  # layers
    heads: int = 2  # of each layer
    dim: int = 64  # hidden features of a token
    norm: bool = True  # whether the blocks have layer norms
    # whether every context is predicted from those before it, too; of tokens "in turn"
    every_context: bool = False
    step_size: float = 1e-3  # of Adam; it falls to 0 along a cosine
    steps: int = 2000  # T
    batch_size: int = 128  # B, new prompts in every step
    alpha: float = 0.8  # share of training contexts with a decisive pattern
    length: int = 20  # l_tr
    relevant: int = 6  # M1
    blocks: int = 4  # U of condition 6.3.2

    def __post_init__(self) -> None:
        if self.every_context and self.tokens != "in turn":
            raise ValueError(
                f"every_context: tokens are {self.tokens!r}, expected 'in turn': the column of a "
                "context holds its own output"
            )

    @property
    def family(self) -> str:
        """The learners among which a step size is chosen."""
        norm = "" if self.norm else ", no norm"
        loss = ", loss at every context" if self.every_context else ""
        return f"tokens {self.tokens}, width {self.dim}{norm}{loss}"

    @property
    def name(self) -> str:
        """The name in tables and pictures."""
        return f"{self.family}, Adam {self.step_size:g}"

    def model(self, generator: Generator) -> GPT:
        """Build the model at its start."""
        columns = self.tokens == "columns"
        model = gpt(
            self.dim, self.depth, self.heads, in_channels=2 * DIM if columns else DIM,
            out_channels=1, length=self.length + 1 if columns else 2 * self.length + 1,
            norm=self.norm,
        )  # fmt: skip
        model.reset_parameters(generator)
        return model

    def inputs(self, prompts: Prompts) -> Tensor:
        """Tokens of the prompts, the query in the last place: [P, T, channels]."""
        columns = prompts.columns()
        if self.tokens == "columns":
            return columns
        in_turn = columns.unflatten(2, (2, DIM)).flatten(1, 2)  # x and y of a context, side by side
        return in_turn[:, :-1]  # the query has no y


def train(learner: GptLearner, given: World, seed: int) -> GPT:
    """Minimize the hinge loss over new prompts in every step.

    The loss is that of the query, or the mean over contexts and query; see `GptLearner`. In a block
    of `checkpoint_dir` the training goes on from where it was interrupted.
    """
    generator = Generator().manual_seed(derive(seed, 62))
    model = learner.model(generator)
    source = given.training(learner.alpha, learner.length)
    optimizer = torch.optim.Adam(model.parameters(), lr=learner.step_size)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, learner.steps)
    patterns = (given.patterns.relevant, given.patterns.irrelevant)
    seen = digest([*patterns, given.labels, given.tasks])
    settings = asdict(learner) | {"seed": seed, "world": seen}
    parts: dict[str, Any] = {"model": model, "optimizer": optimizer, "schedule": schedule}
    place = next_place()
    file = None if place is None else place / "last.ckpt"
    state = TrainingState(file, settings, generator, parts)
    losses = state.restore()
    for step in range(len(losses), learner.steps):
        prompts = source.sample(learner.batch_size, generator)
        loss = loss_of(model, learner, prompts)
        losses.append(float(loss.detach()))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        with warn_if_unwritable():
            state.save(losses)
        report_step(step + 1, learner.steps)
    return model


def loss_of(model: GPT, learner: GptLearner, prompts: Prompts) -> Tensor:
    """What training minimizes on these prompts."""
    if learner.every_context:
        return _hinge(model(learner.inputs(prompts))[:, ::2, 0], prompts.y).mean()
    return _hinge(_value(model, learner, prompts), prompts.answer).mean()


@torch.no_grad()
def outcome(
    model: GPT, learner: GptLearner, source: PromptSource, count: int, seed: int
) -> Outcome:
    """Error and hinge loss on that many prompts; an output of 0 or NaN is an error."""
    wrong, hinge = 0.0, 0.0
    for prompts, _ in prompts_of(source, 1, count, seed):
        value = _value(model, learner, prompts)
        wrong += float((~(value * prompts.answer > 0)).sum())
        hinge += float(_hinge(value, prompts.answer).sum())
    return Outcome(hinge / count, wrong / count)


def _value(model: GPT, learner: GptLearner, prompts: Prompts) -> Tensor:
    return model(learner.inputs(prompts))[:, -1, 0]


def _hinge(value: Tensor, answer: Tensor) -> Tensor:
    return (1 - value * answer).clamp(min=0)
