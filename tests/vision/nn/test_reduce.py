import math
import re

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from graphtheory import bipartite, ops
from graphtheory.graph import Grid
from graphtheory.nn import Attention, Block
from graphtheory.vision import nn as vision_nn
from graphtheory.vision.nn import AveragePool, Fuse, Keep, MaskPool, Merge, decreasing, reduce
from graphtheory.vision.nn.centers import _cut
from graphtheory.vision.nn.reduce import Clean, Oracle, Random, Reducer, Reduction, pool
from tests.vision.models.test_vig import plain

SLOT = torch.tensor([[0, -1, 1, 1], [1, 0, -1, 0]])


def test_unmerge_pool_and_slots_of_two_reductions() -> None:
    values = torch.tensor([[[1.0], [2.0]], [[3.0], [4.0]]])
    assert vision_nn.unmerge(values, SLOT).squeeze(2).tolist() == [[1, 0, 2, 2], [4, 3, 0, 3]]
    assert vision_nn.unmerge(values[..., 0], SLOT).tolist() == [[1, 0, 2, 2], [4, 3, 0, 3]]
    values = torch.arange(8.0).view(2, 4)
    assert pool(values, SLOT, 2).tolist() == [[0, 5], [12, 4]]
    wide = torch.stack([values, -values], 2)
    assert torch.equal(pool(wide, SLOT, 2)[..., 1], -pool(values, SLOT, 2))
    later = torch.tensor([[1, 0], [-1, 0]])
    assert reduce.compose_slots(SLOT, later).tolist() == [[1, -1, 0, 0], [0, -1, -1, -1]]
    values = torch.randn(*SLOT.shape, 3, dtype=torch.float64, requires_grad=True)
    results = []
    for way in (pool, reduce._pool_by_product):
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
    alone = vision_nn.unmerge((found.size > 0).float(), found.slot)
    assert torch.equal(alone > 0, found.slot >= 0)


@pytest.mark.parametrize("rule", RULES, ids=name)
def test_images_have_no_order_and_gradients_reach_the_tokens_that_stay(rule: Reducer) -> None:
    inputs, order = drawn(), torch.tensor([2, 0, 1])
    found = rule(**inputs)
    other = rule(**{key: values[order] for key, values in inputs.items()})
    assert all(torch.equal(one[order], two) for one, two in zip(found, other, strict=True))
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
        torch.testing.assert_close(compiled(**inputs), expected)


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
    for call, message in (
        (lambda: Merge(-1), "r: got -1, expected a number of tokens"),
        (lambda: Keep(1.5), r"k: got 1.5, expected a share in"),
        (lambda: Fuse()(torch.ones(1, 3, 2)), "received: not given, expected"),
        (lambda: decreasing(-1, 2), "r: got -2"),
    ):
        with pytest.raises(ValueError, match=message):
            call()
    assert [rule.r for rule in decreasing(13, 12)] == [26, 23, 21, 18, 16, 14, 11, 9, 7, 4, 2, 0]
    assert decreasing(3, 1) == [Merge(6)] and decreasing(0, 2) == [Merge(0), Merge(0)]


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


KINDS = [
    MaskPool(4, 6), AveragePool(4), vision_nn.MaxPool(5), vision_nn.LearnedCenters(7, 6),
    vision_nn.MultiScale([AveragePool(3), MaskPool(4, 6)]),
]  # fmt: skip


@pytest.mark.parametrize("centers", KINDS, ids=lambda c: type(c).__name__)
def test_centers_are_as_many_for_every_grid_and_of_their_image_alone(centers) -> None:
    for grid in (Grid(2, 14, 14), Grid(3, 7, 5), Grid(1, 4, 9)):
        x = torch.randn(grid.num_nodes, 6)
        found = centers(x, grid)
        assert found.shape == (grid.count * centers.tokens, 6)
        last = centers(x[-grid.size :], Grid(1, grid.height, grid.width))
        torch.testing.assert_close(found[-centers.tokens :], last)


def test_mask_pool_is_the_published_formula() -> None:
    """14 x 14 patches, 16 centers: windows of 4 with stride 4 and padding 1."""
    pool, x = MaskPool(4, 6), torch.randn(3 * 196, 6)
    maps = x.view(3, 14, 14, 6).permute(0, 3, 1, 2)
    ones = torch.ones(3, 1, 14, 14)
    cut, real = (F.unfold(m, 4, stride=4, padding=1).transpose(1, 2) for m in (maps, ones))
    windows = cut.reshape(48, 6, 4, 4)
    seen = nn.functional.gelu(pool.norm(pool.depthwise(windows).permute(0, 2, 3, 1)))
    logits = (seen @ pool.score.weight.T).flatten(1) - 1e9 * (1 - real.reshape(48, 16))
    wanted = (logits.softmax(1)[:, :, None] * windows.flatten(2).transpose(1, 2)).sum(1)
    torch.testing.assert_close(pool(x, Grid(3, 14, 14)), wanted)


@pytest.mark.parametrize(("side", "patches"), [(4, 14), (5, 14), (6, 14), (8, 14), (10, 14)])
def test_padding_has_no_weight(side: int, patches: int) -> None:
    """A weighted mean of equal patches is that patch, unless zeros around them count."""
    x = torch.randn(1, 6).expand(patches**2, 6)
    found = MaskPool(side, 6)(x, Grid(1, patches, patches))
    torch.testing.assert_close(found, x[:1].expand(side**2, 6))


