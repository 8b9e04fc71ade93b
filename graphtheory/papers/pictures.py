"""Pictures that chapters share: measures over a setting, shares of success, and power laws."""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, Locator, LogLocator, NullLocator

from graphtheory.lab.plot import style
from graphtheory.lab.plot.style import COLORS, GRAY, WIDTH, Rows
from graphtheory.papers.stats import Successes, halves

_MARKED = 12  # settings, of which more leave no room for markers and a tick of each


def picture_of(
    draw: Callable[..., Any], rows: Callable[[Any], Rows] = lambda measured: measured,
    **options: Any,
) -> Callable[[Any, Any, str], Any]:  # fmt: skip
    """A `Figure.picture` that draws what `rows` makes of the measurements."""
    return lambda grid, measured, title: draw(rows(measured), title=title, **options)


def lines(
    axes: Axes, rows: Sequence[dict[str, Any]], at: str, value: str,
    names: Sequence[str] | None = None, *, scale: float = 1.0,
) -> None:  # fmt: skip
    """A measure times `scale` over the settings `at`, a line for each series that has one.

    A line is the median, its band q20 to q80. Its look is that of the series' place among `names`,
    by default those of the rows.
    """
    for index, name in enumerate(names or style.order(rows, "series")):
        if mine := [row for row in rows if row["series"] == name]:
            values = style.grouped(mine, at, value, scale)
            line = style.look(index) | {"label": name}
            if len(values) > _MARKED:
                line["marker"] = None
            style.band_line(axes, values, line)


def ticks(axis: Axis, places: Locator, text: Callable[[float], str] = "{:g}".format) -> None:
    """Ticks at these places alone, as text."""
    axis.set_major_locator(places)
    axis.set_major_formatter(lambda x, _: text(x))
    axis.set_minor_locator(NullLocator())


def log_axis(axes: Axes, largest: float) -> None:
    """A logarithmic axis of the values."""
    axes.set_yscale("log")
    ticks(axes.yaxis, LogLocator(subs=(1, 2, 5)))


def percent_axis(axes: Axes, largest: float) -> None:
    """An axis of errors in percent, logarithmic down to 0.1 and linear below, down to 0."""
    axes.set_yscale("symlog", linthresh=0.1, linscale=0.5)
    axes.set_ylim(-0.01, max(1.3 * largest, 0.2))
    places = [0, 0.1, 0.3, 1, 3, 10, 30, 100]
    ticks(axes.yaxis, FixedLocator([t for t in places if t <= 1.3 * largest or t < 0.2]))


