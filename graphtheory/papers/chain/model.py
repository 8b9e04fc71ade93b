"""Models that reason in steps, and their answers: step by step, or at once with ICL."""

import torch
from torch import Generator, Tensor, nn

from graphtheory import ops
from graphtheory.graph import Neighborhood
from graphtheory.nn.attention import attention_maps
from graphtheory.papers.chain.steps import check_count
from graphtheory.vision.models.gpt import GPT, gpt_block
from graphtheory.vision.nn.positions import PeriodicPositions
from graphtheory.vision.nn.token_sets import token_bipartite


class ChainAttention(nn.Module):
    r"""One head of attention from the last column to those before it; only W is learned.

    .. math::
        F(\Psi; P) = \sum_{i < \mathrm{len}(P)} W_V \tilde p_i\,
        \mathrm{softmax}_i\big(\tilde p_i^\top W \tilde p_{query}\big), \qquad
        \tilde p_i = p_i + c_{i \bmod K}, \quad W_V = (0 \; I)

    T independent models can train in one computation, each on prompts of its own. W starts at
    N(0, xi^2). Positions are c_1..c_K, [K, 2 d].

    Shapes:
        columns [B, L, 2 d], those of the first of T models first; sizes int64 [B], how many of
        the L columns belong to each prompt, at least 2, None for all -> [B, d].

    Source: Li (2024), eq. (7.2) with W = W_K^T W_Q, and section 7.2.2.
    """

    def __init__(
        self, positions: Tensor, *, trials: int = 1, xi: float = 0.01,
        generator: Generator | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        if positions.dim() != 2 or positions.size(1) % 2:
            raise ValueError(f"positions: shape {tuple(positions.shape)}, expected [K, 2 d]")
        check_count(trials=trials)
        self.position, self.trials, self.xi = PeriodicPositions(positions), trials, xi
        shape = (trials, positions.size(1), positions.size(1))
        self.W = nn.Parameter(torch.empty(shape).normal_(0, xi, generator=generator))

    @torch.no_grad()
    def trial(self, index: int) -> "ChainAttention":
        """A copy of one of the models by itself."""
        alone = ChainAttention(self.position.vectors, xi=self.xi)
        alone.W.copy_(self.W[index : index + 1])
        return alone

    def forward(self, columns: Tensor, sizes: Tensor | None = None) -> Tensor:
        query, nodes, rows, _ = self._parts(columns, sizes)
        out = ops.attention(query, nodes, nodes, rows, scale=1.0)
        return out[:, 0, columns.size(2) // 2 :]

    def attention(self, columns: Tensor, sizes: Tensor | None = None) -> list[Tensor]:
        """Weights of the query, [B, 1, L]; 0 on itself and beyond. A list of this one layer."""
        query, nodes, rows, before = self._parts(columns, sizes)
        weights = ops.edge_softmax(ops.edge_dot(query, nodes, rows), rows)  # [edges, 1]
        out = columns.new_zeros(columns.shape[:2])
        out[before] = weights[:, 0]
        return [out[:, None]]

    def _parts(
        self, columns: Tensor, sizes: Tensor | None
    ) -> tuple[Tensor, Tensor, Neighborhood, Tensor]:
        """W p_query [B, 1, 2 d], all columns [B L, 1, 2 d], and those before it, also as [B, L]."""
        last = _checked(columns, sizes, self.W.size(1)) - 1
        before = _first(columns, last)
        count, length, width = columns.shape
        if count % self.trials:
            raise ValueError(f"columns: {count} prompts, expected a multiple of {self.trials}")
        x = columns + self.position(torch.arange(length, device=columns.device))
        own = x[torch.arange(count, device=x.device), last]
        query = own.view(self.trials, -1, width) @ self.W.transpose(1, 2)
        # Unused columns stay where they are: removing them would copy the rest.
        rows = token_bipartite(count, 1, length, x.device).keep(before.flatten())
        return query.flatten(0, 1)[:, None], x.flatten(0, 1)[:, None], rows, before


class ChainTransformer(nn.Module):
    """A GPT-2-style transformer whose last column answers; `ChainAttention` with depth and heads.

    Source: Li (2024), section 7.5, "three-layer two-head transformer", and F.1.3, which give no
        other detail.
    """

    def __init__(
        self, position: nn.Module, dim: int, depth: int, heads: int, *,
        generator: Generator | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        if dim % 2:
            raise ValueError(f"dim: got {dim}, expected two vectors of one width")
        self.dim = dim
        blocks = [gpt_block(dim, heads) for _ in range(depth)]
        head, norm = nn.Linear(dim, dim // 2), nn.LayerNorm(dim)
        self.gpt = GPT(nn.Identity(), position, blocks, head, norm=norm)
        self.gpt.reset_parameters(generator)

    def forward(self, columns: Tensor, sizes: Tensor | None = None) -> Tensor:
        """F of each prompt, from its last column."""
        last = _checked(columns, sizes, self.dim) - 1
        out = self.gpt(columns, None if sizes is None else _first(columns, sizes))
        return out[torch.arange(len(out), device=out.device), last]

    @torch.no_grad()
    def attention(self, columns: Tensor, sizes: Tensor | None = None) -> list[Tensor]:
        """Of each layer, the weights of the last column on all, itself included, [B, heads, L]."""
        shown = _first(columns, _checked(columns, sizes, self.dim))
        node = shown.sum(1).cumsum(0) - 1  # of the last column of each prompt
        found = []
        for rows, weights in attention_maps(self.gpt, columns, None if sizes is None else shown):
            of_last = rows.rows(node)
            first, last = rows.indptr[node], rows.indptr[node + 1]
            edges = torch.arange(of_last.num_edges, device=node.device)
            edges += (first - of_last.indptr[:-1]).repeat_interleave(last - first)
            out = weights.new_zeros(*columns.shape[:2], weights.size(1))
            out[shown] = weights[edges]
            found.append(out.transpose(1, 2))
        return found


def _checked(columns: Tensor, sizes: Tensor | None, width: int) -> Tensor:
    """The columns of each prompt [B]; raises unless there are at least two, of that width."""
    shape = tuple(columns.shape)
    if columns.dim() != 3 or shape[2] != width or shape[1] < 2:
        raise ValueError(f"columns: shape {shape}, expected [B, L, {width}] with L at least 2")
    if sizes is None:
        return torch.full(shape[:1], shape[1], device=columns.device)
    if sizes.shape != shape[:1]:
        raise ValueError(f"sizes: shape {tuple(sizes.shape)}, expected ({shape[0]},)")
    if not bool(((sizes >= 2) & (sizes <= shape[1])).all()):
        raise ValueError(
            f"sizes: from {int(sizes.min())} to {int(sizes.max())}, expected 2 to "
            f"{shape[1]} columns"
        )
    return sizes


def _first(columns: Tensor, sizes: Tensor) -> Tensor:
    """Bool [B, L]: that many columns of each prompt."""
    return torch.arange(columns.size(1), device=columns.device) < sizes[:, None]


ChainModel = ChainAttention | ChainTransformer
"""A model of prompts."""


@torch.no_grad()
def cot_generate(
    model: ChainModel, context: Tensor, query: Tensor, vocabulary: Tensor, steps: int
) -> Tensor:
    r"""K steps of reasoning: each answer completes its column and is the input of the next.

    .. math:: P_{k+1} = (P_k \; q_{k+1}), \quad q_k = (v_{k-1}^\top \; v_k^\top)^\top, \quad
        q_{k+1} = (v_k^\top \; 0^\top)^\top

    An answer is :math:`\arg\min_{u \in \mathcal Y} \frac12 \|F - u\|^2`. The context is E_1..E_l of
    `ChainPrompts.columns`, [B, l K, 2 d], the query x_query [B, d]. One step with the context of
    `icl_columns`, eq. (7.8), is in-context learning: the last step's answer at once.
    Returns the index in the vocabulary of each step's answer, [B, K].

    Source: Li (2024), eqs. (7.4) to (7.6), algorithm 4.
    """
    check_count(steps=steps)
    if context.dim() != 3 or not context.size(1):
        shape = tuple(context.shape)
        raise ValueError(f"context: shape {shape}, expected [B, l K, 2 d] with l K at least 1")
    wanted = (len(context), context.size(2) // 2)
    if query.shape != wanted:
        raise ValueError(f"query: shape {tuple(query.shape)}, expected {wanted}, as context has it")
    length, dim = context.size(1), query.size(1)
    whole = torch.nn.functional.pad(context, (0, 0, 0, steps))
    half = vocabulary.square().sum(1) / 2
    answers, now = [], query
    for place in range(length, length + steps):
        whole[:, place, :dim] = now
        out = model(whole[:, : place + 1])
        answers.append((half - out @ vocabulary.t()).argmin(1))
        now = vocabulary[answers[-1]]
        whole[:, place, dim:] = now
    return torch.stack(answers, 1)
