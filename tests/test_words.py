"""The words that CONTRIBUTING asks for: pages, docstrings and messages have none of the others."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
RULES = {"CONTRIBUTING.md", "CHANGELOG.md"}  # which name the words, or names of before
FILES = sorted(
    path
    for pattern in ("*.md", "docs/**/*.md", "graphtheory/**/*.py", "graphtheory/**/*.md")
    for path in ROOT.glob(pattern)
    if path.name not in RULES and not {"_build", "_generated"} & set(path.parts)
)
BAD = re.compile(
    r"\b(senders?|receivers?|hears|listens|neighbourhoods?|cent(?:re|red)|colours?"
    r"|normali(?:se|sed|ses|sing)|labell(?:ed|ing)|modell(?:ed|ing)|behaviours?"
    r"|hangs? on|numbers? an edge|so many|of before|not any more|the caller owns)\b"
)

# Short words that only who knows the project understands at once; prose for users has others.
VAGUE = re.compile(r"\b(beside|set aside|take[ns]? up(?! to)|goes? on|as it is)\b")
FOR_USERS = [path for path in FILES if path.suffix == ".md"]


@pytest.mark.parametrize("folder", ["", "docs", "graphtheory"])
def test_no_text_has_a_word_that_is_not_ours(folder: str) -> None:
    found = []
    for path in FILES:
        relative = path.relative_to(ROOT)
        if (relative.parts[0] if len(relative.parts) > 1 else "") != folder:
            continue
        text = path.read_text(encoding="utf-8")
        for match in BAD.finditer(text):
            line = text.count("\n", 0, match.start()) + 1
            found.append(f"{relative}:{line}: {match[0]}")
    assert not found, "\n".join(found)


def test_pages_and_help_texts_say_it_plainly() -> None:
    found = []
    for path in FOR_USERS:
        if "tables" in path.parts or "backends" in path.parts:  # templates, and notes on kernels
            continue
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            made = line.startswith("|")  # rows of tables come from other files
            if not made and (match := VAGUE.search(line)):
                found.append(f"{path.relative_to(ROOT)}:{number}: {match[0]}")
    assert not found, "\n".join(found)
    assert VAGUE.search("ours beside PyG's") and not VAGUE.search("it takes up to an hour")


def test_a_word_of_the_list_is_noticed() -> None:
    for text in ("a neighbourhood", "the senders", "it hangs on the type", "one number an edge"):
        assert BAD.search(text), text
    assert not BAD.search("neighborhoods of centers, normalized and labeled")
