"""ViT and DeiT of `transformers` with fewer tokens: as ours with the same weights, and back."""

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from graphtheory.lab.metrics import count_macs
from graphtheory.patterns import TopK
from graphtheory.vision.integrations.token_hooks import Reduce, ReductionHooks, trace
from graphtheory.vision.integrations.transformers import from_huggingface
from graphtheory.vision.models import ReducedViT
from graphtheory.vision.nn import Fuse, Keep, Merge, decreasing, unmerge
from graphtheory.vision.nn.reduce import Random
from tests.vision.integrations.conftest import drawn, pixels

hf = pytest.importorskip("transformers")

from graphtheory.vision.integrations.hf_apply import apply, undo  # noqa: E402

VIT = {
    "num_hidden_layers": 3, "num_attention_heads": 2, "hidden_size": 16, "intermediate_size": 24,
    "image_size": 24, "patch_size": 4, "num_labels": 5,
}  # fmt: skip
DEIT = (hf.DeiTForImageClassificationWithTeacher, hf.DeiTConfig)
MODELS = {"vit": (hf.ViTForImageClassification, hf.ViTConfig), "deit": DEIT}
every_model = pytest.mark.parametrize("name", MODELS)

if not hasattr(hf.ViTModel(hf.ViTConfig(**VIT)), "layers"):
    pytest.skip("an older transformers builds its layers otherwise", allow_module_level=True)


def made(name: str, **options: Any) -> nn.Module:
    model, config = MODELS[name]
    return drawn(model(config(**VIT, **options)), 0.2)


@torch.no_grad()
def logits(model: nn.Module) -> Tensor:
    return model(pixels(24)).logits


@every_model
def test_nothing_less_changes_nothing_and_undo_goes_back(name: str) -> None:
    model = made(name)
    before = logits(model)
    for rule in (Keep(1.0), Fuse(1.0), Merge(0)):
        apply(model, rule)
        assert torch.equal(logits(model), before)
    apply(model, {1: Merge(6), 2: Keep(0.5)})
    assert not torch.allclose(logits(model), before, atol=1e-4)
    undo(model)
    assert torch.equal(logits(model), before)
    with pytest.raises(ValueError, match="model: nothing was applied"):
        undo(model)


@every_model
@pytest.mark.parametrize(
    ("rules", "proportional"),
    [({1: Keep(0.5), 3: Keep(4)}, False), ({2: Fuse(0.4)}, False),
     ({1: Merge(8), 2: Merge(9)}, True), ({1: Merge(8), 2: Fuse(0.5)}, True),
     ({1: Merge(5), 2: Merge(5)}, False)],
    ids=str,
)  # fmt: skip
@pytest.mark.parametrize("inside", [True, False])
def test_it_is_our_network_with_the_same_rules(name, rules, proportional, inside) -> None:
    theirs = made(name)
    options = {"proportional": proportional, "inside": inside}
    ours = ReducedViT(from_huggingface(theirs), rules, **options).eval()
    apply(theirs, Reduce(rules, proportional, inside=inside))
    torch.testing.assert_close(logits(theirs), ours(pixels(24)), atol=1e-5, rtol=1e-5)
    with torch.no_grad():
        found = ours.reduced(pixels(24))
    assert torch.equal(trace(theirs).slot, found.slot)
    assert torch.equal(trace(theirs).place, found.place)
    torch.testing.assert_close(trace(theirs).size, found.size)


def test_a_rule_alone_comes_after_every_layer_and_merging_counts_sizes() -> None:
    model = made("vit", attn_implementation="eager")
    apply(model, Merge(5))
    with torch.no_grad():
        out = model(pixels(24), output_attentions=True, output_hidden_states=True)
    assert [a.shape for a in out.attentions] == [(2, 2, n, n) for n in (37, 32, 27)]
    whole = logits(model)
    apply(model, Reduce(Merge(5), proportional=False))
    assert not torch.allclose(logits(model), whole, atol=1e-5)
    assert Reduce({2: Merge(1)}).counts_sizes and not Reduce(Keep()).counts_sizes


@every_model
def test_class_tokens_stay_and_all_tokens_come_back(name: str) -> None:
    model = made(name).base_model
    apply(model, {1: Keep(3, Random()), 3: Merge(2)})
    with torch.no_grad():
        out = model(pixels(24)).last_hidden_state
    prefix = {"vit": 1, "deit": 2}[name]
    found = trace(model)
    assert out.shape == (2, prefix + 1, 16) and found.size.sum(1).tolist() == [prefix + 3.0] * 2
    assert found.slot[:, :prefix].tolist() == [list(range(prefix))] * 2
    back = unmerge(out, found.slot)
    assert back.shape == (2, prefix + 36, 16)
    torch.testing.assert_close(back[:, :prefix], out[:, :prefix])


def test_nearest_attention_goes_with_fewer_tokens() -> None:
    model = made("vit")
    before = logits(model)
    apply(model, TopK(0.5))
    nearest = logits(model)
    apply(model, Merge(4))
    assert not torch.allclose(logits(model), nearest, atol=1e-4)
    ours = from_huggingface(model)
    for block in ours.blocks:
        block.attention.pattern = TopK(0.5)
    reduced = ReducedViT(ours, dict.fromkeys((1, 2, 3), Merge(4)), proportional=True)
    torch.testing.assert_close(logits(model), reduced(pixels(24)), atol=1e-5, rtol=1e-5)
    undo(model)
    assert torch.equal(logits(model), before)


