"""A command line in a folder of its own."""

from collections.abc import Callable
from pathlib import Path

import pytest

from graphtheory.lab.cli import main

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """A command line in a folder of its own -> (exit code, output, error output)."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GRAPHTHEORY_DATA", raising=False)

    def command(*words: str) -> tuple[int, str, str]:
        try:
            code = main(list(words))
        except SystemExit as leaving:
            code = int(leaving.code or 0)
        said = capsys.readouterr()
        return code, said.out, said.err

    return command
