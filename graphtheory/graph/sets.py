"""A fact about edges: consecutive sets of nodes that attend within themselves, of any size each."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate

import torch
from torch import Tensor


@dataclass(frozen=True)
class Sets:
    r"""Set b has the next `dst[b]` receivers and the next `src[b]` senders, and all its edges.

    With `causal`, receiver i of a set aggregates from the senders 0 to i of its set alone. A set
    without receivers or without senders has no edges.

    Args:
        dst: Receivers of each set.
        src: Senders of each set, as many entries.
        causal: Whether receivers see no later sender; then `dst` equals `src`.

    Raises:
        ValueError: Entries that are no counts, lists of different length, causal sets whose
            receivers and senders are not as many.

    Example:
        >>> Sets((2, 1), (3, 3)).transpose()
        Sets(dst=(3, 3), src=(2, 1), causal=False)
    """

    dst: tuple[int, ...]
    src: tuple[int, ...]
    causal: bool = False

    def __post_init__(self) -> None:
        for name in ("dst", "src"):
            counts = getattr(self, name)
            if not isinstance(counts, tuple) or not all(
                isinstance(n, int) and n >= 0 for n in counts
            ):
                raise ValueError(
                    f"{name}: got {counts}, expected a tuple of counts, each 0 or more"
                )
        if len(self.dst) != len(self.src):
            raise ValueError(
                f"src: {len(self.src)} sets, expected {len(self.dst)} as many as dst has"
            )
        if self.causal and self.dst != self.src:
            raise ValueError(
                f"src: got {self.src}, expected {self.dst} as dst has, for the sets are causal"
            )

    @property
    def equal(self) -> bool:
        """Whether all sets have one size, and there is a set."""
        return len(set(self.dst)) == len(set(self.src)) == 1

    def transpose(self) -> Sets | None:
        """The sets of the transposed edges; None for causal ones, who would then look ahead."""
        return None if self.causal else Sets(self.src, self.dst)


def rows(sets: Sets) -> tuple[Tensor, Tensor]:
    """The edges of the sets, row by row: (indptr [num_dst + 1], indices [num_edges])."""
    first_dst, first_src = (list(accumulate(n, initial=0)) for n in (sets.dst, sets.src))
    size = torch.tensor(sets.dst, dtype=torch.int64)
    degree, sender, row = (  # of each receiver: its senders, the first of them, its set's first row
        torch.tensor(t, dtype=torch.int64).repeat_interleave(size, output_size=first_dst[-1])
        for t in (sets.src, first_src[:-1], first_dst[:-1])
    )
    edges = sum(d * s for d, s in zip(sets.dst, sets.src, strict=True))
    if sets.causal:
        degree = torch.arange(first_dst[-1]) - row + 1
        edges = sum(n * (n + 1) // 2 for n in sets.dst)
    indptr = torch.cat([degree.new_zeros(1), degree.cumsum(0)])
    start = (sender - indptr[:-1]).repeat_interleave(degree, output_size=edges)
    return indptr, torch.arange(edges) + start


def check_sets(
    name: str, given: object, sets: Sets, indptr: Tensor, indices: Tensor, num_src: int
) -> None:
    """Raise unless these are the edges of `sets`, which the caller gave as `name`."""
    num_dst = indptr.numel() - 1
    if (sum(sets.dst), sum(sets.src)) != (num_dst, num_src):
        raise ValueError(
            f"{name}: {given} makes {sum(sets.dst)} receivers and {sum(sets.src)} senders, "
            f"expected {num_dst} and {num_src}"
        )
    wanted = rows(sets)
    if not all(
        torch.equal(a, b.to(a.device)) for a, b in zip((indptr, indices), wanted, strict=True)
    ):
        kind = "causal sets" if sets.causal else f"complete {name}"
        raise ValueError(f"{name}: {given} given, but the edges are not those {kind}")
