"""Sets of tokens of chapter 2 and their network: many trials drawn, trained, tested at once."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Generator, Tensor

from graphtheory.graph import Neighborhood, cliques
from graphtheory.lab.metrics import mass_on
from graphtheory.lab.train.contract import check_each
from graphtheory.papers import shallow
from graphtheory.papers.hinge import Algorithm4, HingeTask, Outcome, train_hinge
from graphtheory.papers.shallow import ROOT, ShallowAttention, Watch
from graphtheory.patterns import Compose
from graphtheory.patterns.draw import generator_of
from graphtheory.vision.nn import Keep
from graphtheory.vision.nn.reduce import Attended, Clean, Oracle, Random, Score


class Sets(NamedTuple):
    """N sets of S tokens, after sparsification."""

    x: Tensor  # tokens [N, S, d]
    y: Tensor  # labels +1 or -1 [N], evenly many
    place: Tensor  # of each token in its set before sparsification, int64 [N, S]
    relevant: Tensor  # which tokens have the label's pattern, bool [N, S]
    pattern: Tensor  # 0 for mu_1, 1 for mu_2, higher otherwise [N, S]

    def rows(self) -> Neighborhood:
        """The tokens of each set."""
        count, size = self.place.shape
        indptr = torch.arange(count + 1) * size
        return Neighborhood(indptr, torch.arange(count * size), count * size, validate=False)


@dataclass(frozen=True)
class TokenPatterns:
    """Tokens that are noisy patterns, in random order.

    x_l ~ N(mu_j, c_0^2 I) with orthonormal mu_1..mu_M. Of label +1 a share alpha_star of the tokens
    has mu_1 and a share alpha_confusion mu_2, of label -1 the other way round; the others spread
    evenly over mu_3..mu_M. Shares are the same in every set, rounded to whole tokens.

    Source: Li (2024), sections 2.3.2 and 2.4.1. `noisy` is not in the source, whose figure 2.5
        removes tokens of significant noise and does not say how many there are.
    """

    tokens: int = 50  # L
    alpha_star: float = 0.3  # share of label-relevant tokens, larger than alpha_confusion
    alpha_confusion: float = 0.05  # share of confusion tokens
    num_patterns: int = 5  # M
    dim: int = 10  # d, at least M
    c_0: float = 0.01  # standard deviation of the noise
    # share of tokens, of any pattern, whose noise has deviation `c_noisy` instead
    noisy: float = 0.0
    c_noisy: float = 0.0  # see there

    def __post_init__(self) -> None:
        check_each("at least 1", lambda value: value >= 1, tokens=self.tokens)
        check_each("at least 0", lambda value: value >= 0, c_0=self.c_0, c_noisy=self.c_noisy)
        check_each("at least 3", lambda value: value >= 3, num_patterns=self.num_patterns)
        least = self.num_patterns
        check_each(f"at least M = {least}", lambda value: value >= least, dim=self.dim)
        shares = {name: getattr(self, name) for name in ("alpha_star", "alpha_confusion", "noisy")}
        check_each("between 0 and 1", lambda value: 0 <= value <= 1, **shares)
        star, confusion, _ = self.counts
        most = self.tokens - confusion
        fits = f"more than {confusion} and at most {most} tokens"
        check_each(fits, lambda _: confusion < star <= most, alpha_star=self.alpha_star)

    @property
    def counts(self) -> tuple[int, int, int]:
        """Label-relevant, confusion and other tokens."""
        star, confusion = (
            round(share * self.tokens) for share in (self.alpha_star, self.alpha_confusion)
        )
        return star, confusion, self.tokens - star - confusion

    def patterns(self, generator: Generator) -> Tensor:
        """Draw orthonormal patterns mu, [M, d]."""
        return shallow.orthonormal(self.num_patterns, self.dim, generator)

    def sample(self, count: int, mu: Tensor, generator: Generator) -> Sets:
        """Draw `count` sets with the patterns [M, d]; labels alternate, +1 first."""
        star, confusion, others = self.counts
        spread = 2 + torch.arange(others) % (self.num_patterns - 2)
        sizes = torch.tensor([star, confusion])
        kinds = torch.stack(
            [torch.cat([torch.tensor(own).repeat_interleave(sizes), spread])
             for own in ((0, 1), (1, 0))]
        )  # fmt: skip
        own = torch.arange(count) % 2
        shape = (count, self.tokens)
        order = torch.rand(shape, generator=generator).argsort(1)
        pattern = kinds[own].gather(1, order)
        rank = torch.rand(shape, generator=generator).argsort(1)
        loud = rank < round(self.noisy * self.tokens)
        size = torch.where(loud, self.c_noisy, self.c_0)
        noise = torch.randn(*shape, self.dim, generator=generator)
        x = mu[pattern] + size[..., None] * noise
        place = torch.arange(self.tokens).expand(count, -1)
        return Sets(x, 1.0 - 2.0 * own, place, pattern == own[:, None], pattern)


class ShallowViT:
    r"""F(X) of T networks on sets of tokens.

    .. math:: F(X^n) = \frac{1}{|S^n|} \sum_{l \in S^n} a_{(l)}^\top \mathrm{ReLU}\big(
        W_O W_V X^n \mathrm{softmax}_{S^n}(X^{n\top} W_K^\top W_Q x_l^n) \big)

    Rows of a neighborhood are the tokens of each set that stay, so that a pattern that samples
    them is token sparsification at random; tokens attend to each other within their row.

    Source: Li (2024), eq. (2.1).
    """

    def __init__(self, network: ShallowAttention, place: Tensor | None = None) -> None:
        if place is None and network.positions > 1:
            raise ValueError(f"place: not given, expected 0..{network.positions - 1} of each token")
        self.network = network
        self.place = place
        self._cliques: dict[tuple[int, int], Neighborhood] = {}

    def __call__(self, x: Tensor, rows: Neighborhood, sets: Tensor) -> Tensor:
        """Outputs [T, B] of sets, as a `hinge.Network`.

        The tokens x [tokens, d] are of all trials. Rows [T B, tokens] hold those of each set, as
        many of each, those of trial 0 first; ids of the sets are not read.
        """
        tokens, inside, place = self._of(x, rows)
        out = self.network(tokens, inside, position=place)  # [T, B S]
        size = len(tokens) // max(rows.num_dst, 1)
        return out.view(self.network.trials, -1, size).mean(2)

    def attention(self, x: Tensor, rows: Neighborhood) -> tuple[Tensor, Neighborhood, Tensor]:
        """Weights [edges, 1] among the tokens of the rows, the edges, and the id of each token."""
        tokens, inside, _ = self._of(x, rows)
        return self.network.attention(tokens, inside), inside, rows.indices

    def _of(self, x: Tensor, rows: Neighborhood) -> tuple[Tensor, Neighborhood, Tensor | None]:
        degree = rows.degree()
        if rows.num_dst and not bool((degree == degree[0]).all()):
            raise ValueError(
                f"rows: {int(degree.min())} to {int(degree.max())} tokens, expected as many each"
            )
        key = (rows.num_dst, int(degree[0]) if rows.num_dst else 0)
        if key not in self._cliques:
            self._cliques[key] = cliques([key[1]] * key[0])
        place = None if self.place is None else self.place[rows.indices]
        return x[rows.indices], self._cliques[key], place


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
        """The name in tables and pictures."""
        places = "" if self.places else ", the same at all places"
        return f"{self.network}, a = {self.scale}{places}"


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
    generator = generator_of(seed)
    mu = data.patterns(generator)
    sets = [data.sample(n, mu, generator) for n in (count, TESTED)]
    if by != NONE and kept is not None:
        rules: dict[str, Score] = {
            RANDOM: Random(), RELEVANT: Oracle(), NOISE: Clean(mu), ATTENTION: Attended(),
        }  # fmt: skip
        sets = [_keep(s, kept, rules[by], _received(s.x, mu), generator) for s in sets]
    return Trial(mu, *sets)


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
    stays, shape = found.slot >= 0, (len(sets.y), kept)
    place, relevant, pattern = (of[stays].view(shape) for of in sets[2:])
    return Sets(found.tokens, sets.y, place, relevant, pattern)


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
    generator = generator_of(seed, len(trials))
    mu = torch.stack([t.mu for t in trials])
    model = shallow.begun(learner, mu, generator, positions=tokens if learner.places else 1)
    trained = [model.W_O, model.W_V] + [model.W_K, model.W_Q] * (learner.network == VIT)
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
        ShallowViT(model, every.place.flatten()), task, trained,
        Algorithm4(learner.step_size, learner.steps, learner.batch_size, Compose(), quiet=100),
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