def case_panels(
    cases: Sequence[str], height: float, xlabel: str, title: str, *, sharey: bool = True
) -> tuple[Figure, dict[str, Axes]]:
    """A named panel for each case, two in a row where there are more than three."""
    columns = len(cases) if len(cases) < 4 else 2
    rows = -(-len(cases) // columns)
    figure = Figure(figsize=(max(WIDTH, 3.4 * columns), height * rows), layout="constrained")
    style.figure_title(figure, title)
    grid = figure.subplots(rows, columns, squeeze=False, sharey=sharey)
    for axes in grid.flat[len(cases) :]:
        axes.remove()
    panels = dict(zip(cases, grid.flat, strict=False))
    for case, axes in panels.items():
        first, comma, rest = case.partition(", ")
        short, _, rest = rest.partition(", ")
        name = f"{first}{comma}{short}" + (f"\n{rest}" if rest else "")  # long ones on two lines
        axes.set_title(name, fontsize=9, fontweight="normal")
        axes.set_xlabel(xlabel)
    return figure, panels


def name_rows(panels: Mapping[str, Axes], ylabel: str) -> None:
    """Name the vertical axis of the first panel in each row."""
    for axes in list(panels.values())[:: len(panels) if len(panels) < 4 else 2]:
        axes.set_ylabel(ylabel)


@style.styled
def value_curves(
    rows: Rows, *, xlabel: str, ylabel: str, title: str = "", panel: str = "{panel}",
    series: str = "{series}", at: str = "at", value: str = "value", scale: float = 1.0,
    log: bool = True, axis: Callable[[Axes, float], object] | None = None,
    marks: Sequence[float] = (), upright: float | None = None,
) -> Figure:  # fmt: skip
    """A measure over one setting, a panel for each group: median over the runs, band q20 to q80.

    Args:
        rows: One row per run.
        xlabel: Name of the setting.
        ylabel: Name of the measure; "" where each panel has one of its own, and an axis.
        title: Above the picture.
        panel: Name of a row's panel, with keys of the row in braces, such as "M1 = {relevant}".
        series: Name of its line, likewise. Panels that share no series have legends of their own.
        at: The setting, likewise, or the key of a number.
        value: Key of the measure.
        scale: Factor of the measure, such as 100 for percent.
        log: Whether the setting's axis is logarithmic.
        axis: Sets up the axis of the measure up to the largest value, such as `percent_axis`; with
            `log_axis` each panel has its own.
        marks: Values with a dotted line.
        upright: A setting with a dotted line.

    Source: figures 3.4, 3.5, 5.1 to 5.4, 6.3, 6.4, 7.3 to 7.7, E.2 and F.1 of Li (2024).
    """
    runs = [
        {
            **row, "panel": panel.format(**row), "series": series.format(**row),
            "at": at.format(**row) if "{" in at else row[at],
        }
        for row in style.collected(rows, "rows", value)
    ]  # fmt: skip
    names, every_line = style.order(runs, "panel"), style.order(runs, "series")
    texts = [setting for setting in style.order(runs, "at") if isinstance(setting, str)]
    sharey = ylabel != "" and axis is not log_axis
    figure, panels = case_panels(names, 3.6, xlabel, title, sharey=sharey)
    panels_of_lines = {(row["panel"], row["series"]) for row in runs}
    shared = len(names) == 1 or len(panels_of_lines) > len(every_line)
    for name, axes in panels.items():
        mine = [row for row in runs if row["panel"] == name]
        placed = [row | {"at": texts.index(row["at"])} for row in mine] if texts else mine
        lines(axes, placed, "at", value, every_line if shared else None, scale=scale)
        for height in marks:
            axes.axhline(height, color=GRAY, linestyle=":", linewidth=1)
        if upright is not None:
            axes.axvline(upright, color=GRAY, linestyle=":", linewidth=1)
        if texts:
            axes.set_xticks(range(len(texts)), texts, fontsize=8)
        else:
            _settings(axes, sorted(style.order(mine, "at")), log)
        if axis is not None:
            axis(axes, scale * max(row[value] for row in runs))
        axes.grid(axis="y")
        if not shared:
            axes.legend()
    name_rows(panels, ylabel)
    if shared:
        drawn = [axes.get_legend_handles_labels() for axes in panels.values()]
        handles = {text: line for of in drawn for line, text in zip(*of, strict=True)}
        style.legend_below(figure, [handles[name] for name in every_line], every_line)
    return figure


error_curves = partial(
    value_curves, ylabel="", value="error", log=False,
    axis=lambda axes, largest: axes.set_ylim(bottom=0),
)  # fmt: skip
"""Error over one setting, with the panels' names as those of the errors."""
step_curves = partial(value_curves, panel="{case}", at="step", xlabel="steps of SGD", log=False)
"""A measure over the steps of training, for rows with a case and a step."""


def _settings(axes: Axes, values: Sequence[float], log: bool) -> None:
    """Ticks at the settings that are not too close to the one before; of many steps as usual."""
    if log:
        axes.set_xscale("log")
    elif len(values) > _MARKED:
        return
    place = np.log(values) if log else np.asarray(values, float)
    least = np.ptp(place) / 11
    shown: list[int] = []
    for nth, x in enumerate(place):
        if not shown or x - place[shown[-1]] >= least:
            shown.append(nth)
    ticks(axes.xaxis, FixedLocator([values[nth] for nth in shown]))


Law = Mapping[str, float]
"""factor c and exponent of y = c x^exponent; claimed, the exponent that theory has, or nan."""
_MAP = "gray"


@style.styled
def phase_diagram(
    by: Mapping[str, Successes],
    laws: Mapping[str, Law],
    *,
    xlabel: str,
    ylabel: str = "labeled nodes",
    title: str = "",
) -> Figure:
    """Share of trials that succeed, a panel for each case: black none, white all.

    Both axes are logarithmic, so that a power law is a straight line: solid the fitted boundary,
    dashed a line of the claimed exponent through its middle. Circles: half of the trials, for each
    value by itself, where that lies inside the grid.

    Source: figures 3.3 and 3.6 of Li (2024), which are black and white in the same sense.
    """
    figure, cases = case_panels(list(by), 3.6, xlabel, title)
    for case, axes in cases.items():
        _heat(axes, by[case])
        if case in laws:
            _line(axes, sorted(by[case].values.tolist()), laws[case])
        axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.2), ncols=2)
    name_rows(cases, ylabel)
    shades = ScalarMappable(Normalize(0, 1), _MAP)
    figure.colorbar(shades, ax=list(cases.values()), label="trials that succeed", shrink=0.8)
    return figure


