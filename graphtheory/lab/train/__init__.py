"""Training on Lightning: tasks on nodes, graphs, images and without labels, their data, `fit`."""

from typing import TYPE_CHECKING

from graphtheory.lazy import import_when_used

if TYPE_CHECKING:
    from graphtheory.lab.train.augment import Augmentation
    from graphtheory.lab.train.batch import NodeBatch
    from graphtheory.lab.train.checkpoint import CheckpointError, load_parameters, read_checkpoint
    from graphtheory.lab.train.contract import Evaluation, Source, Task
    from graphtheory.lab.train.contrastive import Infomax, Pretraining, SGDOptions, SimCLR, nt_xent
    from graphtheory.lab.train.fit import FitResult, fit
    from graphtheory.lab.train.full_graph import FullGraph
    from graphtheory.lab.train.graph_sets import GraphSets
    from graphtheory.lab.train.graph_task import GraphTask
    from graphtheory.lab.train.image_data import ImageBatch, ImageData
    from graphtheory.lab.train.image_task import ImageTask, Recipe
    from graphtheory.lab.train.in_context import Curriculum, Ramp, predictions, train_in_context
    from graphtheory.lab.train.sampled_graph import SampledGraph
    from graphtheory.lab.train.sampled_layers import SampledLayers
    from graphtheory.lab.train.task import AdamOptions, NodeTask
    from graphtheory.lab.train.unlabeled import Loaded, Unlabeled
    from graphtheory.lab.train.views import GraphViews, ImageViews, Strengths

__all__ = [
    "AdamOptions",
    "Augmentation",
    "CheckpointError",
    "Curriculum",
    "Evaluation",
    "FitResult",
    "FullGraph",
    "GraphSets",
    "GraphTask",
    "GraphViews",
    "ImageBatch",
    "ImageData",
    "ImageTask",
    "ImageViews",
    "Infomax",
    "Loaded",
    "NodeBatch",
    "NodeTask",
    "Pretraining",
    "Ramp",
    "Recipe",
    "SGDOptions",
    "SampledGraph",
    "SampledLayers",
    "SimCLR",
    "Source",
    "Strengths",
    "Task",
    "Unlabeled",
    "fit",
    "load_parameters",
    "nt_xent",
    "predictions",
    "read_checkpoint",
    "train_in_context",
]

import_when_used(__name__)
