"""What a node makes of itself and of a list of sources."""

import torch
from torch import Generator, Tensor, nn

from graphtheory.graph import neighbor_lists
from graphtheory.nn.attention import Attention


class GroupedLinear(nn.Module):
    """A linear map of each of several equal parts of the features: a grouped 1 x 1 convolution."""

    def __init__(self, in_features: int, out_features: int, groups: int = 4) -> None:
        super().__init__()
        if groups < 1 or in_features % groups or out_features % groups:
            raise ValueError(
                f"groups: got {groups}, expected a divisor of {in_features} and {out_features}"
            )
        self.groups = groups
        self.weight = nn.Parameter(torch.empty(out_features, in_features // groups))
        self.bias = nn.Parameter(torch.zeros(out_features))
        self.reset_parameters()

    def reset_parameters(self, generator: Generator | None = None) -> None:
        """Draw weights anew and zero the bias."""
        nn.init.kaiming_normal_(self.weight, generator=generator)
        nn.init.zeros_(self.bias)

    def forward(self, x: Tensor) -> Tensor:
        parts = x.view(len(x), self.groups, -1).transpose(0, 1)  # [groups, N, in / groups]
        weight = self.weight.view(self.groups, -1, self.weight.size(1)).transpose(1, 2)
        return torch.bmm(parts, weight).transpose(0, 1).flatten(1) + self.bias


def mixed(in_features: int, out_features: int) -> nn.Sequential:
    """A `GroupedLinear` of 4 groups, a norm over the batch, GELU."""
    return nn.Sequential(
        GroupedLinear(in_features, out_features), nn.BatchNorm1d(out_features), nn.GELU()
    )


class Message(nn.Module):
    """What a node makes of itself and of its sources; a kind of it defines both methods.

    Args:
        dim: Features of a node.

    Shapes:
        x [num_dst, dim], sources [num_src, dim], lists int64 [num_dst, k] -> [num_dst, 2 dim].
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, x: Tensor, sources: Tensor, lists: Tensor) -> Tensor:
        """Twice as many features for each target."""
        raise NotImplementedError

    def weights(self, x: Tensor, sources: Tensor, lists: Tensor) -> Tensor:
        """What each edge of ``neighbor_lists(lists, num_src)`` has part in, [num_edges, heads]."""
        raise NotImplementedError


class _Largest(Message):
    """A message that takes each feature from one source, which a kind of it finds."""

    def source_of(self, x: Tensor, sources: Tensor, lists: Tensor) -> Tensor:
        """The source of each feature, int64 [num_dst, features]."""
        return largest_source(sources, lists)

    def weights(self, x: Tensor, sources: Tensor, lists: Tensor) -> Tensor:
        source = self.source_of(x, sources, lists)
        shares = [(source == column[:, None]).float().mean(1) for column in lists.unbind(1)]
        return torch.stack(shares, 1).view(-1, 1)


class MaxRelative(_Largest):
    r"""The largest difference to a source, feature by feature, mixed in 4 groups with the node.

    .. math:: h_i = \operatorname{GELU}\big(\operatorname{BN}\big(W\,
        [x_i, \max_{j \in T^i} (x_j - x_i)]\big)\big)

    A feature and its largest difference lie side by side, so each group sees both. The weight of an
    edge is the share of features in which its source is the largest.

    Source:
        Li et al. (2019), DeepGCNs, max-relative graph convolution; in 4 groups Han et al. (2022),
        Vision GNN. Differs: the source of each feature is found without a gradient, which then goes
        to that source alone, so no tensor of edges and features exists.
    """

    def __init__(self, dim: int) -> None:
        super().__init__(dim)
        self.mix = mixed(2 * dim, 2 * dim)

    def forward(self, x: Tensor, sources: Tensor, lists: Tensor) -> Tensor:
        largest = sources.gather(0, largest_source(sources, lists))
        return self.mix(torch.stack([x, largest - x], 2).flatten(1))


class SageMessage(_Largest):
    r"""The largest entry of the mapped sources beside the node, mixed in 4 groups.

    .. math:: h_i = \sigma\big(W\, [x_i \,\|\, \max_{j \in T^i} \sigma(W' x_j)]\big),
        \qquad \sigma = \operatorname{GELU} \circ \operatorname{BN}

    Weights as in `MaxRelative`.

    Source:
        Hamilton et al. (2017), GraphSAGE, the pooling aggregator, as in the code of Vision GNN. Two
        groups see the node alone and two the sources.
    """

    def __init__(self, dim: int) -> None:
        super().__init__(dim)
        self.map, self.mix = mixed(dim, dim), mixed(2 * dim, 2 * dim)

    def forward(self, x: Tensor, sources: Tensor, lists: Tensor) -> Tensor:
        seen = self.map(sources)
        largest = seen.gather(0, largest_source(seen, lists))
        return self.mix(torch.cat([x, largest], 1))

    def source_of(self, x: Tensor, sources: Tensor, lists: Tensor) -> Tensor:
        return largest_source(self.map(sources), lists)


class EdgeMessage(_Largest):
    r"""The largest entry over what is made of each edge.

    .. math:: h_i = \max_{j \in T^i} \sigma\big(W\, [x_i \,\|\, x_j - x_i]\big),
        \qquad \sigma = \operatorname{GELU} \circ \operatorname{BN}

    The norm is taken over edges, which have 2 dim features each: this is the costly kind. The
    weight of an edge is its share of the features that see the source.

    Source:
        Wang et al. (2019), EdgeConv, as in the code of Vision GNN. Two groups see the node alone
        and two the difference.
    """

    def __init__(self, dim: int) -> None:
        super().__init__(dim)
        self.mix = mixed(2 * dim, 2 * dim)

    def forward(self, x: Tensor, sources: Tensor, lists: Tensor) -> Tensor:
        return self._of_edges(x, sources, lists).max(1).values

    def source_of(self, x: Tensor, sources: Tensor, lists: Tensor) -> Tensor:
        best = self._of_edges(x, sources, lists)[:, :, self.dim :].argmax(1)
        return lists.gather(1, best)

    def _of_edges(self, x: Tensor, sources: Tensor, lists: Tensor) -> Tensor:
        """What is made of each edge, [num_dst, k, 2 dim]."""
        own = x[:, None].expand(-1, lists.size(1), -1)
        edges = torch.cat([own, sources[lists] - own], 2)
        return self.mix(edges.flatten(0, 1)).view_as(edges)


class AttentionMessage(Message):
    """Attention of 4 heads to the sources in the place of the largest difference of `MaxRelative`.

    Arguments and shapes as in `Message`.
    """

    def __init__(self, dim: int) -> None:
        super().__init__(dim)
        self.attention, self.mix = Attention(dim, heads=4), mixed(2 * dim, 2 * dim)

    def forward(self, x: Tensor, sources: Tensor, lists: Tensor) -> Tensor:
        seen = self.attention(x, neighbor_lists(lists, len(sources)), sources=sources)
        return self.mix(torch.stack([x, seen], 2).flatten(1))

    def weights(self, x: Tensor, sources: Tensor, lists: Tensor) -> Tensor:
        return self.attention.weights(x, neighbor_lists(lists, len(sources)), sources=sources)


@torch.no_grad()
def largest_source(values: Tensor, lists: Tensor) -> Tensor:
    """Of each target and feature the source with the largest value, the first of equal ones."""
    first, *others = lists.unbind(1)
    best, source = values[first], first[:, None].expand(-1, values.size(1))
    for other in others:  # one list entry at a time: nothing of edges and features
        found = values[other]
        larger = found > best
        best, source = torch.where(larger, found, best), torch.where(larger, other[:, None], source)
    return source
