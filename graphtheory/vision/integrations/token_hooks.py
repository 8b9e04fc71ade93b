"""Token reduction and semantic tokens (STViT) inside the layers of models of other libraries."""

import gc
import warnings
from collections.abc import Callable
from functools import partial
from threading import local
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from graphtheory.graph import Grid
from graphtheory.graph.content import innermost_transform, refuse_traces
from graphtheory.vision.integrations.token_layers import (
    ATTENTION,
    OWN,
    AttentionInputs,
    Guard,
    Layers,
    Positions,
    Removable,
    example_of,
    name_of,
    part_of,
    put_on,
    require_free,
    scaling,
    take_off,
)
from graphtheory.vision.integrations.token_rules import Reduce, Semantic
from graphtheory.vision.nn.centers import AveragePool, centers_of
from graphtheory.vision.nn.reduce import Reducer, compose_slots, ones_of, unmerge

INSTALLED = "_fewer_tokens"  # attribute of a model: its `Hooks`


class Trace(NamedTuple):
    """Which remaining token represents each token of the last forward pass.

    Attributes:
        size: Number of tokens that each remaining token represents, [B, M].
        slot: Index of the remaining token that represents each of the T tokens, int64 [B, T]; -1
            for dropped tokens.
        place: Index of the token at whose place each remaining one lies, int64 [B, M]; -1 for a
            fused token. It has the position of that token where attention depends on positions,
            a fused one that of the class token.
    """

    size: Tensor
    slot: Tensor
    place: Tensor


def trace(model: nn.Module) -> Trace:
    """The `Trace` of the last forward pass of a model with token reduction in this thread.

    ``unmerge(outputs.last_hidden_state, trace(model).slot)`` restores every token.

    Raises:
        ValueError: If no `Reduce` was applied to the model, or this thread did not call it since.
    """
    made = getattr(model, INSTALLED, None)
    if not isinstance(made, ReductionHooks) or made.call.now is None:
        raise ValueError(
            f"model: no reduction has run in this {type(model).__name__} in this thread, outside "
            "of torch.func"
        )
    return made.call.now


class Call:
    """What belongs to one forward pass."""

    ran = 0  # layers with another forward that have run
    now: Trace | None = None
    whole = 0  # tokens before the first layer
    size = (0, 0)  # rows and columns of the grid of patches
    patches: Tensor | None = None


class Calls(local):
    """The `Call` that each thread runs, or has run last; copies and pickles have none."""

    def __init__(self) -> None:
        self.here = Call()  # an object of its own, to which compiled code writes

    def __reduce__(self) -> "tuple[type[Calls], tuple[()]]":
        return Calls, ()


class Tokens(nn.Module):
    """Centers and G, a submodule of the model, on the device and in the dtype of `like`."""

    def __init__(self, what: Semantic, dim: int, like: Tensor) -> None:
        super().__init__()
        self.centers = centers_of(what.tokens, AveragePool)
        shape = (self.centers.tokens, dim)
        self.global_centers = nn.Parameter(torch.zeros(shape)) if what.with_global else None
        self.to(like.device, like.dtype)

    def forward(self, tokens: Tensor) -> Tensor:
        """Tokens plus G, if there is one."""
        return tokens if self.global_centers is None else tokens + self.global_centers


class Hooks:
    """Layers of a model with another `forward`, and in `call` the state of a forward pass.

    `read` replaces the attention of these layers, too; `parts` are new parameters of the model.
    """

    attend: Callable[..., Any]  # computes an attention module, as `Layers.attend`

    def __init__(
        self, base: Any, layers: list[Any], what: Reduce | Semantic,
        read: Layers | None = None, parts: Tokens | None = None,
    ) -> None:  # fmt: skip
        self.base, self.layers, self.what = base, layers, what
        self.read, self.parts, self.calls = read, parts, Calls()
        self.attend = self.attend if read is None else read.attend
        attentions = [part_of(layer, ATTENTION) for layer in layers]
        self.computed: list[tuple[Any, Callable[..., Any]]]
        self.computed = [(layer, partial(self.run, which)) for which, layer in enumerate(layers)]
        self.computed += [(attention, self.attend) for attention in attentions]
        self.handles: list[Removable] = []

    @property
    def call(self) -> Call:
        """The call in this thread."""
        return self.calls.here

    def check(self) -> None:
        """Raise ValueError if something on the model would be lost."""
        require_free(self.base, [module for module, _ in self.computed])
        if self.parts is None:
            return
        theirs = getattr(self.base, "semantic", None)
        if not isinstance(theirs, Tokens | None):
            raise ValueError(
                f"model: has an attribute semantic of its own ({type(theirs).__name__}), expected "
                "none, for Semantic puts its parameters there"
            )
        meta = any(parameter.is_meta for parameter in self.parts.parameters())
        if meta and any("_hf_hook" in vars(module) for module in self.base.modules()):
            raise ValueError(
                "model: its parameters are offloaded to meta, where Semantic cannot make new ones; "
                "expected `apply` before hooks of accelerate"
            )

    def install(self) -> None:
        """Patch the layers and add the new parameters, as `base.semantic`."""
        if self.parts is not None:
            _warn_optimizers(self.base, self.parts)
            self.base.semantic = self.parts
        self.handles = [*self.watch(), Guard(self.base, [module for module, _ in self.computed])]
        for module, compute in self.computed:
            put_on(module, compute)

    def remove(self) -> None:
        """Restore the layers and remove the new parameters."""
        if self.parts is not None:
            del self.base.semantic
        for module, _ in self.computed:
            take_off(module)
        for handle in self.handles:
            handle.remove()

    def watch(self) -> list[Removable]:
        """Hooks on calls of the model that no layer sees."""
        guard = None if self.read is None else self.read.guard()
        return [] if guard is None else [guard]

    def run(self, which: int, layer: Any, x: Tensor, *args: Any, **options: Any) -> Any:
        """Compute the layer of that number in place of its own forward."""
        refuse_traces("image's number of tokens")
        if which and self.call.ran != which:
            raise ValueError(
                f"model: {name_of(layer, self.base)} ran after {self.call.ran} of {which} layers "
                "before it; expected all in order, checkpoints by gradient_checkpointing_enable"
            )
        self.call.ran = which + 1
        return self.compute(which, layer, x, *args, **options)

    def compute(self, which: int, layer: Any, x: Tensor, *args: Any, **options: Any) -> Any:
        """Output of the layer of that number."""
        raise NotImplementedError


