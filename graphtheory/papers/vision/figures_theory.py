"""k-NN attention and semantic tokens: what is proven of them, and k and pooling on small images."""

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from graphtheory import ops
from graphtheory.graph import bipartite
from graphtheory.lab.bench.image_task import image_config, prepare, train_images
from graphtheory.lab.bench.rows import Row, percent_spread
from graphtheory.lab.datasets import image_sets
from graphtheory.lab.zoo import image_models as image_zoo
from graphtheory.lab.zoo.image_models import ImageKind, ImageNetwork
from graphtheory.papers.claims import Level, Trend, Turn, over
from graphtheory.papers.figure import DataSets, Figure, Verdict, small
from graphtheory.papers.grid import Grid, Measured, axis, unrecorded
from graphtheory.papers.pictures import error_curves, log_axis, picture_of, value_curves
from graphtheory.papers.pivot import Measurements, Pivot
from graphtheory.papers.stats import student_interval
from graphtheory.patterns.draw import generator_of
from graphtheory.vision.models.stvit import stvit
from graphtheory.vision.nn import centers as kinds


def attend(query: Tensor, x: Tensor, scale: float, k: int | None = None) -> Tensor:
    """Softmax attention of queries [Q, d] to the rows of x [n, d], or to the k largest logits."""
    rows = bipartite([len(query)], [len(x)])
    query, x = query[:, None], x[:, None]
    if k is None:
        return ops.attention(query, x, x, rows, scale=scale)[:, 0]
    return ops.topk_attention(query, x, x, rows, k, scale=scale)[:, 0]


@dataclass(frozen=True)
class Clusters(Grid):
    r"""Tokens around orthonormal centers: :math:`x_i \sim N(\mu_i, \sigma^2 I / d)`."""

    ks: tuple[int, ...] = axis("k", (1, 2, 4, 8, 16, 32, 64, 128))  # tokens attended to
    noises: tuple[float, ...] = axis("sigma", (0.45, 0.9))
    gain: float = 0.25  # W_Q W_K^T = gain I, W_V = I
    dim: int = 256  # d
    clusters: int = 8
    size: int = 16  # tokens of a cluster
    delta: float = 0.05  # the bound holds with probability 1 - 5 delta
    seeds: int = axis("seed", 20)
    first: int = 0
    side_by_side: ClassVar[bool] = True


def center_errors(grid: Clusters, k: int, sigma: float, seed: int) -> list[Measured]:
    """Largest entry of the output of k-NN attention less the center, beside lemma 2's bound."""
    generator = generator_of(seed, grid.dim)
    mu = torch.linalg.qr(torch.randn(grid.dim, grid.clusters, generator=generator))[0].t()
    mine = torch.arange(grid.clusters).repeat_interleave(grid.size)
    noise = torch.randn(len(mine), grid.dim, generator=generator)
    x = mu[mine] + sigma / grid.dim**0.5 * noise
    root = grid.dim**-0.5
    found = attend(x, x, grid.gain * root, k) - mu[mine]
    logits = grid.gain * x @ x.t()
    chosen = logits.topk(k).indices
    pure = (mine[chosen] == mine[:, None]).float().mean(1)
    bound = [lemma_2(grid, k, sigma, float(p), float(m.abs().max())) for p, m in
             zip(pure, mu[mine], strict=True)]  # fmt: skip
    error = found.abs().amax(1)
    return [{
        "k": k, "sigma": sigma, "seed": seed, "error": float(error.mean()),
        "purity": float(pure.mean()),
        "of the bound": float((error / torch.tensor(bound)).max()),
    }]  # fmt: skip


