"""What a sampler makes of a graph, as tables and one picture."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from graphtheory.bench.rows import Row
from graphtheory.papers.topology.picture import influence_over_degree
from graphtheory.report.table import Table, pairs

_DEVIATION = "norm of A^s - A*"
_BIAS = "norm of E[A^s] - A*"
_STAR_ERROR = "standard error of the norm of A*"
_CHANGED = ("gains most", "loses most")


def sampling_tables(rows: Sequence[Row]) -> list[Table]:
    """Norms, degree groups, and the nodes that change most where any does."""
    changed = any(row.name in _CHANGED for row in rows)
    return [_norms(rows), _groups(rows), *([_nodes(rows)] if changed else [])]


def sampling_picture(rows: Sequence[Row]) -> Any:
    """Influence over the degree, a matplotlib Figure."""
    p = rows[0].parameters
    curve = [
        {"degree": r.parameters["degree"], "median": r.median, "q20": r.q20, "q80": r.q80}
        for r in rows
        if r.name == "influence"
    ]
    return influence_over_degree(curve, title=f"{p['dataset']}, {p['sampling']}")


def _norms(rows: Sequence[Row]) -> Table:
    value = {r.name: r.value for r in rows if "norm" in r.name}
    draws = {r.name: r.parameters.get("draws", 0) for r in rows if "norm" in r.name}
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
            *((name, f"{value[name]:.4f}") for name in (_BIAS,) if name in value),
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
