"""What a sampler makes of a graph: its effective adjacency, who gains and loses; as tables too."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from graphtheory import patterns
from graphtheory.graph import Neighborhood
from graphtheory.lab.bench.diagnose import both_ways, load_graph
from graphtheory.lab.bench.rows import Environment, Row, Table, pairs
from graphtheory.lab.datasets import graphs
from graphtheory.lab.plot.style import GRAY, look, panels, styled
from graphtheory.lab.report.page import Page
from graphtheory.papers.topology import adjacency
from graphtheory.patterns.degree_groups import Groups
from graphtheory.patterns.draw import edge_weight

SAMPLERS: "dict[str, Callable[[SamplingDiagnosis], patterns.Pattern]]" = {
    "degree-groups": lambda s: s.by_degree(symmetric=False),
    "degree-groups-symmetric": lambda s: s.by_degree(symmetric=True),
    "fastgcn": lambda s: patterns.FastGCN(share=s.share),
    "fastgcn-biased": lambda s: patterns.FastGCN(share=s.share, replace=False, unbiased=False),
    "ladies": lambda s: patterns.LADIES(share=s.share),
    "ladies-normalized": lambda s: patterns.LADIES(share=s.share, normalize=True),
    "graphsage": lambda s: patterns.GraphSAGE(s.neighbors),
    "uniform": lambda s: patterns.UniformNodes(share=s.share),
}
_DEVIATION = "norm of A^s - A*"
_BIAS = "norm of E[A^s] - A*"
_STAR_ERROR = "standard error of the norm of A*"
_CHANGED = ("gains most", "loses most")
_SHOWN = 5  # nodes at either end
_NOTHING = 1e-6  # rounding of the weights
_MORE = 50  # draws of an A* without a closed form for each draw of the deviation
_SURE = 3  # standard errors by which a node must differ to be listed


@dataclass(frozen=True)
class SamplingDiagnosis:
    """Effective adjacency of one sampler on one graph, A the GCN's matrix with self-loops."""

    dataset: str = "karate"  # name of a graph
    # name of a sampler, one of `SAMPLERS`; LADIES draws for all targets
    sampling: str = "degree-groups"
    root: Path | None = None  # folder with the raw files; not needed for embedded sets
    share: float = 0.5  # part of the nodes that is drawn
    groups: int = 3  # degree groups of the table, and of the samplers that draw by them
    p_star: tuple[float, ...] = ()  # p*_l of each group for the samplers by degree groups; () is 1
    # for the deviation, at least 2; A* without a closed form takes 50 times as many
    draws: int = 20
    tolerance: float = 0.1  # tau of (5.10) and (D.17), whose constants are taken as 1
    seed: int = 0  # of the draws, and of the synthetic graph
    neighbors: int = 10  # sources a row that graphsage draws

    @cached_property
    def name(self) -> str:
        """The data set's name as it is usually written."""
        return graphs.describe(self.dataset).name

    def by_degree(self, *, symmetric: bool) -> patterns.DegreeGroups:
        """Sampling by degree groups with these options."""
        return patterns.DegreeGroups(
            self.groups, share=self.share, p_star=self.p_star or 1.0, symmetric=symmetric
        )

    def run(self, progress: Callable[[int, int], None] = lambda *_: None) -> list[Row]:
        """Norms, degree groups, the nodes that change most, and influence over the degree."""
        return list(self._rows(progress))

    def _rows(self, progress: Callable[[int, int], None]) -> Iterator[Row]:
        if self.sampling not in SAMPLERS:
            raise ValueError(f"sampling: got {self.sampling!r}, expected one of {list(SAMPLERS)}")
        pattern = SAMPLERS[self.sampling](self)
        _, _, graph = load_graph(self.name, self.root, self.seed)
        nb = patterns.Compose(patterns.AddSelf(), patterns.SymmetricNormalize())(both_ways(graph))
        drawn = torch.Generator().manual_seed(self.seed)
        exact = pattern.expected(nb) is not None
        first = 0 if exact else _MORE * self.draws
        draws = first + self.draws
        found = patterns.effective_adjacency(
            pattern, nb, draws=first or None, generator=drawn, progress=lambda n: progress(n, draws)
        )
        star = found.neighborhood
        yield self._row("norm of A", adjacency.infinity_norm(nb))
        yield self._row("norm of A*", adjacency.infinity_norm(star), draws=found.draws)
        if found.error is not None:
            yield self._row(_STAR_ERROR, _error_of_norm(star, found.error))
        if self.sampling.endswith("symmetric"):
            yield self._row(_BIAS, adjacency.infinity_distance(found.mean, star))
        off = adjacency.deviation(
            pattern, nb, star, draws=self.draws, generator=drawn,
            progress=lambda n: progress(first + n, draws),
        )  # fmt: skip
        yield self._row(_DEVIATION, off.mean, draws=self.draws)
        yield self._row(f"standard error of the {_DEVIATION}", off.error, draws=self.draws)
        change = adjacency.influence_change(nb, star)
        groups = self.by_degree(symmetric=False).groups_of(nb)
        yield from self._groups(nb, groups, change)
        error = _error_of_ratio(star, found.error, change.before)
        yield from self._nodes(nb, groups.group, change.ratio, error)

    def _groups(
        self, nb: Neighborhood, groups: Groups, change: adjacency.InfluenceChange
    ) -> Iterator[Row]:
        group, size, drawn, p_star = groups
        degree = adjacency.group_degrees(nb, group)
        symmetric = self.sampling.endswith("symmetric")
        psi = adjacency.psi(degree, size)
        used = {"p*": p_star, "share drawn": drawn / size.double()}
        before, after = (psi.new_zeros(len(psi)).index_add(0, group, c) for c in change[:2])
        columns = {
            "nodes": size,
            "mean degree": degree,
            "psi": psi,
            "largest p*": adjacency.largest_scaling(psi, symmetric=symmetric),
            "smallest share": adjacency.smallest_share(
                psi, p_star, tolerance=self.tolerance, symmetric=symmetric
            ),
            "influence of A* over A": after / before,
        }
        if self.sampling.startswith("degree-groups"):
            columns |= used
        for name, values in columns.items():
            for index, value in enumerate(values.tolist(), 1):
                yield self._row(f"group {name}", value, group=index)

    def _nodes(
        self, nb: Neighborhood, group: Tensor, ratio: Tensor, error: Tensor
    ) -> Iterator[Row]:
        degree = nb.degree()
        sure = (ratio - 1).abs() > (_SURE * error).clamp(min=_NOTHING)
        order = [node for node in ratio.argsort(stable=True).tolist() if sure[node]]
        for name, nodes, sign in (("loses most", order, -1), ("gains most", order[::-1], 1)):
            changed = [n for n in nodes[:_SHOWN] if sign * (float(ratio[n]) - 1) > 0]
            for node in changed:
                where = {"node": node, "degree": int(degree[node]), "group": int(group[node]) + 1}
                yield self._row(name, float(ratio[node]), **where, error=float(error[node]))
        for value in degree.unique().tolist():
            yield self._row("influence", ratio[degree == value].tolist(), degree=value)

    def _row(self, name: str, value: float | list[float], **parameters: float) -> Row:
        return Row.of(name, value, "1", dataset=self.name, sampling=self.sampling, **parameters)


