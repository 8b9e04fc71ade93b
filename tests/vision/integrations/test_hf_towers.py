"""Fewer tokens in the vision models of `transformers`, against their own layers and formulas."""

from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from graphtheory.patterns import TopK
from graphtheory.vision.nn import Fuse, Keep, Merge, unmerge
from graphtheory.vision.nn.reduce import Oracle, Random

hf = pytest.importorskip("transformers")

from graphtheory.vision.integrations.hf_apply import apply, undo  # noqa: E402
from graphtheory.vision.integrations.token_hooks import Reduce, Semantic, trace  # noqa: E402

if not hasattr(hf.ViTModel(hf.ViTConfig(num_hidden_layers=1)), "layers"):
    pytest.skip("an older transformers builds its layers otherwise", allow_module_level=True)

TOWERS = (
    "ViT", "DeiT", "ViT-MSN", "ViT-MAE", "I-JEPA", "BEiT", "BEiT, shared bias", "DINOv2",
    "DINOv2 with registers", "DINOv3 ViT", "CLIP", "CLIP, classifier", "MetaCLIP 2", "SigLIP",
    "SigLIP, classifier",
)  # fmt: skip
AVERAGING = ("I-JEPA", "BEiT", "DINOv2", "DINOv2 with registers", "CLIP, classifier",
             "SigLIP", "SigLIP, classifier")  # fmt: skip
every_tower = pytest.mark.parametrize("name", TOWERS)


def layers_of(model: Any) -> list[Any]:
    return [m for m in model.modules() if type(m).__name__.endswith(("Layer", "EncoderLayer"))]


def hidden(model: Any, zoo: ModuleType) -> Tensor:
    """Tokens after the last layer."""
    found: list[Tensor] = []
    layers = [layer for layer in layers_of(model) if "Text" not in repr(layer)]
    handle = layers[-1].register_forward_hook(lambda *given: found.append(given[2]))
    zoo.Read(model)(zoo.images())
    handle.remove()
    return found[0]


@every_tower
@torch.no_grad()
def test_dropping_a_token_is_masking_its_key_in_later_layers(name: str, zoo: ModuleType) -> None:
    model = zoo.tiny(name, attn_implementation="eager")
    layers = layers_of(model)
    apply(model, {1: Keep(0.5)})
    few, found = hidden(model, zoo), trace(model)
    undo(model)
    masked = torch.where(found.slot < 0, -torch.inf, 0.0)[:, None, None]
    handles = []

    def mask(layer: nn.Module, args: Any, options: Any) -> Any:
        given = args[1] if len(args) > 1 else options.get("attention_mask")
        options = {k: v for k, v in options.items() if k != "attention_mask"}
        return args[:1], options | {"attention_mask": masked if given is None else masked + given}

    for layer in layers[1:]:
        handles.append(layer.register_forward_pre_hook(mask, with_kwargs=True))
    whole = hidden(model, zoo)
    torch.testing.assert_close(few, whole.gather(1, found.place[..., None].expand_as(few)))


def turn(x: Tensor, angle: tuple[Tensor, Tensor]) -> Tensor:
    return x * angle[0] + torch.cat([-x[..., 8:], x[..., :8]], 3) * angle[1]