def test_windows_are_cut_as_documented_and_do_not_see_each_other() -> None:
    assert [_cut(14, g).size(1) for g in (4, 5, 6, 7, 8, 10)] == [4, 3, 3, 2, 2, 3]
    assert _cut(14, 4)[[0, 3]].tolist() == [[-1, 0, 1, 2], [11, 12, 13, -1]]
    assert _cut(14, 5)[[0, 4]].tolist() == [[0, 1, 2], [12, 13, -1]]
    assert _cut(7, 3).tolist() == [[-1, 0, 1], [2, 3, 4], [5, 6, -1]]
    for side in range(1, 17):
        rows = _cut(14, side)
        assert set(rows.unique().tolist()) - {-1} == set(range(14))
        assert bool((rows >= 0).any(1).all())  # nobody stands for padding alone
    pool, x = MaskPool(2, 6), torch.randn(36, 6)
    moved = x.view(6, 6, 6).clone()
    moved[:3, 3] += 1
    change = (pool(moved.view(36, 6), Grid(1, 6, 6)) - pool(x, Grid(1, 6, 6))).abs().amax(1)
    assert (change > 0).tolist() == [False, True, False, False]


def test_bad_input_and_bad_layers_are_named() -> None:
    for call, message in (
        (lambda: AveragePool(2)(torch.randn(8, 6), Grid(1, 3, 3)),
         r"x: shape \(8, 6\), expected \[9, dim\]"),
        (lambda: AveragePool(4)(torch.randn(9, 6), Grid(1, 3, 3)),
         "tokens: 16 semantic tokens of 9 patches, expected no"),
        (lambda: vision_nn.MaxPool(0), "side: got 0"),
        (lambda: vision_nn.MultiScale([]), "parts: none"),
        (lambda: layers(1), "blocks: got 1, expected at least 2"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=message):
            call()
    assert run(layers(1, with_global=False), torch.randn(32, DIM).double()).shape == (8, DIM)


IMAGES, SIDE, DIM, HEADS = 2, 4, 6, 2
PATCHES, TOKENS = SIDE**2, 4
GRID = Grid(IMAGES, SIDE, SIDE)
OF_PATCHES = bipartite([TOKENS] * IMAGES, [PATCHES] * IMAGES)
OF_BOTH = bipartite([TOKENS] * IMAGES, [TOKENS + PATCHES] * IMAGES)


def layers(count: int = 2, **options: bool) -> vision_nn.SemanticTokens:
    blocks = [Block(Attention(DIM, HEADS)) for _ in range(count)]
    made = vision_nn.SemanticTokens(AveragePool(2), blocks, **options).double()
    made.reset_parameters(torch.Generator().manual_seed(0))
    return made


def run(made: vision_nn.SemanticTokens, x: Tensor) -> Tensor:
    return made(x, GRID, OF_PATCHES, OF_BOTH)


def test_equal_to_the_formulas_in_plain_torch() -> None:
    made, x = layers(), torch.randn(32, DIM).double()
    patches = x.view(IMAGES, PATCHES, DIM)
    centers = made.centers(x, GRID).view(IMAGES, TOKENS, DIM)
    first = plain(made.blocks[0], centers, patches, centers)
    query = first + made.global_centers
    sources = torch.cat([first, patches], 1)
    wanted = plain(made.blocks[1], query, sources, query)
    torch.testing.assert_close(run(made, x), wanted.flatten(0, 1))


def test_centers_are_in_the_query_alone_and_the_order_of_patches_does_not_matter() -> None:
    made, seen = layers(), []
    for block in made.blocks:
        block.register_forward_pre_hook(
            lambda _, args, options: seen.append((args[0], options["sources"])), with_kwargs=True
        )
    run(made, torch.randn(32, DIM).double())
    (_, patches), (query, both) = seen
    both = both.view(IMAGES, TOKENS + PATCHES, DIM)
    torch.testing.assert_close(both[:, TOKENS:].flatten(0, 1), patches)
    shift = query.view(IMAGES, TOKENS, DIM) - both[:, :TOKENS]
    torch.testing.assert_close(shift, made.global_centers.expand(IMAGES, -1, -1))
    made, x = layers(3), torch.randn(32, DIM).double()
    centers, order = made.centers(x, GRID), torch.randperm(PATCHES)
    made.centers.forward = lambda x, grid: centers
    moved = x.view(IMAGES, PATCHES, DIM)[:, order].flatten(0, 1)
    torch.testing.assert_close(run(made, moved), run(made, x))
    swapped = x.view(IMAGES, PATCHES, DIM).flip(0).flatten(0, 1)  # of the other image: that matters
    assert not torch.allclose(run(made, swapped), run(made, x))


def test_one_step_of_attention_comes_closer_to_the_means_of_clusters() -> None:
    """Supplement A.7: weights exp(lambda <center, x>), lambda = (log d + log K) / gap."""
    drawn = torch.Generator().manual_seed(0)
    dim, clusters, each = 64, 8, 200
    means = torch.linalg.qr(torch.randn(dim, clusters, generator=drawn))[0].T
    noise = torch.randn(clusters, each, dim, generator=drawn) * 0.5 / math.sqrt(dim)
    x = (means[:, None] + noise).flatten(0, 1)
    start = means + 0.1 * torch.randn(clusters, dim, generator=drawn)
    start = start / start.norm(dim=1, keepdim=True)
    gap = (start @ means.T).diagonal() - (start @ means.T).fill_diagonal_(-1).amax(1)
    scale = (math.log(dim) + math.log(clusters)) / float(gap.min())

    nb = bipartite([clusters], [clusters * each])
    found = ops.attention(start[:, None], x[:, None], x[:, None], nb, scale=scale)[:, 0]
    before, after = (torch.cosine_similarity(c, means).min() for c in (start, found))
    assert before < 0.85 and after > 0.99
