"""The pages of single runs and of benchmarks, on graphs or images, with pictures and files."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from graphtheory.lab import plot
from graphtheory.lab.bench.benchmark import Run
from graphtheory.lab.bench.comparison import Comparison
from graphtheory.lab.bench.config import RunConfig, ignores
from graphtheory.lab.bench.image_task import ImageRunConfig, ImageRunResult
from graphtheory.lab.bench.rows import ACCURACY, Environment, Measure, Table, counted, reading
from graphtheory.lab.report.page import CAPTIONS, Page
from graphtheory.lab.train import FitResult

if TYPE_CHECKING:
    from graphtheory.lab.bench.search import SearchResult


def recipe_rows(config: Any) -> list[tuple[str, object]]:
    """List how networks for images were trained, as names and values."""
    recipe = asdict(config.recipe)
    augment = recipe.pop("augment")
    sizes = {"batch size": config.batch_size, "drop path": config.drop_path}
    return list((recipe | augment | sizes).items())


def learning_curves(epochs: Sequence[Mapping[str, Any]], measure: Measure) -> Any:
    """Draw the learning curves of rows with model, seed and what the history holds."""
    return plot.learning_curves(
        epochs, metric=measure.title, unit=measure.axis_unit,
        higher_is_better=measure.higher_is_better, loss_unit="nats" if measure.share else "",
    )  # fmt: skip


def _begun(title: str, fit: FitResult, measure: Measure, caption: str, on: str = "") -> Page:
    """Begin the page of a run, whose title names the model first: scores and learning curves."""
    test = "none" if fit.test is None else measure.format(fit.test)
    page = Page(
        title,
        f"Test {measure.title} {test}{on}, at epoch {fit.best_epoch} of {fit.epochs}, which has "
        f"the best score on validation, {measure.format(fit.val)}.",
    )
    epochs = [{"model": title.partition(" ")[0], "seed": 0, **row} for row in fit.history]
    page.section("Training").picture(learning_curves(epochs, measure), CAPTIONS[caption])
    return page


def graph_run_page(
    title: str, result: FitResult, measure: Measure, setting: list[tuple[str, Any]], command: str
) -> Page:
    """Make the page of a run on graphs; its title names the model, then the data."""
    page = _begun(title, result, measure, "one graph run")
    rows = [
        (str(int(r["epoch"])), f"{r['train_loss']:.4f}", f"{r['val_loss']:.4f}",
         measure.short(r["val"]), f"{r['seconds']:.3f}")
        for r in result.history
    ]  # fmt: skip
    columns = ("epoch", "training loss", "validation loss", "validation", "s")
    page.folded(Table("Every epoch", columns, rows, words=0))
    page.how_to_reproduce(command, Environment.here(), setting)
    return page


def image_run_page(
    title: str, config: ImageRunConfig, result: ImageRunResult, pictures: Mapping[str, Any],
    seed: int, command: str,
) -> Page:  # fmt: skip
    """Make the page of a run on images; its title names the data set and its files."""
    test = f" on {len(result.y):,} images"
    page = _begun(f"{config.model} on {title}", result.fit, ACCURACY, "one image run", test)
    rows = []
    for label in result.y.unique().tolist():
        found = result.predicted[result.y == label]
        wrong = found[found != label]
        instead = str(int(wrong.mode().values)) if len(wrong) else "-"
        right = 100 * (1 - len(wrong) / len(found))
        rows.append((str(label), str(len(found)), f"{right:.1f}", instead))
    columns = ("class", "test images", "right (%)", "most often taken for")
    page.section("Classes").table(Table("", columns, rows))
    if pictures:
        page.section("The first test image")
    for name, figure in pictures.items():
        page.picture(figure, CAPTIONS[name])
    cost = [
        ("seed", seed), ("parameters", f"{result.parameters:,}"),
        ("10^9 multiply-accumulates an image", f"{result.gmacs:.4f}"),
        ("seconds an epoch", f"{result.fit.seconds_per_epoch:.2f}"),
    ]  # fmt: skip
    setting = [*cost, *asdict(config.network).items(), *recipe_rows(config)]
    page.how_to_reproduce(command, Environment.here(), setting)
    return page


_ALWAYS = ("hidden", "layers", "lr", "sampler", "share")


def options(config: RunConfig) -> str:
    """The options that a configuration's model reads, on one line, if they are no defaults."""
    plain, chosen = type(config)(config.model).as_dict(), config.as_dict()
    if "optimizer" not in chosen:  # trees, which have neither network nor optimizer
        return ", ".join(f"{name}={value}" for name, value in chosen.items() if name != "model")
    pairs = [
        (name, value)
        for group in ("network", "optimizer", "sampling")
        for name, value in chosen.get(group, {}).items()
        if (value != plain[group][name] or name in _ALWAYS) and not ignores(config, name, value)
    ]
    pairs += [(name, True) for name in ("degree", "undirected") if chosen.get(name)]
    pairs += [(n, chosen[n]) for n in ("row_scale", "nodes_per_batch") if chosen.get(n) is not None]
    return ", ".join(f"{name}={value}" for name, value in pairs)


