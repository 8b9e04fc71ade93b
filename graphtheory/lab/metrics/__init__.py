"""Measures of what a network attends to, computes and has learned."""

from graphtheory.lab.metrics.network import (
    Macs,
    count_macs,
    linear_probe,
    mass_by_distance,
    mass_on,
    nearest_accuracy,
)
from graphtheory.lab.metrics.prompt_baselines import BASELINES, GradientDescent, baseline

__all__ = [
    "BASELINES", "GradientDescent", "Macs", "baseline", "count_macs", "linear_probe",
    "mass_by_distance", "mass_on", "nearest_accuracy",
]  # fmt: skip
