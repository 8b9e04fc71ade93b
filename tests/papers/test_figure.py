"""What a figure of a paper is, its tables, and the pictures that chapters share."""

import math
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure as Drawing

from graphtheory.lab import plot
from graphtheory.lab.bench.rows import percent_spread
from graphtheory.papers import figure as index
from graphtheory.papers import pictures
from graphtheory.papers.claims import Power
from graphtheory.papers.figure import DataSets, Figure, Verdict, figures, verdict_of
from graphtheory.papers.grid import Grid, Measured, axis, unrecorded
from graphtheory.papers.pictures import error_curves, needed_picture, phase_diagram, step_curves
from graphtheory.papers.pivot import Pivot
from graphtheory.papers.shallow_trials import Curves, Phases
from graphtheory.papers.stats import Successes, halves
from tests.lab.test_plot import lines, pixels
from tests.papers.icl.test_training import PICTURES as OF_PROMPTS
from tests.papers.topology.test_figures import PICTURES as OF_SAMPLES


@dataclass(frozen=True)
class Widths(Grid):
    widths: tuple[int, ...] = axis("width")
    seeds: int = 3
    first: int = 1
    dataset: str = "karate"
    root: Path | None = unrecorded(None)


def run(grid: Widths, width: int) -> list[Measured]:
    seeds = range(grid.first, grid.first + grid.seeds)
    return [
        {"width": width, "seed": seed, "step": step, "error": width + seed + step}
        for seed, step in product(seeds, (0, 1))
    ]


FIGURE = Figure(
    "fig-9-2a", "error over the width", Widths((2, 4)), run,
    Pivot("error", {"error": "test error"}, {"width": "neurons"}, "step", column="step {}"),
    claims=(lambda grid, rows: Verdict(f"{len(rows)} rows."), lambda grid, rows: Verdict("So.")),
    picture=lambda grid, rows, title: title,
    quick=lambda grid: replace(grid, seeds=1), data=DataSets("karate", ("karate", "Cora")),
)  # fmt: skip


def test_everything_follows_from_the_value_and_the_quick_form_is_its_own() -> None:
    grid = FIGURE.settings("Cora", Path("root"), seeds=2, first=3)
    assert (grid.dataset, grid.root, grid.seeds, grid.first) == ("Cora", Path("root"), 2, 4)
    report = FIGURE.report(grid, grid.measure(FIGURE.run))
    assert report.verdict == "8 rows. So."
    assert report.picture == "Figure 9.2a on Cora, 2 trials"
    assert report.table.title == "Figure 9.2a on Cora, 2 trials: error"
    assert list(report.table.columns) == ["neurons", "step 0", "step 1"]
    assert report.table.rows == [["2", "6.500", "7.500"], ["4", "8.500", "9.500"]]
    assert [(r.name, r.parameters, r.value) for r in report.rows][1] == (
        "fig-9-2a test error", {"neurons": 2, "step": 1}, 7.5,
    )  # fmt: skip
    assert FIGURE.settings("karate", quick=True, seeds=9).seeds == 1
    assert FIGURE.random and str(FIGURE.data) == "karate, Cora"


@pytest.mark.parametrize(
    ("name", "title"),
    [
        ("fig-7-3a", "Figure 7.3a"), ("fig-f-1", "Figure F.1"), ("table-b-1", "Table B.1"),
        ("fig-6-3a-gpt", "Figure 6.3a gpt"), ("encoding", "encoding"),
    ],
)  # fmt: skip
def test_titles(name: str, title: str) -> None:
    assert replace(FIGURE, id=name).name == title


def test_few_seeds_give_no_verdict() -> None:
    assert verdict_of(True, 2) == "no verdict of fewer than 3 seeds"
    assert [verdict_of(holds, 3) for holds in (True, False, "in part")] == [
        "holds", "not found", "in part",
    ]  # fmt: skip


def test_every_figure_has_cells_that_its_key_tells_apart_and_a_smaller_quick_form() -> None:
    for figure in figures().values():
        dataset = figure.data.default if figure.data else ""
        grid, quick = figure.settings(dataset), figure.settings(dataset, quick=True)
        for each in (grid, quick):
            keys = [str(each.key(cell)) for cell in each.cells()]
            assert len(set(keys)) == len(keys) > 0, figure.id
        assert quick != grid or not figure.random, figure.id
        for several in ("cases", "learners"):
            names = [(o.name, getattr(o, "width", 0)) for o in getattr(grid, several, ())]
            assert len(set(names)) == len(names), figure.id
        if isinstance(grid, Phases | Curves):
            claimed = [c.claimed for c in figure.claims if isinstance(c, Power)]
            assert all(len(of) == len(grid.cases) for of in claimed), figure.id


