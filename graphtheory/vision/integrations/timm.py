"""timm: load its state dicts, and patch its models with k-NN attention or token reduction.

timm is not imported. Models with the same structure as its ViT, DeiT and Swin work, too, such as
the code that DeiT and Swin were released with.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from torch import Tensor, nn

from graphtheory.patterns import TopK
from graphtheory.vision.integrations.forwards import guard, require_free
from graphtheory.vision.integrations.timm_layers import (
    TimmLayers,
    attention_layers,
    attention_maps,
    remove_pattern,
    set_pattern,
)
from graphtheory.vision.integrations.token_hooks import (
    ReductionHooks,
    SemanticHooks,
    install,
    trace,
    uninstall,
)
from graphtheory.vision.integrations.token_rules import Reduce, Semantic, What, as_rule
from graphtheory.vision.integrations.weights import load_renamed, named_rules, refuse_foreign
from graphtheory.vision.models.swin import Swin
from graphtheory.vision.models.vit import ViT

__all__ = ["Reduce", "Semantic", "apply", "attention_maps", "load_timm", "trace", "undo"]

_DOWNSAMPLE = re.compile(r"layers\.(\d+)\.downsample\.")


def load_timm(model: ViT | Swin, state: Mapping[str, Tensor]) -> None:
    """Load the state dict of a ViT, DeiT or Swin of timm into a network of the same shape.

    timm merges patches at the beginning of a stage, the released code of Swin at the end of the
    previous one; both are supported.

    Args:
        model: Such as ``vit_small()`` for timm's ``vit_small_patch16_224``.
        state: The state dict.

    Raises:
        TypeError: If the state is no state dict.
        ValueError: If names are missing or unexpected, or shapes differ; the first ones are listed,
            and the model is not changed.
    """
    refuse_foreign(state)
    if not isinstance(model, Swin):
        return load_renamed(model, state, named_rules("ViT of timm"))
    merging = {int(match[1]) for name in state if (match := _DOWNSAMPLE.match(name))}
    at_beginning = 0 if 0 in merging or not merging else 1

    def stage_before(match: re.Match[str]) -> str:
        return f"layers.{int(match[1]) - at_beginning}.downsample."

    renamed = {_DOWNSAMPLE.sub(stage_before, name): tensor for name, tensor in state.items()}
    return load_renamed(model, renamed, named_rules("Swin of timm"))


def apply(model: nn.Module, what: What) -> list[str]:
    """Patch a model of timm in place: k-NN attention or token reduction.

    As `integrations.transformers.apply` for models of `transformers`: class, weights, mode and
    state-dict keys stay, a second call replaces the first of its kind, and one of each kind may be
    applied. `attention_maps` returns the attention weights.

    `TopK` works with softmax attention that has linear maps `qkv` and `proj`, as in
    VisionTransformer, DeiT and SwinTransformer. `Keep`, `Fuse`, `Merge`, `Reduce` and `Semantic`
    work with models of pre-norm blocks, as VisionTransformer and DeiT, whose class, distillation
    and register tokens are kept. A head that averages the patches weights merged ones by their
    number.

    Args:
        model: Such as ``timm.create_model("vit_small_patch16_224")``.
        what: Such as ``TopK(0.5)``, ``Merge(8)``, ``{4: Keep(0.7), 7: Keep(0.7)}``.

    Returns:
        Names of the attention modules that were patched; attention without a `qkv` map stays as it
        is. An empty list for token reduction.

    Raises:
        TypeError: If `model` is not a module, or `what` is none of the above.
        ValueError: If the model is not supported, with the reason; it is not changed then. With
            token reduction: a mask, gradient checkpointing in training, `forward_intermediates`.

    Example:
        >>> model = timm.create_model("vit_tiny_patch16_224")  # doctest: +SKIP
        >>> len(apply(model, TopK(0.5)))  # doctest: +SKIP
        12
        >>> undo(model)  # doctest: +SKIP
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"model: got {type(model).__name__}, expected a model of timm")
    rule = as_rule(what)
    if isinstance(rule, TopK):
        layers = attention_layers(model)
        require_free(model, layers.values())
        for layer in layers.values():
            set_pattern(layer, rule)
        guard(model, layers.values())
        return list(layers)
    read = TimmLayers(model)
    made = ReductionHooks if isinstance(rule, Reduce) else SemanticHooks
    install(model, made(read, rule))  # type: ignore[arg-type]
    return []


def undo(model: nn.Module) -> None:
    """Restore the attention and the tokens that a model had before `apply`.

    Raises:
        ValueError: If nothing was applied to this model.
    """
    guard(model, ())
    found = [uninstall(model), *map(remove_pattern, model.modules())]
    if not any(found):
        raise ValueError(f"model: nothing was applied to this {type(model).__name__}")