def install(model: nn.Module, made: Hooks) -> None:
    """Patch a model, in place of what was installed before."""
    made.check()
    earlier = vars(model).get(INSTALLED)
    for layer in made.layers:
        run = getattr(vars(layer).get(OWN), "compute", None)  # of `Hooks`
        other: Any = getattr(getattr(run, "func", None), "__self__", earlier)
        if other is not earlier and other.base is made.base:
            raise ValueError(
                f"model: {name_of(layer, made.base)} has a rule that was applied to a part of this "
                f"{type(model).__name__} or to a model around it; expected `undo` of that one first"
            )
    uninstall(model)
    made.install()
    setattr(model, INSTALLED, made)


def uninstall(model: nn.Module) -> bool:
    """Undo what was installed; return whether there was anything."""
    made = vars(model).pop(INSTALLED, None)
    if made is not None:
        made.remove()
    return made is not None


def _with_subclasses(kind: type) -> set[type]:
    return {kind}.union(*map(_with_subclasses, kind.__subclasses__()))


def _warn_optimizers(base: nn.Module, parts: Tokens) -> None:
    """Warn of optimizers of the model that will not train its new parameters."""
    new, old = [n for n, _ in parts.named_parameters()], {id(p) for p in base.parameters()}
    # Objects refer to their class: this walk through all of them is in C, four times as fast.
    for found in gc.get_referrers(*_with_subclasses(torch.optim.Optimizer)) if new else ():
        is_one = issubclass(type(found), torch.optim.Optimizer)
        if is_one and any(id(p) in old for group in found.param_groups for p in group["params"]):
            warnings.warn(
                f"optimizer: this {type(found).__name__} was made before `apply` and does not hold "
                f"semantic.{', semantic.'.join(new)}, which it will not train; make it afterwards, "
                "or use add_param_group",
                stacklevel=5,
            )


