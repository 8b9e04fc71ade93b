"""Reports: right numbers, sound HTML, nothing from elsewhere."""

import base64
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from graphtheory.lab import plot
from graphtheory.lab.bench.benchmark import Benchmark, Run, named_task
from graphtheory.lab.bench.config import Budget
from graphtheory.lab.bench.diagnose import Diagnosis
from graphtheory.lab.bench.node_config import NodeRunConfig
from graphtheory.lab.bench.node_task import NodeBenchTask
from graphtheory.lab.bench.rows import Environment, Row, Table, measure_of
from graphtheory.lab.bench.search import SearchResult
from graphtheory.lab.plot.style import GRAY
from graphtheory.lab.report import BenchmarkReport, Page, diagnosis, options, search_table
from graphtheory.lab.report.benchmark import bias_rows, figure_3_8
from tests.lab.drawing import one_picture_of_a_kind


@pytest.fixture(autouse=True, scope="module")
def _pictures() -> Iterator[None]:
    with one_picture_of_a_kind():
        yield


HERE = Environment("a <processor>", {"torch": "2.13"}, "abc123")
VOID = {"meta", "img", "br", "hr", "link", "input"}


def run(model: str, seed: int, test: float, **extra: Any) -> Run:
    same = {"val_loss": 1.0, "test": 0.1, "seconds": 1}
    history = [{"epoch": e, "train_loss": 1 / e, "val": 0.1 * e} | same for e in (1, 2, 3)]
    return Run(model, seed, test, 0.5, 100, 0.5 + seed, 10.0, 3, history, extra)


MASS = [{"layer": 1, "distance": z, "mass": 0.5, "uniform": 0.5} for z in (0, 1)]
BIAS = [[[0.1, 0.2], [0.3, 0.4], [9.0, 9.0]]]  # one layer, Z = 3, two heads
OF_GT = {"attention_mass": MASS, "bias": BIAS}
RUNS = [run("gt", 0, 0.9, **OF_GT), run("gcn", 0, 0.8), run("gt", 1, 0.7, **OF_GT),
        run("gcn", 1, 0.75)]  # fmt: skip
STUDY = [{"kind": "b", "z": z, "seed": 0, "value": 1.0 - z} for z in range(5)] + [
    {"kind": kind, "z": z, "seed": 0, "value": 0.9} for kind in ("model", "control") for z in (1, 2)
]


def report(
    runs: list[Run] = RUNS, metric: str = "accuracy", tuned: Sequence[str] = (), **more: Any
) -> BenchmarkReport:
    """The page of two models, of which a search has chosen the options of some."""
    chosen, task = {m: NodeRunConfig(m) for m in tuned}, NodeBenchTask("karate", "random-60-20-20")
    task.measure = measure_of(metric)
    benchmark = Benchmark(task, ("gt", "gcn"), 2, chosen=chosen, budget=Budget.of(4))
    return BenchmarkReport(benchmark, runs, "graphtheory bench --seeds 2", HERE, **more)


