"""The Python of the documentation runs, page by page."""

import importlib
import re
import runpy
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
BLOCK = re.compile(r"^```python\n(.*?)^```", flags=re.MULTILINE | re.DOTALL)
PAGES = sorted(
    p
    for p in DOCS.rglob("*.md")
    if not {"_build", "_generated"} & set(p.parts) and BLOCK.search(p.read_text("utf-8"))
)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_python_of_a_page_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = page.read_text(encoding="utf-8")
    for package in re.findall(r"<!-- needs: (\w+) -->", text):
        pytest.importorskip(package, reason=f"needs {package}, which is not installed")
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": "page"}
    for block in BLOCK.findall(text):
        exec(block, names)


@pytest.mark.parametrize("folder", ["tutorials", "howto"])
def test_every_page_has_python(folder: str) -> None:
    assert {p.stem for p in PAGES} >= {p.stem for p in (DOCS / folder).glob("*.md")}


def test_the_reference_has_every_name_once_and_the_first_layer_first() -> None:
    made = runpy.run_path(str(DOCS / "generate.py"))
    for package in made["GROUPS"]:
        shown = re.findall(rf"^\.\. auto\w+:: {package}\.(\w+)$", made["reference"](package), re.M)
        assert sorted(shown) == sorted(importlib.import_module(package).__all__)
        page = "".join(p.read_text("utf-8") for p in (DOCS / "api").glob("*.md"))
        assert f"/{package}.txt\n" in page
        if package == "graphtheory.nn":
            assert shown[0] == "SPDTransformerConv"


@pytest.mark.parametrize(
    "page",
    sorted([*(DOCS / "tutorials").glob("*.md"), *(DOCS / "howto").glob("*.md")]),
    ids=lambda page: page.stem,
)
def test_a_tutorial_or_howto_has_a_picture(page: Path) -> None:
    shown = re.findall(r"^!\[(.+)\]\((.+)\)$", page.read_text("utf-8"), flags=re.MULTILINE)
    assert shown and all((page.parent / path).is_file() for _, path in shown)
    if page.parent.name == "howto":
        assert all(text.endswith(".") and " " in text for text, _ in shown)  # a sentence


def test_a_name_that_two_nodes_have_is_refused(tmp_path: Path, monkeypatch) -> None:
    made, read, *_ = BLOCK.findall((DOCS / "howto/own-data.md").read_text("utf-8"))
    monkeypatch.chdir(tmp_path)
    exec(made, {})
    with Path("nodes.csv").open("a") as file:
        file.write("n0,Rome,1.0,gold\n")
    with pytest.raises(ValueError, match=r"n0.* occur twice"):
        exec(read, {})
