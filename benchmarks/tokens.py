"""Which rule on tokens works with which model of Hugging Face: the table of docs/transformers.md.

    python benchmarks/tokens.py

Every model has random weights, 3 layers of width 32 and images of 32 pixels in 16 patches; the
table says what works, not how fast or how well.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

_SIZES: dict[str, Any] = {
    "hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 2, "intermediate_size": 48,
    "image_size": 32, "patch_size": 8,
}  # fmt: skip
_SWIN: dict[str, Any] = {
    "embed_dim": 16, "depths": [1, 3], "num_heads": [1, 2], "window_size": 4, "image_size": 32,
    "patch_size": 4, "num_labels": 5,
}  # fmt: skip
_LABELS = _SIZES | {"num_labels": 5}
_NESTED = {"vision_config": _SIZES, "text_config": {"eos_token_id": 2, "bos_token_id": 1}}
# Class of each model, and the options of its config.
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "ViT": ("ViTForImageClassification", _LABELS),
    "DeiT": ("DeiTForImageClassificationWithTeacher", _LABELS),
    "ViT-MSN": ("ViTMSNForImageClassification", _LABELS),
    "ViT-MAE": ("ViTMAEModel", _SIZES | {"mask_ratio": 0.25}),
    "I-JEPA": ("IJepaForImageClassification", _LABELS),
    "BEiT": ("BeitForImageClassification", _LABELS | {"use_relative_position_bias": True}),
    "BEiT, shared bias": (
        "BeitForImageClassification",
        _LABELS | {"use_shared_relative_position_bias": True, "use_mean_pooling": False},
    ),
    "DINOv2": ("Dinov2ForImageClassification", _LABELS),
    "DINOv2 with registers": ("Dinov2WithRegistersForImageClassification", _LABELS),
    "DINOv3 ViT": ("DINOv3ViTModel", _SIZES | {"num_register_tokens": 4}),
    "CLIP": ("CLIPVisionModelWithProjection", _SIZES | {"projection_dim": 16}),
    "CLIP, classifier": ("CLIPForImageClassification", _NESTED | {"num_labels": 5}),
    "MetaCLIP 2": ("MetaClip2VisionModel", _SIZES | {"projection_dim": 16}),
    "SigLIP": ("SiglipVisionModel", _SIZES),
    "SigLIP, classifier": ("SiglipForImageClassification", _NESTED | {"num_labels": 5}),
    "Swin": ("SwinForImageClassification", _SWIN),
    "Swin v2": ("Swinv2ForImageClassification", _SWIN),
}


def tiny(name: str, **options: Any) -> Any:
    """The model of that name with seeded random weights, in evaluation mode."""
    import transformers

    kind, sizes = MODELS[name]
    made = getattr(transformers, kind)
    model = made(made.config_class(**sizes, **options))
    draw = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=draw))
    return model.eval()


def images(count: int = 2) -> Tensor:
    """Seeded random images."""
    return torch.randn(count, 3, 32, 32, generator=torch.Generator().manual_seed(1))


class Read(nn.Module):
    """A model as images -> what its head reads: logits, the pooled or the class token."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, given: Tensor) -> Tensor:
        """The first of these outputs that the model has."""
        options = {}
        if hasattr(getattr(self.model, "config", None), "mask_ratio"):  # else it draws its masks
            options["noise"] = torch.arange(16.0).flip(0).expand(len(given), -1)
        out = self.model(given, **options)
        for name in ("logits", "image_embeds", "pooler_output"):
            if getattr(out, name, None) is not None:
                return out[name]
        return out.last_hidden_state[:, 0]