def _heat(axes: Axes, found: Successes) -> None:
    order, half = found.values.argsort(), halves(found)
    values, labels, share = found.values[order], found.labels, found.counts[order].T / found.trials
    axes.set(xscale="log", yscale="log")
    axes.pcolormesh(_edges(values), _edges(labels), share, cmap=_MAP, vmin=0, vmax=1)
    inside = (half > 0) & (half < np.inf)
    axes.plot(found.values[inside], half[inside], "o", color=COLORS[3], mec="black", mew=0.6,
              label="half of the trials")  # fmt: skip
    ticks(axes.xaxis, _some(values, 6), _short)
    ticks(axes.yaxis, _some(labels, 10), _short)
    axes.set_ylim(_edges(labels)[[0, -1]])
    axes.set_xlim(_edges(values)[[0, -1]])


def _line(axes: Axes, values: Sequence[float], law: Law) -> None:
    x = np.geomspace(values[0], values[-1], 50)
    middle = math.sqrt(values[0] * values[-1])
    at = law["factor"] * middle ** law["exponent"]
    fitted, claimed = law["exponent"], law["claimed"]
    axes.plot(x, at * (x / middle) ** fitted, color=COLORS[1], label=f"fitted: {fitted:.2f}")
    if not math.isnan(claimed):
        line = at * (x / middle) ** claimed
        axes.plot(x, line, "--", color=COLORS[5], label=f"claimed: {claimed:g}")


def _edges(centers: Any) -> Any:
    """Borders of cells on a logarithmic axis."""
    log = np.log(centers)
    if len(log) == 1:
        return np.exp([log[0] - 0.1, log[0] + 0.1])
    middle = (log[1:] + log[:-1]) / 2
    return np.exp([log[0] - (middle[0] - log[0]), *middle, log[-1] + (log[-1] - middle[-1])])


def _some(values: Any, room: int) -> FixedLocator:
    return FixedLocator(list(values)[:: max(1, math.ceil(len(values) / room))])


def _short(x: float) -> str:
    return f"{x:,.0f}" if x >= 1000 else f"{x:.3g}"


@style.styled
def needed_picture(
    needed: Mapping[str, Mapping[float, Sequence[float]]], laws: Mapping[str, Law],
    *, xlabel: str, ylabel: str, title: str = "",
) -> Figure | None:  # fmt: skip
    """Numbers over a letter on two logarithmic axes, with fitted (solid) and claimed (dashed) laws.

    Needed are the numbers of the trials of each case and value, of which infinite ones are left
    out; None where all are. `laws` are of the cases that have one.

    Source: figures 3.7 and B.6 of Li (2024).
    """
    finite = {
        case: {v: few for v, of in sorted(by.items()) if (few := [*filter(math.isfinite, of)])}
        for case, by in needed.items()
    }
    if not any(finite.values()):
        return None
    shown = [case for case, by in finite.items() if by]
    figure, cases = case_panels(shown, 3.4, xlabel, title)
    for index, (case, axes) in enumerate(cases.items()):
        numbers = finite[case]
        low, middle, high = np.transpose([style.band(of) for of in numbers.values()])
        values, spread = list(numbers), [middle - low, high - middle]
        color = COLORS[index % len(COLORS)]
        axes.set(xscale="log", yscale="log")
        axes.errorbar(values, middle, yerr=spread, fmt="o", color=color, capsize=3,
                      label="median, q20 to q80")  # fmt: skip
        if case in laws:
            _line(axes, values, laws[case])
        ticks(axes.xaxis, _some(values, 6), _short)
        ticks(axes.yaxis, LogLocator(subs=(1, 2, 5)), _short)
        axes.grid()
        axes.legend(fontsize=8)
    name_rows(cases, ylabel)
    return figure
