"""The network of chapter 2 on sets of tokens: many trials drawn, trained, tested at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Generator, Tensor

from graphtheory.graph import Neighborhood
from graphtheory.lab.metrics import mass_on
from graphtheory.papers.hinge_trials import Algorithm4, HingeTask, Outcome, train_hinge
from graphtheory.papers.shallow import ROOT, PatternStart, ShallowAttention, Watch, output_scale
from graphtheory.papers.shallow_vit.data import TokenPatterns
from graphtheory.papers.shallow_vit.model import ShallowViT
from graphtheory.patterns import Compose
from graphtheory.patterns.draw import derive
from graphtheory.vision.nn import Keep
from graphtheory.vision.nn.reduce import Attended, Clean, Oracle, Random, Score

VIT, CNN = "ViT", "CNN"
TESTED = 200  # fresh sets of each trial
NONE, RANDOM, RELEVANT, NOISE, ATTENTION, LEARNED = (
    "all tokens", "at random", "label-irrelevant first", "noisiest first", "least attended first",
    "least attended first, trained",
)  # fmt: skip


@dataclass(frozen=True)
class Learner:
    """A network and how it is trained, in the letters of section 2.4.1."""

    network: str = VIT  # "ViT", or "CNN", whose W_K and W_Q stay as they are
    scale: str = ROOT  # size of the entries of `a`: "1/sqrt(m)", as printed, or "1/m"
    places: bool = True  # whether every place in a set has an `a` of its own, as in (2.1)
    step_size: float = 1.0  # eta
    steps: int = 300  # T
    batch_size: int = 10  # B
    width: int = 1000  # m
    embedding: int = 10  # m_a = m_b
    sigma: float = 0.1  # error of the values at the start
    delta: float = 0.2  # error of keys and queries at the start
    xi: float = 0.01  # spread of W_O at the start

    @property
    def name(self) -> str:
        """In tables and pictures."""
        return (
            f"{self.network}, a = {self.scale}{'' if self.places else ', the same at all places'}"
        )

    def options(self) -> Algorithm4:
        """How it is trained."""
        return Algorithm4(self.step_size, self.steps, self.batch_size, 0, Compose(), quiet=100)

    def model(self, mu: Tensor, tokens: int, generator: Generator) -> ShallowAttention:
        """Networks for patterns [T, M, d], at their start."""
        model = ShallowAttention(
            mu.size(2), self.embedding, self.width, trials=len(mu),
            positions=tokens if self.places else 1,
            scale=output_scale(self.scale, self.width), generator=generator,
        )  # fmt: skip
        PatternStart(self.sigma, self.delta, self.xi)(model, mu, generator)
        return model

    def trained(self, model: ShallowAttention) -> list[Tensor]:
        """The parameters that learn."""
        if self.network == CNN:
            return [model.W_O, model.W_V]
        return [model.W_O, model.W_V, model.W_K, model.W_Q]


class Sets(NamedTuple):
    """N sets of S tokens, after sparsification."""

    x: Tensor  # tokens [N, S, d]
    y: Tensor  # labels +1 or -1 [N]
    place: Tensor  # of each token in its set before sparsification, int64 [N, S]
    relevant: Tensor  # which tokens have the label's pattern, bool [N, S]

    def rows(self) -> Neighborhood:
        """The tokens of each set."""
        count, size = self.place.shape
        indptr = torch.arange(count + 1) * size
        return Neighborhood(indptr, torch.arange(count * size), count * size, validate=False)


class Trial(NamedTuple):
    """One trial's patterns [M, d], training sets and test sets."""

    mu: Tensor
    train: Sets
    test: Sets


def draw(
    data: TokenPatterns, count: int, seed: int, kept: int | None = None, by: str = NONE
) -> Trial:
    """The trial of one seed, of whose sets `kept` tokens are left by a sparsifier.

    "least attended first" asks the network at its start, which is that of no error: attention is
    then on tokens of the same pattern. Trained networks are asked by `most_attended`.
    """
    generator = Generator().manual_seed(derive(seed))
    mu = data.patterns(generator)
    drawn = [data.sample(n, mu, generator) for n in (count, TESTED)]
    sets = []
    for one in drawn:
        place = torch.arange(data.tokens).expand(len(one.y), -1)
        sets.append(Sets(one.x, one.y, place, one.relevant))
    if by != NONE and kept is not None:
        sets = [sparsified(s, kept, by, mu, generator) for s in sets]
    return Trial(mu, *sets)


