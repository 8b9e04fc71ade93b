"""k-nearest attention and fewer tokens in the models of Hugging Face's transformers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.masking_utils import sdpa_mask
from transformers.utils import output_capturing

from graphtheory.integrations.hf_layers import HFLayers
from graphtheory.integrations.hf_reduce import Reduce, ReductionHooks, put, take_out
from graphtheory.integrations.hf_semantic import Semantic, SemanticHooks
from graphtheory.integrations.hf_swin import SwinHooks
from graphtheory.integrations.nearest import FAR_IN_WINDOWS, nearest_attention
from graphtheory.nn.reduce import Reducer
from graphtheory.patterns import TopK

What = TopK | Reduce | Semantic | Reducer | Mapping[int, Reducer]

# What a layer may hand over that changes the sums, and that is not computed here.
_REFUSED = ("head_mask", "position_bias", "s_aux", "softcap", "cache")
_NEAREST = "_nearest_attention"  # attribute of a model: the `_Nearest` that was put into it


@dataclass(frozen=True)
class Applied:
    """What `apply` did to a model; `print` shows it.

    Attributes:
        what: Who counts in each row, or which tokens stay.
        parts: Class of each part with its own configuration, and the attention that it had.
    """

    what: TopK | Reduce | Semantic
    parts: tuple[tuple[str, str], ...]

    def __str__(self) -> str:
        kind = "attention" if isinstance(self.what, TopK) else "tokens"
        return "\n".join([f"{kind}: {self.what}", *(f"{n}: was {old}" for n, old in self.parts)])


def apply(model: nn.Module, what: What) -> Applied:
    """Let a model of `transformers` attend to the nearest, or go on with fewer tokens, in place.

    The model keeps its class, weights and mode. Dropout draws other numbers; attention weights are
    returned where ``output_attentions=True`` asks for them, with `eager` attention or a `TopK`.
    A second call with a `TopK` replaces the first, and so does one with fewer tokens; one of each
    may be applied.

    `TopK`: every model that finds its attention in `AttentionInterface` can be taken: ViT, DeiT,
    Swin, DINOv2, CLIP, GPT-2 and others. What changes is the name of the attention in the
    configuration, so models that share it change together. A row is what the model's mask leaves of
    it: padding and later tokens are never chosen and have no influence, and a share counts the
    others. A row without any gives zeros.

    `Keep`, `Fuse`, `Merge`, `Reduce`, `Semantic`: ViT and DeiT, whose class and distillation tokens
    stay; `Semantic` also Swin, which has its whole grid again behind it. A rule alone comes after
    every layer, ``{4: Keep(0.7), 7: Keep(0.7)}`` after those. Merged tokens count in attention as
    many times as tokens they stand for. Tokens get fewer behind a layer, as in `models.ReducedViT`;
    `hf_reduce.trace` tells where they went.

    Args:
        model: With weights of any task, such as `ViTForImageClassification`.
        what: Such as ``TopK(0.5)``; ``TopK(1.0)``, ``Keep(1.0)`` and ``Merge(0)`` give what the
            model gave before.

    Returns:
        What was changed; `undo` goes back.

    Raises:
        TypeError: Not a model of `transformers`, or nothing of the above.
        ValueError: A model that this cannot be applied to, with the reason; nothing was changed. In
            a forward pass: an option that is not supported, such as a soft cap, sinks or a position
            bias of T5; with fewer tokens a mask, or gradient checkpointing.

    Example:
        >>> from transformers import ViTConfig, ViTModel  # doctest: +SKIP
        >>> model = ViTModel(ViTConfig())  # doctest: +SKIP
        >>> print(apply(model, TopK(0.5)))  # doctest: +SKIP
        attention: TopK(k=0.5)
        ViTModel: was sdpa
        >>> undo(model)  # doctest: +SKIP
    """
    if not isinstance(model, PreTrainedModel):
        raise TypeError(f"model: got {type(model).__name__}, expected a model of transformers")
    if isinstance(what, (Reducer, Mapping)):
        what = Reduce(what)
    if isinstance(what, TopK):
        return _apply_topk(model, what)
    if not isinstance(what, (Reduce, Semantic)):
        expected = "expected TopK(...), Keep, Fuse, Merge, Reduce or Semantic"
        raise TypeError(f"what: got {type(what).__name__}, {expected}")
    if isinstance(what, Reduce):
        put(model, ReductionHooks(HFLayers(model), what))
    elif model.config.model_type == "swin":
        put(model, SwinHooks(model, what))
    else:
        put(model, SemanticHooks(HFLayers(model), what))
    return Applied(what, ((type(model).__name__, model.config._attn_implementation),))


@dataclass(frozen=True)
class _Nearest:
    """A `TopK` in a model: it goes along with a copy of the model, and with what is unpickled."""

    pattern: TopK
    before: tuple[tuple[Any, str], ...]  # every configuration, and the attention that it had

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        _register(self.pattern)


def undo(model: nn.Module) -> None:
    """Give a model the attention and the tokens back that it had before `apply`.

    Raises:
        ValueError: Nothing was applied to this model.
    """
    nearest = vars(model).pop(_NEAREST, None)
    if not take_out(model) and nearest is None:
        raise ValueError(f"model: nothing was applied to this {type(model).__name__}")
    for config, kind in () if nearest is None else nearest.before:
        config._attn_implementation_internal = kind


def _apply_topk(model: PreTrainedModel, pattern: TopK) -> Applied:
    parts = list(_parts(model))
    for part in parts:
        if not part._can_set_attn_implementation():
            raise ValueError(
                f"model: its {type(part).__name__} does not find its attention in the registry of "
                "transformers (AttentionInterface), expected one that does"
            )
    earlier = getattr(model, _NEAREST, None)
    before = tuple((p.config, p.config._attn_implementation) for p in parts)
    before = before if earlier is None else earlier.before
    name = _register(pattern)
    setattr(model, _NEAREST, _Nearest(pattern, before))
    for part in parts:
        part.config._attn_implementation_internal = name
    names = (type(part).__name__ for part in parts)
    return Applied(pattern, tuple(zip(names, (kind for _, kind in before), strict=True)))


def _parts(model: PreTrainedModel) -> Iterator[PreTrainedModel]:
    """The model, and the models in it that have another configuration."""
    seen: set[int] = set()
    for part in model.modules():
        if isinstance(part, PreTrainedModel) and id(part.config) not in seen:
            seen.add(id(part.config))
            yield part


def _register(pattern: TopK) -> str:
    """The name of the pattern in both registries; registering it again changes nothing."""
    name = f"graphtheory_topk_{pattern.k}"
    AttentionInterface.register(name, partial(topk_attention_forward, pattern=pattern))
    AttentionMaskInterface.register(name, sdpa_mask)
    return name


def topk_attention_forward(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    pattern: TopK,
    scaling: float | None = None,
    dropout: float = 0.0,
    is_causal: bool | None = None,
    **options: Any,
) -> tuple[Tensor, Tensor | None]:
    """k-nearest attention as a function of transformers' registry.

    Args:
        module: The layer; read for `is_causal` and grouped key heads.
        query: Receivers' vectors.
        key: Senders' vectors, of as many heads or a divisor of them.
        value: Senders' vectors.
        attention_mask: Bool (True may be seen) or added to the logits, or None; broadcast.
        pattern: Who counts in each row.
        scaling: Factor of the dot products; None is 1 / sqrt(head_dim).
        dropout: Probability with which a weight is dropped.
        is_causal: Whether a token sees no later one where no mask says; None asks the layer.
        options: What else a layer hands over; none may be one that changes the sums.

    Shapes:
        query [B, H, T, D], key and value [B, H, S, D], mask [B or 1, H or 1, T, S]
        -> [B, T, H, D], and the weights [B, H, T, S] or None where nobody asks for them.

    Raises:
        ValueError: An option that is not supported.
    """
    for name in _REFUSED:
        if options.get(name) is not None:
            raise ValueError(f"{name}: given, but k-nearest attention does not support it")
    is_causal = getattr(module, "is_causal", False) if is_causal is None else is_causal
    windowed = hasattr(module, "relative_position_bias")
    return nearest_attention(
        query, key, value, attention_mask, pattern, causal=bool(is_causal), scale=scaling,
        dropout=dropout, far=FAR_IN_WINDOWS if windowed else None, with_weights=_asked(options),
    )  # fmt: skip


def _asked(options: dict[str, Any]) -> bool:
    """Whether somebody wants the weights: a keyword that came through, or a model that collects."""
    collected = output_capturing._active_collector.get() or ()
    return bool(options.get("output_attentions")) or any("attentions" in key for key in collected)