class Reader(HTMLParser):
    """Tags that close in order, ids that occur once, and where things come from."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.sources: list[str] = []
        self.tags: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        names = [name for name, _ in attrs]
        assert len(set(names)) == len(names)
        self.sources += [value or "" for name, value in attrs if name in ("src", "href", "data")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def pictures(page: Page) -> list[str]:
    """The SVG documents in a page."""
    found = re.findall(r'src="data:image/svg\+xml;base64,([^"]+)"', page.html())
    return [base64.b64decode(text).decode() for text in found]


def test_summaries_are_of_seeds_and_differences_are_paired_by_them() -> None:
    first, second = report().summaries
    assert (first.model, first.seeds, first.mean) == ("gt", 2, pytest.approx(0.8))
    assert first.std == pytest.approx(math.sqrt(0.02))  # n - 1
    assert (second.mean, second.seconds_per_epoch) == (pytest.approx(0.775), 1.0)
    shuffled = [RUNS[3], RUNS[0], RUNS[1], RUNS[2], run("gcn", 7, 0.1)]
    (found,) = report(shuffled).differences()
    assert found.difference == pytest.approx((0.1 - 0.05) / 2)
    assert found.standard_error == pytest.approx(0.15 / math.sqrt(2) / math.sqrt(2))
    assert (found.ahead, found.seeds) == (1, 2)
    assert math.isnan(report(RUNS[:2]).summaries[0].std)
    one_seed = ("gt - gcn", "+10.00", "1 of 1", "one seed")
    assert report(RUNS[:2]).difference_table().rows == [one_seed]


def test_the_table_of_scores_and_what_its_note_tells() -> None:
    table = report(metric="rocauc").scores()
    assert table.columns == ("model", "test mean ± std", "params", "s/epoch", "peak MB")
    assert table.rows[0] == ("gt", "80.00 ± 14.14", "100", "1.000", "10")
    assert "ROC AUC" in table.note and "for all models" in table.note
    how = "best of 4 on validation"
    alone, every = (report(tuned=tuned).scores().note for tuned in (["gt"], ["gt", "gcn"]))
    assert "gcn uses default hyperparameters (one" in alone
    others = "those of the others are from earlier searches"
    assert f"Hyperparameters are the {how} for gt; {others}." in alone
    assert f"Hyperparameters are the {how}." in every and "not tuned" not in every
    lost = [Run(**{**vars(RUNS[0]), "peak_mb": math.nan})]
    assert report(lost).scores().rows[0][-1] == "-"


def test_house_rows_hold_medians_and_differences_and_mark_what_was_not_tuned() -> None:
    every = report(tuned=("gt",)).rows()
    found = {(r.name, r.parameters["model"]): r for r in every}
    score = found["test accuracy", "gt"]
    assert (score.value, score.median, score.repeats) == (pytest.approx(0.8), 0.8, 2)
    assert (score.q20, score.q80) == (pytest.approx(0.74), pytest.approx(0.86))
    own = {"split": "random-60-20-20", "options": "best of 4 on validation"}
    assert score.parameters == {"dataset": "karate", "model": "gt"} | own
    gap = found["paired difference of test accuracy, gt - model", "gcn"]
    assert gap.value == pytest.approx(0.025)
    parameters = [r.parameters for r in every]
    assert {p["model"] for p in parameters if "not tuned" in p.get("options", "")} == {"gcn"}


def test_a_page_escapes_what_it_is_given() -> None:
    page = Page("<b>", "a & b")
    page.section("<i>").paragraph("1 < 2")
    page.code('<script src="x">')
    page.table(Table("<t>", ("<c>",), [("<script>",)], note="<n>"))
    text = page.html()
    assert text.count("<script") == 1 and "<b>" not in text and "<i>" not in text
    assert "&lt;script&gt;" in text and "a &amp; b" in text
    assert Reader(text).sources == []
    page = Page("t", "l")
    page.picture(plot.winning_margin([{"series": "a", "distance": 1, "margin": 0.5}]), 'a "b" <c>')
    (image,) = pictures(page)
    assert image.startswith("<?xml") and "</svg>" in image
    assert 'alt="a &#34;b&#34; &lt;c&gt;"' in page.html()
    with pytest.raises(ValueError, match=r"rows: 1 entries in \['a'\], expected 2"):
        Table("", ("x", "y"), [("a",)])


def test_the_report_is_sound_and_loads_nothing() -> None:
    page = report(distance_rows=STUDY).page()
    text = page.html()
    reader = Reader(text)
    assert text.startswith("<!DOCTYPE html>")
    assert {"title", "table", "figure", "style"} <= set(reader.tags)
    assert reader.tags.count("script") == 1  # sorts tables; its source is in the page
    assert not {"link", "iframe", "object"} & set(reader.tags)
    assert all(source.startswith("data:") for source in reader.sources)
    assert not re.search(r"https?://", text) and "url(" not in text and "@import" not in text
    for image in pictures(page):
        assert not re.search(r'(href|src)="(?!#)', image)  # refers to its own parts alone


def test_the_report_has_what_was_found_and_the_pictures_of_it() -> None:
    text = report().page().html()
    environment = ("a &lt;processor&gt;", "abc123", "torch", "2.13")
    found = ("80.00 ± 14.14", "gt - gcn", "+2.50 ± 95.30", "random-60-20-20")
    for expected in (*environment, *found, "graphtheory bench --seeds 2"):
        assert expected in text
    assert len(pictures(report().page())) == 5  # scores, differences, curves, bias, mass
    assert len(pictures(report(distance_rows=STUDY).page())) == 6
    plain = Benchmark(named_task("karate"), models=("gcn",), seeds=1)
    assert len(pictures(BenchmarkReport(plain, RUNS[1:2], "c", HERE).page())) == 2
    settings = report().settings()
    assert settings["models"]["gt"]["network"]["hidden"] > 0
    assert settings["split"] == "random-60-20-20"


def test_bias_is_shown_for_distances_that_occur() -> None:
    found = bias_rows(RUNS[:1])
    assert {(r["distance"], r["head"]): r["bias"] for r in found} == {
        (0, 1): 0.1, (0, 2): 0.2, (1, 1): 0.3, (1, 2): 0.4,
    }  # fmt: skip
    bias, accuracy = figure_3_8(STUDY)
    assert [row["distance"] for row in bias] == [0, 1, 2]  # as far as there are models
    assert {row["series"] for row in accuracy} == {"all weights learned", "control, W_Q frozen"}


def test_a_search_log_is_sorted_and_options_are_those_that_differ() -> None:
    log = [
        SearchResult("karate", NodeRunConfig(model), val, parameters, seconds, 1, 60, 20)
        for model, val, parameters, seconds in
        (("gt", 0.5, 100, 2.0), ("gt", 0.75, 100, 2.0), ("gat", 0.1, 50, 1.0))
    ]  # fmt: skip
    found = [(row[0], row[2]) for row in search_table(log).rows]
    assert found == [("gat", "10.0"), ("gt", "75.0"), ("gt", "50.0")]
    assert "Search log" in report(search_log=log[:2]).page().html()
    assert options(NodeRunConfig("gt")) == "hidden=64, layers=2, lr=0.01, row_scale=True"
    other = NodeRunConfig("gt", degree=True, row_scale=False)
    assert options(other).endswith("degree=True, row_scale=False")


def test_the_diagnosis_is_sound_and_loads_nothing(tmp_path: Path) -> None:
    page = diagnosis.diagnosis_page(
        Diagnosis("karate", max_distance=3).run(), "graphtheory diagnose", HERE
    )
    page.save(tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert Reader(text).sources and not re.search(r"https?://", text)
    assert len(pictures(page)) == 4
    assert "Core distance" in text and "Beside the printed numbers" not in text
    assert "no unique main directions" in text and "margin peaks" not in text  # one-hot features


def test_margins_are_drawn_only_where_a_node_has_any_other() -> None:
    rows = Diagnosis("karate", max_distance=8).run()  # whose nodes are at most 5 hops apart
    drawn = {name: figure for name, figure, _ in diagnosis.pictures(rows)}
    for name in ("total-margin", "margin"):
        assert drawn[name].axes[0].get_xticks().tolist() == [1, 2, 3, 4, 5]


def test_the_tables_of_a_diagnosis_fit_eighty_columns() -> None:
    study = Diagnosis("karate", max_distance=12)
    found = diagnosis.tables([*study.run(), *study.hops()])
    assert len(found) == 7 and found[1].columns[0] == "z"
    for table in found:
        cells = zip(table.columns, *table.rows, strict=True)
        assert sum(max(map(len, column)) + 3 for column in cells) + 1 <= 80, table.title


def _margins(*values: float) -> list[Row]:
    where = {"dataset": "mine", "moment": "covariance", "region": "ring"}
    made = []
    for name in ("margin", "normalized margin"):
        made += [Row.of(name, value, "1", **where, distance=z) for z, value in enumerate(values, 1)]
        largest = values.index(max(values)) + 1
        made.append(Row.of(f"core distance by {name}", largest, "hops", **where))
    return made


def test_the_margins_are_read_in_a_sentence() -> None:
    assert "The total margin peaks at 1 hop, the margin per node" in diagnosis.reading(
        _margins(0.3, 0.2)
    )
    assert "The total margin peaks at 2 hops" in diagnosis.reading(_margins(0.2, 0.3))
    for second in (-0.2, 0.0):
        assert diagnosis.reading(_margins(0.0, second)).startswith("No distance has more nodes")
    assert diagnosis.reading([]) == ""


def test_models_of_the_same_mean_are_said_to_tie() -> None:
    assert "gt has the highest mean test accuracy: 80.00" in report().page().lead
    alone = [run("gt", seed, 0.8) for seed in (0, 1)]
    lead = report(alone).page().lead
    assert lead.startswith("On the random-60-20-20 split, gt has this mean test")
    of = {"gt": (0.8, 0.9), "gcn": (0.9, 0.8), "mlp": (0.85, 0.85), "gat": (0.5, 0.6)}
    alike = [run(model, seed, test) for model, own in of.items() for seed, test in enumerate(own)]
    tie = "gt, gcn and mlp tie: they have the highest mean test accuracy: 85.00 % over 2"
    assert tie in report(alike).page().lead


@pytest.mark.parametrize(("scores", "read"), [
    ({"gt": (0.90, 0.92), "gcn": (0.80, 0.86)}, "not clear"),  # 2 seeds: t = 12.7, and not 2
    ({"gt": (0.90, 0.91, 0.92), "gcn": (0.80, 0.81, 0.83)}, "ahead"),
    ({"gt": (0.7, 0.8), "gcn": (0.6, 0.7)}, "few seeds"),  # 2 seeds that differ alike
])  # fmt: skip
def test_the_picture_shows_the_interval_of_the_table(
    monkeypatch: pytest.MonkeyPatch, scores: dict[str, tuple[float, ...]], read: str
) -> None:
    drawn, draw = [], plot.paired_differences
    keep = lambda *given, **how: drawn.append(draw(*given, **how)) or drawn[-1]  # noqa: E731
    monkeypatch.setattr(plot, "paired_differences", keep)
    runs = [run(m, s, test) for m, own in scores.items() for s, test in enumerate(own)]
    found = replace(report(), runs=runs)
    found.page()
    (bar,) = drawn[0].axes[0].containers
    low, high = bar.lines[2][0].get_segments()[0][:, 0]
    (row,) = found.difference_table().rows
    mean, half = (float(part) for part in row[1].split(" ± "))
    assert (low, high) == pytest.approx((mean - half, mean + half), abs=0.01)
    assert row[3] == read and (bar.lines[0].get_color() == GRAY) == (
        read in ("not clear", "few seeds")
    )