MOST = 160  # modules of the package that a command may import before a cell runs, of more than 350
FIGURES = {
    "chain": "fig-7-3a", "core_neighborhood": "core-distance", "fusion": "deep-fusion-heads",
    "icl": "fig-6-5a", "mixture": "fig-4-8", "shallow_vit": "fig-2-6a", "topology": "opt-5",
    "vision": "kvt-k",
}  # fmt: skip
# Each figure in a process of its own, which begins with the command and other packages imported.
_COUNT = f"""
import os, sys
import lightning.pytorch, matplotlib.figure, networkx, numba, scipy.stats, sklearn.model_selection
import torch_geometric.nn, torchmetrics
from graphtheory.lab.cli import main
from graphtheory.papers.grid import Grid

def measure(*args, **options):
    ours = [name.split(".") for name in sys.modules if name.split(".")[0] == "graphtheory"]
    chapters = {{name[2] for name in ours if name[1:2] == ["papers"] and name[3:]}}
    print(figure, len(ours), *chapters)
    sys.stdout.flush()
    os._exit(0)

Grid.measure = measure
for figure in {[*FIGURES.values()]}:
    if os.fork():
        os.wait()
        continue
    main(["reproduce", figure, "--quick", "--quiet", "--out", sys.argv[1]])
    os._exit(1)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are forked")
def test_a_figure_imports_its_own_chapter_and_few_modules(tmp_path: object) -> None:
    command = [sys.executable, "-c", _COUNT, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found = {name: of for name, *of in map(str.split, done.stdout.splitlines())}
    chapters = {figure: [chapter] for chapter, figure in FIGURES.items()}
    assert {name: of[1:] for name, of in found.items()} == chapters
    assert max(int(of[0]) for of in found.values()) <= MOST, found


def test_a_figure_alone_is_that_of_the_list_where_no_two_have_one_name(monkeypatch) -> None:
    every = index.figures()
    assert all(index.figure(name) is one for name, one in every.items())
    assert index.figure("fig-3-88") is None
    twice = [path for path in index._modules() if path.parent.name == "vision"] * 2
    monkeypatch.setattr(index, "_modules", lambda: twice)
    with pytest.raises(ValueError, match="kvt-lemma-2 stands twice"):
        index.figures()


MEASURED = [
    {"method": name, "contexts": n, "seed": seed, "loss": n, "error": (n + seed) / 100}
    for name, n, seed in product(("ICL", "1-NN"), (5, 10), (0, 2))
]
ERRORS = Pivot(
    "errors", {"error": "test error"}, {"method": "method"}, "contexts", cell=percent_spread,
    column="{} contexts", note="In percent.",
)  # fmt: skip


def test_lines_and_columns_may_change_places_and_measures_have_a_column_each() -> None:
    table, rows, _ = ERRORS(None, MEASURED)
    assert table.columns == ["method", "5 contexts", "10 contexts"] and table.note == "In percent."
    assert table.rows[0] == ["ICL", "6.00 ± 1.41", "11.00 ± 1.41"]
    turned = replace(ERRORS, turned=True)(None, MEASURED)
    assert turned.rows == rows
    assert turned.table.columns == ["method", "ICL", "1-NN"]
    assert turned.table.rows[1] == ["10 contexts", "11.00 ± 1.41", "11.00 ± 1.41"]
    both = replace(ERRORS, measures={"loss": "loss", "error": "error"})
    table, rows, _ = both(None, MEASURED)
    wanted = ["loss, 5 contexts", "error, 5 contexts", "loss, 10 contexts", "error, 10 contexts"]
    assert table.columns[1:] == wanted
    assert [row.name for row in rows[:2]] == ["loss", "error"]
    assert rows[1].parameters == {"method": "ICL", "contexts": 5}
    assert replace(both, across=None)(None, MEASURED).table.columns == ["method", "loss", "error"]


MEDIANS = [
    {"series": name, "at": at, "error": error + seed / 10, "panel": panel}
    for panel, scale in (("SGD", 1.0), ("Adam", 0.5))
    for name, errors in (("a", (0.9, 0.6)), ("b", (0.8, 0.7)))
    for at, error in zip((100, 300), (scale * e for e in errors), strict=True)
    for seed in range(3)
]
COUNTS = np.array([[1, 2, 4, 8], [10, 10, 10, 10], [2, 4, 8, 10.0]])
FOUND = Successes(np.array([0.2, 0.8, 0.4]), np.array([5.0, 10, 20, 40]), COUNTS, 10)
CELLS = {"gt": FOUND, "gcn": FOUND}
LAW = {"factor": 5.0, "exponent": -1.0, "claimed": -2.0}
LOOKS = [
    {"case": case, "series": name, "step": step, "loss": top / (1 + step), "seed": seed}
    for case in ("gt", "gcn")
    for name, top in (("a", 1.0), ("b", 2.0))
    for step in (0, 10, 20)
    for seed in (0, 1)
]
NUMBERS = {v: [5 / v, 5 / v + 1, math.inf, 5 / v + 2] for v in (0.8, 0.4, 0.2)}
NEEDED = {"gt": NUMBERS, "none": {0.2: [math.inf]}, "gcn": NUMBERS}
PICTURES: dict[str, Callable[..., Drawing]] = (
    {
        "error_curves": lambda: error_curves(MEDIANS, xlabel="labels", title="T"),
        "phase_diagram": lambda: phase_diagram(CELLS, {"gt": LAW}, xlabel="gamma_d", title="T"),
        "step_curves": lambda: step_curves(LOOKS, value="loss", ylabel="loss", title="T"),
        "needed_picture": lambda: needed_picture(
            NEEDED, {"gt": LAW}, xlabel="gamma_d", ylabel="steps", title="T"
        ),
    }
    | OF_PROMPTS
    | OF_SAMPLES
)


@pytest.mark.parametrize("draw", PICTURES.values(), ids=PICTURES)
def test_a_picture_has_ink_a_title_and_named_axes(draw: Callable[..., Drawing]) -> None:
    figure = draw()
    assert 0.005 < (pixels(figure)[:, :3] < 200).any(1).mean() < 0.7
    assert "T" in (figure.get_suptitle(), figure.axes[0].get_title(loc="left")[-1:])
    assert all(axes.get_xlabel() or axes.get_ylabel() for axes in figure.axes)
    assert plot.svg(draw()) == plot.svg(draw())


def test_errors_are_medians_in_panels_that_share_a_legend() -> None:
    first, second = error_curves(MEDIANS, xlabel="labels").axes
    assert lines(first)["a"] == ([100, 300], pytest.approx([1.0, 0.7]))
    assert lines(second)["b"] == ([100, 300], pytest.approx([0.5, 0.45]))
    assert [axes.get_title(loc="left") for axes in (first, second)] == ["SGD", "Adam"]
    assert first.get_ylim()[0] == 0
    named = [{"series": "a", "at": at, "error": 1.0} for at in ("(0.9, 0.1)", "(0.1, 0.9)")]
    (axes,) = error_curves(named, panel="", xlabel="targets").axes
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["(0.9, 0.1)", "(0.1, 0.9)"]
    rows = [{"panel": p, "series": s, "at": 1, "error": 0.5} for p in "PQ" for s in "ab"]
    shared = error_curves(rows, xlabel="labels")
    assert len(shared.legends) == 1 and not any(axes.get_legend() for axes in shared.axes)
    apart = error_curves([r | {"series": r["panel"] + r["series"]} for r in rows], xlabel="")
    assert not apart.legends and all(axes.get_legend() for axes in apart.axes)


def test_phases_are_shares_with_a_boundary_where_there_is_one() -> None:
    gt, gcn, *_ = phase_diagram(CELLS, {"gt": LAW}, xlabel="gamma_d").axes
    (mesh,) = gt.collections
    shares = np.asarray(mesh.get_array())
    assert shares.shape == (4, 3)
    assert shares[:, 0].tolist() == [0.1, 0.2, 0.4, 0.8] and shares[3, 2] == 1
    assert mesh.get_cmap()(0.0)[:3] == (0, 0, 0) and mesh.get_cmap()(1.0)[:3] == (1, 1, 1)
    drawn = lines(gt)
    half = halves(FOUND).tolist()
    assert half[1] == 0 and drawn["half of the trials"] == ([0.2, 0.4], half[::2])
    x, y = drawn["fitted: -1.00"]
    assert [a * b for a, b in zip(x, y, strict=True)] == pytest.approx([5.0] * len(x))
    assert "claimed: -2" in drawn and list(lines(gcn)) == ["half of the trials"]


def test_curves_and_numbers_are_medians_with_their_marks_and_law() -> None:
    gt, _ = step_curves(LOOKS, value="loss", ylabel="loss", marks=[0.1]).axes
    drawn = lines(gt)
    assert drawn["b"] == ([0.0, 10.0, 20.0], pytest.approx([2.0, 2 / 11, 2 / 21]))
    assert [0.1, 0.1] in [list(line.get_ydata()) for line in gt.get_lines()]
    cut, _ = step_curves(LOOKS, value="loss", ylabel="", xlabel="turns", upright=12.0).axes
    assert [12.0, 12.0] in [list(line.get_xdata()) for line in cut.get_lines()]
    assert cut.get_xlabel() == "turns"
    assert needed_picture({"none": NEEDED["none"]}, {}, xlabel="gamma_d", ylabel="steps") is None
    gt, gcn = needed_picture(NEEDED, {"gt": LAW}, xlabel="gamma_d", ylabel="steps").axes
    (points,) = gt.containers
    assert list(points[0].get_ydata()) == pytest.approx([26, 13.5, 7.25])
    assert "fitted: -1.00" in lines(gt) and "fitted: -1.00" not in lines(gcn)
    rows = [
        {"panel": panel, "series": "a", "at": at, "value": value}
        for panel, at, value in product(("p", "q"), (0.1, 1.0), (0.1, 0.2, 0.6))
    ]
    figure = pictures.value_curves(rows, xlabel="x", ylabel="y", scale=100, marks=(50,))
    first, second = figure.get_axes()
    assert first.get_xscale() == "log" and second.get_title(loc="left") == "q"
    assert list(first.get_lines()[0].get_ydata()) == [20.0, 20.0]
    figure = pictures.value_curves(rows, xlabel="x", ylabel="y", axis=pictures.log_axis)
    assert figure.get_axes()[0].get_yscale()
