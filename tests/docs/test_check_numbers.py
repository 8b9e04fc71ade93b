"""Numbers of README and docs are those of committed rows, and the check fails where not."""

import re
import runpy
import sys
from pathlib import Path
from statistics import stdev
from types import SimpleNamespace

import pytest

from graphtheory.lab.bench.rows import Row
from graphtheory.papers.stats import student_interval

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def check() -> SimpleNamespace:
    return SimpleNamespace(**runpy.run_path(str(ROOT / "docs" / "check_numbers.py")))


def named(check: SimpleNamespace) -> dict[str, str]:
    return {str(page.relative_to(ROOT)): page.read_text("utf-8") for page in check.pages()}


def test_every_page_shows_its_rows(check: SimpleNamespace) -> None:
    found = {}
    for name, text in named(check).items():
        _, differences, found[name] = check.compared(text, name)
        assert not differences, "\n".join(map(str, differences))
    # Templates keep their comments; an edit that loses one is seen here.
    assert found["docs/tables/README.md"] >= 14
    results = sum(n for name, n in found.items() if name.startswith("docs/tables/results/"))
    assert results >= 1400 and not found["docs/results/chapter-2.md"]
    performance = sum(n for name, n in found.items() if name.startswith("docs/tables/performance"))
    assert performance >= 1000 and found["docs/tables/scale.md"] >= 150


def test_a_page_shows_the_tables_of_its_templates(check: SimpleNamespace) -> None:
    """The control: a digit of a table that differs from its template, and a table that is gone."""
    for name in ("README.md", "docs/node-benchmarks.md", "docs/results/chapter-2.md"):
        text = named(check)[name]
        table, begin, end = check.tables(text, name)[-1]
        digit = max(at for at in range(begin, end) if text[at].isdigit())
        wrong = text[:digit] + str(int(text[digit]) % 9 + 1) + text[digit + 1 :]
        anew, differences, _ = check.compared(wrong, name)
        assert [d.query for d in differences] == [f"table {table}"] and anew == text
        with pytest.raises(ValueError, match=f"has no table {table}"):
            check.compared(text[:begin].removesuffix(f"<!-- table: {table} -->\n\n"), name)


def test_no_page_has_more_results_without_a_row(check: SimpleNamespace) -> None:
    pages = named(check)
    assert set(check.UNMARKED) <= set(pages)
    for name, text in pages.items():
        without = check.unmarked(text, name)
        assert len(without) <= check.UNMARKED.get(name, 0), "\n".join(without)


def test_what_is_unmarked(check: SimpleNamespace) -> None:
    marked = "<!--= bench-cora; test accuracy; model=gt; % -->83.0 ± 0.7"
    assert [line.split(" in ")[0] for line in check.unmarked(marked)] == ["1: 0.7"]
    assert not check.unmarked("Figure 3.8 of `x=0.5`, 3 seeds [here](a-2.5.md), Li (2024, 3.4)")
    assert not check.unmarked("```\n0.5\n```\n# 2.5\n<!-- 1.5 -->")
    assert not check.unmarked("| 3.4 | figures 2.1a and 2.2: 95 % intervals | (Li 2024, 3.4) |")
    assert not check.unmarked("medians, quantiles 0.2 and 0.8")
    texts = "0.5; 3 times; 7 %; a ± 3; | row | 255 |; | a | 3.4 |; 95 % of; PyG 2.8, 3.5"
    for text in texts.split("; "):
        assert len(check.unmarked(text)) == 1, text


def test_deviations_are_those_of_the_repeats(check: SimpleNamespace) -> None:
    for values in ([1.0, 4.0], [1.0, 2.0, 7.0]):
        old = vars(Row.of("a", values, "1")) | {"std": ""}
        assert check._number(old, "std", "q") == pytest.approx(stdev(values))
        standard_error = stdev(values) / len(values) ** 0.5
        assert check._number(old, "se", "q") == pytest.approx(standard_error)
    new = vars(Row.of("a", [1.0, 2.0, 4.0, 9.0], "1"))
    assert check._number(new, "std", "q") == pytest.approx(stdev([1.0, 2.0, 4.0, 9.0]))
    half = student_interval([1.0, 2.0, 4.0, 9.0])[1]
    assert check._number(new, "ci", "q") == pytest.approx(half)
    with pytest.raises(ValueError, match="a row of 4 repeats without column std"):
        check._number(new | {"std": None}, "std", "q")


