"""Recipes of papers as data: what was published, and what the same training gives here."""

import csv
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from scipy.special import stdtrit

from graphtheory.lab.bench.benchmark import named_task
from graphtheory.lab.bench.rows import Environment, Measure, Row, lines_of, measure_of, write_lines
from graphtheory.lab.bench.task import BenchTask, Root
from graphtheory.lab.train import TrainerOptions

FILE = "recipes.csv"  # rows of finished runs, in a folder of results
COLUMNS = ("recipe", "published", "ours", "difference (95 %)", "runs", "reproduced")
_READ = Path(__file__).with_suffix(".json").read_text(encoding="utf-8")


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
    published: Sequence[float | None]
    epochs: int = 1
    runs: int | None = None  #: How many the published mean is of.
    patience: int | None = None  #: None trains for all epochs.
    split: str | None = None
    split_seed: int | None = None  #: Number of the split of every run; None: run s has split s.
    options: Mapping[str, Any] = field(default_factory=dict)  #: Others have their defaults.
    missing: str = ""  #: What the package lacks for it; it can then not be run.
    read: str = ""  #: The options of such a recipe in its own words.
    note: str = ""  #: What differs here.
    others: str = ""  #: What others found who tried it.

    @property
    def measure(self) -> Measure:
        """How its scores are read."""
        return measure_of(self.metric)

    @property
    def scores(self) -> tuple[float, float]:
        """The published mean and deviation as scores, shares 0..1; nan where none was found."""
        mean, std = (
            math.nan if value is None else value / (100 if self.measure.share else 1)
            for value in self.published
        )
        return mean, std

    def prepared(self, root: Root) -> tuple[BenchTask, Any]:
        """The task and the configuration to run; ValueError where something is missing for it."""
        if self.missing:
            raise ValueError(f"recipe: {self.name} cannot be run: {self.missing}")
        task = named_task(self.dataset, self.split, root)
        task.split_seed = self.split_seed
        kind = task.config_kind(task.known_model(self.model))
        return task, kind.of(self.model, **self.options)


def _recipes() -> dict[str, Recipe]:
    """A recipe has what its source, its data set and its own entry say, in this order."""
    found = {}
    for source, shared in json.loads(_READ).items():
        sets, recipes = shared.pop("sets"), shared.pop("recipes")
        for name, own in recipes.items():
            data, model = name.split("/")
            parts, whole = (shared, sets[data], own), f"{source}/{name}"
            options = {n: v for part in parts for n, v in part.get("options", {}).items()}
            values = {n: v for part in parts for n, v in part.items()} | {"options": options}
            found[whole] = Recipe(**{"name": whole, "model": model} | values)
    return found


RECIPES = _recipes()  # by name


@dataclass(frozen=True)
class Verdict:
    """What runs of a recipe say of the published score."""

    recipe: Recipe
    runs: Sequence[float]  #: A test score each, 0..1 or in the unit of the target.

    @property
    def difference(self) -> float:
        """The advantage of our mean over the published one; nan where one of them is missing."""
        if not self.runs:
            return math.nan
        return self.recipe.measure.gain(fmean(self.runs), self.recipe.scores[0])

    @property
    def interval(self) -> float:
        r"""Half of Welch's 95 % interval of the difference; nan of a single run.

        .. math:: t_{\nu}\sqrt{v_1 + v_2}, \quad v = s^2 / n, \quad
            \nu = (v_1 + v_2)^2 / \left(\tfrac{v_1^2}{n_1 - 1} + \tfrac{v_2^2}{n_2 - 1}\right)

        A published mean without deviation or number of runs counts as exact.
        """
        if len(self.runs) < 2 or math.isnan(self.difference):
            return math.nan
        parts, std = [(stdev(self.runs), len(self.runs))], self.recipe.scores[1]
        if not math.isnan(std) and (self.recipe.runs or 1) > 1:
            parts.append((std, self.recipe.runs or 1))
        total = sum(s**2 / n for s, n in parts)
        spread = sum((s**2 / n) ** 2 / (n - 1) for s, n in parts)
        return float(stdtrit(total**2 / spread, 0.975)) * math.sqrt(total) if spread else 0.0

    @property
    def reproduced(self) -> str:
        """Answer yes, within noise (worse by less than the interval), no, or why neither."""
        if not self.runs:
            return "read and checked, not run" if self.recipe.missing else "not run"
        if math.isnan(self.difference):
            return "no score published"
        if self.difference >= 0:
            return "yes"
        if math.isnan(self.interval):
            return "one run"
        return "within noise" if -self.difference <= self.interval else "no"

    def cells(self) -> tuple[str, ...]:
        """Write what the table says below `COLUMNS`."""
        recipe, published, ours, gap = self.recipe, "-", "-", "-"
        if not math.isnan(recipe.scores[0]):
            published = recipe.measure.shown(*recipe.scores)
        if self.runs:
            std = stdev(self.runs) if len(self.runs) > 1 else math.nan
            ours = recipe.measure.shown(fmean(self.runs), std)
        if not math.isnan(self.difference):
            gap = recipe.measure.shown(self.difference, self.interval, sign="+")
        runs = f"{len(self.runs)} of {recipe.runs or '-'}"
        return recipe.name, published, ours, gap, runs, self.reproduced


