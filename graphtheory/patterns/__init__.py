"""Patterns: rules for which nodes each node aggregates from."""

from typing import TYPE_CHECKING

from graphtheory.lazy import import_when_used

if TYPE_CHECKING:
    from graphtheory.patterns.add_self import AddSelf
    from graphtheory.patterns.base import Pattern
    from graphtheory.patterns.compose import Compose, apply_fixed
    from graphtheory.patterns.degree_groups import DegreeGroups
    from graphtheory.patterns.dilated_hops import DilatedHops
    from graphtheory.patterns.effective import Effective, EffectiveAdjacency, effective_adjacency
    from graphtheory.patterns.expander import Expander
    from graphtheory.patterns.fastgcn import FastGCN
    from graphtheory.patterns.hops import AtDistance, KHop
    from graphtheory.patterns.ladies import LADIES
    from graphtheory.patterns.normalize import MeanNormalize, SymmetricNormalize
    from graphtheory.patterns.rows import layers_on_rows, on_rows, per_layer
    from graphtheory.patterns.sage import GraphSAGE
    from graphtheory.patterns.samplers import Sampler
    from graphtheory.patterns.scores import AllSources, ScorePattern, attention_logits
    from graphtheory.patterns.topk import TopK
    from graphtheory.patterns.uniform import Sample, pair_distance
    from graphtheory.patterns.uniform_nodes import UniformNodes
    from graphtheory.patterns.virtual_node import VirtualNode
    from graphtheory.patterns.window import Window

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