@pytest.mark.parametrize("name", ["BEiT", "BEiT, shared bias", "DINOv3 ViT"])
@pytest.mark.parametrize("rule", [Merge(5), Fuse(0.5)], ids=["merge", "fuse"])
@torch.no_grad()
def test_tokens_have_the_position_of_their_place_and_a_fused_one_none(name, rule, zoo) -> None:
    model = zoo.tiny(name, attn_implementation="eager")
    layer = layers_of(model)[1]
    seen: list[Any] = []
    layer.register_forward_pre_hook(lambda _, *given: seen.append(given), with_kwargs=True)
    zoo.Read(model)(zoo.images())
    plain = dict(seen[0][1])
    apply(model, Reduce({1: rule}, proportional=True, restore=False))
    out: list[Tensor] = []
    layer.register_forward_hook(lambda *given: out.append(given[2]))
    zoo.Read(model)(zoo.images())
    x, found = seen[1][0][0], trace(model)
    place = found.place.clamp(min=0)
    at = layer.attention
    norm = layer.norm1 if hasattr(layer, "norm1") else layer.layernorm_before
    maps = at.q_proj, at.k_proj, at.v_proj
    q, k, v = (p(norm(x)).unflatten(2, (2, 16)).transpose(1, 2) for p in maps)
    bias = found.size.log()[:, None, None]
    if "BEiT" in name:
        own = layer.relative_position_bias
        table = plain["attention_mask"][0] if own is None else own((4, 4))[0]  # [H, T, T]
        bias = bias + torch.stack([table[:, p][:, :, p] for p in place])
    else:
        prefix = torch.ones(5, 16), torch.zeros(5, 16)
        angle = [torch.cat(p) for p in zip(prefix, plain["position_embeddings"], strict=True)]
        cos, sin = (torch.stack([t[p] for p in place])[:, None] for t in angle)
        q, k = turn(q, (cos, sin)), turn(k, (cos, sin))
    weights = (q @ k.transpose(2, 3) / 4 + bias).softmax(3)
    branch = at.o_proj((weights @ v).transpose(1, 2).flatten(2))
    if "BEiT" in name:
        y = x + layer.lambda_1 * branch
        y = y + layer.lambda_2 * layer.mlp(layer.layernorm_after(y))
    else:
        y = x + layer.layer_scale1(branch)
        y = y + layer.layer_scale2(layer.mlp(layer.norm2(y)))
    torch.testing.assert_close(out[0], y, atol=1e-5, rtol=1e-5)


@every_tower
@torch.no_grad()
def test_heads_that_average_patches_count_merged_ones_by_size(name: str, zoo: ModuleType) -> None:
    model = zoo.tiny(name)
    apply(model, Reduce({2: Merge(6)}, restore=False))
    few, found = hidden(model, zoo), trace(model)
    apply(model, {2: Merge(6)})
    again = hidden(model, zoo)
    if name in AVERAGING:
        torch.testing.assert_close(again, unmerge(few, found.slot))
        weighted = (few * found.size[..., None]).sum(1) / found.size.sum(1, keepdim=True)
        torch.testing.assert_close(again.mean(1), weighted)
    else:
        torch.testing.assert_close(again, few)
    apply(model, {2: Keep(0.5)})
    fewer = hidden(model, zoo).size(1)
    assert fewer == trace(model).size.size(1) and (fewer < again.size(1) or name not in AVERAGING)


@pytest.mark.parametrize(  # each tower with one rule; three with every one
    ("name", "what"),
    [
        (name, what) for t, name in enumerate(TOWERS)
        for w, what in enumerate([Merge(3), Keep(0.7, Random()), Semantic(4, base=0)])
        if t % 3 == w or name in ("ViT", "BEiT", "CLIP")
    ],
)  # fmt: skip
def test_gradient_checkpointing_gives_the_same_gradients(name: str, what: Any, zoo) -> None:
    model = zoo.tiny(name).train()
    apply(model, what)
    grads = []
    # A shared bias fails without any rule, too, where the passes are reentrant.
    for reentrant in (None, False, True)[: 2 if name == "BEiT, shared bias" else 3]:
        if reentrant is not None:
            model.activation_checkpointing_enable({"use_reentrant": reentrant})
        model.zero_grad()
        torch.manual_seed(0)
        # Two passes before one backward pass: each is recomputed with its own tokens.
        outs = [zoo.Read(model)(zoo.images(count)).square().sum() for count in (2, 3)]
        sum(outs).backward()
        grads.append({n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None})
    for found in grads[1:]:
        torch.testing.assert_close(found, grads[0])


@torch.no_grad()
@torch.no_grad()
def test_nearest_attention_takes_positions_in_float32_under_autocast(zoo: ModuleType) -> None:
    model = zoo.tiny("DINOv3 ViT")
    with torch.autocast("cpu", torch.bfloat16):
        wanted = hidden(model, zoo)
        apply(model, TopK(1.0))
        torch.testing.assert_close(hidden(model, zoo), wanted, atol=0.1, rtol=0.1)


