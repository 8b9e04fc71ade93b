"""k-NN attention and token reduction in models of Hugging Face transformers, saved with them."""

import copy
import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor, nn
from transformers import (
    AttentionInterface,
    AttentionMaskInterface,
    AutoConfig,
    PreTrainedConfig,
    PreTrainedModel,
)
from transformers.masking_utils import sdpa_mask
from transformers.models.auto.auto_factory import _get_model_class
from transformers.utils import output_capturing
from transformers.utils.hub import cached_file

from graphtheory.graph.content import refuse_traces
from graphtheory.patterns import TopK
from graphtheory.vision.integrations import hf_layers, token_hooks, token_rules
from graphtheory.vision.integrations.nearest import SWIN_MASKED, nearest_attention
from graphtheory.vision.integrations.token_hooks import ReductionHooks, SemanticHooks
from graphtheory.vision.integrations.token_layers import guard, put_on, require_free, take_off
from graphtheory.vision.integrations.token_rules import Reduce, What, as_rule

__all__ = ["What", "apply", "from_pretrained", "topk_attention_forward", "undo"]

NEAREST = "_nearest_attention"  # attribute of a model: its `TopK` and what was there before
_CHOSEN = "_attn_implementation_internal"  # of a config
ENTRY = "graphtheory"  # of the config
# A tensor that Hugging Face alone does not expect, so that it reports it when it loads the folder.
MARK = "load_with_graphtheory.vision.integrations.transformers.from_pretrained"
# Options of `from_pretrained`: where files lie, and what a model takes though its config has it.
_WHERE = ("cache_dir", "local_files_only", "revision", "subfolder", "token")
_DTYPE = ("dtype", "torch_dtype")
# Options of attention layers that change the result and are not supported.
_UNSUPPORTED = ("head_mask", "position_bias", "s_aux", "softcap", "cache")


def apply(model: nn.Module, what: What) -> list[str]:
    """Patch a model of `transformers` in place: k-NN attention or token reduction.

    The model keeps its class, weights and mode. Dropout draws other random numbers. Attention
    weights are returned with ``output_attentions=True`` for `eager` attention and `TopK`. A second
    call with a `TopK` replaces the first, and a second token reduction the first; one of each may
    be applied.

    `TopK` works with every model that uses `AttentionInterface`: ViT, DeiT, Swin, DINOv2, CLIP,
    GPT-2 and others, and with Swin v2. It changes the attention implementation in the config, so
    models that share a config change together. Padding and later tokens that the model masks are
    never chosen and have no influence; a fraction counts only tokens that are not masked. A row
    without any gives zeros.

    `Keep`, `Fuse`, `Merge`, `Reduce` and `Semantic` work with ViT, DeiT, ViT-MSN, I-JEPA, BEiT,
    DINOv2, DINOv3 ViT, the encoder of ViT-MAE (not `Semantic`) and the vision towers of CLIP,
    MetaCLIP 2 and SigLIP; `Semantic` also with Swin, which continues with its whole grid. Class,
    distillation and register tokens are kept. Heads that need every token are refused, unless
    ``Reduce(..., restore=True)`` gives merged ones back. A single rule is applied in every layer,
    a list one by one, ``{4: Keep(0.7), 7: Keep(0.7)}`` in layers 4 and 7, always between attention
    and MLP, as in `ReducedViT`; `transformers.trace` maps old tokens to new ones. Merged tokens
    count in attention by the number of tokens they represent. Where attention depends on positions
    (BEiT, DINOv3), a merged token has that of the token at whose place it lies; fused and semantic
    ones have none, as the class token.

    Args:
        model: A model for any task, such as `ViTForImageClassification`.
        what: Such as ``TopK(0.5)``; ``TopK(1.0)``, ``Keep(1.0)`` and ``Merge(0)`` do not change the
            outputs.

    Returns:
        Classes of the model and its submodels, one for each config whose attention was changed; an
        empty list for token reduction. `undo` restores the model.

    Raises:
        TypeError: If `model` is not of `transformers`, or `what` is none of the above.
        ValueError: If the model is not supported, with the reason; it is not changed then. In a
            forward pass: if an option is not supported, such as a soft cap, sinks or the position
            bias of T5; with token reduction, a mask.

    Example:
        >>> from transformers import ViTConfig, ViTModel  # doctest: +SKIP
        >>> model = ViTModel(ViTConfig())  # doctest: +SKIP
        >>> apply(model, TopK(0.5))  # doctest: +SKIP
        ['ViTModel']
        >>> undo(model)  # doctest: +SKIP
    """
    if not isinstance(model, PreTrainedModel):
        raise TypeError(f"model: got {type(model).__name__}, expected a model of transformers")
    rule = as_rule(what)
    if isinstance(rule, TopK):
        return _apply_topk(model, rule)
    made: token_hooks.Hooks
    if isinstance(rule, Reduce):
        made = ReductionHooks(hf_layers.HFLayers(model, bool(rule.restore)), rule)
    elif model.config.model_type == "swin":
        made = hf_layers.SwinHooks(model, rule)
    else:
        made = SemanticHooks(hf_layers.HFLayers(model), rule)
    token_hooks.install(model, made)
    _save_with_rules(model)
    return []


