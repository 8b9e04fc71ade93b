"""Which rule on tokens works with which model of Hugging Face: the table of docs/transformers.md.

    python benchmarks/tokens.py

Every model has random weights, 3 layers of width 32 and images of 32 pixels in 16 patches; the
table says what works, not how fast or how well. "yes" means: a forward pass that the rule changes;
a training step, with the same gradients under gradient checkpointing; the same outputs after `undo`
and after saving and loading, bit by bit; the same outputs, within 1e-5, by `torch.export`.
"""

from __future__ import annotations

import copy
import tempfile
from collections.abc import Callable, Sequence
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
    """Random images of a fixed seed."""
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


def rules() -> dict[str, Any]:
    """Every rule by its name, for models of three layers."""
    from graphtheory.patterns import TopK
    from graphtheory.vision.integrations.transformers import Semantic
    from graphtheory.vision.nn import Fuse, Keep, Merge

    return {
        "Keep": Keep(0.6), "Fuse": Fuse(0.6), "Merge": Merge(3), "Semantic": Semantic(4, base=0),
        "TopK": TopK(0.5),
    }  # fmt: skip


def forward(model: Any, before: Tensor) -> bool:
    """The rule changes what the head reads, and no number is lost."""
    with torch.no_grad():
        found = Read(model)(images())
    return bool(found.isfinite().all()) and not torch.allclose(found, before, atol=1e-4)


def training(model: Any, before: Tensor) -> bool:
    """A step of a copy: gradients are finite, and the same under gradient checkpointing."""
    other, found = copy.deepcopy(model).train(), []
    for prepare in (other.zero_grad, other.activation_checkpointing_enable):
        prepare()
        other.zero_grad()
        torch.manual_seed(0)  # stochastic depth; DINOv3 draws positions in training mode
        Read(other)(images()).square().sum().backward()
        found.append([p.grad.clone() for p in other.parameters() if p.grad is not None])
    torch.optim.SGD(other.parameters(), lr=1e-3).step()
    with torch.no_grad():
        moved = not torch.equal(Read(other.eval())(images()), Read(model)(images()))
    return (
        moved
        and len(found[0]) == len(found[1]) > 0
        and all(
            bool(one.isfinite().all()) and torch.allclose(one, two, rtol=1e-4, atol=1e-5)
            for one, two in zip(*found, strict=True)
        )
    )


def saving(model: Any, before: Tensor) -> bool:
    """Saved and loaded, the outputs are the same bit by bit."""
    from graphtheory.vision.integrations.transformers import from_pretrained

    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        model.save_pretrained(folder)
        again = from_pretrained(type(model), folder)
        return torch.equal(Read(again)(images()), Read(model)(images()))


def exporting(model: Any, before: Tensor) -> bool:
    """What `torch.export` makes gives the same outputs, on other images, within 1e-5."""
    program, other = torch.export.export(Read(model), (images(),)).module(), images() ** 2
    with torch.no_grad():
        return torch.allclose(program(other), Read(model)(other), atol=1e-5)


def undoing(model: Any, before: Tensor) -> bool:
    """After `undo` the outputs are those of before, bit by bit; last, as it takes the rule away."""
    from graphtheory.vision.integrations.transformers import undo

    undo(model)
    with torch.no_grad():
        return torch.equal(Read(model)(images()), before)


CHECKS: dict[str, Callable[[Any, Tensor], bool]] = {
    "forward": forward, "export": exporting, "save": saving, "train": training, "undo": undoing,
}  # fmt: skip


def cell(name: str, rule: Any, checks: Sequence[str] = tuple(CHECKS)) -> str:
    """What fails for a rule in a model: "yes" if nothing does, or the reason of the refusal."""
    from graphtheory.vision.integrations.transformers import apply

    model = tiny(name)
    with torch.no_grad():
        before = Read(model)(images())
    try:
        apply(model, rule)
    except ValueError as error:
        return f"no: {error}"
    failed = [check for check in checks if not CHECKS[check](model, before)]
    return "fails: " + ", ".join(failed) if failed else "yes"


def table(checks: Sequence[str] = tuple(CHECKS)) -> str:
    """The table in Markdown, and below it the reason of each refusal."""
    return laid_out({(m, r): cell(m, rule, checks) for m in MODELS for r, rule in rules().items()})


def laid_out(found: dict[tuple[str, str], str]) -> str:
    """The table of the cells, by model and rule."""
    reasons = list(dict.fromkeys(text[4:] for text in found.values() if text.startswith("no: ")))
    lines = ["| model | " + " | ".join(rules()) + " |", "|---" * (len(rules()) + 1) + "|"]
    for name in dict.fromkeys(model for model, _ in found):
        texts = (found[name, rule] for rule in rules())
        cells = (f"no ({reasons.index(t[4:]) + 1})" if t.startswith("no: ") else t for t in texts)
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join([*lines, "", *(f"{i}. {reason}" for i, reason in enumerate(reasons, 1))])


if __name__ == "__main__":
    print(table())
