"""Load state dicts of the published ViG into ours."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from graphtheory.integrations.weights import Rules, load_renamed
from graphtheory.models import ViG

_BLOCK, _OURS = r"backbone\.(\d+)\.", r"stages.0.blocks.\1."
_RULES: Rules = (
    (r"pos_embed", "position.table"),
    (r"stem\.convs\.(.*)", r"stem.layers.\1"),
    (_BLOCK + r"0\.fc1\.(.*)", _OURS + r"grapher.before.\2"),
    (_BLOCK + r"0\.graph_conv\.gconv\.nn\.(.*)", _OURS + r"grapher.message.mix.\2"),
    (_BLOCK + r"0\.fc2\.(.*)", _OURS + r"grapher.after.\2"),
    (_BLOCK + r"1\.fc1\.0\.(.*)", _OURS + r"mlp.0.\2"),
    (_BLOCK + r"1\.fc1\.1\.(.*)", _OURS + r"mlp.1.\2"),
    (_BLOCK + r"1\.fc2\.0\.(.*)", _OURS + r"mlp.3.\2"),
    (_BLOCK + r"1\.fc2\.1\.(.*)", _OURS + r"mlp.4.\2"),
    (r"prediction\.([01])\.(.*)", r"head.output.\1.\2"),
    (r"prediction\.4\.(.*)", r"head.output.3.\1"),
)


def load_vig(model: ViG, state: Mapping[str, Tensor]) -> None:
    """Load a published state dict of the ViG of one stage: vig_ti, vig_s or vig_b of 224 pixels.

    Args:
        model: `models.vig_tiny()`, `vig_small()` or `vig_base()`, with max-relative messages and as
            many classes as the state has.
        state: Of "vig_ti_224_gelu" and its kin, as `torch.load(file, weights_only=True)` gives it.

    Raises:
        ValueError: If names are missing or left over, or shapes differ, such as of a Pyramid ViG;
            the message lists them, and the model is not changed then.

    Source:
        Names of huawei-noah/Efficient-AI-Backbones, vig_pytorch.
    """
    fitted = {}
    for name, tensor in state.items():
        if name == "pos_embed" and tensor.dim() == 4:  # [1, dim, rows, columns]
            tensor = tensor[0].flatten(1).t()
        elif tensor.dim() == 4 and tensor.shape[2:] == (1, 1):  # a convolution of one pixel
            tensor = tensor[..., 0, 0]
        fitted[name] = tensor
    load_renamed(model, fitted, _RULES)