def lemma_2(grid: Clusters, k: int, sigma: float, purity: float, largest: float) -> float:
    r"""The bound of lemma 2 of a row, of whose k tokens a share `purity` is of its cluster.

    .. math::
        4 e^{\psi / \sqrt d} \sigma \nu_5 \sqrt{\tfrac{2}{dk} \log \tfrac{2d}{\delta}}
        + \big(8 g - (7 + g) \tfrac{k_1}{k}\big) \|\mu_l W_V\|_\infty, \quad
        g = e^{(\nu_2 - \nu_4 + \psi) / \sqrt d}

    with :math:`\psi = 2 \sigma \nu_1 \nu_6 \sqrt{2 \log(1 / \delta)} + 2 \sigma^2 \nu_6
    \log(d / \delta)`; here :math:`\nu_1 = \nu_5 = 1`, :math:`\nu_4 = \nu_6` is the gain and
    :math:`\nu_2` is 0. `largest` is the norm in it.

    Source: Wang et al. (2022), supplement, eq. (6).
    """
    d, gain = grid.dim, grid.gain
    psi = 2 * sigma * gain * math.sqrt(2 * math.log(1 / grid.delta))
    psi += 2 * sigma**2 * gain * math.log(d / grid.delta)
    if math.sqrt(d) < 3 * (psi + gain):
        raise ValueError(f"gain: got {gain}, expected less: sqrt(d) is below 3 (psi + gain)")
    g = math.exp((psi - gain) / math.sqrt(d))
    spread = (
        math.exp(psi / math.sqrt(d)) * sigma * math.sqrt(2 / (d * k) * math.log(2 * d / grid.delta))
    )
    return 4 * spread + (8 * g - (7 + g) * purity) * largest


@dataclass(frozen=True)
class Relevant(Grid):
    """A query that is the mean of some of the keys, with noise."""

    dims: tuple[int, ...] = axis("dim", (8, 16, 32, 64, 128, 256))  # d
    relevant: tuple[int, ...] = axis("relevant", (1, 4, 16))  # s
    keys: int = 1000  # n
    sigma: float = 0.1  # noise of the query
    seeds: int = axis("seed", 50)
    first: int = 0
    side_by_side: ClassVar[bool] = True


def keys_needed(grid: Relevant, dim: int, relevant: int, seed: int) -> list[Measured]:
    """Share of the other keys that a top-k selection has to take to have all relevant ones."""
    generator = generator_of(seed, dim, relevant)
    keys = torch.randn(grid.keys, dim, generator=generator) / dim**0.5
    query = keys[:relevant].mean(0)
    query += grid.sigma / dim**0.5 * torch.randn(dim, generator=generator)
    scores = keys @ query
    beyond = int((scores[relevant:] >= scores[:relevant].min()).sum())
    return [{"dim": dim, "relevant": relevant, "seed": seed,
                 "others": beyond / (grid.keys - relevant)}]  # fmt: skip


@dataclass(frozen=True)
class Recovered(Grid):
    """Centers of Gaussian clusters, estimated, and what one step of attention makes of them."""

    dims: tuple[int, ...] = axis("dim", (16, 32, 64, 128, 256))  # d
    errors: tuple[float, ...] = axis("off", (0.25, 0.5, 1.0))  # length of the noise of an estimate
    clusters: int = 8  # K
    sigma: float = 1.0
    per_dim: int = 20  # n / d, samples of a cluster
    seeds: int = axis("seed", 10)
    first: int = 0
    side_by_side: ClassVar[bool] = True


def recovered(grid: Recovered, dim: int, off: float, seed: int) -> list[Measured]:
    r"""1 - cosine between estimates and centers before and after.

    :math:`\lambda = (\log d + \log K) / \Delta`, as in the proof.
    """
    generator = generator_of(seed, dim)
    draw = partial(torch.randn, generator=generator)
    mu = torch.linalg.qr(draw(dim, grid.clusters))[0].t()
    noise = draw(grid.clusters, grid.per_dim * dim, dim)
    x = (mu[:, None] + grid.sigma / dim**0.5 * noise).flatten(0, 1)
    guess = normalize(mu + off * normalize(draw(grid.clusters, dim), dim=1), dim=1)
    near = guess @ mu.t()
    other = near.masked_fill(torch.eye(grid.clusters, dtype=torch.bool), -torch.inf)
    gap = float((near.diagonal() - other.amax(1)).min())  # Delta
    entropy = math.log(dim) + math.log(grid.clusters)
    after = 1 - (normalize(attend(guess, x, entropy / gap), dim=1) * mu).sum(1)
    return [{
        "dim": dim, "off": off, "seed": seed, "gap": gap,
        "before": float(1 - near.diagonal().min()), "after": float(after.max()),
        "of the rate": float(after.max()) * dim * gap / entropy,
    }]  # fmt: skip


