"""A package whose names are imported when they are first used."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest

HEAD = (
    "import sys\nfrom typing import TYPE_CHECKING\nfrom graphtheory.lazy import import_when_used\n"
)
OTHER = "if sys.flags.quiet > 1:\n    from cmath import e\n"
GUARDED = "if TYPE_CHECKING:\n    from math import pi as circle\n    from math import tau\n"
NAME = "package_of_test_lazy"
Make = Callable[[str], ModuleType]


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    """Imports a package with these lines in its `__init__`."""

    def make(lines: str) -> ModuleType:
        (tmp_path / NAME).mkdir()
        (tmp_path / NAME / "__init__.py").write_text(f"{HEAD}{lines}import_when_used(__name__)\n")
        monkeypatch.syspath_prepend(tmp_path)
        return __import__(NAME)

    yield make
    sys.modules.pop(NAME, None)


@pytest.mark.parametrize("lines", [GUARDED, OTHER + GUARDED, GUARDED + OTHER])
def test_names_under_type_checking_are_imported_when_used(package: Make, lines: str) -> None:
    made = package(lines)
    assert "circle" not in vars(made) and {"circle", "tau"} <= set(dir(made))
    assert made.circle == 3.141592653589793 and "circle" in vars(made)
    for name in ("pi", "e"):
        with pytest.raises(AttributeError, match=f"{NAME}' has no attribute '{name}'"):
            getattr(made, name)


def test_a_package_without_the_block_is_refused(package: Make) -> None:
    with pytest.raises(ImportError, match=f"{NAME}: got no block, expected `if TYPE_CHECKING:`"):
        package(OTHER)
