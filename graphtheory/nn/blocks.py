"""The transformer block over any neighborhood."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from graphtheory.graph import Neighborhood
from graphtheory.nn.attention import Attention


class MLP(nn.Module):
    """A linear map to `hidden` features, GELU or another activation, and a linear map back."""

    def __init__(self, dim: int, hidden: int, act: nn.Module | None = None) -> None:
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(dim, hidden), nn.Linear(hidden, dim)
        self.act = nn.GELU() if act is None else act

    def forward(self, x: Tensor) -> Tensor:
        return self.fc2(self.act(self.fc1(x)))


class LayerScale(nn.Module):
    """A learned factor for each feature of a branch; `start` is the first value, such as 1e-5.

    Source: Touvron et al. (2021), Going deeper with image transformers, eq. (4).
    """

    def __init__(self, dim: int, start: float) -> None:
        super().__init__()
        self.gamma = nn.Parameter(torch.full((dim,), start))

    def forward(self, x: Tensor) -> Tensor:
        return self.gamma * x


class DropPath(nn.Module):
    """Stochastic depth: in training a branch is left out for an image with probability p.

    Of images that keep it the branch is divided by 1 - p.

    Source: Huang et al. (2016), Deep networks with stochastic depth. Differs: drawn for each image.
    """

    def __init__(self, p: float = 0.0) -> None:
        super().__init__()
        if not 0 <= p < 1:
            raise ValueError(f"p: got {p}, expected a probability in [0, 1)")
        self.p = p

    def forward(self, x: Tensor, images: int, generator: torch.Generator | None = None) -> Tensor:
        if not self.training or self.p == 0:
            return x
        if images < 1 or len(x) % images:
            raise ValueError(f"images: got {images}, expected a divisor of the {len(x)} nodes")
        source = x.device if generator is None else generator.device
        # torch.rand with a generator, None or not, does not compile for a second number of images
        draw = torch.empty(images, 1, 1, device=source).uniform_(generator=generator).to(x.device)
        factor = (draw >= self.p).to(x.dtype) / (1 - self.p)
        return (x.view(images, -1, x.size(1)) * factor).view_as(x)

    def extra_repr(self) -> str:
        return f"p={self.p}"


class Block(nn.Module):
    r"""Attention, then an MLP, each behind a norm and added to what it is computed from.

    .. math:: X' = R + \operatorname{Attn}(\operatorname{LN}(X); \operatorname{LN}(S)), \qquad
        Y = X' + \operatorname{MLP}(\operatorname{LN}'(X'))

    R is X, unless a residual is given. With the norms last, each is of a sum instead:

    .. math:: X' = \operatorname{LN}(R + \operatorname{Attn}(X; S)), \qquad
        Y = \operatorname{LN}'(X' + \operatorname{MLP}(X'))

    Args:
        attention: The layer, which says the width and the heads.
        mlp_ratio: Width of the MLP over that of the nodes; 0 leaves the second branch out.
        layer_scale: Factor of both branches at the beginning, learned; None is none.
        drop_path: Probability that an image skips a branch in training.
        eps: Of both norms.
        norm: Whether there are any.
        norm_first: Whether they stand in front of the branches, or behind the sums.
        act: Of the MLP; default GELU.

    Shapes:
        x and residual [num_dst, dim], sources [num_src, dim] or None for x itself, relation
        [num_edges] -> [num_dst, dim].

    Source: Dosovitskiy et al. (2021), eqs. (2) and (3); norms last: Vaswani et al. (2017), section
        3.1. Differs: sources may be other nodes than targets, under the same norm.

    Example:
        >>> from graphtheory.graph import cliques
        >>> Block(Attention(8, heads=2))(torch.randn(6, 8), cliques([3, 3])).shape
        torch.Size([6, 8])
    """

    __call__: Callable[..., Tensor]

    def __init__(
        self,
        attention: Attention,
        *,
        mlp_ratio: float = 4.0,
        layer_scale: float | None = None,
        drop_path: float = 0.0,
        eps: float = 1e-6,
        norm: bool = True,
        norm_first: bool = True,
        act: nn.Module | None = None,
    ) -> None:
        super().__init__()
        dim = attention.dim
        self.norm_first = norm_first
        self.norm1, self.norm2 = (
            nn.LayerNorm(dim, eps) if norm else nn.Identity() for _ in range(2)
        )
        self.attention = attention
        self.mlp = MLP(dim, round(mlp_ratio * dim), act) if mlp_ratio else None
        self.scale1, self.scale2 = (
            nn.Identity() if layer_scale is None else LayerScale(dim, layer_scale) for _ in range(2)
        )
        self.drop_path = DropPath(drop_path)

    def forward(
        self,
        x: Tensor,
        neighborhood: Neighborhood,
        *,
        sources: Tensor | None = None,
        relation: Tensor | None = None,
        images: int = 1,
        generator: torch.Generator | None = None,
        residual: Tensor | None = None,
    ) -> Tensor:
        """Same shape as x, which holds equally many consecutive nodes of each of the `images`.

        `drop_path` draws once per image.
        """
        branch = self.attention(
            self._first(self.norm1, x), neighborhood, relation=relation, generator=generator,
            sources=None if sources is None else self._first(self.norm1, sources),
        )  # fmt: skip
        return self._add(x if residual is None else residual, branch, images, generator)

    def with_weights(self, x: Tensor, neighborhood: Neighborhood) -> tuple[Tensor, Tensor]:
        """`forward` of x alone, and the weights [num_edges, heads] that it took, in one pass."""
        branch, weights = self.attention.with_weights(self._first(self.norm1, x), neighborhood)
        return self._add(x, branch, 1, None), weights

    def _add(
        self, x: Tensor, branch: Tensor, images: int, generator: torch.Generator | None
    ) -> Tensor:
        x = self._last(self.norm1, x + self.drop_path(self.scale1(branch), images, generator))
        return self.after_attention(x, images, generator)

    def _first(self, norm: nn.Module, x: Tensor) -> Tensor:
        return norm(x) if self.norm_first else x

    def _last(self, norm: nn.Module, x: Tensor) -> Tensor:
        return x if self.norm_first else norm(x)

    def after_attention(
        self, x: Tensor, images: int, generator: torch.Generator | None = None
    ) -> Tensor:
        """The second branch added to x; x itself where there is no MLP."""
        if self.mlp is None:
            return x
        branch = self.scale2(self.mlp(self._first(self.norm2, x)))
        return self._last(self.norm2, x + self.drop_path(branch, images, generator))
