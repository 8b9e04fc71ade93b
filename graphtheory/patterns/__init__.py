"""Who aggregates from whom: rules that make or narrow neighbourhoods."""

from graphtheory.patterns.base import Compose, Pattern
from graphtheory.patterns.hops import AtDistance, KHop
from graphtheory.patterns.normalize import SymmetricNormalize
from graphtheory.patterns.uniform import AddSelf, Sample, pair_distance

__all__ = [
    "AddSelf",
    "AtDistance",
    "Compose",
    "KHop",
    "Pattern",
    "Sample",
    "SymmetricNormalize",
    "pair_distance",
]
