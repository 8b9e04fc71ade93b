from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

from graphtheory.lab.bench import node_task
from graphtheory.lab.bench.config import RunResult
from graphtheory.lab.bench.node_config import NodeRunConfig
from graphtheory.lab.bench.node_task import NodeBenchTask
from graphtheory.lab.bench.task import Space

Listen = Callable[..., list[tuple[NodeRunConfig, int]]]


def nearly(rows: Any) -> Any:
    """Equal to rows whose floats are the same but for rounding.

    BLAS sums in an order that depends on where in memory a matrix lies, so a second run in the same
    process need not give the same bits.
    """
    match rows:
        case dict():
            return {name: nearly(value) for name, value in rows.items()}
        case list() | tuple():
            return type(rows)(nearly(value) for value in rows)
        case float():
            return pytest.approx(rows, rel=1e-3, abs=1e-5)
    return rows


@pytest.fixture
def listen(monkeypatch: pytest.MonkeyPatch) -> Listen:
    """`listen(module)` is a list that every training the module asks for is added to.

    Without a module these are the trainings that benchmarks and searches ask for.
    """

    def to(module: ModuleType | None = None) -> list[tuple[NodeRunConfig, int]]:
        heard: list[tuple[NodeRunConfig, int]] = []
        target, name = (NodeBenchTask, "run") if module is None else (module, "train_nodes")
        train = getattr(target, name)

        def told(*given: Any, seed: int, **options: Any) -> RunResult:
            heard.append((next(one for one in given if isinstance(one, NodeRunConfig)), seed))
            return train(*given, seed=seed, **options)

        monkeypatch.setattr(target, name, told)
        return heard

    return to


@pytest.fixture
def small_space(monkeypatch: pytest.MonkeyPatch) -> Space:
    """What a search on the karate club may choose from here; a few epochs, two splits."""
    space = Space(
        config=NodeRunConfig,
        epochs=3,
        patience=3,
        search_seeds=2,
        shared={"residual": (True, False), "hidden": (4, 8), "lr": (0.01, 0.1), "layers": (1, 2)},
        extra={"gt": {"heads": (1, 2), "bias_lr": (None, 0.05)}},
    )
    monkeypatch.setattr(node_task, "node_space", lambda *_: space)
    return space
