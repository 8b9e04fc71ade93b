from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One cache for all tests, so that a set is read from its raw files once."""
    return tmp_path_factory.mktemp("cache")
