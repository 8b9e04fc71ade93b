"""Layers of other libraries: another `forward`, under what others put around it, and their parts.

Pre-norm layers are computed part by part, so that tokens can change inside.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from types import MethodType
from typing import Any, NamedTuple, Protocol

import torch
from torch import Generator, Tensor, nn

OWN = "_graphtheory_forward"  # attribute of a module: its `Forward`
_GUARD = "_graphtheory_guard"  # attribute of a model: the `Guard` of its pattern
# Names of the parts of a layer in transformers, timm and the released code of DeiT.
_NORM1 = ("layernorm_before", "layer_norm1", "norm1")
ATTENTION = ("attention", "self_attn", "attn")
_NORM2 = ("layernorm_after", "layer_norm2", "norm2")
_BRANCH1 = ("dropout", "lambda_1", "layer_scale1", "ls1", "drop_path", "drop_path1")
_BRANCH2 = ("dropout", "lambda_2", "layer_scale2", "ls2", "drop_path", "drop_path2")
# Attributes of an instance that patches, those of accelerate too, and `compile` add to a module.
_PATCHED = {OWN, "forward", "_nearest", "_hf_hook", "_old_forward", "_compiled_call_impl"}
_TOLERANCE = 0.02  # relative difference of norms, wide enough for half precision


class Forward:
    """Computes a module as ``compute(module, ...)``; once taken off, as its class does."""

    compute: Callable[..., Any] | None = None

    def __init__(self, module: nn.Module) -> None:
        self.module, self.bound = module, _slot(module) in vars(module)

    def __call__(self, *args: Any, **options: Any) -> Any:
        if self.compute is None:
            return type(self.module).forward(self.module, *args, **options)
        return self.compute(self.module, *args, **options)


def _slot(module: nn.Module) -> str:
    """Where the `forward` lies that runs, inside the hooks of accelerate if there are any."""
    return "_old_forward" if {"_hf_hook", "_old_forward"} <= vars(module).keys() else "forward"


def require_free(base: nn.Module, modules: Iterable[nn.Module]) -> None:
    """Raise ValueError where a module has a `forward` that another one would put out of use."""
    for module in modules:
        own = vars(module).get(_slot(module))
        free = (None, MethodType(type(module).forward, module))  # accelerate leaves the second one
        if own not in free and OWN not in vars(module):
            raise ValueError(
                f"model: {name_of(module, base)}.forward was replaced, by {own!r}, which would not "
                "run any more; expected its class's: replace it after `apply`, or use a hook"
            )


def name_of(module: nn.Module, base: nn.Module) -> str:
    """The name of a module in a model, or its class."""
    return next((n for n, m in base.named_modules() if m is module), type(module).__name__)


class Guard:
    """Before each call of a model: the modules that `apply` has patched are those that will run."""

    def __init__(self, base: nn.Module, modules: Iterable[nn.Module]) -> None:
        patched = set(modules)
        self.modules = {name: m for name, m in base.named_modules() if m in patched}
        self.remove = base.register_forward_pre_hook(self).remove

    def __call__(self, base: nn.Module, args: Any) -> None:
        for name, module in self.modules.items():
            found: Any = base
            for part in name.split("."):
                found = getattr(found, part, None)
            if found is not module:
                raise ValueError(
                    f"model: {name} was replaced after `apply`, by a {type(found).__name__} on "
                    "which the rule does not run; expected what was there: apply the rule again"
                )


def guard(model: nn.Module, modules: Iterable[nn.Module]) -> None:
    """Let a model have a `Guard` of these modules, in place of the one before; none if empty."""
    if (before := vars(model).pop(_GUARD, None)) is not None:
        before.remove()
    if modules := list(modules):
        setattr(model, _GUARD, Guard(model, modules))


def put_on(module: Any, compute: Callable[..., Any]) -> None:
    """Let a module be computed by another function, of the module and its arguments."""
    made = vars(module).setdefault(OWN, Forward(module))
    made.compute, slot = compute, _slot(module)
    if vars(module).get(slot) in (None, MethodType(type(module).forward, module)):
        setattr(module, slot, made)


def take_off(module: Any) -> bool:
    """Undo `put_on`; return whether there was anything."""
    made = vars(module).get(OWN)
    if made is None or made.compute is None:
        return False
    made.compute = None
    for slot in ("forward", "_old_forward"):
        if vars(module).get(slot) is made:
            delattr(module, slot)
            if made.bound or slot == "_old_forward":
                setattr(module, slot, MethodType(type(module).forward, module))
            delattr(module, OWN)  # else it is still called by what was put around it
    return True


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

    def rotate(self, x: Tensor, place: Tensor | None) -> Tensor:
        """Queries or keys at these places after rotary embeddings, if there are any."""
        if self.positions.rotary is None:
            return x
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
    """The layers of a model: `hf_layers.HFLayers`, `timm.TimmLayers`."""

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
        return x + through(layer, _BRANCH1, out[0] if isinstance(out, tuple) else out)

    def second(self, layer: Any, x: Tensor) -> Tensor:
        """Tokens x plus the MLP branch of a layer."""
        return x + through(layer, _BRANCH2, layer.mlp(part_of(layer, _NORM2)(x)))

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


def scaling(attention: Any) -> float:
    """Factor of the dot products of an attention module."""
    return attention.scaling if hasattr(attention, "scaling") else attention.scale


def part_of(layer: Any, names: tuple[str, ...]) -> Any:
    """The first part of a layer that has one of these names, or None."""
    return next((p for n in names if (p := getattr(layer, n, None)) is not None), None)


def through(layer: Any, names: tuple[str, ...], x: Tensor) -> Tensor:
    """Tokens or heads through the parts that the layer has: modules, or factors per feature."""
    for name in names:
        part = getattr(layer, name, None)
        if part is not None:
            x = part(x) if callable(part) else part * x
    return x
