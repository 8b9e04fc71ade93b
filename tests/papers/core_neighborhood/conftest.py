from dataclasses import replace

import pytest

from graphtheory.lab.datasets.embedded import CoreNeighborhoodGraph
from graphtheory.papers.core_neighborhood import training as core


@pytest.fixture
def small_graphs(monkeypatch: pytest.MonkeyPatch) -> None:
    def capped(graph: CoreNeighborhoodGraph) -> CoreNeighborhoodGraph:
        return replace(graph, num_nodes=120, degree=10)

    monkeypatch.setattr(core, "capped", capped)
