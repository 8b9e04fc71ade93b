"""Measures of what a network attends to."""

from graphtheory.metrics.attention_mass import mass_by_distance, mass_on

__all__ = ["mass_by_distance", "mass_on"]
