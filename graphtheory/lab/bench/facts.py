"""What the options of models on a graph follow from."""

from __future__ import annotations

from dataclasses import dataclass

from graphtheory.lab.datasets.graphs import Data

_FEW_OF_A_CLASS, _FEW_OF_ALL = 50, 0.2
_FEW_COLUMNS = 64


@dataclass(frozen=True)
class Facts:
    """A graph in numbers; no label of validation or test is read.

    Attributes:
        nodes: All of them.
        edges: Directed ones.
        labels_per_class: Labeled training nodes, a class on average.
        labeled: Share of the nodes that are labeled for training.
        features: Columns of features.
    """

    nodes: int
    edges: int
    labels_per_class: float
    labeled: float
    features: int

    @property
    def few_of_a_class(self) -> bool:
        """Whether there are few labels to learn a class from: small graphs, citation graphs."""
        return self.labels_per_class < _FEW_OF_A_CLASS

    @property
    def few_labels(self) -> bool:
        """Whether most nodes, and most of what is learned, are without labels: citation graphs."""
        return self.few_of_a_class and self.labeled < _FEW_OF_ALL

    @property
    def few_columns(self) -> bool:
        """Whether no column can be done without: counts and attributes, in contrast to words."""
        return self.features < _FEW_COLUMNS

    @property
    def two_hops(self) -> float:
        """About how many pairs of nodes are within two hops."""
        return self.edges * self.edges / max(1, self.nodes)

    @classmethod
    def of(cls, data: Data) -> Facts:
        """Those of a graph with `train_mask` and `num_classes`."""
        labels, nodes = int(data.train_mask.sum()), int(data.num_nodes)
        return cls(
            nodes, int(data.num_edges), labels / int(data.num_classes), labels / nodes,
            int(data.x.size(1)),
        )  # fmt: skip
