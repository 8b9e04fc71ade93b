import re

import pytest
import torch
from torch import Tensor

from graphtheory.vision.nn import Fuse, Keep, Merge, decreasing, unmerge
from graphtheory.vision.nn.reduce import (
    Clean,
    Oracle,
    Random,
    Reducer,
    Reduction,
    _pool_by_product,
    compose_slots,
    pool,
)

SLOT = torch.tensor([[0, -1, 1, 1], [1, 0, -1, 0]])


def test_unmerge_pool_and_slots_of_two_reductions() -> None:
    values = torch.tensor([[[1.0], [2.0]], [[3.0], [4.0]]])
    assert unmerge(values, SLOT).squeeze(2).tolist() == [[1, 0, 2, 2], [4, 3, 0, 3]]
    assert unmerge(values[..., 0], SLOT).tolist() == [[1, 0, 2, 2], [4, 3, 0, 3]]
    values = torch.arange(8.0).view(2, 4)
    assert pool(values, SLOT, 2).tolist() == [[0, 5], [12, 4]]
    wide = torch.stack([values, -values], 2)
    assert torch.equal(pool(wide, SLOT, 2)[..., 1], -pool(values, SLOT, 2))
    later = torch.tensor([[1, 0], [-1, 0]])
    assert compose_slots(SLOT, later).tolist() == [[1, -1, 0, 0], [0, -1, -1, -1]]
    values = torch.randn(*SLOT.shape, 3, dtype=torch.float64, requires_grad=True)
    results = []
    for way in (pool, _pool_by_product):
        out = way(values, SLOT, 2)
        results.append((out, *torch.autograd.grad(out.square().sum(), values)))
    torch.testing.assert_close(*results)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"tokens": torch.ones(3, 4)}, "tokens: shape (3, 4), expected [B, 1 or more, dim]"),
        ({"received": torch.ones(1, 2)}, "received: shape (1, 2), expected (1, 3)"),
        ({"size": torch.ones(3)}, "size: shape (3,), expected (1, 3)"),
        ({"keys": torch.ones(1, 2, 4)}, "keys: shape (1, 2, 4), expected [1, 3, any]"),
        ({}, "score: not given, expected [B, T], which this rule reads"),
    ],
)
def test_bad_input_is_named(arguments: dict[str, Tensor], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        Keep(1, Oracle())(**{"tokens": torch.ones(1, 3, 2), **arguments})


RULES = [Keep(0.5), Keep(3, Oracle()), Keep(2, Clean(torch.eye(4)[:2])), Fuse(0.5), Merge(2)]


def name(rule: Reducer) -> str:
    return type(rule).__name__


def source(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def drawn(images: int = 3, tokens: int = 9) -> dict[str, Tensor]:
    draw = source()
    return {
        "tokens": torch.randn(images, tokens, 4, generator=draw),
        "received": torch.rand(images, tokens, generator=draw),
        "keys": torch.randn(images, tokens, 5, generator=draw),
        "score": torch.randn(images, tokens, generator=draw),
        "size": torch.randint(1, 4, (images, tokens), generator=draw).float(),
    }


@pytest.mark.parametrize("prefix", [0, 1, 2])
@pytest.mark.parametrize("rule", [*RULES, Keep(0.5, Random())], ids=name)
def test_what_every_rule_fulfils(rule: Reducer, prefix: int) -> None:
    inputs = drawn()
    found = rule(**inputs, prefix=prefix, generator=source())
    many = found.tokens.size(1)
    assert many < 9 and found.size.shape == (3, many) and found.slot.shape == (3, 9)
    # The prefix is as it was and alone in its slots.
    assert torch.equal(found.tokens[:, :prefix], inputs["tokens"][:, :prefix])
    assert torch.equal(found.slot[:, :prefix], torch.arange(prefix).expand(3, -1))
    assert (found.slot[:, prefix:] >= prefix).logical_or(found.slot[:, prefix:] < 0).all()
    # Every slot has a source, and the sizes are the sums of theirs.
    for image in range(3):
        slots = found.slot[image]
        assert set(slots[slots >= 0].tolist()) == set(range(many))
        sums = [float(inputs["size"][image][slots == m].sum()) for m in range(many)]
        assert found.size[image].tolist() == sums
        # Each lies at the place of one of its sources, a fused one at none.
        place = found.place[image]
        fused = isinstance(rule, Fuse)
        assert (place < 0).tolist() == [False] * (many - fused) + [True] * fused
        assert torch.equal(slots[place[place >= 0]], torch.arange(many - fused))
    alone = unmerge((found.size > 0).float(), found.slot)
    assert torch.equal(alone > 0, found.slot >= 0)


@pytest.mark.parametrize("rule", RULES, ids=name)
def test_the_order_of_images_does_not_matter_and_gradients_reach_the_tokens_that_stay(
    rule: Reducer,
) -> None:
    inputs, order = drawn(), torch.tensor([2, 0, 1])
    found = rule(**inputs)
    other = rule(**{key: values[order] for key, values in inputs.items()})
    for one, two in zip(found, other, strict=True):
        assert torch.equal(one[order], two)
    inputs = drawn()
    inputs["tokens"].requires_grad_()
    found = rule(**inputs)
    found.tokens.sum().backward()
    reached = inputs["tokens"].grad.abs().sum(2) > 0
    assert torch.equal(reached, found.slot >= 0)


@pytest.mark.parametrize("rule", [Fuse(0.5), Merge(2), Keep(0.5, Random())], ids=name)
def test_rules_compile(rule: Reducer) -> None:
    compiled = torch.compile(lambda **given: rule(**given), fullgraph=True, backend="aot_eager")
    for images in (3, 2, 4):
        inputs = drawn(images)
        torch.manual_seed(0)
        expected = rule(**inputs)
        torch.manual_seed(0)
        for one, two in zip(expected, compiled(**inputs), strict=True):
            torch.testing.assert_close(one, two)


def test_fuse_adds_the_rest_and_keep_takes_the_largest() -> None:
    inputs = drawn(images=1)
    score = torch.tensor([[-9.0, 0, 5, 1, 5, 5, 2, 0, 0]])  # of equal ones the earlier
    found = Keep(3, Oracle())(inputs["tokens"], score=score)
    assert found.slot.tolist() == [[0, -1, 1, -1, 2, 3, -1, -1, -1]]
    assert torch.equal(found.tokens, inputs["tokens"][:, [0, 2, 4, 5]])
    assert Keep(0.5)(**inputs).tokens.size(1) == 5 and Keep(99)(**inputs).tokens.size(1) == 9
    patterns = torch.eye(4)[:2]
    tokens = patterns[torch.tensor([0, 1, 0, 1, 0])] + torch.tensor([0, 3, 1, 2, 4])[:, None] * 0.1
    assert Keep(3, Clean(patterns))(tokens[None], prefix=0).slot.tolist() == [[0, -1, 1, 2, -1]]
    inputs = drawn()
    first, again, other = (Keep(0.5, Random())(**inputs, generator=source(s)) for s in (1, 1, 2))
    assert torch.equal(first.slot, again.slot) and not torch.equal(first.slot, other.slot)
    tokens = torch.tensor([[[9.0], [1.0], [2.0], [3.0]]])
    received = torch.tensor([[0.4, 0.1, 0.3, 0.2]])
    found = Fuse(1)(tokens, received)
    torch.testing.assert_close(found.tokens, torch.tensor([[[9.0], [2.0], [0.1 + 0.6]]]))
    assert found.slot.tolist() == [[0, 2, 1, 2]] and found.size.tolist() == [[1, 1, 2]]
    assert torch.equal(Fuse(1.0)(tokens, received).tokens, tokens)


def by_hand(tokens: Tensor, r: int, prefix: int) -> list[set[int]]:
    """Greedy matching of one image in plain Python: the groups of tokens."""
    unit = torch.nn.functional.normalize(tokens, dim=1)
    even, odd = range(prefix, len(tokens), 2), range(prefix + 1, len(tokens), 2)
    pairs = [(max((float(unit[i] @ unit[j]), j) for j in odd), i) for i in even]
    groups = {i: {i} for i in range(len(tokens))}
    for (_, j), i in sorted(pairs, reverse=True)[:r]:
        groups[j] |= groups.pop(i)
    return [groups[i] for i in sorted(groups)]


@pytest.mark.parametrize("r", [0, 1, 3, 99])
def test_merge_joins_the_most_alike_pairs(r: int) -> None:
    inputs = drawn(tokens=10)
    size = inputs["size"][..., None]
    found: Reduction = Merge(r)(inputs["tokens"], size=inputs["size"])
    for image in range(3):
        groups = by_hand(inputs["tokens"][image], min(r, 5), 1)
        for m, group in enumerate(groups):
            assert (found.slot[image] == m).nonzero().flatten().tolist() == sorted(group)
            of = sorted(group)
            mean = (inputs["tokens"] * size)[image, of].sum(0) / size[image, of].sum()
            torch.testing.assert_close(found.tokens[image, m], mean)
    assert Merge(3)(torch.ones(1, 2, 4)).tokens.size(1) == 2  # nobody to merge with


def test_bad_options_are_named_and_a_decreasing_schedule_merges_as_many() -> None:
    with pytest.raises(ValueError, match="r: got -1, expected a number of tokens"):
        Merge(-1)
    with pytest.raises(ValueError, match=r"k: got 1.5, expected a share in"):
        Keep(1.5)
    with pytest.raises(ValueError, match="received: not given, expected"):
        Fuse()(torch.ones(1, 3, 2))
    assert [rule.r for rule in decreasing(13, 12)] == [26, 23, 21, 18, 16, 14, 11, 9, 7, 4, 2, 0]
    assert decreasing(3, 1) == [Merge(6)] and decreasing(0, 2) == [Merge(0), Merge(0)]
    with pytest.raises(ValueError, match="r: got -2"):
        decreasing(-1, 2)


def test_autocast_does_not_change_which_tokens_are_merged() -> None:
    tokens = torch.randn(4, 65, 32, generator=torch.Generator().manual_seed(0)) + 3
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = Merge(16)(tokens)
        rounded = torch.matmul(tokens, tokens.mT).dtype
    assert rounded is torch.bfloat16
    assert torch.equal(found.slot, Merge(16)(tokens).slot)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_sizes_are_exact_whatever_the_type_of_the_tokens(dtype: torch.dtype) -> None:
    now = torch.ones(1, 1025, 2, dtype=dtype)
    found = Fuse(1)(now, torch.ones(1, 1025, dtype=dtype))
    assert found.size.tolist() == [[1, 1, 1023]] and found.tokens.dtype == dtype
    merged = Merge(600)(now)
    assert merged.size.sum() == 1025 and merged.size.max() > 257
    assert merged.tokens.dtype == dtype
    wide = torch.float64 if dtype is torch.float64 else torch.float32
    assert merged.size.dtype == wide