def test_all_tokens_are_given_back_to_heads_that_need_them(zoo: ModuleType) -> None:
    small = dict(zoo._SIZES)
    masked = hf.ViTForMaskedImageModeling(hf.ViTConfig(**small, encoder_stride=8)).eval()
    hidden_patches = torch.zeros(2, 16, dtype=torch.bool)
    hidden_patches[:, :4] = True
    apply(masked, Reduce(Merge(2), restore=True))
    out = masked(zoo.images(), bool_masked_pos=hidden_patches)
    assert out.reconstruction.shape == (2, 3, 32, 32) and trace(masked).size.size(1) == 11
    trained = hf.ViTMAEForPreTraining(
        hf.ViTMAEConfig(**small, decoder_hidden_size=16, decoder_num_hidden_layers=1,
                        decoder_num_attention_heads=2, decoder_intermediate_size=24)
    ).eval()  # fmt: skip
    noise = torch.rand(2, 16, generator=torch.Generator().manual_seed(2))
    before = trained(zoo.images(), noise=noise)
    apply(trained, Reduce(Merge(0), restore=True))
    torch.testing.assert_close(trained(zoo.images(), noise=noise).logits, before.logits)
    apply(trained, Reduce(Merge(1), restore=True))
    assert trained(zoo.images(), noise=noise).logits.shape == before.logits.shape
    with pytest.raises(ValueError, match=r"restore: Keep.* drops tokens, expected Merge or Fuse"):
        apply(masked, Reduce({1: Keep(), 2: Merge()}, restore=True))


def test_lists_of_rules_are_one_for_each_layer(zoo: ModuleType) -> None:
    model = zoo.tiny("ViT")
    apply(model, [Merge(4), Merge(2), Merge(0)])
    with torch.no_grad():
        zoo.Read(model)(zoo.images())
    assert trace(model).size.size(1) == 17 - 6
    with pytest.raises(ValueError, match=r"after: got layers \[4\], expected 1\.\.3"):
        apply(model, [Merge(1)] * 4)


REFUSED = [
    ("ViTForMaskedImageModeling", {}, Keep(), "predicts every patch, so it needs every token"),
    ("ViTMAEForPreTraining", {}, Merge(), "predicts every patch, so it needs every token"),
    ("Dinov2Backbone", {}, Merge(), "makes maps of the tokens of several layers"),
    ("BeitForSemanticSegmentation", {"out_indices": [0, 1, 2, 3], "num_hidden_layers": 4}, Merge(),
     "makes maps of the tokens of several layers"),
    ("ViTMAEModel", {}, Semantic(4, base=0), "patches are shuffled and some are left out"),
    ("CLIPTextModel", {}, Merge(), "reads text, whose tokens cannot be spared"),
    ("Siglip2VisionModel", {"num_patches": 16}, Merge(), "pads images to a common number of"),
    ("Swinv2Model", None, Merge(), "attends in windows of a whole grid"),
    ("Data2VecVisionModel", {}, Merge(), "of model_type 'data2vec-vision', expected ViT, DeiT"),
    ("ViTModel", {}, Keep(0.5, Oracle()), "reads a score, expected a rule by attention"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "options", "what", "reason"), REFUSED, ids=[r[0] for r in REFUSED]
)
def test_models_that_need_every_token_are_refused(kind, options, what, reason, zoo) -> None:
    made = getattr(hf, kind)
    sizes = zoo._SWIN if options is None else zoo._SIZES | options
    if "Text" in kind or "2Vision" in kind:
        sizes = {k: v for k, v in sizes.items() if k != "image_size"}
    if "Text" in kind:
        sizes = {k: v for k, v in sizes.items() if k != "patch_size"} | {"eos_token_id": 2}
    model = made(made.config_class(**sizes))
    with pytest.raises(ValueError, match=reason):
        apply(model, what)
    assert all("forward" not in vars(m) for m in model.modules())
