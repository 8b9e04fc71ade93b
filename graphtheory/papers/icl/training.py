"""The world of figure 6.3 and its models, also GPT-2-style ones: start, training, predictions."""

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any, Literal, NamedTuple

import torch
from torch import Generator, Tensor

from graphtheory.graph import query_stars
from graphtheory.lab.progress import report_step
from graphtheory.lab.train.checkpoint import TrainingState, next_place, warn_if_unwritable
from graphtheory.lab.train.contract import check_each, digest
from graphtheory.papers.grid import Measured
from graphtheory.papers.hinge import Algorithm4, HingeBatch, Outcome, descend
from graphtheory.papers.icl import data
from graphtheory.papers.icl.data import Patterns, PromptSource
from graphtheory.papers.icl.prompts import Prompts
from graphtheory.papers.shallow import LINEAR, ShallowAttention, Watch, output_scale
from graphtheory.patterns.draw import derive, generator_of
from graphtheory.vision.models import GPT, gpt

INSIDE, OUTSIDE = "in domain", "out of domain"
DIM, NORM = 30, 3.0  # d_x = d_y and beta
SPREAD, SPREAD_OUTSIDE = 0.5, 5.0  # K and K'
_CHUNK = 500  # prompts of a network that are tested at once


@dataclass(frozen=True)
class PromptTest:
    """What the prompts of a test are drawn with."""

    alpha: float  # alpha', the share of contexts with a decisive pattern
    length: int  # l_ts
    # sum of the coefficients of mu'_1; None for unseen tasks in the domain
    s_1: float | None = None

    @property
    def domain(self) -> str:
        """The name in tables and pictures."""
        return INSIDE if self.s_1 is None else OUTSIDE

    @property
    def facts(self) -> Measured:
        """What every measurement on these prompts says of them."""
        return {
            "domain": self.domain, "s_1": self.s_1, "alpha": self.alpha, "length": self.length,
        }  # fmt: skip

    def seed(self, first: int) -> int:
        """Seed of its prompts; the same for every learner and method."""
        s_1 = -1 if self.s_1 is None else round(1000 * (self.s_1 + 10))
        return derive(first, round(1000 * self.alpha), self.length, s_1 + 1)


class World(NamedTuple):
    """What the networks of one figure see."""

    patterns: Patterns  # in the domain
    labels: Tensor  # [-q, q]
    tasks: Tensor  # T_tr, [U, 2]

    def training(self, alpha: float, length: int) -> PromptSource:
        """Prompts of the training tasks."""
        return PromptSource(self.patterns, self.tasks, self.labels, alpha, length)

    def test(self, asked: PromptTest) -> PromptSource:
        """Prompts of unseen tasks, or of patterns out of the domain with the S_1 asked for."""
        if asked.s_1 is None:
            patterns = self.patterns
            tasks = data.unseen_tasks(self.tasks, len(patterns.relevant))
        else:
            patterns = self.patterns.combined(data.section_6_5(asked.s_1), spread=SPREAD_OUTSIDE)
            tasks = data.all_tasks(3)
        return PromptSource(patterns, tasks, self.labels, asked.alpha, asked.length)


def world(relevant: int, seed: int, blocks: int = 1) -> World:
    """Patterns and q of a seed, M1 = `relevant` of them; U = `blocks` of M1 training tasks each.

    Training and start are the same for rotated patterns, so one world serves all networks.
    """
    generator = generator_of(seed, 6)
    patterns = Patterns.orthogonal(
        relevant, DIM - relevant, dim=DIM, norm=NORM, spread=SPREAD, generator=generator
    )
    labels = data.label_embedding(DIM, generator=generator)
    return World(patterns, labels, data.training_tasks(relevant, blocks))


def prompts_of(
    source: PromptSource, networks: int, count: int, seed: int
) -> Iterator[tuple[Prompts, Tensor]]:
    """`count` prompts of each network, a part at a time, and their columns [T, P, l + 1, d]."""
    generator = generator_of(seed, 61)
    for start in range(0, count, _CHUNK):
        each = min(_CHUNK, count - start)
        prompts = source.sample(networks * each, generator)
        columns = prompts.columns()
        yield prompts, columns.view(networks, each, *columns.shape[1:])


@dataclass(frozen=True)
class DiagonalStart:
    """Diagonal queries, keys and values, random neurons.

    All diagonal entries of W_V and the first d_x of W_Q and W_K are delta, their other entries 0;
    entries of W_O ~ N(0, 1 / m).

    Source: Li (2024), section 6.2.3.
    """

    features: int  # d_x; the entries below, of the label, are in no key and no query
    delta: float = 0.1  # above 0; the source has at most 0.2

    def __post_init__(self) -> None:
        check_each("at least 1", lambda value: value >= 1, features=self.features)
        check_each("above 0", lambda value: value > 0, delta=self.delta)

    @torch.no_grad()
    def __call__(self, model: ShallowAttention, generator: Generator) -> None:
        """Overwrite the start of a model; `a` stays."""
        room = min(model.W_K.shape[1:])
        check_each(f"at most {room}", lambda value: value <= room, features=self.features)
        for weight, count in (
            (model.W_Q, self.features), (model.W_K, self.features),
            (model.W_V, min(model.W_V.shape[1:])),
        ):  # fmt: skip
            weight.zero_()
            weight.diagonal(dim1=1, dim2=2)[:, :count] = self.delta
        model.W_O.normal_(0, model.W_O.size(1) ** -0.5, generator=generator)
        model.b.zero_()


