"""Which rule on tokens works with which model of timm: the second table of docs/transformers.md.

    python benchmarks/timm_tokens.py

Every model has random weights and three layers of width 32, or is as small as timm has it; the
table says what works, not how fast or how well. "yes" means: a forward pass that the rule changes;
a training step with finite gradients; the same outputs, within 1e-5, by `torch.export`; the same
outputs after `undo`, bit by bit; for `TopK`, also timm's outputs within 1e-5 where all tokens are
the nearest.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch
from tokens import laid_out, rules
from torch import Tensor

_SIZES: dict[str, Any] = {
    "img_size": 32, "patch_size": 8, "embed_dim": 32, "depth": 3, "num_heads": 2,
}  # fmt: skip
_SWIN: dict[str, Any] = {
    "img_size": 32, "patch_size": 2, "embed_dim": 8, "window_size": 4, "depths": (2, 2),
    "num_heads": (2, 4),
}  # fmt: skip
# timm's name of each model, and the options of `create_model`.
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "ViT": ("vit_tiny_patch16_224", _SIZES),
    "ViT, mean of the patches": ("vit_tiny_patch16_224", _SIZES | {"global_pool": "avg"}),
    "DeiT": ("deit_tiny_patch16_224", _SIZES),
    "DeiT, distilled": ("deit_tiny_distilled_patch16_224", _SIZES),
    "DeiT III": ("deit3_small_patch16_224", _SIZES),
    "DINOv2": ("vit_small_patch14_dinov2", _SIZES),
    "DINOv2 with registers": ("vit_small_patch14_reg4_dinov2", _SIZES),
    "CLIP": ("vit_base_patch16_clip_224", _SIZES),
    "SigLIP": ("vit_base_patch16_siglip_224", _SIZES),
    "SigLIP, mean of the patches": ("vit_base_patch16_siglip_gap_224", _SIZES),
    "ViT with a stem of convolutions": ("vit_tiny_r_s16_p8_224", {"img_size": 64, "depth": 3}),
    "ViT of parallel blocks": ("vit_small_patch16_18x2_224", _SIZES),
    "ViT of aspect and resolution (NaFlex)": (
        "naflexvit_base_patch16_gap", {"embed_dim": 32, "depth": 3, "num_heads": 2},
    ),
    "Swin": ("swin_tiny_patch4_window7_224", _SWIN),
    "Swin v2": ("swinv2_tiny_window8_256", _SWIN),
    "PiT": ("pit_ti_224", {}),
    "BEiT": ("beit_base_patch16_224", _SIZES),
    "EVA-02": ("eva02_tiny_patch14_224", _SIZES),
    "DINOv3 ViT": ("vit_small_patch16_dinov3", _SIZES),
    "CaiT": ("cait_xxs24_224", _SIZES),
    "LeViT": ("levit_128s", {}),
}  # fmt: skip


def tiny(name: str) -> tuple[Any, Tensor]:
    """The model of that name with seeded random weights, in evaluation mode, and images."""
    import timm

    kind, options = MODELS[name]
    model = timm.create_model(kind, num_classes=5, **options).eval()
    draw = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=draw))
    side = options.get("img_size", model.pretrained_cfg["input_size"][-1])
    return model, torch.randn(2, 3, side, side, generator=draw)


@torch.no_grad()
def forward(model: Any, images: Tensor, before: Tensor) -> bool:
    """The rule changes the logits, and no number is lost."""
    found = model(images)
    return bool(found.isfinite().all()) and not torch.allclose(found, before, atol=1e-4)


def training(model: Any, images: Tensor, before: Tensor) -> bool:
    """A backward pass of a copy reaches a parameter, and gradients are finite."""
    other = copy.deepcopy(model).train()
    other(images).square().sum().backward()
    found = [p.grad for p in other.parameters() if p.grad is not None]
    return len(found) > 0 and all(bool(grad.isfinite().all()) for grad in found)


@torch.no_grad()
def exporting(model: Any, images: Tensor, before: Tensor) -> bool:
    """What `torch.export` makes gives the same outputs, on other images, within 1e-5."""
    program = torch.export.export(model, (images,)).module()
    return torch.allclose(program(images**2), model(images**2), atol=1e-5)


@torch.no_grad()
def undoing(model: Any, images: Tensor, before: Tensor) -> bool:
    """After `undo` the outputs are those of before, bit by bit."""
    from graphtheory.vision.integrations.timm import undo

    undo(model)
    return torch.equal(model(images), before)


@torch.no_grad()
def all_nearest(model: Any, images: Tensor, before: Tensor) -> bool:
    """With all tokens among the nearest, the outputs are timm's, within 1e-5."""
    from graphtheory.patterns import TopK
    from graphtheory.vision.integrations.timm import apply

    apply(model, TopK(1.0))
    return torch.allclose(model(images), before, atol=1e-5, rtol=1e-5)


Check = Callable[[Any, Tensor, Tensor], bool]
CHECKS: dict[str, Check] = {
    "forward": forward, "export": exporting, "train": training, "undo": undoing,
    "all": all_nearest,
}  # fmt: skip


def cell(name: str, rule: Any, checks: Sequence[str]) -> str:
    """What fails for a rule in a model: "yes" if nothing does, or the reason of the refusal."""
    from graphtheory.patterns import TopK
    from graphtheory.vision.integrations.timm import apply

    model, images = tiny(name)
    with torch.no_grad():
        before = model(images)
    try:
        apply(model, rule)
    except ValueError as error:
        return f"no: {error}"
    checks = [*checks, "all"] if isinstance(rule, TopK) else checks
    failed = [check for check in checks if not CHECKS[check](model, images, before)]
    return "fails: " + ", ".join(failed) if failed else "yes"


def table(checks: Sequence[str] = ("forward", "export", "train", "undo")) -> str:
    """The table in Markdown, and below it the reason of each refusal."""
    return laid_out({(m, r): cell(m, rule, checks) for m in MODELS for r, rule in rules().items()})


if __name__ == "__main__":
    try:
        import timm  # noqa: F401
    except ImportError:
        print("needs timm, which is not installed: pip install timm", file=sys.stderr)
        sys.exit(2)
    print(table())
