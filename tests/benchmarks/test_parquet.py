"""The benchmark of Parquet files: small, with both kills and the limits of memory."""

import pytest

from tests.benchmarks.conftest import run


@pytest.mark.slow  # six processes that each import torch
def test_a_conversion_that_is_killed_twice_gives_the_same_files() -> None:
    pytest.importorskip("duckdb", reason="duckdb is not installed")
    told = run("parquet", "--quick")
    assert told.returncode == 0, told.stderr
    assert "files equal after two kills" in told.stdout and "100 steps" in told.stdout
