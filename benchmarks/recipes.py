"""Published recipes beside what the same trainings gave here, as tables in Markdown.

    python benchmarks/recipes.py

It trains nothing: `graphtheory bench --recipe NAME --resume --out benchmarks/results` adds runs to
benchmarks/results/recipes.csv, one row each, whose means these tables show.
"""

from __future__ import annotations

from pathlib import Path

from graphtheory.lab.bench.recipes import COLUMNS, Verdict, verdicts

RESULTS = Path(__file__).parent / "results"


def _made(columns: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    lines = [columns, ("---",) * len(columns), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _all() -> list[Verdict]:
    return verdicts(RESULTS)


def repeated() -> str:
    """Recipes of others that were run here."""
    rows = [(*v.cells(), v.recipe.others) for v in _all() if v.runs]
    return _made((*COLUMNS, "what others found"), rows)


def waiting() -> str:
    """Recipes that can be run, of which there are no runs yet."""
    rows = [
        (*v.cells()[:2], v.recipe.others) for v in _all() if not v.runs and not v.recipe.missing
    ]
    return _made(("recipe", "published", "what others found"), rows)


def only_read() -> str:
    """Recipes that were read and checked, and cannot be run here."""
    rows = [(*v.cells()[:2], v.recipe.missing, v.recipe.others) for v in _all() if v.recipe.missing]
    return _made(("recipe", "published", "what is missing here", "what others found"), rows)


if __name__ == "__main__":
    for made in (repeated, waiting, only_read):
        print(f"{made.__doc__}\n\n{made()}\n")
