"""How an in-context learner answers: attention of its query, directions of its keys and neurons."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


def mass_by_kind(attention: Tensor, pattern: Tensor, task: Tensor) -> dict[str, float]:
    r"""Mean attention on the contexts of each kind, and the share of contexts of that kind.

    Kinds: "same", with the query's relevant pattern; "rival", with the task's other decisive
    pattern; "other", with a pattern that decides nothing. Prompts without a context of the query's
    pattern are left out.

    Args:
        attention: Weights [..., P, l], such as [T, P, l] of `icl_predict`.
        pattern: Relevant patterns int64 [..., P, l + 1], the query's last.
        task: Decisive patterns int64 [..., P, 2], one of them the query's.

    Returns:
        "same", "rival" and "other": attention, together 1; "uniform same", "uniform rival" and
        "uniform other": shares of the contexts.

    Raises:
        ValueError: If no prompt has a context of the query's pattern.

    Source: Li (2024), corollary 6.4.3, whose left side is "same".
    """
    context, query = pattern[..., :-1], pattern[..., -1:]
    same = context == query
    rival = ((context[..., None] == task[..., None, :]).any(-1)) & ~same
    kinds = {"same": same, "rival": rival, "other": ~same & ~rival}
    there = same.any(-1).broadcast_to(attention.shape[:-1])
    if not bool(there.any()):
        raise ValueError("pattern: no prompt has a context of the query's pattern, expected one")
    found: dict[str, float] = {}
    for name, kind in kinds.items():
        kind = kind.broadcast_to(attention.shape)
        found[name] = float(torch.where(kind, attention, 0).sum(-1)[there].mean())
        found[f"uniform {name}"] = float(kind.float().mean(-1)[there].mean())
    return found


class Projection(NamedTuple):
    """Mean lengths over columns."""

    whole: float  # of W p
    along: float  # of the part of W p along the column's own direction
    across: float  # largest part of W p along another of the directions


def projection(weight: Tensor, columns: Tensor, directions: Tensor, own: Tensor) -> Projection:
    r"""How much of W p lies along the relevant pattern of p, for W_Q or W_K, [m_a, d].

    .. math:: \|W p\|, \quad |[\mu^\top, 0^\top] W p| / \|\mu\|

    Columns p are [N, d], directions the patterns [M, d_x] of any norm, d_x at most m_a; `own` says
    which of them is in each column, int64 [N].

    Source: Li (2024), proposition 6.4.1 and figure 6.2a.
    """
    dim = directions.size(1)
    if dim > weight.size(0):
        raise ValueError(f"directions: d_x = {dim}, expected at most m_a = {weight.size(0)}")
    image = columns @ weight.t()  # [N, m_a]
    unit = directions / directions.norm(dim=1, keepdim=True)
    parts = (image[:, :dim] @ unit.t()).abs()  # [N, M]
    along = parts.gather(1, own[:, None])
    others = parts.scatter(1, own[:, None], 0.0)
    return Projection(
        float(image.norm(dim=1).mean()), float(along.mean()), float(others.amax(1).mean())
    )


class Alignment(NamedTuple):
    """Length and direction of every neuron; zero rows have cosine 0."""

    input_norm: Tensor  # length of the first d_x entries of its row of W_O W_V
    input_cosine: Tensor  # cosine between these and the mean of the relevant patterns
    label_norm: Tensor  # length of the next d_y entries
    label_cosine: Tensor  # cosine between these and q where a > 0, -q where a < 0


def neuron_alignment(rows: Tensor, sign: Tensor, mean: Tensor, q: Tensor) -> Alignment:
    r"""How far neurons align with the mean pattern mu-bar [d_x] and q, the embedding of +1 [d_y].

    .. math:: r_{d_x} \bar\mu / (\|r_{d_x}\| \|\bar\mu\|), \quad
        r_{d_y} q_e / (\|r_{d_y}\| \|q_e\|)

    Rows are those of W_O W_V, [..., m, d_x + d_y]; of `a`, [..., m], only the sign matters.

    Source: Li (2024), proposition 6.4.5.
    """
    inputs, labels = rows.split((len(mean), len(q)), dim=-1)
    label_cosine = torch.cosine_similarity(labels, q.expand_as(labels), dim=-1)
    return Alignment(
        inputs.norm(dim=-1), torch.cosine_similarity(inputs, mean.expand_as(inputs), dim=-1),
        labels.norm(dim=-1), label_cosine * sign.sign(),
    )  # fmt: skip