class ReductionHooks(Hooks):
    """Layers between whose attention and MLP tokens get fewer."""

    read: Layers

    def __init__(self, read: Layers, what: Reduce) -> None:
        super().__init__(read.base, read.layers, what, read)
        self.rules, self.inside = what.rules(len(read.layers)), what.inside
        self.proportional, self.restore = what.counts_sizes, what.restores(read.averages)

    def compute(self, which: int, layer: Any, x: Tensor, *args: Any, **options: Any) -> Tensor:
        call = self.call
        positions = self.read.positions(layer, args, options)
        if which == 0:
            size = ones_of(x)
            place = torch.arange(size.size(1), device=size.device).expand_as(size)
            call.now, call.whole = Trace(size, place, place), x.size(1)
        assert call.now is not None
        now = Trace(*(t.to(x.device) for t in call.now))  # layers may lie on several devices
        step = partial(self._step, which + 1, positions, now, call.whole)
        x, *after = self.read.checkpointed(layer, step, x)
        call.now = Trace(after[0].detach(), *after[1:])
        if which + 1 == len(self.layers):
            x = unmerge(x, call.now.slot) if self.restore else x
            transformed = not torch.compiler.is_compiling() and innermost_transform() is not None
            if torch.compiler.is_exporting() or transformed:
                call.now = None  # keep no tensors of a trace or of torch.func
        return x

    def _step(
        self, number: int, positions: Positions, now: Trace, whole: int, x: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Tokens after a layer, their sizes, slots and places."""
        layer, rule = self.layers[number - 1], self.rules.get(number)
        place = now.place if any(i < number for i in self.rules) else None
        size = now.size if self.proportional and x.size(1) < whole else None
        inputs = AttentionInputs(positions, None, place, place, size)
        tokens = self.read.first(layer, x, inputs)
        if rule is not None and self.inside:
            tokens, now = self._reduced(rule, layer, tokens, now, inputs)
        tokens = self.read.second(layer, tokens)
        if rule is not None and not self.inside:
            tokens, now = self._reduced(rule, layer, tokens, now, inputs)
        # Checkpoints give their outputs a history: what they read must not have one.
        return tokens, now.size.detach(), now.slot, now.place

    def _reduced(
        self, rule: Reducer, layer: Any, tokens: Tensor, before: Trace, inputs: AttentionInputs
    ) -> tuple[Tensor, Trace]:
        """Tokens after a rule, which reads what the attention has computed."""
        assert inputs.made is not None
        query, key = inputs.made
        wants_attention = rule.needs == "received"
        found = rule(
            tokens, size=before.size, prefix=self.read.prefix,
            received=self._received(layer, query, key, inputs) if wants_attention else None,
            keys=key.mean(1) if rule.needs == "keys" else None,
        )  # fmt: skip
        slot = compose_slots(before.slot, found.slot)
        return found.tokens, Trace(found.size, slot, compose_slots(found.place, before.place))

    def _received(self, layer: Any, query: Tensor, key: Tensor, inputs: AttentionInputs) -> Tensor:
        """Attention received by each token, from the class token or else from all, [B, T]."""
        query = query[:, :, :1] if self.read.prefix else query
        logits = (
            scaling(self.read.attention(layer)) * query @ key.transpose(2, 3)
        )  # [B, H, 1 or T, T]
        mask = inputs.mask(key)
        if mask is not None:
            logits = logits + mask[:, :, : query.size(2)]
        return logits.softmax(3).mean((1, 2))


class SemanticHooks(Hooks):
    """Layers that go on with semantic tokens in place of patches."""

    read: Layers

    def __init__(self, read: Layers, what: Semantic) -> None:
        if not 0 <= what.base <= len(read.layers) - 2:
            raise ValueError(f"base: got {what.base}, expected 0..{len(read.layers) - 2}")
        if read.grid_reason:
            raise ValueError(
                f"model: {type(read.base).__name__} has no grid of patches, which Semantic pools: "
                f"{read.grid_reason}; expected a ViT with the same weights"
            )
        parts = Tokens(what, read.dim, example_of(read.base)).train(read.base.training)
        super().__init__(read.base, read.layers[what.base :], what, read, parts)

    def watch(self) -> list[Removable]:
        hook = self.read.embedding.register_forward_pre_hook(self.record_size, with_kwargs=True)
        return [hook, *super().watch()]

    def record_size(
        self, embeddings: nn.Module, args: tuple[Any, ...], options: dict[str, Any]
    ) -> None:
        """Before the embedding: record the size of the images in patches."""
        images = args[0] if args else options["pixel_values"]
        (height, width), patch = images.shape[2:], self.read.patch
        self.call.size = (height // patch[0], width // patch[1])

    def compute(self, which: int, layer: Any, x: Tensor, *args: Any, **options: Any) -> Tensor:
        step = partial(self._step, which, self.read.positions(layer, args, options), self.call.size)
        if which == 0:
            self.call.patches = x[:, self.read.prefix :]
        if which != 1:
            return self.read.checkpointed(layer, step, x)
        patches, self.call.patches = self.call.patches, None  # keep no tensors of this pass
        assert patches is not None
        return self.read.checkpointed(layer, step, x, patches.to(x.device))

    def _step(
        self, which: int, positions: Positions, size: tuple[int, int], x: Tensor,
        patches: Tensor | None = None,
    ) -> Tensor:  # fmt: skip
        """Prefix and semantic tokens after a layer; x has the patches in place of these at first.

        Semantic tokens have no position, as the class token.
        """
        read, layer, semantic = self.read, self.layers[which], self.base.semantic
        prefix, rest = x.tensor_split([read.prefix], 1)
        sources, places = x, torch.arange(x.size(1), device=x.device)[None]
        none = places.new_full((1, semantic.centers.tokens), -1)
        if which == 0:
            centers = semantic.centers(rest.flatten(0, 1), Grid(x.size(0), *size))
            x = torch.cat([prefix, centers.view(x.size(0), -1, x.size(2))], 1)
        elif patches is not None:
            sources = torch.cat([x, patches], 1)
            places = torch.arange(read.prefix + patches.size(1), device=x.device)[None]
            places = torch.cat([places[:, : read.prefix], none, places[:, read.prefix :]], 1)
            x = torch.cat([prefix, semantic(rest)], 1)
        rows = torch.cat([places[:, : read.prefix], none], 1)
        inputs = AttentionInputs(positions, None, rows, rows)
        if which < 2:
            inputs = AttentionInputs(positions, read.norm(layer, sources), rows, places)
        return read.second(layer, read.first(layer, x, inputs))
