"""Training on Lightning: a node task, a graph as batches, and `fit`."""

from graphtheory.train.batch import NodeBatch
from graphtheory.train.checkpoint import CheckpointError, load_parameters, read_checkpoint
from graphtheory.train.contrastive import Infomax, Pretraining, SGDOptions, SimCLR, nt_xent
from graphtheory.train.fit import FitResult, fit
from graphtheory.train.full_graph import FullGraph
from graphtheory.train.hinge_trials import Algorithm4, HingeTask, train_hinge
from graphtheory.train.noisy_sgd import Algorithm2, Perturbation, Regularizers
from graphtheory.train.pretrain import Rows, pretrain
from graphtheory.train.sampled_graph import SampledGraph
from graphtheory.train.sampled_layers import SampledLayers
from graphtheory.train.sampled_trials import SampledTrials, Trial, TrialOptions
from graphtheory.train.task import AdamOptions, Evaluation, NodeTask
from graphtheory.train.topology_sampling import SampledRun, train_on_samples
from graphtheory.train.views import Augmentation, GraphViews, ImageViews

__all__ = [
    "AdamOptions",
    "Algorithm2",
    "Algorithm4",
    "Augmentation",
    "CheckpointError",
    "Evaluation",
    "FitResult",
    "FullGraph",
    "GraphViews",
    "HingeTask",
    "ImageViews",
    "Infomax",
    "NodeBatch",
    "NodeTask",
    "Perturbation",
    "Pretraining",
    "Regularizers",
    "Rows",
    "SGDOptions",
    "SampledGraph",
    "SampledLayers",
    "SampledRun",
    "SampledTrials",
    "SimCLR",
    "Trial",
    "TrialOptions",
    "fit",
    "load_parameters",
    "nt_xent",
    "pretrain",
    "read_checkpoint",
    "train_hinge",
    "train_on_samples",
]
