"""Training on Lightning: tasks on nodes and on images, their data as batches, and `fit`."""

from graphtheory.train.augment import Augmentation
from graphtheory.train.batch import NodeBatch
from graphtheory.train.checkpoint import CheckpointError, load_parameters, read_checkpoint
from graphtheory.train.contract import Evaluation, Source, Task
from graphtheory.train.contrastive import Infomax, Pretraining, SGDOptions, SimCLR, nt_xent
from graphtheory.train.fit import FitResult, fit
from graphtheory.train.full_graph import FullGraph
from graphtheory.train.gradient_descent import Algorithm1, gradient_descent
from graphtheory.train.hinge_trials import Algorithm4, HingeBatch, HingeTask, descend, train_hinge
from graphtheory.train.image_data import ImageBatch, ImageData
from graphtheory.train.image_task import ImageTask, Recipe
from graphtheory.train.noisy_sgd import Algorithm2, Perturbation, Regularizers
from graphtheory.train.pretrain import Rows, pretrain
from graphtheory.train.pruning import (
    AtRandom,
    ByMagnitude,
    PruningRule,
    kept_mask,
    neuron_norms,
    prune_neurons,
    while_pruned,
)
from graphtheory.train.sampled_graph import SampledGraph
from graphtheory.train.sampled_layers import SampledLayers
from graphtheory.train.sampled_trials import SampledTrials, Trial, TrialOptions
from graphtheory.train.task import AdamOptions, NodeTask
from graphtheory.train.tensor_init import TensorInit
from graphtheory.train.topology_sampling import SampledRun, train_on_samples
from graphtheory.train.views import GraphViews, ImageViews, Strengths

__all__ = [
    "AdamOptions",
    "Algorithm1",
    "Algorithm2",
    "Algorithm4",
    "AtRandom",
    "Augmentation",
    "ByMagnitude",
    "CheckpointError",
    "Evaluation",
    "FitResult",
    "FullGraph",
    "GraphViews",
    "HingeBatch",
    "HingeTask",
    "ImageBatch",
    "ImageData",
    "ImageTask",
    "ImageViews",
    "Infomax",
    "NodeBatch",
    "NodeTask",
    "Perturbation",
    "Pretraining",
    "PruningRule",
    "Recipe",
    "Regularizers",
    "Rows",
    "SGDOptions",
    "SampledGraph",
    "SampledLayers",
    "SampledRun",
    "SampledTrials",
    "SimCLR",
    "Source",
    "Strengths",
    "Task",
    "TensorInit",
    "Trial",
    "TrialOptions",
    "descend",
    "fit",
    "gradient_descent",
    "kept_mask",
    "load_parameters",
    "neuron_norms",
    "nt_xent",
    "pretrain",
    "prune_neurons",
    "read_checkpoint",
    "train_hinge",
    "train_on_samples",
    "while_pruned",
]
