"""What an installation weighs is the sum of its files."""

import runpy
from pathlib import Path

import pytest

from tests.benchmarks.conftest import BENCHMARKS


def test_size_counts_files_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    size = runpy.run_path(str(BENCHMARKS / "install.py"))["size"]
    (tmp_path / "inner").mkdir()
    (tmp_path / "one").write_bytes(bytes(1_000_000))
    (tmp_path / "inner" / "two").write_bytes(bytes(500_000))
    (tmp_path / "link").symlink_to(tmp_path / "one")
    assert size(tmp_path) == pytest.approx(1.5)