_SIDE = 2  # semantic tokens along a side
# Overlapping windows are left out: on 4 x 4 patches, which the digits have, they do not overlap.
_CENTERS: dict[str, Callable[[int], kinds.Centers]] = {
    "windows": lambda dim: kinds.MaskPool(_SIDE, dim),
    "two scales": lambda dim: kinds.MultiScale([kinds.AveragePool(1), kinds.AveragePool(_SIDE)]),
    "means": lambda dim: kinds.AveragePool(_SIDE),
    "maxima": lambda dim: kinds.MaxPool(_SIDE),
    "learned": lambda dim: kinds.LearnedCenters(_SIDE**2, dim),
}


@dataclass(frozen=True)
class Variant:
    """A network of the image zoo's width and depth."""

    name: str  # in tables and pictures
    k: float = 1.0  # share of the patches that each attends to
    centers: str = ""  # of semantic tokens, one of `_CENTERS`; "" for a vision transformer
    base: int = 1  # blocks on patches before semantic tokens
    with_global: bool = True  # whether those have learned global centers too

    def build(self, kind: ImageKind) -> nn.Module:
        """The network for images of a kind."""
        sizes = replace(kind.network, k=self.k)
        if not self.centers:
            return image_zoo.build("vit" if self.k == 1 else "kvt", replace(kind, network=sizes))
        model = stvit(
            sizes.width, sizes.depth, sizes.heads, tokens=_CENTERS[self.centers](sizes.width),
            base=self.base, with_global=self.with_global, **kind.options,
        )  # fmt: skip
        image_zoo.begin(model)
        return model


@dataclass(frozen=True)
class Variants(Grid):
    """Networks under the recipe of the data set, which was chosen for the plain transformer."""

    variants: tuple[Variant, ...] = axis("variant")
    network: ImageNetwork = ImageNetwork()  # 16 patches of the digits' 8 x 8 pixels
    epochs: int = 30
    batch_size: int = 64
    dataset: str = "digits"
    seeds: int = axis("seed", 4)
    first: int = 0
    root: Path | None = unrecorded(None)


def accuracies(grid: Variants, variant: Variant, seed: int) -> list[Measured]:
    """Validation accuracy after each epoch, and at last the test accuracy of the best one."""
    images = image_sets.load(grid.dataset, grid.root)
    trial = image_config(grid.dataset, "vit", grid.epochs)
    trial = replace(trial, network=grid.network, batch_size=grid.batch_size)
    task, data = prepare(trial, images, seed, variant.build)
    found = train_images(task, data, images, seed=seed, progress=False)
    return [
        asdict(variant) | {"seed": seed, "test": found.fit.test, "gmacs": round(found.gmacs, 5)}
        | {f"epoch {row['epoch']}": row["val"] for row in found.fit.history}
    ]  # fmt: skip


def _ahead(
    measured: Measurements, first: str, other: str, what: str, measure: Callable[[Measured], float]
) -> tuple[str, Row]:
    """The difference of two variants in points, paired by seed, in words and as a row."""
    one, two = ({m["seed"]: measure(m) for m in measured if m["name"] == name}
                for name in (first, other))  # fmt: skip
    points = [100 * (one[seed] - two[seed]) for seed in one]
    mean, half = student_interval(points)
    row = Row.of(f"paired difference of {what}", points, "points", first=first, other=other)
    return f"{mean:+.1f} [{mean - half:+.1f}, {mean + half:+.1f}]", row


def ahead_of_all(grid: Variants, measured: Measurements) -> Verdict:
    """k-NN attention on half of the patches is more accurate than on all, and learns faster."""

    def mean_of_epochs(one: Measured) -> float:
        values = [value for name, value in one.items() if name.startswith("epoch ")]
        return sum(values) / len(values)

    test, row = _ahead(measured, "1/2", "all", "test accuracy", itemgetter("test"))
    speed, other = _ahead(measured, "1/2", "all", "mean validation accuracy", mean_of_epochs)
    return Verdict(
        f"Half of the patches less all of them: {test} points on the test images, claimed above 0 "
        f"(0.8 for DeiT-T on ImageNet); mean validation accuracy over the epochs {speed} points, "
        "claimed above 0.",
        [row, other],
    )


def ahead_of_others(grid: Variants, measured: Measurements) -> Verdict:
    """The paper's windows and global centers are ahead of every alternative."""
    first, *others = (variant.name for variant in grid.variants)
    found = {
        name: _ahead(measured, first, name, "test accuracy", itemgetter("test")) for name in others
    }
    told = ", ".join(f"{name} {text}" for name, (text, _) in found.items())
    return Verdict(
        f"{first} less the others, claimed above 0: {told} points.",
        [row for _, row in found.values()],
    )


