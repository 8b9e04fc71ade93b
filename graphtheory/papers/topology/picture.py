"""Pictures of samplers: their test scores, and how the influence of nodes changes."""

from __future__ import annotations

from statistics import fmean

from matplotlib.figure import Figure

from graphtheory.lab.plot.style import GRAY, LIGHT, Rows, collected, look, order, panels, styled

_ROW = 0.42  # inches per series


@styled
def score_dots(
    rows: Rows, *, reference: str, margin: float = 1.0, metric: str = "accuracy", title: str = ""
) -> Figure:
    """Every run's test score and the mean, a line for each series, a color for each setting.

    A band marks what is at most `margin` points below the mean of the reference, one of the series.
    Rows, one per run, hold series (name of a line), setting (name of a color) and test (0..1).
    """
    runs = collected(rows, "rows", "test")
    series, settings = order(runs, "series"), order(runs, "setting")
    best = fmean(100 * r["test"] for r in runs if r["series"] == reference)
    figure, (axes,) = panels(1, height=1.3 + _ROW * len(series))
    axes.axvspan(best - margin, best, color=LIGHT, zorder=0)
    axes.axvline(best, color=GRAY, linewidth=1)
    for place, name in enumerate(series):
        mine = [r for r in runs if r["series"] == name]
        own = [setting for setting in settings if setting in order(mine, "setting")]
        for nth, setting in enumerate(own):
            scores = [100 * r["test"] for r in mine if r["setting"] == setting]
            height, style = place + 0.24 * (nth - (len(own) - 1) / 2), look(settings.index(setting))
            axes.plot(scores, [height] * len(scores), ".", color=style["color"], alpha=0.45)
            style |= {"linestyle": "", "markersize": 7}
            known = setting in {line.get_label() for line in axes.get_lines()}
            axes.plot(fmean(scores), height, label=None if known else setting, **style)
    axes.set_yticks(range(len(series)), series)
    axes.set_ylim(len(series) - 0.45, -0.55)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x")
    axes.set_xlabel(f"test {metric} (%): mean, runs; gray: {margin:g} point below {reference}")
    axes.set_title(title)
    axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return figure


@styled
def influence_over_degree(rows: Rows, *, title: str = "") -> Figure:
    """How much of its influence a node keeps under A*, over its degree: median, band q20 to q80.

    Rows hold degree (sources of the node), median, q20, q80 (column sum of A* over that of A,
    dimensionless), and optionally series (name of a line).

    Source: the columns of A* in eq. (5.6) of Li (2024).
    """
    table = [{"series": "nodes of the degree"} | r for r in collected(rows, "rows", "median")]
    figure, (axes,) = panels(1, height=3.2)
    for index, series in enumerate(order(table, "series")):
        mine = sorted((r for r in table if r["series"] == series), key=lambda r: r["degree"])
        degree, middle, low, high = (
            [r[name] for r in mine] for name in ("degree", "median", "q20", "q80")
        )
        style = look(index)
        axes.fill_between(degree, low, high, color=style["color"], alpha=0.18, linewidth=0)
        axes.plot(degree, middle, label=series, **style)
    axes.axhline(1, color=GRAY, linewidth=0.8)
    axes.set_xscale("log")
    axes.set_xlabel("degree, the node itself counted")
    axes.set_ylabel("influence under A* over that under A")
    axes.grid(axis="y")
    axes.set_title(title)
    axes.legend()
    return figure
