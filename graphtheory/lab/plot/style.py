"""One look for every picture; colors that the color-blind tell apart, never color alone."""

import io
from collections.abc import Iterable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

Rows = Iterable[Mapping[str, Any]]

# Okabe and Ito's palette, yellow left out: it is lost on white.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#E69F00", "#CC79A7", "#56B4E9", "#4D4D4D")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
LINES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (8, 2)), (0, (1, 3)))
HATCHES = ("", "//", "..", "xx", "--")
GRAY, LIGHT = "#6B6B6B", "#D9D9D9"
WIDTH = 7.0  # inches; the text column of a report
_LETTERS, _HANDLE = 12, 7  # letters of a legend in an inch, and what its line takes of them

_SHEET = Path(__file__).with_suffix(".mplstyle")
# A decorator: draws in the house style, and leaves the caller's matplotlib settings alone.
styled = matplotlib.rc_context(matplotlib.rc_params_from_file(_SHEET, use_default_template=False))


def panels(
    count: int, *, height: float = 3.0, width: float = WIDTH, **options: Any
) -> tuple[Figure, list[Axes]]:
    """A figure with `count` panels beside each other, outside pyplot's global state."""
    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.subplots(1, count, squeeze=False, **options)
    return figure, list(axes[0])


def look(index: int) -> dict[str, Any]:
    """Color, marker and line of the series number `index`."""
    at = index % len(COLORS)
    return {"color": COLORS[at], "marker": MARKERS[at], "linestyle": LINES[at]}


def collected(rows: Rows, name: str, what: str) -> list[dict[str, Any]]:
    """Copy the rows to a list of dicts; there has to be one, and each has the key `what`."""
    out = [dict(row) for row in rows]
    if not out:
        raise ValueError(f"{name}: no rows, expected at least one")
    for row in out:
        if what not in row:
            raise ValueError(f"{name}: a row with keys {sorted(row)}, expected {what!r} among them")
    return out


def legend_below(figure: Figure, handles: Sequence[Any], labels: Sequence[str]) -> None:
    """One legend under all panels, in as many columns as the longest label lets fit, 4 at most."""
    longest = max((len(label) for label in labels), default=0) + _HANDLE
    columns = int(figure.get_figwidth() * _LETTERS / longest)
    figure.legend(handles, labels, loc="outside lower center", ncols=max(1, min(4, columns)))


def figure_title(figure: Figure, title: str) -> None:
    """A title over all panels, on the left as over a single one."""
    figure.suptitle(title, x=0.01, ha="left", fontsize=10.5, fontweight="bold")


def named(quantity: str, unit: str) -> str:
    """Text of an axis: the quantity with its unit, where it has one."""
    return f"{quantity} ({unit})" if unit else quantity


def order(rows: Iterable[Mapping[str, Any]], key: str) -> list[Any]:
    """The different values of `key`, in the order they come."""
    return list(dict.fromkeys(row[key] for row in rows))


def band(values: Sequence[float]) -> tuple[float, float, float]:
    """Quantile 0.2, median, quantile 0.8."""
    low, middle, high = np.quantile(np.asarray(values, dtype=float), (0.2, 0.5, 0.8))
    return float(low), float(middle), float(high)


def grouped(
    rows: Iterable[Mapping[str, Any]], at: str, key: str, scale: float = 1
) -> dict[Any, list[float]]:
    """The values of `key` times `scale` at each value of `at`, which is in order."""
    found: dict[Any, list[float]] = {}
    for row in rows:
        found.setdefault(row[at], []).append(scale * row[key])
    return dict(sorted(found.items()))


def band_line(
    axes: Axes, values: Mapping[Any, Sequence[float]], line: dict[str, Any], *, alpha: float = 0.15
) -> None:
    """Draw the median of the values at each place as a line, and a band from q20 to q80."""
    low, middle, high = zip(*map(band, values.values()), strict=True)
    axes.fill_between(list(values), low, high, color=line["color"], alpha=alpha, linewidth=0)
    axes.plot(list(values), middle, **line)


@styled
def svg(figure: Figure) -> str:
    """The picture as an SVG document; letters are drawn, so that no font is needed to show it."""
    out = io.StringIO()
    figure.savefig(out, format="svg", metadata={"Date": None})
    return out.getvalue()


@styled
def save(figure: Figure, path: str | PathLike[str]) -> None:
    """Write a file of the kind that its ending names: .png, .svg, .pdf."""
    figure.savefig(path)
