"""Pre-norm layers of other libraries, computed part by part, so that tokens can change inside."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import torch
from torch import Generator, Tensor, nn

from graphtheory.vision.integrations.forwards import OWN, put_on

# Names of the parts of a layer in transformers, timm and the released code of DeiT.
_NORM1 = ("layernorm_before", "layer_norm1", "norm1")
ATTENTION = ("attention", "self_attn", "attn")
_NORM2 = ("layernorm_after", "layer_norm2", "norm2")
_BRANCH1 = ("dropout", "lambda_1", "layer_scale1", "ls1", "drop_path", "drop_path1")
_BRANCH2 = ("dropout", "lambda_2", "layer_scale2", "ls2", "drop_path", "drop_path2")
# Attributes of an instance that patches, those of accelerate too, and `compile` add to a module.
_PATCHED = {OWN, "forward", "_nearest", "_hf_hook", "_old_forward", "_compiled_call_impl"}
_TOLERANCE = 0.02  # relative difference of norms, wide enough for half precision


class Positions(NamedTuple):
    """How attention depends on positions, for all T tokens that a model embeds."""

    bias: Tensor | None  # added to the logits, [1, heads or 1, T, T]
    # cosine and sine of rotary embeddings [T, head_dim]; 1 and 0 for tokens that are no patches
    rotary: tuple[Tensor, Tensor] | None
    options: dict[str, Any]  # other arguments of the attention


@dataclass(eq=False)
class AttentionInputs:
    """Which tokens attend to which in one call of an attention module, which adds what it made."""

    positions: Positions  # of all tokens of the model
    sources: Tensor | None = None  # normalized tokens [B, S, dim] attended to; None: the same ones
    # place of each token that attends, int64 [B or 1, T], for its position; -1, and with it the
    # position of the first token, is none. None means all tokens, in order
    rows: Tensor | None = None
    columns: Tensor | None = None  # place of each token that is attended to
    size: Tensor | None = None  # tokens that each of these represents, [B, S]; None means 1
    # query and key that the attention has computed, [B, heads, tokens, head_dim]
    made: tuple[Tensor, Tensor] | None = None

    def mask(self, like: Tensor) -> Tensor | None:
        """What is added to the logits [B, heads, T, S], or None; `like` is the query."""
        mask = self.positions.bias
        if mask is not None and self.rows is not None:
            assert self.columns is not None
            rows, columns = self.rows.clamp(min=0), self.columns.clamp(min=0)
            mask = mask[0][:, rows[:, :, None], columns[:, None]].transpose(0, 1)
        if self.size is not None:
            logs = self.size.log().to(like.dtype)[:, None, None]
            mask = logs.expand(-1, -1, like.size(2), -1) if mask is None else mask + logs
        return mask

    def rotate(self, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
        """Query and key after rotary embeddings."""
        if self.positions.rotary is None:
            return query, key
        return self._rotate(query, self.rows), self._rotate(key, self.columns)

    def _rotate(self, x: Tensor, place: Tensor | None) -> Tensor:
        assert self.positions.rotary is not None
        if place is None:
            cos, sin = (t[None, None] for t in self.positions.rotary)
        else:
            cos, sin = (t[place.clamp(min=0)][:, None] for t in self.positions.rotary)
        first, second = x.chunk(2, 3)
        return x * cos + torch.cat([-second, first], 3) * sin


class Removable(Protocol):
    """A change of a model that can be taken back, such as a hook."""

    def remove(self) -> None:
        """Take the change back, once."""


class Layers(ABC):
    """The layers of a model: `hf_layers.HFLayers`, `timm_layers.TimmLayers`."""

    layers: list[Any]  # first to last
    prefix: int  # number of tokens before the patches
    base: Any  # the module to which new parameters are added
    embedding: Any  # the module that embeds the images
    dim: int  # features per token
    patch: tuple[int, int]  # rows and columns of a patch, in pixels
    averages = False  # whether a head averages the patches at the end
    # of an attention module, tokens and `inputs`; without `inputs` what its class computes
    attend: Callable[..., Any]
    grid_reason = ""  # why the patches lie on no grid; empty where they do

    @abstractmethod
    def scale(self, layer: Any) -> float:
        """Factor of the dot products of a layer."""

    @abstractmethod
    def positions(self, layer: Any, args: tuple[Any, ...], options: dict[str, Any]) -> Positions:
        """Positions from the arguments of a layer, besides the tokens."""

    def guard(self) -> Removable | None:
        """Refuse calls of the model that no layer sees."""
        return None

    def checkpointed(self, layer: Any, step: Callable[..., Any], *tensors: Tensor) -> Any:
        """``step(*tensors)``, recomputed in the backward pass where the layer says so."""
        return step(*tensors)

    def attention(self, layer: Any) -> Any:
        """The attention module of a layer."""
        return part_of(layer, ATTENTION)

    def norm(self, layer: Any, x: Tensor) -> Tensor:
        """Tokens x after the layer norm before attention."""
        return part_of(layer, _NORM1)(x)

    def first(self, layer: Any, x: Tensor, inputs: AttentionInputs) -> Tensor:
        """Tokens x plus the attention branch of a layer."""
        out = self.attention(layer)(self.norm(layer, x), inputs=inputs)
        return x + _branch(layer, _BRANCH1, out[0] if isinstance(out, tuple) else out)

    def second(self, layer: Any, x: Tensor) -> Tensor:
        """Tokens x plus the MLP branch of a layer."""
        return x + _branch(layer, _BRANCH2, layer.mlp(part_of(layer, _NORM2)(x)))

    def matches_forward(self, layer: Any, tokens: int, **options: Any) -> bool:
        """Whether `first` and `second` agree with the layer's own forward on random tokens."""
        names = (_NORM1, ATTENTION, _NORM2, ("mlp",))
        if any(part_of(layer, group) is None for group in names):
            return False

        def formula(layer: Any, x: Tensor) -> Tensor:
            put_on(self.attention(layer), self.attend)
            inputs = AttentionInputs(self.positions(layer, (), dict(options)))
            return self.second(layer, self.first(layer, x, inputs))

        return agrees_with(layer, formula, tokens, self.dim, **options)


