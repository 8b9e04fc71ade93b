"""Training on Lightning: a node task, a graph as batches, and `fit`."""

from graphtheory.train.batch import NodeBatch
from graphtheory.train.fit import FitResult, fit
from graphtheory.train.full_graph import FullGraph
from graphtheory.train.task import AdamOptions, Evaluation, NodeTask

__all__ = [
    "AdamOptions",
    "Evaluation",
    "FitResult",
    "FullGraph",
    "NodeBatch",
    "NodeTask",
    "fit",
]
