"""The graphs that attention is timed on, and the bytes that it must move there."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Annotated, Any, Literal

import torch
from torch import Tensor
from tyro.constructors import PrimitiveConstructorSpec

from graphtheory import Neighborhood, causal, cliques, neighbor_lists


def power_law(nodes: int, edges: int, exponent: float) -> Neighborhood:
    """Both ends of an edge drawn in proportion to rank^-exponent, ranks shuffled; no duplicates."""
    generator = torch.Generator().manual_seed(0)
    weight = torch.arange(1, nodes + 1, dtype=torch.float64).pow(-exponent)
    bounds = weight.cumsum(0) / weight.sum()
    draws = torch.rand(2, edges + edges // 4, generator=generator, dtype=torch.float64)
    ends = torch.searchsorted(bounds, draws).clamp(max=nodes - 1)
    for side in range(2):
        ends[side] = torch.randperm(nodes, generator=generator)[ends[side]]
    code = (ends[1] * nodes + ends[0]).unique()  # by target, then by source, as libraries like it
    code = code[torch.randperm(len(code), generator=generator)[:edges].sort()[0]]
    return Neighborhood.from_edge_index(torch.stack([code % nodes, code // nodes]), nodes)


def fixed_degree(nodes: int, degree: int) -> Neighborhood:
    """Every target has `degree` different sources, from anywhere."""
    generator = torch.Generator().manual_seed(0)
    gaps = torch.randint(1, nodes // degree, (nodes, degree), generator=generator)
    return neighbor_lists(((torch.arange(nodes)[:, None] + gaps.cumsum(1)) % nodes).sort(1)[0])


def molecules(count: int) -> Neighborhood:
    """Chains of 9 to 37 atoms with a ring closed at every sixth, both directions, side by side."""
    sizes = torch.randint(9, 38, (count,), generator=torch.Generator().manual_seed(0)).tolist()
    pairs, first = [], 0
    for size in sizes:
        chain = torch.arange(first, first + size)
        rings = chain[: size - 5 : 6]
        pairs += [torch.stack([chain[:-1], chain[1:]]), torch.stack([rings, rings + 5])]
        first += size
    one_way = torch.cat(pairs, 1)
    return Neighborhood.from_edge_index(torch.cat([one_way, one_way.flip(0)], 1), first)


def lengths(count: int) -> Tensor:
    """Lengths of sequences, 20 to 200 tokens."""
    return torch.randint(20, 201, (count,), generator=torch.Generator().manual_seed(0))


def sentences(count: int) -> Neighborhood:
    """Sequences of 20 to 200 tokens side by side, each token seeing those before it."""
    return causal(lengths(count))


def uniform(nodes: int, edges: int) -> Neighborhood:
    """A graph whose sources and targets are drawn uniformly."""
    ends = torch.randint(nodes, (2, edges), generator=torch.Generator().manual_seed(0))
    return Neighborhood.from_edge_index(ends, nodes)


GRAPHS: dict[str, Callable[[], Neighborhood]] = {
    "uniform": lambda: uniform(20_000, 400_000),
    "pubmed": lambda: power_law(19_717, 88_648, 0.42),
    "arxiv": lambda: power_law(169_343, 2_330_000, 0.53),
    "k16": lambda: fixed_degree(50_000, 16),
    "molecules": lambda: molecules(256),
    "vit": lambda: cliques([197] * 32),
    "sentences": lambda: sentences(64),
}

Graph = Literal[tuple(GRAPHS)]  # an unknown name is a line and exit code 2, before anything runs


def _shape(given: list[str]) -> str:
    if not re.fullmatch("[1-9][0-9]*x[1-9][0-9]*", given[0]):
        raise ValueError(f"got {given[0]!r}, expected heads x features of a head, such as 8x16")
    return given[0]


Shape = Annotated[
    str,
    PrimitiveConstructorSpec(
        nargs=1,
        metavar="HEADSxFEATURES",
        instance_from_str=_shape,
        is_instance=lambda value: isinstance(value, str),
        str_from_instance=lambda value: [value],
    ),
]


def settings(
    graphs: Iterable[str], shapes: Iterable[str], threads: int
) -> Iterator[tuple[Neighborhood, tuple[int, int], dict[str, Any]]]:
    """Graphs with shapes, "8x16" for 8 heads of 16 features, and the parameters of their rows."""
    for graph in graphs:
        for shape in shapes:
            nb = GRAPHS[graph]()
            heads, head_dim = map(int, shape.split("x"))
            about = {"graph": graph, "nodes": nb.num_dst, "edges": nb.num_edges,
                     "heads": heads, "head_dim": head_dim, "threads": threads}  # fmt: skip
            yield nb, (heads, head_dim), about


def gathered(nb: Neighborhood, heads: int, head_dim: int, size: int) -> int:
    """Bytes that a forward and a backward pass move when each edge reads its node's row anew.

    Args:
        nb: The graph.
        heads: Attention heads.
        head_dim: Features of a head.
        size: Bytes of a number.
    """
    row, edges, index, handed = heads * head_dim * size, nb.num_edges, 8, 4
    dst, src = nb.num_dst, nb.num_src
    forward = 2 * edges * row + 2 * dst * row + 8 * dst * heads + edges * index
    backward = 4 * edges * row + (4 * dst + 2 * src) * row
    return forward + backward + 4 * edges * heads * handed + 3 * edges * index
