"""Recipes of papers as data: what was published, and what the same training gives here."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean, variance
from typing import Any

from scipy.special import stdtrit

from graphtheory.lab.bench.benchmark import named_task
from graphtheory.lab.bench.rows import Environment, Row, lines_of, write_lines
from graphtheory.lab.bench.table import Measure, Table, measure_of
from graphtheory.lab.bench.task import BenchTask, Root

FILE = "recipes.csv"  # rows of finished runs, in the folder of results
_SOURCES: dict[str, Any] = json.loads(
    Path(__file__).with_suffix(".json").read_text(encoding="utf-8")
)
_NOT_RUN = "read and checked, not run"


@dataclass(frozen=True)
class Recipe:
    """A published result, and the training that should give it."""

    name: str  #: Source, data set and model, such as "tunedgnn/minesweeper/gcn".
    paper: str
    code: str  #: Repository, commit and file that the options were read in.
    dataset: str
    metric: str
    model: str
    #: Mean and standard deviation over the runs, shares in percent; None where none was found.
    published: tuple[float | None, float | None]
    epochs: int | None = None
    runs: int | None = None  #: How many the published mean is of.
    patience: int | None = None  #: None trains for all epochs.
    split: str | None = None
    split_seed: int | None = None  #: Number of the split of every run; None: run s has split s.
    options: Mapping[str, Any] = field(default_factory=dict)  #: Other ones have their defaults.
    missing: str = ""  #: What there is none of here; the recipe can then not be run.
    read: str = ""  #: The recipe in its own words, where it cannot be run.
    note: str = ""  #: What differs here.
    others: str = ""  #: What others found who tried it.

    @property
    def measure(self) -> Measure:
        """How its scores are read."""
        return measure_of(self.metric)

    def score(self, value: float | None) -> float | None:
        """A published number as a score: of a share in percent 0..1."""
        return None if value is None else value / (100 if self.measure.share else 1)

    def prepared(self, root: Root) -> tuple[BenchTask, Any]:
        """The task and the configuration to run; ValueError where something is missing for it."""
        if self.missing:
            raise ValueError(f"recipe: {self.name} cannot be run: {self.missing}")
        task = named_task(self.dataset, self.split, root)
        task.split_seed = self.split_seed
        kind = task.config_kind(task.known_model(self.model))
        return task, kind.of(self.model, **self.options)


def _recipes() -> dict[str, Recipe]:
    found = {}
    for source, shared in _SOURCES.items():
        of_all = {name: value for name, value in shared.items() if name not in ("sets", "recipes")}
        for name, own in shared["recipes"].items():
            data, model = name.split("/")
            parts = (of_all, shared["sets"][data], own)
            options = {n: v for part in parts for n, v in part.get("options", {}).items()}
            values = {n: v for part in parts for n, v in part.items()}
            values |= {"options": options, "published": tuple(values["published"])}
            whole = f"{source}/{name}"
            found[whole] = Recipe(**{"name": whole, "model": model} | values)
    return found


RECIPES = _recipes()
"""Every recipe by its name."""


@dataclass(frozen=True)
class Verdict:
    """What runs of a recipe say of the published score."""

    recipe: Recipe
    scores: Sequence[float]  #: Of the test, 0..1 or in the unit of the target, a run each.

    @property
    def difference(self) -> float:
        """The advantage of our mean over the published one; nan where there is none of either."""
        published = self.recipe.score(self.recipe.published[0])
        if published is None or not self.scores:
            return math.nan
        return self.recipe.measure.gain(fmean(self.scores), published)

    @property
    def interval(self) -> float:
        r"""Half of Welch's 95 % interval of the difference; nan of a single run.

        .. math:: t_{\nu}\sqrt{v_1 + v_2}, \quad v = s^2 / n, \quad
            \nu = (v_1 + v_2)^2 / \left(\tfrac{v_1^2}{n_1 - 1} + \tfrac{v_2^2}{n_2 - 1}\right)

        A published mean without deviation counts as exact.
        """
        (_, std), runs, ours = self.recipe.published, self.recipe.runs or 1, len(self.scores)
        if ours < 2 or math.isnan(self.difference):
            return math.nan
        mine, theirs = variance(self.scores) / ours, (self.recipe.score(std) or 0.0) ** 2 / runs
        spread = mine**2 / (ours - 1) + (theirs**2 / (runs - 1) if runs > 1 else 0.0)
        freedom = (mine + theirs) ** 2 / spread if spread else math.inf
        return float(stdtrit(freedom, 0.975)) * math.sqrt(mine + theirs)

    @property
    def reproduced(self) -> str:
        """Answer yes, within noise (lower, by less than the interval), no, or why neither."""
        if not self.scores:
            return _NOT_RUN if self.recipe.missing else "not run"
        if math.isnan(self.difference):
            return "no score published"
        if self.difference >= 0:
            return "yes"
        if math.isnan(self.interval):
            return "one run"
        return "within noise" if -self.difference <= self.interval else "no"

    def cells(self) -> tuple[str, ...]:
        """Published, ours, difference with its interval, runs and verdict, as text."""
        recipe, measure, nan = self.recipe, self.recipe.measure, math.nan
        mean, std = map(recipe.score, recipe.published)
        published = "-" if mean is None else measure.shown(mean, nan if std is None else std)
        ours = gap = "-"
        if self.scores:
            spread = math.sqrt(variance(self.scores)) if len(self.scores) > 1 else nan
            ours = measure.shown(fmean(self.scores), spread)
        if not math.isnan(self.difference):
            gap = measure.shown(self.difference, self.interval, sign="+")
        return published, ours, gap, f"{len(self.scores)} of {recipe.runs or '-'}", self.reproduced


COLUMNS = ("recipe", "published", "ours", "difference (95 %)", "runs", "reproduced")


def verdicts(folder: Path) -> list[Verdict]:
    """Judge every recipe by the finished runs in a folder."""
    runs = _finished(folder)
    return [Verdict(recipe, list(runs.get(name, {}).values())) for name, recipe in RECIPES.items()]


def verdict_table(found: Sequence[Verdict], title: str = "") -> Table:
    """Make the table of `COLUMNS`; of errors a positive difference is a lower error."""
    return Table(title, COLUMNS, [(v.recipe.name, *v.cells()) for v in found])


def _finished(folder: Path) -> dict[str, dict[int, float]]:
    """Recipe -> number of the run -> test score."""
    found: dict[str, dict[int, float]] = {}
    for line in _lines(folder / FILE):
        of = dict(pair.split("=", 1) for pair in line["parameters"].split("; "))
        found.setdefault(of["recipe"], {})[int(of["seed"])] = float(line["value"])
    return found


def _lines(file: Path) -> list[dict[str, str]]:
    if not file.exists():
        return []
    with file.open(newline="", encoding="utf-8") as lines:
        return list(csv.DictReader(lines))


def run_recipe(
    recipe: Recipe,
    folder: Path,
    *,
    root: Root = None,
    seeds: int | None = None,
    resume: bool = False,
    before: Callable[[str, int, int], None] = lambda *_: None,
    finished: Callable[[str], None] = lambda _: None,
) -> Verdict:
    """Train as a recipe says, and add a row for each run to `recipes.csv` in a folder.

    Args:
        recipe: One of `RECIPES`.
        folder: Where the rows are kept, those of other recipes among them.
        root: Folder with the raw files.
        seeds: How many runs, 1 or more; None is as many as were published.
        resume: Go on with the runs that are there already.
        before: Called before each run with the recipe's name, runs done and runs in all.
        finished: Called after each run with its scores in words.

    Raises:
        ValueError: A recipe that cannot be run here, or runs of it that are there unasked.
    """
    known, count = _finished(folder).get(recipe.name, {}), seeds or recipe.runs or 3
    if known and not resume:
        raise ValueError(
            f"{folder / FILE} holds {len(known)} runs of {recipe.name}; --resume goes on with them"
        )
    task, config = recipe.prepared(root)
    assert recipe.epochs is not None
    length = {"epochs": recipe.epochs, "patience": recipe.patience or recipe.epochs}
    for seed in range(count):
        before(recipe.name, seed, count)
        if seed in known:
            continue
        fit = task.run(config, seed=seed, **length).fit
        assert fit.test is not None
        known[seed] = fit.test
        split = f"{task.split} {seed if recipe.split_seed is None else recipe.split_seed}"
        of = {"recipe": recipe.name, "seed": seed, "split": split, "epochs": fit.epochs}
        row = Row.of(f"test {recipe.metric}", fit.test, "1", **of, **{"best epoch": fit.best_epoch})
        folder.mkdir(parents=True, exist_ok=True)
        lines = [*_lines(folder / FILE), *lines_of([row], Environment.here())]
        write_lines(folder / FILE, lines)
        test, val = (recipe.measure.short(score, ".2f") for score in (fit.test, fit.val))
        time = fit.seconds_per_epoch * fit.epochs
        finished(
            f"run {seed}: test {test}, validation {val} at epoch {fit.best_epoch}, {time:.0f} s"
        )
    return Verdict(recipe, [known[seed] for seed in sorted(known)])
