"""One attention layer and one hidden layer, many independent networks at once."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Generator, Tensor, nn

from graphtheory import ops
from graphtheory.graph import Neighborhood
from graphtheory.lab.train.contract import check_each
from graphtheory.ops import BucketedBias


def orthonormal(count: int, dim: int, generator: Generator) -> Tensor:
    """Random orthonormal rows [count, dim]."""
    check_each(f"1 to dim={dim}", lambda value: 0 < value <= dim, count=count)
    return torch.linalg.qr(torch.randn(dim, count, generator=generator))[0].t().contiguous()


ROOT, LINEAR = "1/sqrt(m)", "1/m"  # sizes of the entries of `a`, as learners name them
_MOST_BUCKETS = 256  # of a table that `ops.attention` looks up on the way


Watch = Callable[[int, "ShallowAttention"], bool]
"""(steps taken, networks) -> whether training ends; called before each step and after the last."""


def output_scale(name: str, width: int) -> float:
    """The size of the entries of `a` of m neurons, by its name."""
    return float(width ** {ROOT: -0.5, LINEAR: -1}[name])


class ShallowAttention(nn.Module):
    r"""T networks of the theory, each on nodes of its own, trained in one computation.

    .. math::
        F(x_n) = a^\top \mathrm{ReLU}\Big( W_O \sum_{s \in T^n} W_V x_s\,
        \mathrm{softmax}_n\big( (W_K x_s)^\top W_Q x_n + u_{(s,n)}^\top b \big) \Big)

    The graphs of the T trials are a disjoint union with N nodes each, those of trial 0 first. One
    network serves every neighborhood: a sampled ball of a graph with distances, token sets (the
    output of a set is the mean over its targets), a star of contexts around a query. `a` is drawn
    once and stays. The output of a node with an empty row is 0.

    Keys and values are the features themselves: :math:`W_K^\top W_Q x_n` is formed for the
    targets, and W_V and W_O are applied to what they aggregate: the same sum in another order,
    at the cost of the targets instead of all sources.

    Starts at W_Q, W_K, W_V ~ N(0, 1/d), W_O ~ N(0, 1/m), b = 0; `PatternStart` gives the start of
    the theory. Logits are not divided by the root of the dimension.

    Args:
        dim: Features of a node, d.
        embedding: m_a of keys and queries and m_b of values, or one size for both.
        width: Neurons, m.
        trials: Networks, T.
        buckets: Z of eq. (3.2), 0 for no bias: z hops have b_z, Z - 1 hops or more the last one.
        scale: Size of the entries of `a`; None is 1 / sqrt(m).
        positions: Targets that each have an `a` of their own, P; 1 shares it.
        generator: Source of `a` and of the start.

    Shapes:
        - **x:** [T N, d].
        - **neighborhood:** [T R, T N], the rows of a trial together, R of each.
        - **targets:** int64 ids [T R] of the nodes whose rows these are; default all nodes.
        - **position:** int64 [T R] in 0..P-1; default all 0.
        - **output:** [T, R].

    Source: Li (2024), eqs. (3.1), (2.1) before the mean over targets, and (6.2).
    """

    a: Tensor

    def __init__(
        self,
        dim: int,
        embedding: int | tuple[int, int],
        width: int,
        *,
        trials: int = 1,
        buckets: int = 0,
        scale: float | None = None,
        positions: int = 1,
        generator: Generator | None = None,
    ) -> None:
        super().__init__()
        m_a, m_b = (embedding, embedding) if isinstance(embedding, int) else embedding
        check_each("at least 0", lambda value: value >= 0, buckets=buckets)
        check_each(
            "at least 1", lambda value: value >= 1, dim=dim, embedding=min(m_a, m_b), width=width,
            trials=trials, positions=positions,
        )  # fmt: skip
        self.trials, self.buckets, self.positions = trials, buckets, positions
        self.scale = width**-0.5 if scale is None else scale

        def drawn(rows: int, columns: int, deviation: float) -> nn.Parameter:
            weight = torch.empty(trials, rows, columns)
            return nn.Parameter(weight.normal_(0, deviation, generator=generator))

        self.W_Q, self.W_K = (drawn(m_a, dim, dim**-0.5) for _ in range(2))
        self.W_V, self.W_O = drawn(m_b, dim, dim**-0.5), drawn(width, m_b, width**-0.5)
        self.b = nn.Parameter(torch.zeros(trials, buckets))
        sign = torch.randint(2, (trials, positions, width), generator=generator)
        self.register_buffer("a", (2 * sign - 1) * self.scale)

    @torch.no_grad()
    def without_attention(self) -> "ShallowAttention":
        """W_Q = W_K = 0 and b = 0: every target takes the mean of its row, as in a GCN.

        Source: Li (2024), theorem 3.4.6.
        """
        for value in (self.W_Q, self.W_K, self.b):
            value.zero_()
        return self

    @torch.no_grad()
    def trial(self, index: int) -> "ShallowAttention":
        """A copy of the network of one trial by itself."""
        (_, width, m_b), (_, m_a, dim) = self.W_O.shape, self.W_K.shape
        alone = ShallowAttention(
            dim, (m_a, m_b), width, buckets=self.buckets, scale=self.scale,
            positions=self.positions, generator=Generator(),  # of a start that is overwritten
        )  # fmt: skip
        alone.load_state_dict({n: v[index : index + 1] for n, v in self.state_dict().items()})
        return alone

    def forward(
        self,
        x: Tensor,
        neighborhood: Neighborhood,
        targets: Tensor | None = None,
        position: Tensor | None = None,
    ) -> Tensor:
        """F of the targets; see the class for shapes."""
        query = self._query(x, neighborhood, targets)
        nodes = x[:, None]  # [T N, 1, d]
        bias = self._bias(neighborhood)
        mixed = ops.attention(query, nodes, nodes, neighborhood, bias=bias, scale=1.0)
        value = mixed.view(self.trials, -1, x.size(1)) @ self.W_V.transpose(1, 2)  # [T, R, m_b]
        hidden = torch.relu(self.W_O @ value.transpose(1, 2))  # [T, m, R]
        if self.positions == 1:
            return (self.a @ hidden)[:, 0]
        if position is None:
            raise ValueError(f"position: not given, expected one of {self.positions} per target")
        place = position.view(self.trials, -1, 1).expand(-1, -1, self.a.size(2))
        return (self.a.gather(1, place) * hidden.transpose(1, 2)).sum(2)

    def attention(
        self, x: Tensor, neighborhood: Neighborhood, targets: Tensor | None = None
    ) -> Tensor:
        """Weights [num_edges, 1] of the softmax."""
        query = self._query(x, neighborhood, targets)
        logits = ops.edge_dot(query, x[:, None], neighborhood)
        bias = self._bias(neighborhood)
        if isinstance(bias, BucketedBias):
            bias = bias.table[bias.bucket.long()]
        return ops.edge_softmax(logits if bias is None else logits + bias, neighborhood)

    def _query(self, x: Tensor, rows: Neighborhood, targets: Tensor | None) -> Tensor:
        """W_K^T W_Q x_n of the targets, [T R, 1, d]."""
        if rows.num_dst % self.trials:
            raise ValueError(
                f"neighborhood: {rows.num_dst} rows, expected as many of each of "
                f"{self.trials} trials"
            )
        if targets is None and rows.num_dst != len(x):
            raise ValueError(f"targets: not given, expected the nodes of {rows.num_dst} rows")
        own = x if targets is None else x[targets]
        own = own.view(self.trials, -1, x.size(1))  # [T, R, d]
        query = own @ self.W_Q.transpose(1, 2) @ self.W_K
        return query.flatten(0, 1)[:, None]

    def _bias(self, rows: Neighborhood) -> Tensor | BucketedBias | None:
        """u^T b of every edge."""
        if not self.buckets:
            return None
        if rows.distance is None:
            raise ValueError("neighborhood: has no distance, expected hops of each edge")
        edges = rows.indptr[:: rows.num_dst // self.trials].diff()  # of each trial
        few = self.b.numel() <= _MOST_BUCKETS
        first = torch.arange(0, self.b.numel(), self.buckets, device=edges.device)
        first = first.to(torch.uint8 if few else torch.int64)
        bucket = first.repeat_interleave(edges, output_size=rows.num_edges)
        bucket += rows.distance.clamp(max=self.buckets - 1)
        if few:
            return BucketedBias(bucket, self.b.view(-1, 1))
        return self.b.flatten().index_select(0, bucket)[:, None]


@dataclass(frozen=True)
class PatternStart:
    r"""A start that maps patterns to nearly orthonormal values, keys and queries.

    .. math::
        W_V \mu_j = p_j + z_j, \quad W_K \mu_j = q_j + n_j, \quad W_Q \mu_j = r_j + o_j

    with orthonormal :math:`p_j`, :math:`q_j` and :math:`r_j`, :math:`\|z_j\| \le \sigma`,
    :math:`\|n_j\|, \|o_j\| \le \delta`, no operator norm above 1, and :math:`q_j = r_j` for the
    first patterns; other queries are orthogonal to all keys. What is orthogonal to all patterns is
    mapped to 0. Entries of W_O ~ N(0, xi^2), b = 0.

    Source: Li (2024), assumption B.2.1, which states the first two. Section 3.5.1 prints W_Q = W_K
        = delta^2 I / c_0^2 and W_V = sigma^2 U / c_0^2, whose norms for its own numbers are 400 and
        100: logits of 160,000. This is the assumption instead, which the proofs use.
    """

    sigma: float = 0.1  # error of the values
    delta: float = 0.2  # error of keys and queries
    xi: float = 0.01  # spread of W_O
    matched: int = 2  # patterns with q_j = r_j

    def __post_init__(self) -> None:
        given = {"sigma": self.sigma, "delta": self.delta, "xi": self.xi}
        check_each("at least 0", lambda value: value >= 0, **given)

    @torch.no_grad()
    def __call__(self, model: ShallowAttention, mu: Tensor, generator: Generator) -> None:
        """Overwrite the start of a model, with orthonormal patterns of each trial, [T, M, d]."""
        patterns = mu.size(1)
        matched = min(self.matched, patterns)
        other = patterns - matched
        p = _orthonormal(model.W_V.shape[:2], patterns, generator)
        qr = _orthonormal(model.W_K.shape[:2], patterns + other, generator)
        q, r = qr[..., :patterns], torch.cat([qr[..., :matched], qr[..., patterns:]], 2)
        for weight, image, error in (
            (model.W_V, p, self.sigma), (model.W_K, q, self.delta), (model.W_Q, r, self.delta),
        ):  # fmt: skip
            weight.copy_(_near(image, error, generator) @ mu)
        model.W_O.normal_(0, self.xi, generator=generator)
        model.b.zero_()


def _orthonormal(shape: torch.Size, count: int, generator: Generator) -> Tensor:
    """Random orthonormal columns [T, m, count]."""
    trials, rows = shape
    if count > rows:
        raise ValueError(f"mu: need {count} orthonormal embeddings, expected at most {rows}")
    return torch.linalg.qr(torch.randn(trials, rows, count, generator=generator))[0]


def _near(image: Tensor, error: float, generator: Generator) -> Tensor:
    """Matrices of norm at most 1 whose columns are at most `error` from those of `image`."""
    noise = torch.randn(image.shape, generator=generator)
    u, s, v = torch.linalg.svd(image + error * noise / noise.norm(dim=1, keepdim=True), False)
    off = (u * s.clamp(max=1)[:, None]) @ v - image  # clipping may have made a column longer
    longest = off.norm(dim=1).amax(1).clamp(min=max(error, 1e-12))
    return image + off * (error / longest)[:, None, None]


def begun(learner: Any, mu: Tensor, generator: Generator, **options: int) -> ShallowAttention:
    """Networks at the start of a chapter's `Learner`, for patterns [T, M, d]."""
    model = ShallowAttention(
        mu.size(2), learner.embedding, learner.width, trials=len(mu), generator=generator,
        scale=output_scale(learner.scale, learner.width), **options,
    )  # fmt: skip
    PatternStart(learner.sigma, learner.delta, learner.xi)(model, mu, generator)
    return model
