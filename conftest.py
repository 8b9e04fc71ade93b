"""Which tests run: an option, and no docstrings of tests or of modules that lack their extra."""

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

_NEEDS = {
    "triton": "graphtheory/ops/backends/triton/*.py",
    "transformers": "graphtheory/vision/integrations/hf_*.py",
}
_TESTS = Path(__file__).with_name("tests")
collect_ignore_glob = [path for name, path in _NEEDS.items() if not find_spec(name)]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--first-case`."""
    parser.addoption(
        "--first-case", action="store_true", help="run only the first case of each test"
    )


@pytest.hookimpl(wrapper=True)
def pytest_collect_file(file_path: Path) -> Any:
    """Tests have no examples in docstrings: to look for some takes seconds."""
    found = yield
    if file_path.is_relative_to(_TESTS):
        found = [one for one in found if type(one).__name__ != "DoctestModule"]
    return found


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Of a test with many cases leave the first, where this is asked for."""
    if config.getoption("--first-case"):
        first: dict[str, pytest.Item] = {}
        dropped = [i for i in items if first.setdefault(i.nodeid.partition("[")[0], i) is not i]
        config.hook.pytest_deselected(items=dropped)
        items[:] = first.values()
