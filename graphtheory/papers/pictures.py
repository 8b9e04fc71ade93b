"""Pictures that chapters share: errors and other measures over a setting."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, Locator, LogLocator, NullLocator

from graphtheory.lab.plot import style
from graphtheory.lab.plot.style import GRAY, WIDTH, Rows

_MARKED = 12  # settings, of which more leave no room for markers and a tick of each


def picture_of(
    draw: Callable[..., Any], rows: Callable[[Any], Rows] = lambda measured: measured,
    **options: Any,
) -> Callable[[Any, Any, str], Any]:  # fmt: skip
    """A `Figure.picture` that draws what `rows` makes of the measurements."""
    return lambda grid, measured, title: draw(rows(measured), title=title, **options)


def named_rows(rows: Rows, panel: str, series: str, at: str) -> list[dict[str, Any]]:
    """The rows with the names of their panels and lines, and with their places as `at`.

    A name is text with keys of the row in braces, such as "M1 = {relevant}"; a place may be a name,
    or the value of a key.
    """
    return [
        {
            **row, "panel": panel.format(**row), "series": series.format(**row),
            "at": at.format(**row) if "{" in at else row[at],
        }
        for row in rows
    ]  # fmt: skip


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


def from_zero(axes: Axes, largest: float) -> None:
    """An axis of the values that begins at 0."""
    axes.set_ylim(bottom=0)


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
    log: bool = True, axis: Callable[[Axes, float], None] | None = None,
    marks: Sequence[float] = (), upright: float | None = None,
) -> Figure:  # fmt: skip
    """A measure over one setting, a panel for each group: median over the runs, band q20 to q80.

    Args:
        rows: One row per run.
        xlabel: Name of the setting.
        ylabel: Name of the measure; "" where each panel has one of its own, and an axis.
        title: Above the picture.
        panel: Name of a row's panel, as in `named_rows`.
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
    runs = named_rows(style.collected(rows, "rows", value), panel, series, at)
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


error_curves = partial(value_curves, ylabel="", value="error", log=False, axis=from_zero)
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