def search_table(log: "Iterable[SearchResult]", measure: Measure = ACCURACY) -> Table:
    """Make a table of every candidate, the best of each model first."""
    rows = [
        (one.config.model, options(one.config), measure.short(one.val), f"{one.parameters:,}",
         f"{one.seconds:.0f}", one.stopped or str(one.seeds))
        for one in sorted(
            log, key=lambda one: (one.config.model, -one.seeds, measure.gain(0.0, one.val))
        )
    ]  # fmt: skip
    columns = ("model", "options", "validation", "params", "s", "splits")
    note = "The mean over the splits; test scores are not looked at."
    return Table("Search log", columns, rows, words=2, note=note)


@dataclass(frozen=True)
class BenchmarkReport(Comparison):
    """Everything that is known about a benchmark, as a page with pictures.

    Attributes:
        distance_rows: Of figure 3.8, where it ran: kind, z, seed, value.
        search_log: Candidates that the search tried, where its log is at hand.
    """

    distance_rows: Sequence[Mapping[str, Any]] = ()
    search_log: "Sequence[SearchResult]" = field(default=(), repr=False)
    _CURVES: ClassVar = CAPTIONS["curves"]

    def page(self) -> Page:
        """Make the whole page with its pictures."""
        found, best, measure = self.summaries, self.best, self.measure
        kind = "the highest" if measure.higher_is_better else "the lowest and so the best"
        among, kind = (f"Of {len(found)} models on", kind) if len(found) > 1 else ("On", "this")
        shown = measure.format(best.mean)
        *tied, last = (s.model for s in found if measure.format(s.mean) == shown)
        who = f"{', '.join(tied)} and {last} tie: they have" if tied else f"{last} has"
        score = shown if tied else measure.format(best.mean, best.std)
        page = Page(
            f"{self.name}: models side by side",
            f"{among} the {self.split} split, {who} {kind} mean test "
            f"{measure.title}: {score} over {counted(best.seeds, 'seed')}.",
        )
        self._results(page)
        if against := self.differences():
            page.section(f"{self.first} against the others")
            page.table(self.difference_table())
            drawn = plot.paired_differences(
                (vars(d) | {"half_width": d.half_width, "reading": reading(d)} for d in against),
                first=self.first, unit=measure.symbol,
                higher_is_better=measure.higher_is_better,
            )  # fmt: skip
            page.picture(drawn, CAPTIONS["differences"])
        epochs = [{"model": r.model, "seed": r.seed} | e for r in self.runs for e in r.history]
        if epochs:
            page.section("Training").picture(learning_curves(epochs, measure), self._CURVES)
        self._details(page)
        setting = [("data set", self.name), *self._setting()]
        page.how_to_reproduce(self.command, self.environment, setting)
        return page

    def results(self) -> dict[str, Any]:
        return super().results() | {"distance_study": self.distance_rows}

    def save(self, folder: str | PathLike[str]) -> None:
        """Write results.json, results.csv, report.html and, where it is missing, runs.jsonl."""
        super().save(folder)
        self.page().save(Path(folder) / "report.html")

    def _results(self, page: Page) -> None:
        page.section("Results").table(self.scores())
        scores = [{"model": r.model, "test": r.test} for r in self.runs]
        drawn = plot.score_bars(scores, metric=self.measure.title, unit=self.measure.axis_unit)
        page.picture(drawn, CAPTIONS["scores"])

    def _details(self, page: Page) -> None:
        b, bias = self.benchmark, bias_rows(self.runs)
        first = (r for r in self.runs if r.model == self.first)
        mass = [row for run in first for row in run.extra.get("attention_mass", ())]
        if bias or mass or self.distance_rows:
            page.section("What distance is worth")
        if self.distance_rows:
            page.picture(plot.learned_bias(*figure_3_8(self.distance_rows)), CAPTIONS["figure 3.8"])
        if bias:
            page.picture(plot.learned_bias(bias), CAPTIONS["bias"])
        if mass:
            page.picture(plot.attention_mass(mass), CAPTIONS["mass"].format(first=self.first))
        chosen = [(m, self.chosen_by(m), options(b.config(m)[0])) for m in b.models]
        note = "Search: chosen on validation scores alone."
        page.section("Options")
        page.table(Table("", ("model", "chosen by", "options"), chosen, words=3, note=note))
        if self.search_log:
            page.table(search_table(self.search_log, self.measure))

    def _setting(self) -> list[tuple[str, object]]:
        b = self.benchmark
        limits = {b.config(model)[1:] for model in b.models}
        return [
            ("split", self.split),
            ("seeds", f"0..{b.seeds - 1}"),
            ("epochs, patience", "; ".join(f"{e}, {p}" for e, p in sorted(limits))),
        ]


