"""The random graph of the thesis's section 5.4: groups of nodes, each of about one degree."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Generator, Tensor
from torch_geometric.utils import coalesce, remove_self_loops, to_undirected


def degree_group_graph(
    sizes: Sequence[int], degrees: Sequence[int], generator: Generator
) -> tuple[Tensor, Tensor]:
    """Edges between random nodes, so many an end, as the degrees ask: the configuration model.

    Loops and edges that come twice are left out, so a node's degree is at most its group's; the
    fewer, the larger degrees are beside the number of nodes. Of an odd number of ends one is left.

    Args:
        sizes: N_l, at least 1 each.
        degrees: d_l of each group, 0 or more, below the number of nodes.
        generator: Source of randomness.

    Returns:
        edge_index int64 [2, E], both directions of each edge, and the group of each node, int64
        [N]; the nodes of a group lie side by side.

    Raises:
        ValueError: Sizes and degrees of different number, or one out of its range.

    Source:
        Li (2024), section 5.4, which says that edges are random and degrees about d_l.

    Example:
        >>> edges, group = degree_group_graph([2, 4], [2, 1], Generator().manual_seed(0))
        >>> group.tolist()
        [0, 0, 1, 1, 1, 1]
    """
    if len(sizes) != len(degrees) or not sizes:
        raise ValueError(
            f"degrees: got {len(degrees)} for {len(sizes)} groups, expected one a group"
        )
    nodes = sum(sizes)
    for name, values, least in (("sizes", sizes, 1), ("degrees", degrees, 0)):
        bad = [v for v in values if not isinstance(v, int) or v < least]
        if bad:
            raise ValueError(f"{name}: got {bad[0]!r}, expected a whole number from {least} on")
    if max(degrees) >= nodes:
        raise ValueError(f"degrees: got {max(degrees)}, expected below the {nodes} nodes")
    group = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))
    ends = torch.arange(nodes).repeat_interleave(torch.tensor(degrees)[group])
    shuffled = ends[torch.randperm(len(ends), generator=generator)]
    pairs = shuffled[: len(ends) // 2 * 2].view(2, -1)
    edges, _ = remove_self_loops(to_undirected(pairs, num_nodes=nodes))
    return coalesce(edges, num_nodes=nodes), group
