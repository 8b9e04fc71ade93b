"""Neurons removed from any module, by their magnitude or at random, for good or for a while."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Generator, Tensor, nn
from torch.nn.utils import prune


class PruningRule(Protocol):
    """In which order neurons go."""

    def order(self, norms: Tensor) -> Tensor:
        """Ids of the neurons, the first to go first, int64 [..., m], from norms [..., m]."""


@dataclass(frozen=True)
class ByMagnitude:
    """The neurons of smallest norm first, or of largest.

    Args:
        largest: Whether the largest go first, the worst that can be done.
    """

    largest: bool = False

    def order(self, norms: Tensor) -> Tensor:
        """See the class; equal norms in the order of their ids."""
        return norms.sort(dim=-1, descending=self.largest, stable=True).indices


@dataclass(frozen=True, eq=False)
class AtRandom:
    """Every neuron alike.

    Args:
        generator: Source of randomness, drawn from in every call.
    """

    generator: Generator

    def order(self, norms: Tensor) -> Tensor:
        """See the class; the norms are not looked at."""
        return torch.rand(norms.shape, generator=self.generator).argsort(dim=-1)


def neuron_norms(weight: Tensor, axes: int | None = None) -> Tensor:
    """Length of all weights of each neuron.

    Args:
        weight: [m, n] of a linear layer, [m, n, height, width] of a convolution, [T, m, n] of T
            networks at once.
        axes: How many of the first axes tell neurons apart; default 2 of three, otherwise 1. A
            kernel [m, n, length] of a convolution along one axis needs a 1.

    Returns:
        The first axes of `weight`, [m] or [T, m].

    Raises:
        ValueError: No weights of a neuron, or no axis of neurons.

    Example:
        >>> neuron_norms(nn.Conv2d(3, 4, 5).weight).shape
        torch.Size([4])
    """
    shape = tuple(weight.shape)
    if weight.dim() < 2:
        raise ValueError(f"weight: shape {shape}, expected at least two axes")
    axes = (2 if weight.dim() == 3 else 1) if axes is None else axes
    if not 1 <= axes < weight.dim():
        raise ValueError(f"axes: got {axes}, expected 1 to {weight.dim() - 1} of shape {shape}")
    return weight.detach().flatten(axes).norm(dim=-1)


def kept_mask(order: Tensor, share: float) -> Tensor:
    """Which neurons stay when a share of them goes.

    Args:
        order: Ids, the first to go first, int64 [..., m].
        share: Of the neurons that go, 0 to 1; their number is rounded.

    Returns:
        Bool [..., m].

    Raises:
        ValueError: No share.

    Example:
        >>> kept_mask(torch.tensor([2, 0, 1, 3]), 0.5).tolist()
        [False, True, False, True]
    """
    if not 0 <= share <= 1:
        raise ValueError(f"share: got {share}, expected 0 to 1")
    gone = order[..., : round(share * order.size(-1))]
    return torch.ones(order.shape, dtype=torch.bool).scatter(-1, gone, False)


def prune_neurons(module: nn.Module, kept: Tensor, names: Sequence[str] | None = None) -> None:
    """Zero the rows of neurons that go, through `torch.nn.utils.prune`.

    Works on every parameter whose leading axes are those of `kept`: weight and bias of a linear or
    convolution layer, W_O of T networks at once with `kept` [T, m]. A neuron without weights and
    bias is 0 behind a ReLU, as if its row were taken out. `torch.nn.utils.prune.remove` makes it
    final, `while_pruned` takes it back.

    Args:
        module: It owns the parameters.
        kept: Bool, whether a neuron stays.
        names: Parameters; default "weight", and "bias" where there is one.

    Raises:
        ValueError: A parameter that is not there, of another number of neurons or pruned already;
            a linear or convolution layer and more than one axis of neurons. Nothing is pruned then.

    Source:
        Li (2024), section 6.2.4.

    Example:
        >>> layer = nn.Linear(3, 2)
        >>> prune_neurons(layer, torch.tensor([True, False]))
        >>> layer(torch.ones(3))[1].item() == 0
        True
    """
    found = _parameters(module, names)
    _check_kept(module, kept, found)
    for name, value in found.items():
        mask = kept.view(*kept.shape, *[1] * (value.dim() - kept.dim())).expand_as(value)
        prune.custom_from_mask(module, name, mask.to(value))


@contextmanager
def while_pruned(
    module: nn.Module, kept: Tensor, names: Sequence[str] | None = None
) -> Iterator[None]:
    """`prune_neurons` inside a with block; afterwards every parameter is as it was.

    Raises:
        ValueError: As there.
    """
    before = {name: value.detach().clone() for name, value in _parameters(module, names).items()}
    prune_neurons(module, kept, names)
    try:
        yield
    finally:
        for name, value in before.items():
            prune.remove(module, name)
            with torch.no_grad():
                module.get_parameter(name).copy_(value)


def _check_kept(module: nn.Module, kept: Tensor, found: dict[str, nn.Parameter]) -> None:
    """Raise unless all parameters have such neurons."""
    shape = tuple(kept.shape)
    if isinstance(module, (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)) and kept.dim() != 1:
        raise ValueError(f"kept: shape {shape}, expected one axis, {type(module).__name__}'s rows")
    for name, value in found.items():
        if value.shape[: kept.dim()] != kept.shape:
            raise ValueError(
                f"kept: shape {shape}, expected the first axes of {name}, {tuple(value.shape)}"
            )


def _parameters(module: nn.Module, names: Sequence[str] | None) -> dict[str, nn.Parameter]:
    own = dict(module.named_parameters(recurse=False))
    given = [n for n in ("weight", "bias") if n in own or f"{n}_orig" in own]
    wanted = given if names is None else list(names)
    pruned = [n for n in wanted if f"{n}_orig" in own]
    if pruned:
        raise ValueError(
            f"names: {pruned} of {type(module).__name__} are pruned already, expected parameters "
            "that are not; torch.nn.utils.prune.remove makes a pruning final"
        )
    missing = [n for n in wanted if n not in own]
    if missing or not wanted:
        raise ValueError(
            f"names: {type(module).__name__} has no parameter {missing or 'weight'}, expected some "
            f"of {sorted(own)}"
        )
    return {name: own[name] for name in wanted}
