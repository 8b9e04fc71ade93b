"""Compiles the usual CPU kernels ahead of time, as for the image of a container or for CI."""

import os
from pathlib import Path

import torch
from torch_geometric import nn as pyg

from graphtheory import nn
from graphtheory.graph import Neighborhood
from graphtheory.graph.compiling import notice
from graphtheory.integrations.pyg import accelerate
from graphtheory.ops.backends.cpu import launch
from graphtheory.patterns import AddSelf, Compose, KHop, Sample
from graphtheory.structure import _loops

_IN, _OUT, _HEADS, _EDGE_DIM = 128, 32, 4, 8
_SIZES = (64, 512), (1024, 2**15)  # nodes and edges: of few and of many multiply-adds


def warmup(*dtypes: torch.dtype) -> Path:
    """Compile the CPU kernels of the usual layers, forward and backward, into numba's cache.

    These are `GCNConv`, `GATConv`, `GATv2Conv`, `TransformerConv` and `SPDTransformerConv`, the
    last three also with edge features, `SAGEConv` and `GINEConv` after `accelerate`, and the
    patterns `KHop`, `Sample` and `AddSelf`, on a small and on a larger graph. Kernels of other
    calls are compiled when they are first needed.

    Args:
        dtypes: float32, float64 or both; none is float32.

    Returns:
        The folder below which the machine code lies; the variable NUMBA_CACHE_DIR sets another.

    Example:
        >>> warmup().is_dir()  # doctest: +SKIP
        True
    """
    notice.told = True
    for dtype in dtypes or (torch.float32,):
        for nodes, edges in _SIZES:
            _train(nodes, edges, dtype)
    caches = (f.stats.cache_path for f in (_loops.with_loops, launch.all_done))
    return Path(os.path.commonpath(list(caches)))


def _train(nodes: int, edges: int, dtype: torch.dtype) -> None:
    drawn = torch.Generator().manual_seed(0)
    edge_index = torch.randint(nodes, (2, edges), generator=drawn)
    distance = torch.ones(edges, dtype=torch.uint8)
    graph = Neighborhood.from_edge_index(edge_index, nodes).replace(distance=distance)
    Compose(KHop(2), Sample(20), AddSelf())(graph, generator=drawn)
    sums = pyg.SAGEConv(_IN, _OUT), pyg.GINEConv(torch.nn.Linear(_IN, _OUT), edge_dim=_EDGE_DIM)
    accelerate(torch.nn.ModuleList(sums))
    plain = [nn.GCNConv(_IN, _IN), nn.GATConv(_IN, _OUT, _HEADS), sums[0]]
    attending = (nn.GATv2Conv, nn.TransformerConv, nn.SPDTransformerConv)
    plain += [kind(_IN, _OUT, _HEADS) for kind in attending]
    of_edges = [kind(_IN, _OUT, _HEADS, edge_dim=_EDGE_DIM) for kind in attending]
    for layer in (*plain, sums[1], *of_edges):
        x = torch.ones(nodes, _IN, dtype=dtype, requires_grad=True)
        features = None if layer in plain else torch.ones(edges, _EDGE_DIM, dtype=dtype)
        named = {} if features is None else {"edge_attr": features}
        layer.to(dtype)(x, graph, **named).sum().backward()