class PromptPrediction(NamedTuple):
    """Answers of networks to prompts."""

    value: Tensor  # F, [T, P]; its sign is the answer
    attention: Tensor | None  # weights of the contexts [T, P, l]; None unless asked for

    def wrong(self, answer: Tensor) -> Tensor:
        """Whether the sign is not that of the answer [P] or [T, P]; 0 and NaN have none."""
        return ~(self.value * answer > 0)


@torch.no_grad()
def icl_predict(
    model: ShallowAttention, columns: Tensor, *, attention: bool = True, chunk: int = 4096
) -> PromptPrediction:
    """F(Psi; P) of eq. (6.2) for many prompts, and the attention weights of each query.

    Columns, of `papers.icl.prompts.Prompts.columns`, are p_1 to p_l and p_query of each prompt,
    [P, l + 1, d], the same for all networks, or [T, P, l + 1, d].

    Source: Li (2024), eq. (6.2).
    """
    trials, dim = model.trials, model.W_Q.size(2)
    own = columns if columns.dim() == 4 else columns.expand(trials, *columns.shape)
    if own.dim() != 4 or own.size(0) != trials or own.size(3) != dim or own.size(2) < 2:
        raise ValueError(
            f"columns: shape {tuple(columns.shape)}, expected [P, l + 1, {dim}] or "
            f"[{trials}, P, l + 1, {dim}] with l at least 1"
        )
    values, weights = [], []
    for part in own.split(max(chunk // trials, 1), dim=1):
        stars = query_stars(trials * part.size(1), part.size(2) - 1)
        queries = (torch.arange(1, stars.num_dst + 1) * part.size(2) - 1).to(part.device)
        x, rows = part.reshape(-1, dim), stars.to(part.device)
        values.append(model(x, rows, queries))
        if attention:
            found = model.attention(x, rows, queries)
            weights.append(found.view(trials, part.size(1), part.size(2) - 1))
    return PromptPrediction(torch.cat(values, 1), torch.cat(weights, 1) if weights else None)


@dataclass(frozen=True)
class Learner:
    """A network and how it is trained, in the letters of chapter 6."""

    # size of the entries of `a`: "1/m" of the text, or "1/sqrt(m)" of the algorithm
    scale: str = LINEAR
    delta: float = 0.1  # diagonal of W_Q, W_K and W_V at the start; the text has at most 0.2
    step_size: float = 2.0  # eta
    steps: int = 1000  # T
    batch_size: int = 128  # B, new prompts in every step
    width: int = 200  # m
    embedding: int = 60  # m_a = m_b
    alpha: float = 0.8  # share of training contexts with a decisive pattern
    length: int = 20  # l_tr
    relevant: int = 6  # M1

    @property
    def family(self) -> str:
        """The learners among which a step size is chosen."""
        return f"a = {self.scale}, delta = {self.delta:g}"

    @property
    def name(self) -> str:
        """The name in tables and pictures."""
        return f"{self.family}, eta = {self.step_size:g}"

    def model(self, trials: int, generator: Generator) -> ShallowAttention:
        """Build the networks at their start."""
        model = ShallowAttention(
            2 * DIM, self.embedding, self.width, trials=trials,
            scale=output_scale(self.scale, self.width), generator=generator,
        )  # fmt: skip
        DiagonalStart(DIM, self.delta)(model, generator)
        return model


Choose = Callable[[int, Generator], Tensor]
"""(prompts of each network, generator) -> index in the source's tasks, int64 [T B]."""


def train(
    learner: Learner,
    given: World,
    trials: int,
    seed: int,
    watch: Watch = lambda step, model: False,
    *,
    choose: Choose | None = None,
) -> ShallowAttention:
    """Train networks with starts and prompts of their own, all drawn from the seed.

    `watch` is called before each step and after the last; training ends where it returns True.
    `choose` gives the task of every prompt; None draws evenly from all training tasks.
    """
    generator = generator_of(seed, trials, 60)
    model = learner.model(trials, generator)
    source = given.training(learner.alpha, learner.length)
    count = trials * learner.batch_size
    rows = query_stars(count, learner.length)
    queries = torch.arange(1, count + 1) * (learner.length + 1) - 1

    def draw(step: int) -> HingeBatch:
        task = None if choose is None else choose(learner.batch_size, generator)
        prompts = source.sample(count, generator, task=task)
        x = prompts.columns().flatten(0, 1)
        return HingeBatch(x, prompts.answer.view(trials, -1), rows, queries)

    descend(
        model, draw, [model.W_O, model.W_V, model.W_K, model.W_Q],
        Algorithm4(learner.step_size, learner.steps), watch=lambda step: watch(step, model),
    )  # fmt: skip
    return model


def outcomes(model: ShallowAttention, source: PromptSource, count: int, seed: int) -> list[Outcome]:
    """Outcome of each network on prompts of its own, `count` of each."""
    wrong, hinge = torch.zeros(model.trials), torch.zeros(model.trials)
    for prompts, columns in prompts_of(source, model.trials, count, seed):
        found = icl_predict(model, columns, attention=False)
        answer = prompts.answer.view(model.trials, -1)
        wrong += found.wrong(answer).sum(1)
        hinge += (1 - answer * found.value).clamp(min=0).sum(1)
    return [Outcome(float(h) / count, float(w) / count) for w, h in zip(wrong, hinge, strict=True)]


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


def train_gpt(learner: GptLearner, given: World, seed: int) -> GPT:
    """Minimize the hinge loss over new prompts in every step.

    The loss is that of the query, or the mean over contexts and query; see `GptLearner`. In a block
    of `checkpoint_dir` the training goes on from where it was interrupted.
    """
    generator = generator_of(seed, 62)
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
def gpt_outcome(
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
