"""Measures of what a network attends to, and of what sampling makes of a graph."""

from graphtheory.metrics.adjacency import (
    Deviation,
    InfluenceChange,
    deviation,
    infinity_distance,
    infinity_norm,
    influence,
    influence_change,
)
from graphtheory.metrics.attention_mass import mass_by_distance, mass_on
from graphtheory.metrics.chain import chain_mass, cot_error, icl_error
from graphtheory.metrics.flops import GlobalCost, Macs, WindowCost, count_macs
from graphtheory.metrics.fusion import (
    ClassMass,
    GrowthBound,
    NoiseBounds,
    class_mass,
    growth_bound,
    noise_bounds,
    sharpness,
    sharpness_of_means,
)
from graphtheory.metrics.groups import Bounds, bounds, rho, risk, shift, weight_error
from graphtheory.metrics.integrity import (
    FusionWeights,
    Integrity,
    cluster_integrity,
    fusion_weights,
)
from graphtheory.metrics.probe import linear_probe, nearest_accuracy
from graphtheory.metrics.prompt_mechanism import (
    Alignment,
    Projection,
    mass_by_kind,
    neuron_alignment,
    projection,
)
from graphtheory.metrics.sampling_bounds import (
    group_degrees,
    largest_scaling,
    psi,
    smallest_share,
)
from graphtheory.metrics.temperature import Tempered, compare_temperatures
from graphtheory.metrics.tokens import (
    attention_deviation,
    branch_ratio,
    nonlocality,
    patch_positions,
    token_similarity,
)

__all__ = [
    "Alignment",
    "Bounds",
    "ClassMass",
    "Deviation",
    "FusionWeights",
    "GlobalCost",
    "GrowthBound",
    "InfluenceChange",
    "Integrity",
    "Macs",
    "NoiseBounds",
    "Projection",
    "Tempered",
    "WindowCost",
    "attention_deviation",
    "bounds",
    "branch_ratio",
    "chain_mass",
    "class_mass",
    "cluster_integrity",
    "compare_temperatures",
    "cot_error",
    "count_macs",
    "deviation",
    "fusion_weights",
    "group_degrees",
    "growth_bound",
    "icl_error",
    "infinity_distance",
    "infinity_norm",
    "influence",
    "influence_change",
    "largest_scaling",
    "linear_probe",
    "mass_by_distance",
    "mass_by_kind",
    "mass_on",
    "nearest_accuracy",
    "neuron_alignment",
    "noise_bounds",
    "nonlocality",
    "patch_positions",
    "projection",
    "psi",
    "rho",
    "risk",
    "sharpness",
    "sharpness_of_means",
    "shift",
    "smallest_share",
    "token_similarity",
    "weight_error",
]