def test_gradients_flow_and_a_copy_is_its_own() -> None:
    model = made("vit").train()
    apply(model, {1: Fuse(0.5), 2: Merge(4)})
    other = copy.deepcopy(model)
    model(pixels(24)).logits.sum().backward()
    assert all(p.grad is not None for p in model.parameters())
    assert all(p.grad is None for p in other.parameters())
    with pytest.raises(ValueError, match="model: no reduction has run"):
        trace(other)
    torch.testing.assert_close(other(pixels(24)).logits, model(pixels(24)).logits)
    undo(other)
    assert not torch.allclose(other(pixels(24)).logits, model(pixels(24)).logits, atol=1e-4)


def test_reentrant_checkpoints_end_where_only_some_layers_have_a_rule(monkeypatch) -> None:
    grads, calls, step = [], [], ReductionHooks._step

    def counted(*args: Any) -> Any:
        calls.append(args)
        assert len(calls) < 50, "a checkpoint that is computed again and again"
        return step(*args)

    monkeypatch.setattr(ReductionHooks, "_step", counted)
    for checkpoints in (False, True):
        torch.manual_seed(0)
        model, images = made("vit").train(), pixels(24).requires_grad_()
        apply(model, {1: Merge(3)})
        if checkpoints:
            model.activation_checkpointing_enable({"use_reentrant": True})
        model(images).logits.sum().backward()
        grads.append(images.grad)
    torch.testing.assert_close(*grads)
    assert len(calls) == 3 * len(model.vit.layers)


def test_no_trace_is_left_of_a_call_of_torch_func() -> None:
    model = made("vit")
    apply(model, Merge(2))
    logits(model)
    assert trace(model).size.sum() == 2 * 37
    torch.func.grad(lambda images: model(images).logits.sum())(pixels(24))
    with pytest.raises(ValueError, match=r"no reduction has run .*, outside of torch\.func"):
        trace(model)


def test_what_is_not_supported_is_named_and_changes_nothing() -> None:
    sizes = {"embed_dim": 8, "depths": [1, 1], "num_heads": [1, 2], "window_size": 3}
    swin = hf.SwinModel(hf.SwinConfig(**sizes, image_size=24, patch_size=4))
    told = r"SwinModel attends in windows .* no token may be missing"
    with pytest.raises(ValueError, match=told):
        apply(swin, Merge(2))
    other = hf.YolosModel(hf.YolosConfig(**VIT | {"image_size": [24, 24]}))
    with pytest.raises(ValueError, match="got YolosModel of model_type 'yolos', expected ViT"):
        apply(other, Keep())
    with pytest.raises(ValueError, match=r"ViTForMaskedImageModeling .* every token at the end"):
        apply(hf.ViTForMaskedImageModeling(hf.ViTConfig(**VIT)), Keep())
    model = made("vit")
    apply(model, Merge(3))
    whole = logits(model)
    with pytest.raises(ValueError, match=r"after: got layers \[0, 4\], expected 1\.\.3"):
        apply(model, {0: Keep(), 4: Keep()})
    with pytest.raises(TypeError, match="after: got TopK, expected Keep, Fuse or Merge"):
        apply(model, {1: TopK()})
    assert torch.equal(logits(model), whole)
    model.set_attn_implementation("eager")
    torch.testing.assert_close(logits(model), whole)
    with pytest.raises(ValueError, match="attention_mask: given, expected none"):
        model.base_model(pixels(24), attention_mask=torch.ones(2, 37).tril())


@pytest.mark.parametrize(
    ("rules", "published"),
    [(dict.fromkeys((4, 7, 10), Fuse(0.7)), 3.0), (Merge(13), 2.7), (decreasing(13, 12), 2.7)],
    ids=["evit", "tome", "decreasing"],
)
def test_products_of_deit_s_as_published(rules: Any, published: float) -> None:
    sizes = {"hidden_size": 384, "num_attention_heads": 6, "intermediate_size": 1536}
    model = hf.ViTForImageClassification(hf.ViTConfig(**sizes, num_labels=1000)).eval()
    apply(model, rules)
    found = count_macs(model, torch.randn(1, 3, 224, 224)).total / 1e9
    if rules == decreasing(13, 12):  # fewer tokens earlier
        assert found < 0.9 * published
    else:
        assert found == pytest.approx(published, rel=0.02)


@pytest.mark.filterwarnings("ignore")  # of torch.jit
@pytest.mark.parametrize("what", [TopK(3), {1: Keep(0.5)}, {1: Merge(4)}])
def test_a_model_with_a_rule_is_no_program_of_torch_jit(what: Any) -> None:
    kind, config = MODELS["vit"]
    model = kind(config(**VIT)).eval().requires_grad_(False)
    apply(model, what)
    with pytest.raises(NotImplementedError, match="image's number of tokens for all others"):
        torch.jit.trace(lambda images: model(images).logits, (torch.randn(1, 3, 24, 24),))