def verdicts(folder: Path) -> list[Verdict]:
    """Judge every recipe by the finished runs in a folder."""
    runs = _finished(folder)
    return [Verdict(recipe, list(runs.get(name, {}).values())) for name, recipe in RECIPES.items()]


def _lines(folder: Path) -> list[dict[str, str]]:
    text = (folder / FILE).read_text(encoding="utf-8") if (folder / FILE).exists() else ""
    return list(csv.DictReader(text.splitlines()))


def _finished(folder: Path) -> dict[str, dict[int, float]]:
    """Recipe -> number of the run -> test score."""
    found: dict[str, dict[int, float]] = {}
    for line in _lines(folder):
        of = dict(pair.split("=", 1) for pair in line["parameters"].split("; "))
        found.setdefault(of["recipe"], {})[int(of["seed"])] = float(line["value"])
    return found


def run_recipe(
    recipe: Recipe,
    folder: Path,
    *,
    root: Root = None,
    seeds: int | None = None,
    resume: bool = False,
    trainer: TrainerOptions | None = None,
    before: Callable[[str, int, int], None] = lambda *_: None,
    finished: Callable[[str], None] = lambda _: None,
) -> Verdict:
    """Train as a recipe says, and add a row for each run to the file of a folder.

    `before` is called with the recipe's name, the runs done and the runs in all, `finished` with
    the scores in words. Without `seeds` there are as many runs as were published. ValueError for a
    recipe that cannot be run here, or that has runs already if `resume` is False.
    """
    known, count = _finished(folder).get(recipe.name, {}), seeds or recipe.runs or 3
    if known and not resume:
        there = f"{folder / FILE} holds {len(known)} runs of {recipe.name}"
        raise ValueError(f"{there}; --resume goes on with them")
    task, config = recipe.prepared(root)
    task.trainer = trainer or task.trainer
    for seed in sorted(set(range(count)) - set(known)):
        before(recipe.name, len(known), count)
        patience = recipe.patience or recipe.epochs
        fit = task.run(config, seed=seed, epochs=recipe.epochs, patience=patience).fit
        assert fit.test is not None
        known[seed] = fit.test
        of = {"recipe": recipe.name, "seed": seed, "split": f"{task.split} {task.split_of(seed)}"}
        of |= {"epochs": fit.epochs, "best epoch": fit.best_epoch}
        row = Row.of(f"test {recipe.metric}", fit.test, "1", **of)
        folder.mkdir(parents=True, exist_ok=True)
        write_lines(folder / FILE, [*_lines(folder), *lines_of([row], Environment.here())])
        test, val = (recipe.measure.short(score, ".2f") for score in (fit.test, fit.val))
        finished(f"run {seed}: test {test}, validation {val} at epoch {fit.best_epoch}")
    return Verdict(recipe, [known[seed] for seed in sorted(known)])
