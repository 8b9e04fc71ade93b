"""Patterns: rules for which nodes each node aggregates from."""

from typing import TYPE_CHECKING

from graphtheory.lazy import import_when_used

if TYPE_CHECKING:
    from graphtheory.patterns.base import (
        Compose,
        Pattern,
        apply_fixed,
        layers_on_rows,
        on_rows,
        per_layer,
    )
    from graphtheory.patterns.batches import Expander, VirtualNode, Window
    from graphtheory.patterns.degree_groups import DegreeGroups
    from graphtheory.patterns.draw import GraphSAGE, Sample, Sampler, UniformNodes, pair_distance
    from graphtheory.patterns.effective import Effective, EffectiveAdjacency, effective_adjacency
    from graphtheory.patterns.hops import AtDistance, DilatedHops, KHop
    from graphtheory.patterns.importance import LADIES, FastGCN
    from graphtheory.patterns.normalize import AddSelf, MeanNormalize, SymmetricNormalize
    from graphtheory.patterns.scores import AllSources, ScorePattern, TopK, attention_logits

__all__ = [
    "LADIES",
    "AddSelf",
    "AllSources",
    "AtDistance",
    "Compose",
    "DegreeGroups",
    "DilatedHops",
    "Effective",
    "EffectiveAdjacency",
    "Expander",
    "FastGCN",
    "GraphSAGE",
    "KHop",
    "MeanNormalize",
    "Pattern",
    "Sample",
    "Sampler",
    "ScorePattern",
    "SymmetricNormalize",
    "TopK",
    "UniformNodes",
    "VirtualNode",
    "Window",
    "apply_fixed",
    "attention_logits",
    "effective_adjacency",
    "layers_on_rows",
    "on_rows",
    "pair_distance",
    "per_layer",
]

import_when_used(__name__)
