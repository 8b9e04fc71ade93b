"""Whether tokens stay apart, and how far and how sharply they look."""

from __future__ import annotations

import torch
from torch import Tensor

from graphtheory.graph import Grid, Neighborhood


def token_similarity(tokens: Tensor) -> float:
    r"""Mean cosine of two different tokens of an image; near 1 they are smoothed to one.

    .. math:: \frac{1}{B\,T(T-1)} \sum_b \sum_{i \ne j} \cos(x_{bi}, x_{bj})

    A token that is zero has cosine 0 with every other.

    Args:
        tokens: Of one layer.

    Shapes:
        tokens [B, T, dim], T at least 2.

    Raises:
        ValueError: No images, or fewer than two tokens.

    Source:
        Wang et al. (2022), k-NN attention, names the measure (layer-wise cosine similarity); the
        formula is the usual one.

    Example:
        >>> token_similarity(torch.tensor([[[1.0, 0.0], [2.0, 0.0], [0.0, 1.0]]]))
        0.3333333432674408
    """
    if tokens.dim() != 3 or tokens.size(0) < 1 or tokens.size(1) < 2:
        raise ValueError(f"tokens: shape {tuple(tokens.shape)}, expected [B, 2 or more, dim]")
    unit = torch.nn.functional.normalize(tokens.float(), dim=2)
    pairs = unit.sum(1).square().sum(1) - unit.square().sum((1, 2))
    return float(pairs.mean() / (tokens.size(1) * (tokens.size(1) - 1)))


def attention_deviation(weights: Tensor, neighborhood: Neighborhood) -> float:
    r"""Standard deviation of the weights within a row, mean over rows and heads.

    .. math:: \frac{1}{HN} \sum_{h,i} \sqrt{\tfrac{1}{n_i} \sum_j \big(w_{ij,h} -
        \tfrac{1}{n_i} \sum_{j'} w_{ij',h} \big)^2}

    More of it is attention on fewer senders. Of k-nearest attention the senders that were left out
    count with their weight 0. Empty rows are left out; divided by n_i, not by n_i - 1.

    Args:
        weights: [num_edges, heads], in the edge order of the neighborhood.
        neighborhood: Who aggregates from whom.

    Raises:
        ValueError: No edges.

    Source: Wang et al. (2022), k-NN attention, names the measure; the divisor is our choice.
    """
    _check_weights(weights, neighborhood)
    rows, degree = neighborhood.receivers(), neighborhood.degree()[:, None]
    none = weights.new_zeros(neighborhood.num_dst, weights.size(1), dtype=torch.float32)
    size = degree.clamp(min=1)
    mean = none.index_add(0, rows, weights.float()) / size
    spread = none.index_add(0, rows, (weights.float() - mean[rows]).square()) / size
    return float(spread.sqrt()[degree[:, 0] > 0].mean())


def branch_ratio(x: Tensor, branch: Tensor) -> float:
    r"""How much a residual branch adds: the mean of :math:`|f(x_i)| / |x_i|` over nodes.

    Nodes whose x is zero are left out.

    Args:
        x: What the residual connection carries past the branch, [..., dim].
        branch: What the branch adds to it, of the same shape.

    Raises:
        ValueError: Shapes that differ, or x zero everywhere.

    Source: Wang et al. (2022), k-NN attention, ratio of the norms of residual and main branch.
    """
    if x.shape != branch.shape:
        raise ValueError(
            f"branch: shape {tuple(branch.shape)}, expected that of x {tuple(x.shape)}"
        )
    carried, added = x.float().norm(dim=-1), branch.float().norm(dim=-1)
    some = carried > 0
    if not bool(some.any()):
        raise ValueError("x: zero everywhere, expected a node with a norm")
    return float((added[some] / carried[some]).mean())


def nonlocality(weights: Tensor, neighborhood: Neighborhood, position: Tensor) -> float:
    r"""Mean distance between a patch and the patches that it attends to.

    .. math:: \frac{1}{HN} \sum_{h,i} \frac{\sum_j w_{ij,h}\, |p_i - p_j|}{\sum_j w_{ij,h}}

    Tokens without a place, such as class tokens, are left out as receivers and as senders, whose
    weights the sum below the line leaves out, too. So is a row that attends to them alone.

    Args:
        weights: [num_edges, heads], in the edge order of the neighborhood.
        neighborhood: Who aggregates from whom, both the nodes of `position`.
        position: Place of each node, [num_nodes, 2], in patches, NaN for a token without one;
            `patch_positions` makes it.

    Returns:
        A distance in the unit of `position`.

    Raises:
        ValueError: No edges, places that are not as many as nodes, or no row between patches.

    Source:
        Wang et al. (2022), k-NN attention, nonlocality after d'Ascoli et al. (2021), ConViT. How
        the class token counts is our choice.

    Example:
        >>> from graphtheory.graph import cliques
        >>> places = patch_positions(Grid(1, 1, 2), prefix=1)
        >>> nonlocality(torch.full((9, 1), 1 / 3), cliques([3]), places)
        0.5
    """
    _check_weights(weights, neighborhood)
    wanted = (neighborhood.num_dst, 2)
    if tuple(position.shape) != wanted or neighborhood.num_src != neighborhood.num_dst:
        raise ValueError(f"position: shape {tuple(position.shape)}, expected {wanted}, and a graph")
    rows = neighborhood.receivers()
    length = (position[rows] - position[neighborhood.indices]).norm(dim=1)
    real = torch.where(length.isnan()[:, None], 0, weights.float())
    none = real.new_zeros(neighborhood.num_dst, weights.size(1))
    mass = none.index_add(0, rows, real)
    total = none.index_add(0, rows, real * length.nan_to_num(0)[:, None])
    some = mass > 0
    if not bool(some.any()):
        raise ValueError("position: no weight between two places, expected a row of patches")
    return float((total[some] / mass[some]).mean())


def patch_positions(grid: Grid, prefix: int = 0) -> Tensor:
    """Row and column of each node [count * (prefix + size), 2], NaN for the first of each image.

    Args:
        grid: The patches.
        prefix: Tokens without a place before those of an image.

    Example:
        >>> patch_positions(Grid(1, 1, 2), prefix=1).tolist()
        [[nan, nan], [0.0, 0.0], [0.0, 1.0]]
    """
    number = torch.arange(grid.size)
    places = torch.stack([number // grid.width, number % grid.width], 1).float()
    one = torch.cat([places.new_full((prefix, 2), torch.nan), places])
    return one.repeat(grid.count, 1)


def _check_weights(weights: Tensor, nb: Neighborhood) -> None:
    if weights.dim() != 2 or weights.size(0) != nb.num_edges or not nb.num_edges:
        raise ValueError(
            f"weights: shape {tuple(weights.shape)}, expected [{nb.num_edges}, heads] and an edge"
        )