@dataclass(frozen=True)
class _Nearest:
    """The `TopK` applied to a model, stored on it so that copies and pickles keep it."""

    pattern: TopK
    before: tuple[tuple[Any, str], ...]  # every config, and its attention before

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        _register(self.pattern)


def undo(model: nn.Module) -> None:
    """Restore the attention and the tokens that a model had before `apply`.

    Raises:
        ValueError: If nothing was applied to this model.
    """
    nearest = vars(model).pop(NEAREST, None)
    if not token_hooks.uninstall(model) and nearest is None:
        raise ValueError(f"model: nothing was applied to this {type(model).__name__}")
    for config, kind in () if nearest is None else nearest.before:
        if config._attn_implementation == _name(nearest.pattern):  # else chosen by the user since
            config._attn_implementation_internal = kind
    for part in () if nearest is None else model.modules():  # layers copied since
        own: Any = vars(part).get("config")
        if getattr(own, "_attn_implementation", None) == _name(nearest.pattern):
            own._attn_implementation_internal = nearest.before[0][1]
    for layer in hf_layers.swin2_attention(model):
        take_off(layer)
    guard(model, ())
    _save_with_rules(model)


def _save_with_rules(model: Any) -> None:
    """Make ``model.save_pretrained`` save the rules that are applied; or not, if there are none."""
    theirs = vars(model).pop("save_pretrained", None)
    if getattr(theirs, "func", None) is _save:
        theirs = theirs.args[1]
    if _applied(model):
        theirs = partial(_save, model, theirs)
    if theirs is not None:
        model.save_pretrained = theirs


def _applied(model: Any) -> list[Any]:
    """What is applied to a model, tokens first."""
    made, nearest = vars(model).get(token_hooks.INSTALLED), vars(model).get(NEAREST)
    return [w for w in (getattr(made, "what", None), getattr(nearest, "pattern", None)) if w]


def _save(
    model: Any, theirs: Callable[..., Any] | None, save_directory: str | os.PathLike[str],
    is_main_process: bool = True, state_dict: dict[str, Any] | None = None, **options: Any,
) -> None:  # fmt: skip
    """``save_pretrained``, or what had its place, with the rules in the config."""
    if entry := [token_rules.encoded(what) for what in _applied(model)]:  # else called by a wrapper
        state_dict = {**(model.state_dict() if state_dict is None else state_dict)}
        state_dict[MARK] = torch.ones(1)
        setattr(model.config, ENTRY, entry)
    try:
        save = partial(type(model).save_pretrained, model) if theirs is None else theirs
        save(save_directory, is_main_process=is_main_process, state_dict=state_dict, **options)
    finally:
        vars(model.config).pop(ENTRY, None)  # a `_save` inside may have been first


def from_pretrained(kind: Any, folder: str | os.PathLike[str], *args: Any, **options: Any) -> Any:
    """Load a model that was saved after `apply`, with its rules and trained semantic tokens.

    ``model.save_pretrained(folder)`` writes the rules into config.json. Hugging Face alone loads
    such a folder without them, and reports an unexpected tensor whose name tells this function.

    Args:
        kind: Class of the model, or a class such as ``AutoModelForImageClassification``.
        folder: The folder, or the name of a repository.
        args: As for ``kind.from_pretrained``.
        options: As for ``kind.from_pretrained``, such as `num_labels` or `output_loading_info`.

    Raises:
        FileNotFoundError: If there is no such folder, and no such repository.
        ValueError: If the config names no rule, or one that does not exist; or if the weights were
            saved again by Hugging Face alone, without the rule.

    Example:
        >>> apply(model, Merge(8))  # doctest: +SKIP
        >>> model.save_pretrained("folder")  # doctest: +SKIP
        >>> model = from_pretrained(ViTForImageClassification, "folder")  # doctest: +SKIP
    """
    found = {name: options[name] for name in _WHERE if name in options}
    try:
        saved = AutoConfig.from_pretrained(folder, **found)
    except OSError as error:
        if Path(folder).is_dir():
            raise
        what = "no such folder, and no repository that can be read"
        raise FileNotFoundError(f"folder: {os.fspath(folder)!r}: {what}") from error
    entry, config = getattr(saved, ENTRY, None), copy.deepcopy(options.pop("config", folder))
    if not isinstance(config, PreTrainedConfig):  # as theirs: options that a config has are for it
        own = {n: options.pop(n) for n in list(options) if hasattr(saved, n) and n not in _DTYPE}
        config = AutoConfig.from_pretrained(folder if config is None else config, **found, **own)
    if not entry:
        raise ValueError(f"folder: the config in {folder} names no rule, expected one of `apply`")
    names = _tensors(folder, found)
    if names is not None and MARK not in names:
        raise ValueError(
            f"folder: the weights in {folder} were saved by a model without the rule that its "
            f"config names, expected {kind.__name__}.from_pretrained, and `apply` after it"
        )
    vars(config).pop(ENTRY, None)
    if hasattr(kind, "_model_mapping"):
        kind = _get_model_class(config, kind._model_mapping)  # of two for DeiT: that of the config

    def start(self: Any, config: Any, *args: Any, **options: Any) -> None:
        kind.__init__(self, config, *args, **options)
        for rule in token_rules.decoded(entry):
            apply(self, rule)  # before the weights are loaded: theirs are among them

    parts = {
        "__init__": start, "__module__": kind.__module__, "__qualname__": kind.__qualname__,
        "_keys_to_ignore_on_load_unexpected": [
            *(kind._keys_to_ignore_on_load_unexpected or ()), MARK.replace(".", r"\.")
        ],
    }  # fmt: skip
    started: Any = type(kind.__name__, (kind,), parts)
    made = started.from_pretrained(folder, *args, config=config, **options)
    (made[0] if isinstance(made, tuple) else made).__class__ = kind
    return made