@dataclass(frozen=True)
class ImageReport(BenchmarkReport):
    """Everything that is known about a benchmark on images, whose models share one recipe."""

    _CURVES: ClassVar = CAPTIONS["image curves"]

    @property
    def name(self) -> str:
        """The data set and its file, since there are several of CIFAR-10."""
        info = self.benchmark.task.images.info  # type: ignore[attr-defined]
        files = "/".join(filter(None, (info.folder, *info.files[:1])))
        return f"{info.name} ({files or 'embedded'})"

    def chosen_by(self, model: str) -> str:
        return "one recipe for all"

    def _results(self, page: Page) -> None:
        super()._results(page)
        costs = [{"model": r.model, "test": r.test} | r.extra for r in self.runs]
        page.picture(plot.score_over_cost(costs), CAPTIONS["cost"])

    def _details(self, page: Page) -> None:
        return

    def _setting(self) -> list[tuple[str, object]]:
        recipe = recipe_rows(self.benchmark.config(self.first)[0])
        return [("seeds", f"0..{self.benchmark.seeds - 1}"), *recipe]


def bias_rows(runs: Iterable[Run]) -> list[dict[str, Any]]:
    """Learned b: layer, head, distance, bias; of the distances that the network sees."""
    out = []
    for run in runs:
        seen = {row["distance"] for row in run.extra.get("attention_mass", ())}
        out += [
            {"layer": layer, "head": head, "distance": distance, "bias": bias}
            for layer, table in enumerate(run.extra.get("bias", ()), 1)
            for distance, heads in enumerate(table)
            if distance in seen
            for head, bias in enumerate(heads, 1)
        ]
    return out


def figure_3_8(
    rows: Iterable[Mapping[str, Any]],
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Measurements of figure 3.8 as `plot.learned_bias` takes them: b, and accuracy by series."""
    rows = list(rows)
    named = {"model": "all weights learned", "control": "control, W_Q frozen"}
    accuracy = [
        {"distance": row["z"], "test": row["value"], "series": named[row["kind"]]}
        for row in rows
        if row["kind"] in named
    ]
    farthest = max(row["distance"] for row in accuracy)
    learned = (row for row in rows if row["kind"] == "b" and row["z"] <= farthest)
    bias = [{"layer": 1, "head": 1, "distance": r["z"], "bias": r["value"]} for r in learned]
    return bias, accuracy
