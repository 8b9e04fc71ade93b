"""Consecutive sets of nodes whose edges all run within a set, and dense, padded groups of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, chain, repeat
from typing import NamedTuple

import torch
from torch import Tensor

from graphtheory.graph.memory import require_memory

_LARGE = 10**7  # edges, from which memory is asked for


@dataclass(frozen=True, init=False, repr=False)
class Sets:
    r"""Set b has the next `dst[b]` targets and the next `src[b]` sources, and all its edges.

    With `causal`, target i of a set aggregates only from the sources 0 to i of its set. A set
    without targets or without sources has no edges. Neighboring sets of one size are stored
    together, so that ten thousand equal sets take no more memory than one.

    Args:
        dst: Targets of each set.
        src: Sources of each set, as many entries.
        causal: Whether targets see no later source; then `dst` equals `src`.

    Attributes:
        runs: (number of sets, targets, sources) of consecutive sets of equal size.
        count: Number of sets.

    Raises:
        ValueError: If entries are not counts, if the lists differ in length, or if the sets are
            causal and `dst` differs from `src`.

    Example:
        >>> Sets((2, 1), (3, 3)).transpose()
        Sets(1 of 3 x 2, 1 of 3 x 1)
        >>> Sets((5, 5, 5), (2, 2, 2)).blocks
        (3, 5, 2)
    """

    runs: tuple[tuple[int, int, int], ...]
    causal: bool
    count: int

    def __init__(self, dst: tuple[int, ...], src: tuple[int, ...], causal: bool = False) -> None:
        for name, counts in (("dst", dst), ("src", src)):
            if not isinstance(counts, tuple) or not all(
                isinstance(n, int) and n >= 0 for n in counts
            ):
                raise ValueError(
                    f"{name}: got {counts}, expected a tuple of counts, each 0 or more"
                )
        if len(dst) != len(src):
            raise ValueError(f"src: {len(src)} sets, expected {len(dst)} as many as dst has")
        if causal and dst != src:
            raise ValueError(f"src: got {src}, expected {dst} as dst has, for the sets are causal")
        runs: list[tuple[int, int, int]] = []
        for size in zip(dst, src, strict=True):  # what itertools has for this is not compiled
            if runs and runs[-1][1:] == size:
                runs[-1] = (runs[-1][0] + 1, *size)
            else:
                runs.append((1, *size))
        for name, value in (("runs", tuple(runs)), ("causal", causal), ("count", len(dst))):
            object.__setattr__(self, name, value)

    @property
    def equal(self) -> bool:
        """Whether all sets have the same size, and there is at least one."""
        return len(self.runs) == 1

    @property
    def blocks(self) -> tuple[int, int, int] | None:
        """(count, dst, src) of equal complete sets; None for others."""
        return self.runs[0] if len(self.runs) == 1 and not self.causal else None

    @property
    def dst(self) -> tuple[int, ...]:
        """The number of targets of each set."""
        return tuple(chain.from_iterable(repeat(dst, count) for count, dst, _ in self.runs))

    @property
    def src(self) -> tuple[int, ...]:
        """The number of sources of each set."""
        return tuple(chain.from_iterable(repeat(src, count) for count, _, src in self.runs))

    @property
    def num_dst(self) -> int:
        """The number of targets of all sets."""
        return sum(count * dst for count, dst, _ in self.runs)

    @property
    def num_src(self) -> int:
        """The number of sources of all sets."""
        return sum(count * src for count, _, src in self.runs)

    @property
    def num_edges(self) -> int:
        """The number of edges of all sets."""
        return sum(
            count * (dst * (dst + 1) // 2 if self.causal else dst * src)
            for count, dst, src in self.runs
        )

    def transpose(self) -> Sets | None:
        """The sets of the transposed edges; None for causal ones, which would look ahead then."""
        return None if self.causal else Sets(self.src, self.dst)

    def __repr__(self) -> str:
        sizes = [f"{count} of {dst} x {src}" for count, dst, src in self.runs]
        return f"Sets({', '.join(sizes + ['causal'] * self.causal)})"


def rows(sets: Sets) -> tuple[Tensor, Tensor]:
    """The edges of the sets, row by row: (indptr [num_dst + 1], indices [num_edges])."""
    if sets.num_edges > _LARGE:
        require_memory(
            f"{sets}: edges of all pairs", 24 * sets.num_edges,
            "take smaller sets or batches of them, or fewer sources (patterns.Expander, TopK)",
        )  # fmt: skip
    runs = torch.tensor(sets.runs, dtype=torch.int64).reshape(len(sets.runs), 3)
    size = runs[:, 1:].repeat_interleave(runs[:, 0], dim=0, output_size=sets.count)
    first = size.cumsum(0) - size  # target and source with which each set begins
    of_set = torch.stack([size[:, 1], first[:, 1], first[:, 0]], 1)
    degree, source, row = of_set.repeat_interleave(
        size[:, 0], dim=0, output_size=sets.num_dst
    ).unbind(1)
    if sets.causal:
        degree = torch.arange(sets.num_dst) - row + 1
    indptr = torch.cat([degree.new_zeros(1), degree.cumsum(0)])
    start = (source - indptr[:-1]).repeat_interleave(degree, output_size=sets.num_edges)
    return indptr, torch.arange(sets.num_edges) + start


def check_sets(sets: Sets, indptr: Tensor, indices: Tensor, num_src: int) -> None:
    """Raise unless these are the edges of `sets`."""
    if not isinstance(sets, Sets):
        raise TypeError(f"sets: got {type(sets).__name__}, expected graph.Sets")
    num_dst = indptr.numel() - 1
    if (sets.num_dst, sets.num_src) != (num_dst, num_src):
        raise ValueError(
            f"sets: {sets} has {sets.num_dst} targets and {sets.num_src} sources, "
            f"expected {num_dst} and {num_src}"
        )
    wanted = rows(sets)
    if not all(
        torch.equal(a, b.to(a.device)) for a, b in zip((indptr, indices), wanted, strict=True)
    ):
        kind = "causal" if sets.causal else "complete"
        raise ValueError(f"sets: {sets} given, but the edges are not those of {kind} sets")


# Sets whose sizes round up to the same multiple of this share a group, padded to the largest of
# them: torch's dense attention on a CPU works on 16 values at once, and fewer groups are fewer
# calls. Compared with one group per exact size, 64 sets of 20 to 200 nodes (11 groups instead of
# 54) take 0.84 to 1.02 of the time, in multiples of 32 0.91 to 1.13.
ROUND = 16


class Group(NamedTuple):
    """Sets side by side as one dense array [sets, dst, src], dst and src those of the largest."""

    sets: int
    dst: int
    src: int
    targets: Tensor  # int64 [sets * dst] nodes; a padded position repeats the last of its set
    sources: Tensor  # the same of the [sets * src] positions of sources
    rows: Tensor  # `targets`, but a padded position holds the number of targets of all sets
    padded: Tensor | None  # Bool [sets, src]; None if all sets have `src` sources


def group_sets(sets: Sets, device: torch.device) -> list[Group]:
    """Group sets of similar size; sets without edges are left out."""
    classes: dict[tuple[int, int], list[int]] = {}
    for b, (dst, src) in enumerate(zip(sets.dst, sets.src, strict=True)):
        if dst > 0 and src > 0:
            classes.setdefault((-(-dst // ROUND), -(-src // ROUND)), []).append(b)
    groups = []
    for members in classes.values():
        targets, no_target = _places(sets.dst, members, device)
        sources, no_source = _places(sets.src, members, device)
        rows = targets.masked_fill(no_target, sets.num_dst).flatten()
        ragged = len({sets.src[b] for b in members}) > 1
        groups.append(Group(
            len(members), no_target.size(1), no_source.size(1),
            targets.flatten(), sources.flatten(), rows, no_source if ragged else None,
        ))  # fmt: skip
    return groups


def _places(
    sizes: Sequence[int], members: list[int], device: torch.device
) -> tuple[Tensor, Tensor]:
    """Node at each position, and whether it is padded, [members, largest of their sizes]."""
    first = list(accumulate(sizes, initial=0))
    start = torch.tensor([first[b] for b in members], device=device)[:, None]
    size = torch.tensor([sizes[b] for b in members], device=device)[:, None]
    place = torch.arange(max(sizes[b] for b in members), device=device)
    return start + torch.minimum(place, size - 1), place >= size


def edge_places(group: Group, indptr: Tensor, num_edges: int) -> Tensor:
    """Edge at each of the [sets * dst * src] positions of a group; `num_edges` for no edge."""
    nth = torch.arange(group.src, device=indptr.device)
    edge = indptr[group.targets][:, None] + nth
    exists = edge < indptr[group.targets + 1][:, None]
    return torch.where(exists, edge, num_edges).flatten()
