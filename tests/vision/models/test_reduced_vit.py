import pytest
import torch
from torch import Tensor

from graphtheory.lab.metrics import count_macs
from graphtheory.nn import Attention, attention_maps
from graphtheory.patterns import TopK
from graphtheory.vision.models import MeanToken, ReducedViT, ViT, swin_pico, vit_pico, vit_small
from graphtheory.vision.models.reduced_vit import _keys
from graphtheory.vision.nn import Fuse, Keep, Merge, unmerge
from graphtheory.vision.nn.reduce import Oracle, Reducer, Reduction
from graphtheory.vision.nn.token_sets import token_cliques


@pytest.fixture
def model() -> ViT:
    torch.manual_seed(0)
    return vit_pico(out_channels=5, image_size=16).eval()


def images(count: int = 3) -> Tensor:
    return torch.randn(count, 3, 16, 16, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("rule", [Keep(1.0), Fuse(1.0), Merge(0)], ids=str)
def test_without_reduction_it_is_the_network(model: ViT, rule: Reducer) -> None:
    for proportional in (False, True):
        reduced = ReducedViT(model, {1: rule, 3: rule}, proportional=proportional)
        torch.testing.assert_close(reduced(images()), model(images()))
        assert reduced.state_dict().keys() == model.state_dict().keys()


@pytest.mark.parametrize("rule", [Keep(0.5), Fuse(0.5), Merge(4)], ids=str)
def test_tokens_get_fewer_and_images_stay_apart(model: ViT, rule: Reducer) -> None:
    reduced, order = ReducedViT(model, {2: rule, 3: rule}), torch.tensor([2, 0, 1])
    found = reduced.reduced(images())
    assert torch.equal(found.slot.gather(1, found.place[:, :5]), torch.arange(5).expand(3, -1))
    assert found.tokens.size(1) < 13 and found.slot.shape == (3, 17)
    assert unmerge(found.tokens, found.slot).shape == (3, 17, 64)
    torch.testing.assert_close(reduced(images()[order]), reduced(images())[order])
    assert not torch.allclose(reduced(images()), model(images()))


def test_attention_of_the_class_token_decides(model: ViT) -> None:
    found = ReducedViT(model, {1: Keep(4)}).reduced(images())
    weights = attention_maps(model, images())[0].weights.view(3, 17, 17, -1).mean(3)
    best = weights[:, 0, 1:].topk(4).indices.sort().values + 1
    for image in range(3):
        assert (found.slot[image] >= 0).nonzero().flatten().tolist() == [0, *best[image].tolist()]


@pytest.mark.parametrize("rule", [Keep(0.5), Fuse(0.5), Merge(4)], ids=str)
@torch.no_grad()
def test_tokens_are_reduced_between_attention_and_mlp_or_after_both(
    model: ViT, rule: Reducer
) -> None:
    x, block, nb = model.embed(images())[0], model.blocks[0], token_cliques(3, 17, "cpu")
    seen = {"keys": _keys(block.attention, block.norm1(x)).view(3, 17, -1)}
    weights = block.attention.weights(block.norm1(x), nb).view(3, 17, 17, -1)
    seen["received"] = weights[:, 0].mean(2)
    between, end = x + block.attention(block.norm1(x), nb), block(x, nb)
    few, behind = (
        rule(y.view(3, 17, -1), **{rule.needs: seen[rule.needs]}).tokens for y in (between, end)
    )
    place = torch.arange(17).expand(3, -1)
    now = Reduction(x.view(3, 17, -1), torch.ones(3, 17), place, place)
    for inside, wanted in ((True, few + block.mlp(block.norm2(few))), (False, behind)):
        reduced = ReducedViT(model, {1: rule}, inside=inside)
        found, _ = reduced._step(reduced.blocks[0], rule, now, None, None)
        torch.testing.assert_close(found.tokens, wanted)


@pytest.mark.parametrize(
    ("rules", "published"),
    [(dict.fromkeys((4, 7, 10), Fuse(0.7)), 3.0), (dict.fromkeys(range(1, 13), Merge(13)), 2.7)],
)
def test_products_of_deit_s_as_published(rules: dict[int, Reducer], published: float) -> None:
    reduced = ReducedViT(vit_small(), rules, proportional=True).eval()
    found = count_macs(reduced, torch.randn(1, 3, 224, 224)).total / 1e9
    assert found == pytest.approx(published, rel=0.02)
    behind = ReducedViT(vit_small(), rules, inside=False).eval()
    assert count_macs(behind, torch.randn(1, 3, 224, 224)).total / 1e9 > 1.05 * found


def test_without_a_class_token_the_mean_attention_does() -> None:
    model = vit_pico(image_size=16, readout=MeanToken).eval()
    found = ReducedViT(model, {1: Keep(4)}).reduced(images())
    weights = attention_maps(model, images())[0].weights.view(3, 16, 16, -1).mean((1, 3))
    best = weights.topk(4).indices.sort().values
    assert [s.nonzero().flatten().tolist() for s in found.slot >= 0] == best.tolist()


def test_an_oracles_score_goes_along_and_may_decide_before_the_first_block(model: ViT) -> None:
    score = torch.arange(17.0).expand(3, -1)
    found = ReducedViT(model, {1: Keep(8, Oracle()), 3: Keep(2, Oracle())}).reduced(
        images(), score=score
    )
    assert found.slot[0].tolist() == [0, *[-1] * 14, 1, 2]
    given, score = images(), torch.arange(17.0).expand(3, -1)
    reduced = ReducedViT(model, {0: Keep(8, Oracle()), 2: Keep(2, Oracle())})
    other = given.clone()
    other[:, :, :8] = 0  # the first 8 patches, of least score
    found = reduced.reduced(given, score=score)
    assert found.slot[0].tolist() == [0, *[-1] * 14, 1, 2]
    torch.testing.assert_close(reduced.reduced(other, score=score).tokens, found.tokens)
    with pytest.raises(ValueError, match="reads received, which block 0 has not"):
        ReducedViT(model, {0: Keep(8)})


def test_a_token_counts_as_many_times_as_it_stands_for(model: ViT) -> None:
    # Without positions two equal patches become one, and then attention must not change.
    with torch.no_grad():
        model.embed.position.table.zero_()
    alike = images(1).clone()
    alike[..., :4, 4:8] = alike[..., :4, :4]
    whole = model.tokens(alike)
    after = {1: Merge(1)}
    found = ReducedViT(model, after, proportional=True).reduced(alike)
    assert found.slot[0].tolist() == [0, 1, 1, *range(2, 16)]
    torch.testing.assert_close(unmerge(found.tokens, found.slot), whole, atol=1e-5, rtol=1e-5)
    plain = ReducedViT(model, after).reduced(alike)
    assert not torch.allclose(unmerge(plain.tokens, plain.slot), whole, atol=1e-4)


def test_the_model_stays_and_its_copy_learns(model: ViT) -> None:
    reduced = ReducedViT(model, {1: Merge(4), 2: Fuse(0.5)}, proportional=True).train()
    reduced(images()).sum().backward()
    assert all(p.grad is not None for p in reduced.parameters())
    assert model.blocks[0].attention.bias is None
    assert all(p.grad is None for p in model.parameters())
    with pytest.raises(ValueError, match=r"after: blocks \[-1, 5\], expected 0..4"):
        ReducedViT(model, {-1: Merge(), 5: Merge(), 4: Merge()})
    with pytest.raises(TypeError, match="model: got Swin, expected a ViT"):
        ReducedViT(swin_pico(), {1: Merge()})
    with pytest.raises(TypeError, match="after: got TopK, expected Keep, Fuse or Merge"):
        ReducedViT(model, {1: TopK()})


def test_keys_of_heads_of_any_size_are_those_of_the_layer() -> None:
    attention, seen = Attention(8, 2, head_dim=3), torch.randn(5, 8)
    torch.testing.assert_close(_keys(attention, seen), attention.project(seen)[1].mean(1))
