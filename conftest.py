"""Which tests run: an option, and no docstrings of modules whose extra is not installed."""

from importlib.util import find_spec

import pytest

_NEEDS = {
    "triton": "graphtheory/ops/backends/triton/*.py",
    "transformers": "graphtheory/vision/integrations/hf_*.py",
}
collect_ignore_glob = [path for name, path in _NEEDS.items() if not find_spec(name)]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--first-case`."""
    parser.addoption(
        "--first-case", action="store_true", help="run only the first case of each test"
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Of a test with many cases leave the first, where this is asked for."""
    if config.getoption("--first-case"):
        first: dict[str, pytest.Item] = {}
        dropped = [i for i in items if first.setdefault(i.nodeid.partition("[")[0], i) is not i]
        config.hook.pytest_deselected(items=dropped)
        items[:] = first.values()
