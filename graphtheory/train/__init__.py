"""Training on Lightning: tasks on nodes, graphs, images and without labels, their data, `fit`."""

from graphtheory.train.augment import Augmentation
from graphtheory.train.batch import NodeBatch
from graphtheory.train.checkpoint import CheckpointError, load_parameters, read_checkpoint
from graphtheory.train.contract import Evaluation, Source, Task
from graphtheory.train.contrastive import Infomax, Pretraining, SGDOptions, SimCLR, nt_xent
from graphtheory.train.fit import FitResult, fit
from graphtheory.train.full_graph import FullGraph
from graphtheory.train.graph_sets import GraphSets
from graphtheory.train.graph_task import GraphTask
from graphtheory.train.image_data import ImageBatch, ImageData
from graphtheory.train.image_task import ImageTask, Recipe
from graphtheory.train.in_context import Curriculum, Ramp, predictions, train_in_context
from graphtheory.train.sampled_graph import SampledGraph
from graphtheory.train.sampled_layers import SampledLayers
from graphtheory.train.task import AdamOptions, NodeTask
from graphtheory.train.unlabeled import Loaded, Unlabeled
from graphtheory.train.views import GraphViews, ImageViews, Strengths

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