def sparsified(sets: Sets, kept: int, by: str, mu: Tensor, generator: Generator) -> Sets:
    """The sets with `kept` tokens each.

    Which go first says `by`: `RANDOM`, `RELEVANT` (an oracle), `NOISE`, `ATTENTION`.
    """
    rules: dict[str, Score] = {
        RANDOM: Random(), RELEVANT: Oracle(), NOISE: Clean(mu), ATTENTION: Attended(),
    }  # fmt: skip
    return _keep(sets, kept, rules[by], _received(sets.x, mu), generator)


@torch.no_grad()
def most_attended(model: ShallowAttention, trials: Sequence[Trial], kept: int) -> list[Trial]:
    """The trials with those tokens of each set that its own network attends to most.

    A token's attention is the sum over the queries of its set.
    """

    def most(sets: Sequence[Sets]) -> Iterator[Sets]:
        for vit, one, x in _each(model, sets):
            weights, _, _ = vit.attention(x, one.rows())
            size = one.place.size(1)
            yield _keep(one, kept, Attended(), weights.view(-1, size, size).sum(1))

    train, test = most([t.train for t in trials]), most([t.test for t in trials])
    return [Trial(t.mu, *of) for t, *of in zip(trials, train, test, strict=True)]


def _keep(
    sets: Sets, kept: int, rule: Score, received: Tensor, generator: Generator | None = None
) -> Sets:
    found = Keep(kept, rule)(
        sets.x, received, score=sets.relevant.float(), prefix=0, generator=generator
    )
    stays = found.slot >= 0
    shape = (len(sets.y), kept)
    return Sets(
        found.tokens, sets.y, sets.place[stays].view(shape), sets.relevant[stays].view(shape)
    )


def _received(x: Tensor, mu: Tensor) -> Tensor:
    """Attention [N, L] that tokens get from discriminative queries of a start without error."""
    own = x @ mu[:2].t()
    return (own @ own.transpose(1, 2)).softmax(2).sum(1)


def run(
    learner: Learner,
    trials: Sequence[Trial],
    tokens: int,
    seed: int,
    watch: Watch = lambda step, model: False,
) -> tuple[ShallowAttention, int]:
    """Train one network on each trial, all with as many sets; also how many steps that took.

    Tokens are places in a set before sparsification, L; `watch` as of `train_hinge`, with the
    networks.
    """
    generator = Generator().manual_seed(derive(seed, len(trials)))
    model = learner.model(torch.stack([t.mu for t in trials]), tokens, generator)
    every = joined([t.train for t in trials])
    size = every.place.size(1)
    sets = every.rows()
    # A set is known by its first token: rows are square, and those of other tokens are empty.
    ends = sets.indptr[1:].repeat_interleave(size)
    indptr = torch.cat([sets.indptr[:1], ends])
    first = torch.arange(len(every.y)) * size
    task = HingeTask(
        every.x.flatten(0, 1),
        every.y.repeat_interleave(size),
        first.view(len(trials), -1),
        Neighborhood(indptr, sets.indices, sets.num_src, validate=False),
    )
    steps = train_hinge(
        ShallowViT(model, every.place.flatten()), task, learner.trained(model), learner.options(),
        generator, watch=lambda step: watch(step, model),
    )  # fmt: skip
    return model, steps


def joined(sets: Sequence[Sets]) -> Sets:
    """Those of all trials, of trial 0 first."""
    return Sets(*(torch.cat(of) for of in zip(*sets, strict=True)))


def _each(
    model: ShallowAttention, sets: Sequence[Sets]
) -> Iterator[tuple[ShallowViT, Sets, Tensor]]:
    """Each trial's network, its sets and their tokens [tokens, d]."""
    for index, one in enumerate(sets):
        yield ShallowViT(model.trial(index), one.place.flatten()), one, one.x.flatten(0, 1)


@torch.no_grad()
def evaluate(model: ShallowAttention, trials: Sequence[Trial]) -> list[Outcome]:
    """Of each trial's network on its test sets."""
    return [
        Outcome.of(sets.y * vit(x, sets.rows(), torch.arange(len(sets.y)))[0])
        for vit, sets, x in _each(model, [t.test for t in trials])
    ]


@torch.no_grad()
def relevant_mass(model: ShallowAttention, trials: Sequence[Trial]) -> list[float]:
    """Attention on label-relevant tokens, left side of (2.15), averaged over tokens and sets."""
    found = []
    for vit, sets, x in _each(model, [t.test for t in trials]):
        weights, inside, ids = vit.attention(x, sets.rows())
        found.append(mass_on(weights, inside, sets.relevant.flatten()[ids][inside.indices]))
    return found
