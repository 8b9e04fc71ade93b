"""Training on Lightning: a node task, a graph as batches, and `fit`."""

from graphtheory.train.batch import NodeBatch
from graphtheory.train.checkpoint import CheckpointError, load_parameters, read_checkpoint
from graphtheory.train.fit import FitResult, fit
from graphtheory.train.full_graph import FullGraph
from graphtheory.train.gradient_descent import Algorithm1, gradient_descent
from graphtheory.train.hinge_trials import Algorithm4, HingeTask, train_hinge
from graphtheory.train.noisy_sgd import Algorithm2, Perturbation, Regularizers
from graphtheory.train.sampled_graph import SampledGraph
from graphtheory.train.sampled_layers import SampledLayers
from graphtheory.train.sampled_trials import SampledTrials, Trial, TrialOptions
from graphtheory.train.task import AdamOptions, Evaluation, NodeTask
from graphtheory.train.tensor_init import TensorInit
from graphtheory.train.topology_sampling import SampledRun, train_on_samples

__all__ = [
    "AdamOptions",
    "Algorithm1",
    "Algorithm2",
    "Algorithm4",
    "CheckpointError",
    "Evaluation",
    "FitResult",
    "FullGraph",
    "HingeTask",
    "NodeBatch",
    "NodeTask",
    "Perturbation",
    "Regularizers",
    "SampledGraph",
    "SampledLayers",
    "SampledRun",
    "SampledTrials",
    "TensorInit",
    "Trial",
    "TrialOptions",
    "fit",
    "gradient_descent",
    "load_parameters",
    "read_checkpoint",
    "train_hinge",
    "train_on_samples",
]
