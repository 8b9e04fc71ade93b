"""Measures of what a network attends to, computes and has learned."""

from graphtheory.metrics.attention_mass import mass_by_distance, mass_on
from graphtheory.metrics.flops import Macs, count_macs
from graphtheory.metrics.probe import linear_probe, nearest_accuracy

__all__ = [
    "Macs",
    "count_macs",
    "linear_probe",
    "mass_by_distance",
    "mass_on",
    "nearest_accuracy",
]
