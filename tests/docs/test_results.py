"""Pages are short, their text holds no queries, and each claim has an outcome."""

import re
import runpy
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
PAGES = sorted((DOCS / "results").glob("*.md"))
MOST_LINES = {"performance": 150, "scale": 350}  # other pages below: 200
SHORT = ("results", "node-benchmarks", "scale", "transformers")
LONG = re.compile(r"[|!]|    |\d+\. model: ")
OUTCOME = re.compile("Reproduced|Not reproduced|Only the direction is reproduced|Undecided")


def faults(text: str, most_lines: int = 200) -> list[str]:
    """Lines of a page that break its rules; errors that a script prints may be longer."""
    out = [line for line in text.splitlines() if "<!--=" in line]
    out += [line for line in text.splitlines() if len(line) > 120 and not LONG.match(line)]
    return out + [f"{text.count(chr(10))} lines"] * (text.count("\n") > most_lines)


def test_faults_are_seen() -> None:
    assert not faults("short\n| " + 200 * "x" + " |\n")
    query = "<!--= bench-cora; test accuracy; model=gt --> 83.0"
    for text in (121 * "x", query, f"| {query} |", 201 * "x\n"):
        assert len(faults(text)) == 1


@pytest.mark.parametrize(
    "page",
    [*(DOCS / f"{name}.md" for name in SHORT), *sorted(DOCS.glob("performance*.md")), *PAGES],
    ids=lambda page: page.stem,
)
def test_a_page_is_short_and_plain(page: Path) -> None:
    assert not faults(page.read_text("utf-8"), MOST_LINES.get(page.stem, 200))


def test_only_templates_hold_queries() -> None:
    written = [p for p in DOCS.rglob("*.md") if not p.parent.name.startswith("_")]
    pages = [p for p in written if DOCS / "tables" not in p.parents]
    assert len(pages) > 50
    for page in [DOCS.parent / "README.md", *pages]:
        assert "<!--=" not in page.read_text("utf-8"), page


def test_the_overview_names_every_page() -> None:
    overview = (DOCS / "results.md").read_text("utf-8")
    assert len(overview.splitlines()) <= 60
    assert set(re.findall(r"\]\(results/([a-z\d-]+)\.md\)", overview)) == {p.stem for p in PAGES}


def test_every_outcome_begins_with_a_verdict() -> None:
    verdicts = runpy.run_path(str(DOCS / "generate.py"))["verdicts"]
    found = verdicts("\n".join(page.read_text("utf-8") for page in PAGES))
    outcomes = [outcome for told in found.values() for _, outcome in told]
    assert len(outcomes) >= 60
    assert not [outcome for outcome in outcomes if not OUTCOME.match(outcome)]
