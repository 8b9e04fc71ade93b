"""Training on Lightning: tasks on nodes, graphs and images, their data, and one `fit`."""

from typing import TYPE_CHECKING

from graphtheory.lazy import import_when_used

if TYPE_CHECKING:
    from graphtheory.lab.train.checkpoint import CheckpointError, load_parameters, read_checkpoint
    from graphtheory.lab.train.contract import AdamOptions, Evaluation, Source, Task
    from graphtheory.lab.train.fit import FitResult, TrainerOptions, fit
    from graphtheory.lab.train.graphs import GraphSets, GraphTask
    from graphtheory.lab.train.images import Augmentation, ImageBatch, ImageData, ImageTask, Recipe
    from graphtheory.lab.train.nodes import FullGraph, NodeBatch, NodeTask
    from graphtheory.lab.train.predict import predict, write_predictions
    from graphtheory.lab.train.sampled import SampledGraph, SampledLayers

__all__ = [
    "AdamOptions", "Augmentation", "CheckpointError", "Evaluation", "FitResult",
    "FullGraph", "GraphSets", "GraphTask", "ImageBatch", "ImageData", "ImageTask", "NodeBatch",
    "NodeTask", "Recipe", "SampledGraph", "SampledLayers", "Source", "Task",
    "TrainerOptions", "fit", "load_parameters", "predict", "read_checkpoint", "write_predictions",
]  # fmt: skip

import_when_used(__name__)
