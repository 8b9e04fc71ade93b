"""The first page: short, its output that of the committed rows, its names and links there."""

import importlib
import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_it_is_read_in_two_minutes_and_installs_without_another_index() -> None:
    assert len(README.splitlines()) <= 116
    snippet = re.findall(r"^```python\n(.*?)^```", README, flags=re.MULTILINE | re.DOTALL)[0]
    assert len([line for line in snippet.splitlines() if line]) <= 12
    assert "pip install ." in README and "uv pip install ." in README
    assert "index-url" not in README and "--find-links" not in README


def test_the_printed_output_is_that_of_the_rows() -> None:
    check = runpy.run_path(str(ROOT / "docs" / "check_numbers.py"))
    of = {"score": "test accuracy", "gap": "paired difference of test accuracy, gt - model"}
    names, number = r"(gt|gt-plain|gcn-res|mlp)(?: \(!\))?", r"(\+?\d+\.\d+)"
    shown = re.findall(rf"^│ {names} +│ +{number} ± {number} │", README, re.M)
    gaps = re.findall(rf"^│ gt - (\S+) +│ +{number} ± {number} │", README, re.M)
    assert len(shown) == 4 and len(gaps) == 3
    for what, spread, found in (("score", "std", shown), ("gap", "se", gaps)):
        for model, *numbers in found:
            query = f"bench-core-distance; {of[what]}; model={model}; %; value {spread}"
            for told, value in zip(numbers, check["chosen"](query), strict=True):
                assert check["agrees"](told, value), (what, model, told, value)


def test_the_verdicts_on_group_imbalance_are_counted() -> None:
    page = (ROOT / "docs" / "results" / "chapter-4.md").read_text(encoding="utf-8")
    found = [line.split("|")[3] for line in page.splitlines() if line.startswith("| 4.")]
    partly = [f for f in found if f.startswith(" Reproduced in part.")]
    holds = [f for f in found if re.match(r" Reproduced[.,]", f)]
    told = f"of {len(found)} figures {len(holds)} hold, {len(partly)} in part, "
    assert told + f"{len(found) - len(holds) - len(partly)} not" in README


@pytest.mark.parametrize("link", sorted(set(re.findall(r"\]\((?!http)([^)#]+)[^)]*\)", README))))
def test_a_link_leads_somewhere(link: str) -> None:
    assert (ROOT / link).exists()


def test_names_of_the_table_can_be_imported() -> None:
    rows = [line.split("|")[2] for line in README.splitlines() if line.count("|") == 5]
    names = [n for row in rows for n in re.findall(r"`([a-z_.]+\.[A-Za-z_]+)`", row)]
    assert len(names) >= 12
    for name in names:
        module, _, attribute = f"graphtheory.{name}".rpartition(".")
        try:
            if not hasattr(importlib.import_module(module), attribute):
                importlib.import_module(f"{module}.{attribute}")
        except ModuleNotFoundError as missing:
            if str(missing.name).startswith("graphtheory"):
                raise  # any other is of an optional package
