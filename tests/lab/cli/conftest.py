from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from graphtheory.lab.bench import node_task
from graphtheory.lab.bench.node_config import NodeRunConfig
from graphtheory.lab.cli import main
from tests.lab.drawing import one_picture_of_a_kind

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(autouse=True, scope="module")
def _pictures() -> Iterator[None]:
    with one_picture_of_a_kind():
        yield


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


@pytest.fixture
def small_space(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few and quick candidates for every search on a graph."""
    default = {"hidden": 4, "lr": 0.01, "residual": True}
    values = {name: (default[name], 2 * default[name]) for name in ("hidden", "lr")}
    axes = {name: {v: {name: v} for v in of} for name, of in values.items()}
    monkeypatch.setattr(node_task, "axes_of", lambda *_: axes)
    chosen = lambda _, model, *__: (NodeRunConfig.of(model, **default), 2, 2)  # noqa: E731
    monkeypatch.setattr(node_task, "node_default", chosen)
