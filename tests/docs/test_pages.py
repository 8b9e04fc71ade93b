"""Pages run, are short and are found by a search; notebooks and pictures are as they were made."""

import importlib
import json
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from matplotlib.image import imread

DOCS = Path(__file__).parents[2] / "docs"
BLOCK = re.compile(r"^```python\n(.*?)^```", flags=re.MULTILINE | re.DOTALL)
STEP = re.compile(rf"^<!-- needs: (\w+) -->|{BLOCK.pattern}", flags=BLOCK.flags)
WRITTEN = (p for p in DOCS.rglob("*.md") if not {"_build", "_generated"} & set(p.parts))
PAGES = sorted(p for p in WRITTEN if BLOCK.search(p.read_text("utf-8")))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_python_of_a_page_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": "page"}
    for package, block in STEP.findall(page.read_text(encoding="utf-8")):
        if package:  # which the blocks below need
            pytest.importorskip(package, reason=f"needs {package}, which is not installed")
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


RESULTS = sorted((DOCS / "results").glob("*.md"))
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
    [*(DOCS / f"{name}.md" for name in SHORT), *sorted(DOCS.glob("performance*.md")), *RESULTS],
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
    assert set(re.findall(r"\]\(results/([a-z\d-]+)\.md\)", overview)) == {p.stem for p in RESULTS}


def test_every_outcome_begins_with_a_verdict() -> None:
    verdicts = runpy.run_path(str(DOCS / "generate.py"))["verdicts"]
    found = verdicts("\n".join(page.read_text("utf-8") for page in RESULTS))
    outcomes = [outcome for told in found.values() for _, outcome in told]
    assert len(outcomes) >= 60
    assert not [outcome for outcome in outcomes if not OUTCOME.match(outcome)]


WANTED = {
    "speed up GAT": "tutorials/speed-up", "faster ViT": "tutorials/sparse-vit",
    "train on CSV": "howto/own-data", "wandb": "faq", "ogbg-molhiv": "howto/graph-prediction",
    "Windows": "install", "Hugging Face Hub": "howto/save-and-resume",
}  # fmt: skip


@pytest.fixture(scope="module")
def index() -> dict[str, Any]:
    path = DOCS / "_build" / "html" / "searchindex.js"
    if not path.is_file():
        pytest.skip("needs the built site: make docs")
    return json.loads(path.read_text("utf-8").removeprefix("Search.setIndex(").removesuffix(")"))


def found(index: dict[str, Any], query: str) -> set[str]:
    """The pages that have every word of a query, in their text or titles, as Sphinx's search."""
    search = pytest.importorskip("sphinx.search.en", reason="needs sphinx")
    language = search.SearchEnglish({})
    pages = set(range(len(index["docnames"])))
    for word in re.findall(r"\w+", query.lower()):
        if len(word) > 2 and word not in language.stopwords:
            stem = language.stem(word)
            places = [index[where].get(stem, []) for where in ("terms", "titleterms")]
            found = (place if isinstance(place, list) else [place] for place in places)
            pages &= {n for pages_of_word in found for n in pages_of_word}
    return {index["docnames"][page] for page in pages}


@pytest.mark.parametrize("query", WANTED)
def test_a_search_finds_the_page(index: dict[str, Any], query: str) -> None:
    assert WANTED[query] in found(index, query)
    assert not found(index, f"{query} zyzzyva")


def test_each_page_of_prose_is_there_as_markdown_and_listed() -> None:
    site = DOCS / "_build" / "html"
    if not site.is_dir():
        pytest.skip("needs the built site: make docs")
    listed = re.findall(r"^- \[.*?\]\(([^)]+)\):", (site / "llms.txt").read_text("utf-8"), re.M)
    assert len(listed) > 40 and "tutorials/speed-up.md" in listed
    assert [page for page in listed if not (site / page).is_file()] == []


NOTEBOOKS = sorted((DOCS / "notebooks").glob("*.ipynb"))
# Of processor time, which a busy machine hardly changes; kernels compiled anew included.
SECONDS = 60


def printed(notebook: object) -> list[str]:
    """What each cell prints and the kinds of its other outputs, numbers aside.

    Numbers differ from machine to machine, and where a stream is cut into pieces by chance.
    """
    out = []
    for cell in notebook.cells:
        outputs = cell.get("outputs", [])
        text = "".join(o["text"] for o in outputs if o.get("name") == "stdout")
        out.append(re.sub(r"[\d.]+", "#", text))
        out += [" ".join(sorted(o["data"])) for o in outputs if "data" in o]
    return [text for text in out if text]


@pytest.mark.timeout(300)  # wall-clock time, of which a busy machine takes more
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_as_kept_within_a_minute(path: Path, monkeypatch) -> None:
    pytest.importorskip("nbclient", reason="needs nbclient, which is not installed")
    pytest.importorskip("ipykernel", reason="needs ipykernel, which is not installed")
    monkeypatch.setenv("PYTHONPATH", os.environ.get("PYTHONPATH", ""))  # put back afterwards
    run = runpy.run_path(str(DOCS / "run_notebooks.py"))
    kept = run["nbformat"].read(path, as_version=4)
    now, seconds = run["executed"](path)
    assert 0.5 < seconds < SECONDS, f"{path.name}: {seconds:.1f} s of processor time"
    assert printed(kept) == printed(now)
    assert any("image/png" in text for text in printed(kept))


def test_time_is_that_of_processes_that_ended() -> None:
    """The control: a child that computes for a while is seen, one that sleeps is not."""
    pytest.importorskip("nbclient", reason="needs nbclient, which is not installed")
    children_seconds = runpy.run_path(str(DOCS / "run_notebooks.py"))["children_seconds"]
    busy = "import time\nwhile time.process_time() < 1: pass"
    for code, low, high in ((busy, 0.9, 2), ("import time; time.sleep(1)", -1, 0.9)):
        before = children_seconds()
        subprocess.run([sys.executable, "-S", "-c", code], check=True)
        assert low < children_seconds() - before < high


def test_there_are_three_small_ones() -> None:
    assert len(NOTEBOOKS) == 3
    for path in NOTEBOOKS:
        text = path.read_text(encoding="utf-8")
        assert len(text) < 200_000
        assert "site-packages" not in text and "stderr" not in text  # no path of a machine


PICTURES = Path(__file__).parents[2] / "docs" / "pictures"


@pytest.mark.parametrize("script", sorted(PICTURES.glob("*.py")), ids=lambda script: script.stem)
def test_a_picture_is_drawn_as_committed(script: Path, tmp_path, monkeypatch) -> None:
    several = script.stem == "howto"  # draws a picture for each of many pages into a folder
    kept = sorted(PICTURES.glob("howto-*.png")) if several else [script.with_suffix(".png")]
    made = tmp_path if several else tmp_path / kept[0].name
    monkeypatch.setattr("sys.argv", [str(script), str(made)])
    runpy.run_path(str(script), run_name="__main__")
    assert sorted(path.name for path in tmp_path.iterdir()) == [path.name for path in kept]
    for path in kept:
        now, then = imread(tmp_path / path.name), imread(path)
        assert now.shape == then.shape
        # Fonts and line joins differ between versions, not more.
        assert abs(now - then).mean() < 0.02, path.name
