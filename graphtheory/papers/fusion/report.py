"""The studies of Deep Fusion as tables, pictures and verdicts."""

from __future__ import annotations

from math import isnan
from statistics import fmean
from typing import Any

from graphtheory import plot
from graphtheory.bench.contrastive import TRANSFORMER, UNTRAINED
from graphtheory.bench.rows import Row
from graphtheory.papers.fusion import study as studies
from graphtheory.papers.outcome import StudyReport
from graphtheory.report.table import Table, counted, mean_spread

Rows = list[dict[str, Any]]
_NAMES = {
    "transformer": "transformer head",
    "mlp": "MLP head",
    "linear": "linear head",
    "none": "no head",
    "dgi": "DGI",
    "untrained": "not trained",
}
_MEASURES = {"probe": "linear probe", "nearest": "1-nearest neighbour"}
_AXES = {"temperature": "temperature", "batch_size": "samples a batch"}
_CLAIMED = {
    "": "The paper finds the transformer head 2.4 to 3.6 points ahead of the MLP's in the probe "
    "and 2.3 to 3.2 points in 1-NN",
    "temperature": "The paper finds 0.2 best for both heads, and the transformer's collapsed at "
    "0.02",
    "batch_size": "The paper finds 1024 best of 512 to 4096 for both heads, the transformer ahead "
    "at each, at 4096 by 0.1 points",
}
_DEPTH = {"mass": "attention on the own class", "means": "mean within / mean between"}


def heads(figure: str, study: studies.HeadStudy, rows: Rows) -> StudyReport:
    """Heads under one recipe, or under several values of one of its numbers."""
    found = studies.chosen(rows)
    title = f"{figure} on {study.recipe.dataset}, {counted(study.seeds, 'seed')}"
    results = [
        Row.of(f"{figure} {name}", [r[key] for r in cell], "1", dataset=study.recipe.dataset,
               head=head, lr=cell[0]["lr"], **({study.axis: at} if study.axis else {}))
        for key, name in _MEASURES.items()
        for (head, at), cell in _cells(found).items()
    ]  # fmt: skip
    return StudyReport(_table(title, study, found), results, _verdict(study, found),
                       _picture(title, study, found))  # fmt: skip


def _cells(rows: Rows) -> dict[tuple[str, Any], Rows]:
    cells: dict[tuple[str, Any], Rows] = {}
    for r in rows:
        cells.setdefault((r["head"], r["at"]), []).append(r)
    return cells


def _table(title: str, study: studies.HeadStudy, rows: Rows) -> Table:
    axis = [_AXES.get(study.axis, study.axis)] if study.axis else []
    lines = [
        [_NAMES[head], *([f"{at:g}"] if axis else []), _percent(cell, "probe"),
         _percent(cell, "nearest"), *_of_training(head, cell)]
        for (head, at), cell in _cells(rows).items()
    ]  # fmt: skip
    columns = ["head", *axis, "linear probe %", "1-NN %", "step size", "s/epoch"]
    note = (
        "Mean ± standard deviation on the test samples, features of the backbone; the step size is "
        "the best of those tried by the mean probe on validation."
    )
    return Table(title, columns, lines, words=1, note=note)


def _of_training(head: str, cell: Rows) -> list[str]:
    if head == UNTRAINED:
        return ["-", "-"]
    return [f"{cell[0]['lr']:g}", f"{fmean(r['seconds'] for r in cell):.2f}"]


def _percent(cell: Rows, key: str) -> str:
    return mean_spread([100 * r[key] for r in cell], ".1f")


def _verdict(study: studies.HeadStudy, rows: Rows) -> str:
    if not study.axis:
        told = [_against(rows, over) for over in study.heads if over != TRANSFORMER]
        claim = "" if study.recipe.graph else f"{_CLAIMED['']}. "
        return (
            claim
            + "Found here, transformer minus others, with 95 % intervals: "
            + ("; ".join(told) + ".")
        )
    ahead = [f"{at:g}: {_gap(*studies.gain(rows, 'nearest', at))}" for at in _order(rows, "at")]
    return (
        f"{_CLAIMED[study.axis]}. Found here in 1-NN: {_peaks(rows)}; transformer minus MLP by "
        f"{_AXES[study.axis]}: {', '.join(ahead)}."
    )


def _order(rows: Rows, key: str) -> list[Any]:
    return list(dict.fromkeys(r[key] for r in rows))


def _peaks(rows: Rows) -> str:
    told = []
    for head in _order(rows, "head"):
        means = {
            at: fmean(r["nearest"] for r in cell)
            for (h, at), cell in _cells(rows).items()
            if h == head
        }
        best, worst = max(means, key=means.__getitem__), min(means, key=means.__getitem__)
        told.append(
            f"{_NAMES[head]} best at {best:g} ({100 * means[best]:.1f} %), worst at {worst:g} "
            f"({100 * means[worst]:.1f} %)"
        )
    return ", ".join(told)


