"""What editors show of the library; `types_of_users.py` is what type checkers know of it."""

import pydoc
from pathlib import Path

import pytest

import graphtheory


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("bench", ["bench(", "data: 'str | PathLike", "seeds: 'int' = 3", "-> 'Comparison'"]),
        ("accelerate", ["accelerate(", "model: 'nn.Module'", "report: 'Any' = None"]),
    ],
)
def test_help_shows_the_arguments(name: str, arguments: list[str]) -> None:
    told = pydoc.render_doc(getattr(graphtheory, name), renderer=pydoc.plaintext)
    assert [argument for argument in arguments if argument not in told] == []


def test_dir_shows_what_there_is_and_nothing_else() -> None:
    folder = Path(graphtheory.__file__).parent
    parts = {path.parent.name for path in folder.glob("*/__init__.py")}
    assert set(dir(graphtheory)) == {*graphtheory.__all__, *parts, "__version__"}
    for name in dir(graphtheory):
        assert getattr(graphtheory, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = graphtheory.nothing
