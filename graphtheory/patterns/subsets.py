"""Uniform random subsets: of a range of ids, and of the edges of each row."""

from __future__ import annotations

import torch
from torch import Tensor

from graphtheory.structure._loops import floyd, sample_rows

_SEEN_BYTES = 2**26  # largest table of what is drawn already; without it each draw is compared


def distinct(
    rows: int, n: int, limit: int | Tensor, generator: torch.Generator | None, device: torch.device
) -> Tensor:
    """`rows` uniform n-subsets of 0..limit-1, [rows, n]: Floyd's algorithm on all rows at once.

    A tensor gives one limit per row, int64 [rows]; none of them is below n.
    """
    step = torch.arange(n, device=device)[:, None]
    if isinstance(limit, Tensor):
        shares = torch.rand(n, rows, generator=generator, dtype=torch.float64, device=device)
        draws = (shares * (limit - n + 1 + step)).long()
        highest = int(limit.max()) if rows else 0
    else:
        tops = range(limit - n + 1, limit + 1)
        ints = [torch.randint(t, (rows,), generator=generator, device=device) for t in tops]
        draws = torch.stack(ints) if n else step.new_empty(0, rows)
        highest, limit = limit, torch.full((rows,), limit, device=device)
    if device.type == "cpu":
        return torch.from_numpy(floyd(draws.numpy(), limit.numpy(), highest))
    return _floyd(draws, limit, highest)


def _floyd(draws: Tensor, limit: Tensor, highest: int) -> Tensor:
    """`structure._loops.floyd` on any device."""
    chosen, (n, rows), device = torch.empty_like(draws), draws.shape, draws.device
    small = rows * highest <= _SEEN_BYTES
    seen = torch.zeros(rows * highest if small else 0, dtype=torch.bool, device=device)
    first = torch.arange(rows, device=device) * highest
    for k in range(n):
        top = limit - n + k
        place = first + draws[k] if small else draws[k]
        taken = seen[place] if small else (chosen[:k] == draws[k]).any(0)
        chosen[k] = torch.where(taken, top, draws[k])
        if small:
            seen[torch.where(taken, first + top, place)] = True
    return chosen.t()


def sample_edges(
    start: Tensor, degree: Tensor, n: int, generator: torch.Generator | None, device: torch.device
) -> tuple[Tensor, Tensor]:
    """Row pointers and edges of uniform subsets of at most n edges per row, drawn on `device`.

    Row i has the edges start[i]..start[i]+degree[i]-1; those of a subset ascend.
    """
    if device.type != "cpu":
        return _sample_edges(start, degree, n, generator, device)
    size = degree.cpu()
    shares = torch.rand(n, int((size > n).sum()), generator=generator, dtype=torch.float64)
    found = sample_rows(start.cpu().numpy(), size.numpy(), shares.numpy())
    indptr, edges = (torch.from_numpy(array).to(start.device) for array in found)
    return indptr, edges


def _sample_edges(
    start: Tensor, degree: Tensor, n: int, generator: torch.Generator | None, device: torch.device
) -> tuple[Tensor, Tensor]:
    """`sample_edges` on any device."""
    count = degree.clamp(max=n)
    indptr = torch.cat([count.new_zeros(1), count.cumsum(0)])
    first = (start - indptr[:-1]).repeat_interleave(count)
    edges = first + torch.arange(len(first), device=first.device)  # rows that stay whole
    long = (degree > n).nonzero().flatten()
    drawn = distinct(len(long), n, degree[long].to(device), generator, device)
    places = indptr[long][:, None] + torch.arange(n, device=long.device)
    edges[places] = start[long][:, None] + drawn.sort(1).values.to(long.device)
    return indptr, edges
