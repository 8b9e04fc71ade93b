"""What a reader types into the search of the site finds the page that answers it."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

DOCS = Path(__file__).parents[2] / "docs"
WANTED = {
    "speed up GAT": "tutorials/speed-up",
    "faster ViT": "tutorials/sparse-vit",
    "train on CSV": "howto/own-data",
    "wandb": "faq",
    "ogbg-molhiv": "howto/graph-prediction",
    "Windows": "install",
    "Hugging Face Hub": "howto/save-and-resume",
}


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
            pages &= {
                n for place in places for n in (place if isinstance(place, list) else [place])
            }
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