def _error_of_norm(star: Neighborhood, error: Tensor) -> float:
    """Standard error of the largest row sum, at most: the sum of those of its entries."""
    rows, weight = star.targets(), edge_weight(star).double().abs()
    size = error.new_zeros(star.num_dst).index_add(0, rows, weight)
    total = error.new_zeros(star.num_dst).index_add(0, rows, error)
    return float(total[size.argmax()])


def _error_of_ratio(star: Neighborhood, error: Tensor | None, before: Tensor) -> Tensor:
    """Standard error of each source's ratio, at most; infinite of one that no draw brought."""
    if error is None:
        return torch.zeros_like(before)
    total = torch.zeros_like(before).index_add(0, star.indices, error)
    came = torch.bincount(star.indices, minlength=len(before)) > 0
    return torch.where(came & (before > 0), total / before, torch.inf)


def sampling_tables(rows: Sequence[Row]) -> list[Table]:
    """Norms, degree groups, and the nodes that change most where any does."""
    changed = any(row.name in _CHANGED for row in rows)
    return [_norms(rows), _groups(rows), *([_nodes(rows)] if changed else [])]


@styled
def sampling_picture(rows: Sequence[Row]) -> Any:
    """How much of its influence a node keeps under A*, over its degree: median, band q20 to q80.

    Source: the columns of A* in eq. (5.6) of Li (2024).
    """
    curve = sorted(
        (row.parameters["degree"], row.median, row.q20, row.q80)
        for row in rows
        if row.name == "influence"
    )
    if not curve:
        raise ValueError("rows: none of influence, expected at least one")
    degree, middle, low, high = zip(*curve, strict=True)
    figure, (axes,) = panels(1, height=3.2)
    line = look(0) | {"label": "nodes of the degree"}
    axes.fill_between(degree, low, high, color=line["color"], alpha=0.18, linewidth=0)
    axes.plot(degree, middle, **line)
    axes.axhline(1, color=GRAY, linewidth=0.8)
    p, label = rows[0].parameters, "influence under A* over that under A"
    axes.set(
        xscale="log", xlabel="degree, the node itself counted", ylabel=label,
        title=f"{p['dataset']}, {p['sampling']}",
    )  # fmt: skip
    axes.grid(axis="y")
    axes.legend()
    return figure


