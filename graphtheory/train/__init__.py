"""Training on Lightning: a node task, a graph as batches, and `fit`."""

from graphtheory.train.batch import NodeBatch
from graphtheory.train.checkpoint import CheckpointError, load_parameters, read_checkpoint
from graphtheory.train.fit import FitResult, fit
from graphtheory.train.full_graph import FullGraph
from graphtheory.train.sampled_graph import SampledGraph
from graphtheory.train.task import AdamOptions, Evaluation, NodeTask

__all__ = [
    "AdamOptions",
    "CheckpointError",
    "Evaluation",
    "FitResult",
    "FullGraph",
    "NodeBatch",
    "NodeTask",
    "SampledGraph",
    "fit",
    "load_parameters",
    "read_checkpoint",
]