def _tensors(folder: str | os.PathLike[str], where: dict[str, Any]) -> set[str] | None:
    """Names of the tensors of a folder; None if they are in files of another format."""
    for name in ("model.safetensors.index.json", "model.safetensors"):
        path = cached_file(folder, name, _raise_exceptions_for_missing_entries=False, **where)
        if path is None:
            continue
        if name.endswith("json"):
            return set(json.loads(Path(path).read_text())["weight_map"])
        with safe_open(path, "pt") as file:
            return set(file.keys())
    return None


def _apply_topk(model: PreTrainedModel, pattern: TopK) -> list[str]:
    parts: dict[int, Any] = {}  # the model and its submodels that have another config
    for part in model.modules():
        if isinstance(part, PreTrainedModel):
            parts.setdefault(id(part.config), part)
    for part in parts.values():
        if not part._can_set_attn_implementation() and part.config.model_type != "swinv2":
            raise ValueError(
                f"model: its {type(part).__name__} does not find its attention in the registry of "
                "transformers (AttentionInterface), expected one that does"
            )
    require_free(model, hf_layers.swin2_attention(model))
    earlier = getattr(model, NEAREST, None)
    own: Iterator[Any] = (vars(m).get("config") for m in model.modules())  # of a copied layer too
    before = {id(c): (c, c._attn_implementation) for c in own if hasattr(c, _CHOSEN)}
    before |= {} if earlier is None else {id(c): (c, kind) for c, kind in earlier.before}
    name = _register(pattern)
    setattr(model, NEAREST, _Nearest(pattern, tuple(before.values())))
    for config, _ in before.values():
        if config.model_type != "swinv2":
            config._attn_implementation_internal = name
    for layer in hf_layers.swin2_attention(model):
        put_on(layer, partial(hf_layers.attend_windows, pattern=pattern))
    guard(model, hf_layers.swin2_attention(model))
    _save_with_rules(model)
    return [type(part).__name__ for part in parts.values()]


def _name(pattern: TopK) -> str:
    return f"graphtheory_topk_{pattern.k}"


def _register(pattern: TopK) -> str:
    """Register the pattern in both registries and return its name."""
    name = _name(pattern)
    AttentionInterface.register(name, partial(topk_attention_forward, pattern=pattern))
    AttentionMaskInterface.register(name, sdpa_mask)
    return name


def topk_attention_forward(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None,
    *, pattern: TopK, scaling: float | None = None, dropout: float = 0.0,
    is_causal: bool | None = None, **options: Any,
) -> tuple[Tensor, Tensor | None]:  # fmt: skip
    """k-NN attention as a function for `AttentionInterface`.

    Arguments, shapes and results as in `nearest.nearest_attention`, under the names of
    `transformers`. Where `is_causal` is None the layer says it; weights are returned if requested.

    Raises:
        ValueError: If an option is not supported.
    """
    refuse_traces("image's number of tokens")
    for name in _UNSUPPORTED:
        if options.get(name) is not None:
            raise ValueError(f"{name}: given, but k-nearest attention does not support it")
    is_causal = getattr(module, "is_causal", False) if is_causal is None else is_causal
    windowed = hasattr(module, "relative_position_bias")
    collected = output_capturing._active_collector.get() or ()  # whose keys ask for outputs
    asked = options.get("output_attentions") or any("attentions" in key for key in collected)
    return nearest_attention(
        query, key, value, attention_mask, pattern, causal=bool(is_causal), scale=scaling,
        dropout=dropout, masked_from=SWIN_MASKED if windowed else None,
        with_weights=bool(asked),
    )  # fmt: skip
