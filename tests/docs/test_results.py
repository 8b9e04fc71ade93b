"""Pages of results are short, their prose holds no queries, and each claim has an outcome."""

import re
import runpy
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
PAGES = sorted((DOCS / "results").glob("*.md"))
OUTCOME = re.compile("Reproduced|Not reproduced|Only the direction is reproduced|Undecided")


def faults(text: str) -> list[str]:
    """Lines of a page that break its rules."""
    prose = [line for line in text.splitlines() if not line.startswith(("|", "!", "    "))]
    out = [line for line in prose if len(line) > 120 or "<!--=" in line]
    return out + [f"{text.count(chr(10))} lines"] * (text.count("\n") > 200)


def test_faults_are_seen() -> None:
    assert not faults("short\n| " + 200 * "x" + " |\n")
    for text in (121 * "x", "<!--= bench-cora; test accuracy; model=gt --> 83.0", 201 * "x\n"):
        assert len(faults(text)) == 1


@pytest.mark.parametrize(
    "page", [DOCS / "results.md", DOCS / "node-benchmarks.md", *PAGES], ids=lambda page: page.stem
)
def test_a_page_is_short_and_plain(page: Path) -> None:
    assert not faults(page.read_text("utf-8"))


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
