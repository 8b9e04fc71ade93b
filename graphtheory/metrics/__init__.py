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
from graphtheory.metrics.flops import GlobalCost, Macs, WindowCost, count_macs
from graphtheory.metrics.probe import linear_probe, nearest_accuracy
from graphtheory.metrics.temperature import Tempered, compare_temperatures
from graphtheory.metrics.tokens import (
    attention_deviation,
    branch_ratio,
    nonlocality,
    patch_positions,
    token_similarity,
)

__all__ = [
    "Deviation",
    "GlobalCost",
    "InfluenceChange",
    "Macs",
    "Tempered",
    "WindowCost",
    "attention_deviation",
    "branch_ratio",
    "compare_temperatures",
    "count_macs",
    "deviation",
    "infinity_distance",
    "infinity_norm",
    "influence",
    "influence_change",
    "linear_probe",
    "mass_by_distance",
    "mass_on",
    "nearest_accuracy",
    "nonlocality",
    "patch_positions",
    "token_similarity",
]