@torch.no_grad()
def agrees_with(
    layer: Any, formula: Callable[..., Tensor], tokens: int, dim: int, **options: Any
) -> bool:
    """Whether the original forward of a module agrees with a formula on random tokens.

    Where a parameter is on "meta" nothing is tried; patches are ignored.
    """
    if any(parameter.is_meta for parameter in layer.parameters()):
        return True
    like = example_of(layer)
    drawn = Generator().manual_seed(0)
    x = torch.randn(2, tokens, dim, generator=drawn).to(like)
    try:
        found, known = _bare(layer)(x, **options), formula(_bare(layer), x)
    except (TypeError, ValueError, RuntimeError, AttributeError):
        return False
    same = found.shape == known.shape
    return same and bool((found - known).norm() <= _TOLERANCE * found.norm())


def example_of(module: nn.Module) -> Tensor:
    """A floating tensor of a module, for device and dtype; quantized layers may have none."""
    found = (t for t in (*module.parameters(), *module.buffers()) if t.is_floating_point())
    return next(found, torch.empty(0))


def _bare(module: Any) -> Any:
    """A module of the same parameters without what patches and hooks have put on it."""
    made = module.__new__(type(module))
    nn.Module.__init__(made)
    own = vars(made).keys() - {"_parameters", "_buffers"} | _PATCHED
    vars(made).update({name: value for name, value in vars(module).items() if name not in own})
    for name, part in module._modules.items():
        made._modules[name] = None if part is None else _bare(part)
    return made.eval()


def part_of(layer: Any, names: tuple[str, ...]) -> Any:
    """The first part of a layer that has one of these names, or None."""
    return next((p for n in names if (p := getattr(layer, n, None)) is not None), None)


def _branch(layer: Any, names: tuple[str, ...], x: Tensor) -> Tensor:
    """A branch through the parts that the layer has: modules, or factors per feature."""
    for name in names:
        part = getattr(layer, name, None)
        if part is not None:
            x = part(x) if callable(part) else part * x
    return x