def _against(rows: Rows, over: str) -> str:
    parts = (f"{name} {_gap(*studies.gain(rows, key, over=over))}"
             for key, name in _MEASURES.items())  # fmt: skip
    return f"{_NAMES[over]}: " + ", ".join(parts)


def _gap(mean: float, half: float) -> str:
    spread = "one seed" if isnan(half) else f"± {100 * half:.1f}"
    word = "" if isnan(half) else ", ahead" if mean > half else ", behind" if -mean > half else ""
    return f"{100 * mean:+.1f} ({spread}{word})"


def _picture(title: str, study: studies.HeadStudy, rows: Rows) -> Any:
    if study.axis:
        return plot.value_curves(
            [
                {"series": _NAMES[r["head"]], "at": r["at"], "value": r[key], "panel": name}
                for key, name in _MEASURES.items()
                for r in rows
            ],
            xlabel=_AXES[study.axis], ylabel="test accuracy (%)", scale=100, title=title,
        )  # fmt: skip
    probes = [{"model": _NAMES[r["head"]], "test": r["probe"]} for r in rows]
    return plot.score_bars(probes, metric="accuracy of the linear probe", title=title)


def attention(study: studies.AttentionStudy, rows: Rows) -> StudyReport:
    """What the layers attend to."""
    measured = [r for r in rows if r["kind"] != "map"]
    names = {"learned": "after learning", "drawn": "before learning"}
    layers = _order(measured, "layer")
    cells = {
        (kind, layer): [r for r in measured if (r["kind"], r["layer"]) == (kind, layer)]
        for kind in ("learned", "drawn")
        for layer in layers
    }
    keys = {**_DEPTH, "sharpness": "sharpness"}
    results = [
        Row.of(f"deep-fusion-attention {name}", [r[key] for r in cell], "1",
               dataset=study.recipe.dataset, head=kind, layer=layer)
        for key, name in keys.items()
        for (kind, layer), cell in cells.items()
    ]  # fmt: skip
    title = f"deep-fusion-attention on {study.recipe.dataset}, {counted(study.seeds, 'seed')}"
    lines = [
        [str(layer), *(_spread(cells["learned", layer], key) for key in keys),
         *(f"{fmean(r[key] for r in cells['drawn', layer]):.3g}" for key in keys)]
        for layer in layers
    ]  # fmt: skip
    uniform = measured[0]["uniform"]
    table = Table(
        title,
        ["layer", *keys.values(), *(f"{name}, before" for name in keys.values())],
        lines,
        words=0,
        note=f"Uniform attention has {uniform:.3f} on the own class; heads averaged; test images "
        "seen once each, without augmentation.",
    )
    picture = plot.attention_by_depth(
        [r for r in rows if r["kind"] == "map"],
        [r | {"series": names[r["kind"]]} for r in measured],
        _DEPTH,
        title=title + ": head 1, images ordered by class",
    )
    return StudyReport(table, results, _depth_verdict(measured, layers), picture)


def _spread(cell: Rows, key: str) -> str:
    return mean_spread([r[key] for r in cell], ".3g")


def _depth_verdict(rows: Rows, layers: list[int]) -> str:
    told = []
    for kind, name in (("learned", "after learning"), ("drawn", "before")):
        mean, half = studies.interval(studies.slopes(rows, kind, "mass"))
        told.append(
            f"{name} {mean:+.4f} a layer ({'one seed' if isnan(half) else f'± {half:.4f}'})"
        )
    mass = {
        layer: fmean(r["mass"] for r in rows if (r["kind"], r["layer"]) == ("learned", layer))
        for layer in layers
    }
    mean, half = studies.interval(studies.slopes(rows, "learned", "mass"))
    grows = "one seed decides nothing" if isnan(half) else (
        "found" if mean > half else "not found: it falls" if -mean > half else "not decided"
    )  # fmt: skip
    sharp = max(r["sharpness"] for r in rows)
    return (
        f"Claimed is that attention finds the classes better layer by layer. Mass on the own "
        f"class by depth, least squares with 95 % interval: {', '.join(told)}; growth with depth: "
        f"{grows}. From {mass[layers[0]]:.3f} in layer {layers[0]} to {mass[layers[-1]]:.3f} in "
        f"layer {layers[-1]}, most in layer {max(mass, key=mass.__getitem__)}; uniform "
        f"{rows[0]['uniform']:.3f}. Sharpness in the paper's sense, one pair of a kind deciding, "
        f"is at most {sharp:.2g}: {'' if sharp > 1 else 'never '}above 1."
    )
