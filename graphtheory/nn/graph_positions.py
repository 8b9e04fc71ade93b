"""Encodings of where a node lies in its graph: degrees, Laplacian eigenvectors, random walks."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from graphtheory.graph import Neighborhood


class DegreeEmbedding(nn.Module):
    r"""Centrality encoding: a learned vector for the in-degree and one for the out-degree.

    .. math:: h_n = x_n + z^-_{\deg^-(n)} + z^+_{\deg^+(n)}

    The module computes the two terms that are added. Degrees of `max_degree` or more share the last
    vector; duplicate edges and self-loops count each time.

    Args:
        max_degree: Largest degree with a vector of its own, 0 or more edges.
        dim: Features of a node.

    Shapes:
        edge_index int64 [2, E] and the number of nodes, or a `Neighborhood` -> [N, dim].

    Raises:
        ValueError: If `max_degree` is negative, or the graph is bipartite.

    Source:
        Ying et al. (2021), Do transformers really perform bad for graph representation?, eq. (5).
        Differs: undirected graphs have two vectors as well, as in the authors' code.

    Example:
        >>> DegreeEmbedding(4, 8)(torch.tensor([[0, 1], [1, 0]]), 3).shape
        torch.Size([3, 8])
    """

    def __init__(self, max_degree: int, dim: int) -> None:
        super().__init__()
        if max_degree < 0:
            raise ValueError(f"max_degree: got {max_degree}, expected 0 or more")
        self.max_degree = max_degree
        self.in_degree, self.out_degree = (nn.Embedding(max_degree + 1, dim) for _ in range(2))

    def forward(self, edge_index: Tensor | Neighborhood, num_nodes: int | None = None) -> Tensor:
        if isinstance(edge_index, Neighborhood):
            if edge_index.num_src != edge_index.num_dst:
                raise ValueError(
                    f"edge_index: {edge_index.num_src} sources and {edge_index.num_dst} targets, "
                    "expected a graph whose nodes are both"
                )
            num_nodes, edge_index = edge_index.num_dst, edge_index.edge_index()
        source, target = (torch.bincount(ends, minlength=num_nodes or 0) for ends in edge_index)
        longest = max(len(source), len(target))  # equal if the number of nodes is given
        degrees = (functional.pad(d, (0, longest - len(d))) for d in (target, source))
        into, out = (d.clamp(max=self.max_degree) for d in degrees)
        return self.in_degree(into) + self.out_degree(out)


class LaplacianEncoding(nn.Module):
    r"""Linear map of Laplacian eigenvectors, whose signs are drawn again in every training step.

    .. math:: p_n = W (s_{g(n)} \odot \lambda_n) + c, \qquad s_g \in \{-1, 1\}^k

    An eigenvector is defined up to its sign: in training one sign per graph and eigenvector is
    drawn, in evaluation all signs are +1.

    Args:
        k: Eigenvectors of each graph.
        dim: Features of the result.

    Shapes:
        eigenvectors floating [N, k] of `AddLaplacianEigenvectorPE(k)`, which reads edge_weight;
        batch int64 [N], the graph of each node, or None for one graph -> [N, dim].

    Source: Dwivedi et al. (2020), Benchmarking graph neural networks, section 4.

    Example:
        >>> LaplacianEncoding(2, 8)(torch.randn(4, 2), torch.tensor([0, 0, 1, 1])).shape
        torch.Size([4, 8])
    """

    name = "laplacian_eigenvector_pe"
    transform = "AddLaplacianEigenvectorPE"

    def __init__(self, k: int, dim: int) -> None:
        super().__init__()
        if k < 1:
            raise ValueError(f"k: got {k}, expected at least 1 eigenvector")
        self.linear = nn.Linear(k, dim)

    def forward(
        self,
        eigenvectors: Tensor,
        batch: Tensor | None = None,
        *,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """Draw signs in training and apply the map; `generator` is the source of the signs."""
        check_width(self.name, eigenvectors, self.linear.in_features)
        if self.training:
            graphs = 1 if batch is None or not len(batch) else int(batch.max()) + 1
            device = eigenvectors.device if generator is None else generator.device
            size = graphs, eigenvectors.size(1)
            draw = torch.randint(2, size, generator=generator, device=device)
            sign = (2 * draw - 1).to(eigenvectors)
            eigenvectors = eigenvectors * (sign if batch is None else sign[batch])
        return self.linear(eigenvectors)


class WalkEncoding(nn.Module):
    r"""Normalized return probabilities of a random walk, through a linear map.

    .. math:: p_n = W \operatorname{BN}\big((R^1)_{nn}, \dots, (R^k)_{nn}\big) + c

    Args:
        steps: Steps k of the walk.
        dim: Features of the result.

    Shapes:
        probabilities floating [N, steps] of PyG's `AddRandomWalkPE(k)`, no more or fewer, which
        are right of graphs without weights and duplicate edges alone -> [N, dim].

    Source:
        Dwivedi et al. (2022), Graph neural networks with learnable structural and positional
        representations, section 3.2. The batch norm is that of Rampášek et al. (2022).

    Example:
        >>> WalkEncoding(3, 8)(torch.rand(4, 3)).shape
        torch.Size([4, 8])
    """

    name = "random_walk_pe"
    transform = "AddRandomWalkPE"

    def __init__(self, steps: int, dim: int) -> None:
        super().__init__()
        if steps < 1:
            raise ValueError(f"steps: got {steps}, expected at least 1")
        self.norm, self.linear = nn.BatchNorm1d(steps), nn.Linear(steps, dim)

    def forward(self, probabilities: Tensor, batch: Tensor | None = None) -> Tensor:
        """Normalize and map; `batch` is not read."""
        check_width(self.name, probabilities, self.linear.in_features)
        return self.linear(self.norm(probabilities))


def check_width(name: str, value: Tensor, columns: int) -> None:
    """Raise unless there are that many columns for each node."""
    if value.dim() != 2 or value.size(1) != columns:
        raise ValueError(f"{name}: shape {tuple(value.shape)}, expected [num_nodes, {columns}]")
