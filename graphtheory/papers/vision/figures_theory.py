"""What is proven of k-NN attention and of semantic tokens, on the data of the proofs."""

import math
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import torch
from torch import Generator, Tensor
from torch.nn.functional import normalize

from graphtheory import ops
from graphtheory.graph import bipartite
from graphtheory.papers.claims import Level, Trend, Turn, over
from graphtheory.papers.figure import Figure, small
from graphtheory.papers.grid import Grid, Measured, axis
from graphtheory.papers.pictures import log_axis, picture_of, value_curves
from graphtheory.papers.pivot import Pivot
from graphtheory.patterns.draw import derive


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
    generator = Generator().manual_seed(derive(seed, grid.dim))
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
    generator = Generator().manual_seed(derive(seed, dim, relevant))
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
    generator = Generator().manual_seed(derive(seed, dim))
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
)  # fmt: skip
