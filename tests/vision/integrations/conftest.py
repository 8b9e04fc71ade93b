import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).parents[3] / "benchmarks" / "tokens.py"


@pytest.fixture(scope="session")
def zoo() -> ModuleType:
    """Small models of transformers, those of the table of docs/transformers.md."""
    spec = importlib.util.spec_from_file_location("tokens", SCRIPT)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
