"""The theory's network on sets of tokens: the mean over the tokens of a set."""

from __future__ import annotations

from torch import Tensor

from graphtheory.graph import Neighborhood, cliques
from graphtheory.papers.shallow import ShallowAttention


class ShallowViT:
    r"""F(X) of T networks on sets of tokens.

    .. math:: F(X^n) = \frac{1}{|S^n|} \sum_{l \in S^n} a_{(l)}^\top \mathrm{ReLU}\big(
        W_O W_V X^n \mathrm{softmax}_{S^n}(X^{n\top} W_K^\top W_Q x_l^n) \big)

    Rows of a neighborhood are the tokens of each set that stay, so that a pattern that samples
    them is token sparsification at random; tokens attend to each other within their row.

    Args:
        network: The T networks, with one `a` or with one for every place.
        place: Of each token in its set, int64 [tokens]; None where `a` is shared.

    Raises:
        ValueError: If the network has an `a` for each place, but no places are given.

    Source: Li (2024), eq. (2.1).

    Example:
        >>> import torch
        >>> network = ShallowAttention(3, 3, width=8, trials=2)
        >>> vit = ShallowViT(network)
        >>> rows = Neighborhood(torch.tensor([0, 2, 4]), torch.arange(4), 4)
        >>> vit(torch.randn(4, 3), rows, torch.tensor([0, 2])).shape
        torch.Size([2, 1])
    """

    def __init__(self, network: ShallowAttention, place: Tensor | None = None) -> None:
        if place is None and network.positions > 1:
            raise ValueError(f"place: not given, expected 0..{network.positions - 1} of each token")
        self.network = network
        self.place = place
        self._cliques: dict[tuple[int, int], Neighborhood] = {}

    def __call__(self, x: Tensor, rows: Neighborhood, sets: Tensor) -> Tensor:
        """Outputs [T, B] of sets, as a `hinge_trials.Network`.

        The tokens x [tokens, d] are of all trials. Rows [T B, tokens] hold those of each set, as
        many of each, those of trial 0 first; ids of the sets are not read.

        Raises:
            ValueError: If the sets have different sizes.
        """
        tokens, inside, place = self._of(x, rows)
        out = self.network(tokens, inside, position=place)  # [T, B S]
        size = len(tokens) // max(rows.num_dst, 1)
        return out.view(self.network.trials, -1, size).mean(2)

    def attention(self, x: Tensor, rows: Neighborhood) -> tuple[Tensor, Neighborhood, Tensor]:
        """Weights [edges, 1] among the tokens of the rows, the edges, and the id of each token."""
        tokens, inside, _ = self._of(x, rows)
        return self.network.attention(tokens, inside), inside, rows.indices

    def _of(self, x: Tensor, rows: Neighborhood) -> tuple[Tensor, Neighborhood, Tensor | None]:
        degree = rows.degree()
        if rows.num_dst and not bool((degree == degree[0]).all()):
            raise ValueError(
                f"rows: {int(degree.min())} to {int(degree.max())} tokens, expected as many each"
            )
        key = (rows.num_dst, int(degree[0]) if rows.num_dst else 0)
        if key not in self._cliques:
            self._cliques[key] = cliques([key[1]] * key[0])
        place = None if self.place is None else self.place[rows.indices]
        return x[rows.indices], self._cliques[key], place
