"""What the options of models on a graph follow from."""

from __future__ import annotations

from dataclasses import dataclass

from graphtheory.data.graphs import Data


@dataclass(frozen=True)
class Facts:
    """A graph in numbers; no label of validation or test is read.

    Attributes:
        nodes: All of them.
        edges: Directed ones.
        labels_per_class: Labeled training nodes, a class on average.
    """

    nodes: int
    edges: int
    labels_per_class: float

    @property
    def two_hops(self) -> float:
        """About how many pairs of nodes are within two hops."""
        return self.edges * self.edges / max(1, self.nodes)

    @classmethod
    def of(cls, data: Data) -> Facts:
        """Those of a graph with `train_mask` and `num_classes`."""
        labels = int(data.train_mask.sum()) / int(data.num_classes)
        return cls(int(data.num_nodes), int(data.num_edges), labels)