_picture = picture_of(
    error_curves, lambda measured: [one | {"error": 100 * (1 - one["test"])} for one in measured],
    panel="test error in percent", series="test error in percent", at="{name}", xlabel="",
    axis=None,
)  # fmt: skip


def _figure(name: str, summary: str, variants: tuple[Variant, ...], *claims: Any) -> Figure:
    return Figure(
        name, summary, Variants(variants), accuracies,
        Pivot("test accuracy in percent", {"test": "test accuracy"}, {"name": "variant"},
              heads=["variant"], facts=["gmacs"], cell=partial(percent_spread, digits=".1f")),
        claims, _picture, small(variants=slice(None, None, 2), seeds=2, epochs=2),
        DataSets("digits", ("digits", "mnist", "cifar10", "cifar10-jpeg"), images=True),
    )  # fmt: skip


_curves = partial(picture_of, value_curves, panel="", axis=log_axis)
FIGURES = (
    Figure(
        "kvt-lemma-2", "error of k-NN attention on noisy tokens of clusters, over k",
        Clusters(), center_errors,
        Pivot("error, its share of the bound, and tokens of the own cluster",
              {"error": "largest entry off", "of the bound": "largest share of the bound",
               "purity": "share of the own cluster"}, {"sigma": "sigma", "k": "k"},
              words=0),
        (
            Turn(what="the error", letter="k", read=over("k", "error", "sigma = {sigma:g}")),
            Level(what="the error's largest share of the bound", letter="k", high=1.0,
                  read=over("k", "of the bound", "sigma = {sigma:g}")),
        ),
        _curves(value="error", at="k", series="sigma = {sigma:g}", ylabel="largest entry off",
                xlabel="tokens attended to, k"),
        small(seeds=4, ks=slice(None, None, 3)),
    ),
    Figure(
        "kvt-lemma-3", "keys that a top-k selection needs to have all relevant ones, over d",
        Relevant(), keys_needed,
        Pivot("share of the other keys in the selection", {"others": "share of other keys"},
              {"relevant": "relevant"}, across="dim", column="d = {}", words=0),
        (Trend(what="the share of other keys", letter="d", claimed="falls",
               read=over("dim", "others", "{relevant} relevant keys")),),
        _curves(value="others", at="dim", series="{relevant} relevant keys",
                ylabel="share of other keys", xlabel="dimension d"),
        small(seeds=4, dims=slice(None, None, 3)),
    ),
    Figure(
        "stvit-theorem-1", "centers of clusters, recovered by one step of attention, over d",
        Recovered(), recovered,
        Pivot("1 - cosine to the true centers, the worst of a draw",
              {"before": "1 - cosine before", "after": "1 - cosine after",
               "of the rate": "in units of (log K + log d) / (d Delta)"},
              {"off": "off", "dim": "dim"}, words=0),
        (
            Trend(what="1 - cosine in units of (log K + log d) / (d Delta)", letter="d",
                  claimed="does not rise", read=over("dim", "of the rate", "off by {off:g}")),
        ),
        _curves(value="after", at="dim", series="off by {off:g}", ylabel="1 - cosine after a step",
                xlabel="dimension d"),
        small(seeds=4, dims=slice(3)),
    ),
    _figure(
        "kvt-k", "accuracy of k-NN attention over k, and how fast it learns",
        (Variant("1/8", 0.125), Variant("1/4", 0.25), Variant("1/2", 0.5), Variant("3/4", 0.75),
         Variant("all")),
        Trend(what="the accuracy", letter="k", claimed="rises",
              read=over("k", "test", "k-NN attention")),
        ahead_of_all,
    ),
    _figure(
        "stvit-pooling", "accuracy over the first centers of semantic tokens",
        (*(Variant(name, centers=name) for name in _CENTERS),
         Variant("windows alone", centers="windows", with_global=False)),
        ahead_of_others,
    ),
    _figure(
        "stvit-position", "accuracy over the blocks before semantic tokens",
        tuple(Variant(f"{base} before", centers="windows", base=base) for base in range(4)),
        Trend(what="the accuracy", letter="blocks before", claimed="does not fall",
              read=over("base", "test", "semantic tokens")),
    ),
)  # fmt: skip