def sampling_page(rows: Sequence[Row], picture: Any, command: str, here: Environment) -> Page:
    """The tables and `sampling_picture` as a page."""
    p = rows[0].parameters
    page = Page(
        f"{p['dataset']}: what sampling by {p['sampling']} makes of the graph",
        "A sampler replaces the adjacency matrix A by a random one, A^s, whose mean A* is what a "
        "network learns on: how far A* and the draws are from A, and which nodes gain or lose.",
    )
    page.section("Picture").picture(
        picture, "Influence of each node, its column sum in A* over that in A."
    )
    page.section("Tables")
    for table in sampling_tables(rows):
        page.table(table)
    page.how_to_reproduce(command, here)
    return page


def _norms(rows: Sequence[Row]) -> Table:
    value = {row.name: row.value for row in rows}
    draws = {row.name: row.parameters.get("draws", 0) for row in rows}
    error = value[f"standard error of the {_DEVIATION}"]
    made = "closed form" if draws["norm of A*"] == 0 else f"mean of {draws['norm of A*']} draws"
    return pairs(
        f"{rows[0].parameters['dataset']}, sampled by {rows[0].parameters['sampling']}",
        [
            ("norm of A", f"{value['norm of A']:.4f}"),
            (f"norm of A*, {made}", _with_error(value["norm of A*"], value.get(_STAR_ERROR, 0))),
            (
                f"{_DEVIATION}, mean of {draws[_DEVIATION]} draws",
                f"{value[_DEVIATION]:.4f} ± {error:.4f}",
            ),
            *([(_BIAS, f"{value[_BIAS]:.4f}")] if _BIAS in value else []),
        ],
    )


def _groups(rows: Sequence[Row]) -> Table:
    found: dict[str, list[float]] = {}
    for row in rows:
        if row.name.startswith("group "):
            found.setdefault(row.name.removeprefix("group "), []).append(row.value)
    groups = len(next(iter(found.values())))
    return Table(
        "Degree groups",
        ("group", *found),
        [(str(g + 1), *(_short(values[g]) for values in found.values())) for g in range(groups)],
        note="The theory admits p* from 0 to the largest p*, and asks for at least the smallest "
        "share: (5.8) to (5.10), symmetric (D.16) and (D.17), their open constants taken as 1."
        + _outside(found),
    )


def _outside(found: dict[str, list[float]]) -> str:
    """Which groups are sampled as the theory does not admit; "" for samplers without groups."""
    if "p*" not in found:
        return ""
    scaled = zip(found["p*"], found["largest p*"], strict=True)
    shares = zip(found["share drawn"], found["smallest share"], strict=True)
    told = [f"group {g}: p* too large" for g, (p, most) in enumerate(scaled, 1) if p > most]
    told += [f"group {g}: share too small" for g, (s, least) in enumerate(shares, 1) if s < least]
    return f" Outside: {', '.join(told)}." if told else " All groups are inside."


def _nodes(rows: Sequence[Row]) -> Table:
    return Table(
        "Nodes that gain and lose most influence",
        ("", "node", "degree", "group", "influence of A* over A"),
        [
            (
                r.name,
                *(str(r.parameters[k]) for k in ("node", "degree", "group")),
                _with_error(r.value, r.parameters["error"]),
            )
            for r in rows
            if r.name in _CHANGED
        ],
        note="Influence: the column sum; of an estimate, nodes that differ from 1 by more than 3 "
        "standard errors, which are at most what is printed.",
    )


def _with_error(value: float, error: float) -> str:
    return f"{value:.4f} ± {error:.4f}" if error else f"{value:.4f}"


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.4g}"
