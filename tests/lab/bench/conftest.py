from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

import pytest
import torch
from torch_geometric.data import Data
from torch_geometric.utils import to_undirected

from graphtheory import Neighborhood
from graphtheory.lab.bench import node_task
from graphtheory.lab.bench.config import Axes, RunConfig, ignores
from graphtheory.lab.bench.node_config import NodeRunConfig
from graphtheory.lab.bench.node_task import NodeBenchTask
from graphtheory.lab.bench.task import RunResult
from graphtheory.patterns import AtDistance

Listen = Callable[..., list[tuple[NodeRunConfig, int]]]


def decided_at(hops: int, nodes: int = 300) -> Data:
    """A graph of two kinds of nodes, whose majority at exactly that distance is a node's class."""
    draw = torch.Generator().manual_seed(0)
    ring, more = torch.arange(nodes), torch.randint(nodes, (2, nodes // 4), generator=draw)
    edges = torch.cat([torch.stack([ring, (ring + 1) % nodes]), more[:, more[0] != more[1]]], 1)
    edges = to_undirected(edges, num_nodes=nodes)
    kind = torch.randint(2, (nodes,), generator=draw)
    sources, targets = AtDistance(hops)(Neighborhood.from_edge_index(edges, nodes)).edge_index()
    votes = torch.zeros(nodes).index_add_(0, targets, 2.0 * kind[sources] - 1)
    x = torch.cat([torch.eye(2)[kind], torch.randn(nodes, 3, generator=draw)], 1)
    return Data(x=x, y=(votes > 0).long(), edge_index=edges)


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


AXES: dict[str, Sequence[Any]] = {
    "residual": (True, False), "hidden": (4, 8), "lr": (0.01, 0.1), "layers": (1, 2),
    "heads": (1, 2), "bias_lr": (None, 0.05),
}  # fmt: skip


@pytest.fixture
def small_space(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a search on the nodes of a graph may choose from here, for a few epochs."""
    own = {"residual": True, "hidden": 4, "lr": 0.01, "layers": 1, "heads": 1}

    def axes(kind: str, config: RunConfig) -> Axes:
        read = {name: values for name, values in AXES.items() if not ignores(config, name)}
        return {name: {v: {name: v} for v in values} for name, values in read.items()}

    def default(facts: Any, model: str, *_: Any) -> tuple[NodeRunConfig, int, int]:
        return NodeRunConfig.of(model, **own), 3, 3

    monkeypatch.setattr(node_task, "axes_of", axes)
    monkeypatch.setattr(node_task, "node_default", default)