def test_settings_differences_ratios_and_means_of_rows(check: SimpleNamespace) -> None:
    query = "fig-7-3b; fig-7-3b examples needed"
    assert check.chosen(f"{query}; of tau") == [0.1, 0.25, 0.5]
    assert check.chosen(f"{query}; of error; %; most") == [5.0]
    with pytest.raises(ValueError, match="no parameter 'alpha'"):
        check.chosen(f"{query}; of alpha")
    query = "bench-cora; test accuracy; model="
    (gap,) = check.chosen(f"{query}gt; minus model=mlp")
    assert gap == check.chosen(f"{query}gt")[0] - check.chosen(f"{query}mlp")[0] > 0.1
    case = "encoding gt; case=cora-whole-graph"
    assert check.chosen(f"encoding-cora; {case}; minus encoding gt-plain")[0] > 0.3
    every = "fig-3-9-printed-cora; fig-3-9-printed test score; model=gcn; minus model=gt"
    gaps = check.chosen(every)
    assert len(gaps) == 4 and check.chosen(f"{every}; least most") == [min(gaps), max(gaps)]
    with pytest.raises(ValueError, match="deviation of a difference"):
        check.chosen(f"{query}gt; minus model=mlp; std")
    query = "bench-cora; test accuracy; model="
    (ratio,) = check.chosen(f"{query}gt; over model=mlp; %")  # a scale cancels
    assert ratio == pytest.approx(check.chosen(f"{query}gt")[0] / check.chosen(f"{query}mlp")[0])
    every = check.chosen("bench-cora; test accuracy")
    assert check.chosen("bench-cora; test accuracy; mean") == [pytest.approx(sum(every) / 5)]
    assert check.chosen("bench-cora; test accuracy; sum") == [pytest.approx(sum(every))]
    gaps = "fig-3-9-printed-cora; fig-3-9-printed test score; model=gcn; minus model=gt"
    assert check.chosen(f"{gaps}; mean") == [pytest.approx(sum(check.chosen(gaps)) / 4)]
    with pytest.raises(ValueError, match="deviation of a difference or ratio"):
        check.chosen(f"{query}gt; over model=mlp; std")


def test_every_digit_counts(check: SimpleNamespace) -> None:
    """The control: a number after a comment, changed by one in its last digit, is found."""
    for name, text in named(check).items():
        for marker in list(check.MARKER.finditer(text))[::7]:
            number = check.NUMBER.search(text, marker.end())
            shown = number["number"]
            zeros = re.search(r"[0,]*$", shown)[0] if "," in shown else ""
            kept = shown.removesuffix(zeros)
            changed = kept[:-1] + str(int(kept[-1]) % 9 + 1) + zeros
            wrong = text[: number.start()] + changed + text[number.end() :]
            anew, differences, _ = check.compared(wrong, name)
            assert [d.shown for d in differences] == [changed]
            assert anew == text, "written anew, it is what it was"


def test_generated_tables_count_and_formats_are_kept(check: SimpleNamespace) -> None:
    page = "docs/performance-details.md"
    text = (ROOT / page).read_text("utf-8")
    wrong = re.sub(r"(\| pubmed, 8 x 16 \| )[\d.]+", r"\g<1>99.9", text)
    assert wrong != text
    anew, differences, _ = check.compared(wrong, page)
    assert len(differences) == 1 and anew == text
    assert check.printed("83.0", 82.96) == "83.0"
    assert check.printed("+24.0", 1.25) == "+1.2"
    assert check.printed("\u22120.4", -0.36) == "\u22120.4"
    assert check.printed("15,250", 14_987.0) == "14,990"
    assert check.printed("3e-5", 2.8e-4) == "3e-4"
    assert check.agrees("15,250", 15_246.5) and not check.agrees("15,250", 15_256.0)
    assert check.agrees("100", 100.4) and not check.agrees("100", 101.0)
    line = "<!--= bench-cora; test accuracy; model=gt; % --> 83.0 ± 99 in fig-3 of 3.5b"
    assert check.compared(line) == (line, [], 1)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("<!--= nothing; x --> 1", "no file nothing.csv"),
        ("<!--= bench-cora; test accuracy; model=none --> 1", "chooses no row"),
        ("<!--= bench-cora; test accuracy; best --> 1", "option 'best'"),
        ("<!--= bench-cora; test accuracy; % --> 83.0", "1 numbers after .* expected 5"),
    ],
)
def test_a_query_that_cannot_be_right(check: SimpleNamespace, line: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check.compared(line)


def test_the_command_fails_where_a_page_differs(check, tmp_path, monkeypatch, capsys) -> None:
    names = check.main.__globals__
    page, template = tmp_path / "README.md", tmp_path / "docs" / "tables" / "README.md"
    template.parent.mkdir(parents=True)
    query, rows = "<!--= bench-cora; test accuracy; model=gt; % --> ", "| GT |\n|---|\n| {}84.0 |\n"
    template.write_text("# cora\n\n" + rows.format(query), encoding="utf-8")
    page.write_text("Cora:\n\n" + rows.format(""), encoding="utf-8")
    monkeypatch.setitem(names, "HERE", tmp_path / "docs")
    monkeypatch.setitem(names, "TEMPLATES", template.parent)
    monkeypatch.setattr(sys, "argv", ["check_numbers.py"])
    assert check.main() == 1
    assert "README.md:5: shows 84.0, expected 83.0" in capsys.readouterr().out
    monkeypatch.setattr(sys, "argv", ["check_numbers.py", "--write"])
    assert check.main() == 0
    assert f"{query}83.0" in template.read_text("utf-8")
    assert page.read_text("utf-8") == "Cora:\n\n| GT |\n|---|\n| 83.0 |\n"
    monkeypatch.setattr(sys, "argv", ["check_numbers.py"])
    assert check.main() == 0
