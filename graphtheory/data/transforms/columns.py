"""Columns for every node: its degree, its distance to the centroid."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.data.datapipes import functional_transform
from torch_geometric.transforms import BaseTransform

from graphtheory.data.transforms.of_graph import graph_of
from graphtheory.structure import centroid_distance, degree_encoding


@functional_transform("add_degree_encoding")
class AddDegreeEncoding(BaseTransform):
    """Stores log(1 + degree) of every node (functional name: `add_degree_encoding`).

    Args:
        attr_name: Attribute to store float32 [N, 1] in; None joins it to `data.x`.
        direction: "in" counts the nodes that a node aggregates from, "out" those that
            aggregate from it.
        log: Take log(1 + degree); otherwise the degree itself.

    Raises:
        TypeError: The data is no `Data` of one node type.
        ValueError: An unknown direction.

    Example:
        >>> star = Data(edge_index=torch.tensor([[1, 2], [0, 0]]), num_nodes=3)
        >>> AddDegreeEncoding(log=False)(star).degree_encoding.tolist()
        [[2.0], [0.0], [0.0]]
    """

    def __init__(
        self,
        attr_name: str | None = "degree_encoding",
        *,
        direction: Literal["in", "out"] = "in",
        log: bool = True,
    ) -> None:
        self.attr_name = attr_name
        self.direction = direction
        self.log = log

    def forward(self, data: Data) -> Data:
        """Store the column."""
        value = degree_encoding(graph_of(data), direction=self.direction, log=self.log)
        return _put(data, value, self.attr_name)


@functional_transform("add_centroid_distance")
class AddCentroidDistance(BaseTransform):
    """Stores every node's hops to the centroid (functional name: `add_centroid_distance`).

    Args:
        attr_name: Attribute to store float32 [N, 1] in; None joins it to `data.x`.
        cutoff: Hops, 1..254; larger distances become `cutoff`.
        num_samples: Find the centroid from so many sampled nodes instead of all; for large graphs.
        seed: Draws the samples, the same ones for every graph of a size.

    Raises:
        TypeError: The data is no `Data` of one node type.
        ValueError: A cutoff or `num_samples` out of range.

    Example:
        >>> path = Data(edge_index=torch.tensor([[0, 1], [1, 2]]), num_nodes=3)
        >>> AddCentroidDistance()(path).centroid_distance.tolist()
        [[1.0], [0.0], [1.0]]
    """

    def __init__(
        self,
        attr_name: str | None = "centroid_distance",
        *,
        cutoff: int = 20,
        num_samples: int | None = None,
        seed: int = 0,
    ) -> None:
        self.attr_name = attr_name
        self.cutoff = cutoff
        self.num_samples = num_samples
        self.seed = seed

    def forward(self, data: Data) -> Data:
        """Store the column."""
        hops = centroid_distance(
            graph_of(data),
            cutoff=self.cutoff,
            num_samples=self.num_samples,
            generator=torch.Generator().manual_seed(self.seed),
        )
        return _put(data, hops.float()[:, None], self.attr_name)


def _put(data: Data, value: Tensor, name: str | None) -> Data:
    if name is not None:
        data[name] = value
    elif data.x is None:
        data.x = value
    else:
        x = data.x.view(-1, 1) if data.x.dim() == 1 else data.x
        data.x = torch.cat([x, value.to(x.device, x.dtype)], dim=-1)
    return data
