"""FlexAttention's masks and score functions on `ops`, against torch's own."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn.attention import flex_attention as torchs
from torch.nn.functional import scaled_dot_product_attention

from graphtheory.integrations.flex import flex_attention, neighborhood_of

BATCH, HEADS, TOKENS = 2, 3, 40
MASKS: dict[str, Callable[..., Tensor]] = {
    "causal": lambda b, h, i, j: i >= j,
    "window": lambda b, h, i, j: (i - j).abs() <= 5,
    "by entry": lambda b, h, i, j: j <= 20 + 9 * b,
    "everyone": lambda b, h, i, j: (i >= 0) & (j >= 0),
}


def block_mask(name: str) -> torchs.BlockMask:
    batch = BATCH if name == "by entry" else None
    return torchs.create_block_mask(
        MASKS[name], batch, None, TOKENS, TOKENS, device="cpu", BLOCK_SIZE=16
    )


def leaves() -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(BATCH, HEADS, TOKENS, 8, generator=generator).requires_grad_()
            for _ in range(3)]  # fmt: skip


def table() -> Tensor:
    return torch.linspace(-2, 2, (2 * TOKENS - 1) * HEADS).view(-1, HEADS).requires_grad_()


def score_mod(kind: str, table: Tensor) -> Callable[..., Tensor]:
    slopes = torch.tensor([0.5, 0.25, 0.125])
    return {
        "relative": lambda s, b, h, i, j: s + table[i - j + TOKENS - 1, h],
        "alibi": lambda s, b, h, i, j: s - slopes[h] * (i - j).abs(),
        "barred": lambda s, b, h, i, j: torch.where((i - j).abs() < 9, s, -torch.inf),
    }[kind]


@pytest.mark.parametrize("kind", ["relative", "alibi", "barred"])
@pytest.mark.parametrize("name", MASKS)
def test_it_equals_dense_attention_and_trains(name: str, kind: str) -> None:
    nodes, learned = leaves(), table()
    out = flex_attention(*nodes, score_mod(kind, learned), block_mask(name))
    b, h, i, j = torch.meshgrid(
        *(torch.arange(n) for n in (BATCH, HEADS, TOKENS, TOKENS)), indexing="ij"
    )
    bias = score_mod(kind, learned)(torch.zeros(b.shape), b, h, i, j)
    bias = torch.where(MASKS[name](b, h, i, j), bias, -torch.inf)
    true = scaled_dot_product_attention(*nodes, attn_mask=bias)
    torch.testing.assert_close(out, true, rtol=1e-4, atol=1e-5)
    wanted = [*nodes, learned] if kind == "relative" else nodes
    up = torch.randn_like(out)
    for ours, theirs in zip(
        *(torch.autograd.grad(o, wanted, up) for o in (out, true)), strict=True
    ):
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-4)


def test_it_equals_torchs_function(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torchs, "_WARNINGS_SHOWN", set())  # which it shows once a process
    nodes = [t.detach() for t in leaves()]
    mask, mod = block_mask("window"), score_mod("alibi", table())
    with pytest.warns(UserWarning, match="flex_attention called without torch.compile"):
        true = torchs.flex_attention(*nodes, score_mod=mod, block_mask=mask, scale=0.5)
    torch.testing.assert_close(flex_attention(*nodes, mod, mask, scale=0.5), true)


def test_shared_heads_and_blocks_that_are_listed() -> None:
    query, key, value = leaves()
    shared = flex_attention(query, key[:, :1], value[:, :1], enable_gqa=True)
    spread = [t[:, :1].expand_as(t) for t in (key, value)]
    torch.testing.assert_close(shared, scaled_dot_product_attention(query, *spread))
    count = torch.tensor([[[1, 1]]], dtype=torch.int32)  # each block of queries lists its own
    order = torch.tensor([[[[0, 1], [1, 0]]]], dtype=torch.int32)
    own = torchs.BlockMask.from_kv_blocks(count, order, BLOCK_SIZE=20, seq_lengths=(40, 40))
    nb = neighborhood_of(own, BATCH, TOKENS, TOKENS)
    assert torch.equal(nb.indices // 20, nb.targets() // 20) and nb.num_edges == 2 * 2 * 400


def test_a_mask_is_read_once_and_known_patterns_keep_their_sets() -> None:
    mask = block_mask("causal")
    nb = neighborhood_of(mask, BATCH, TOKENS, TOKENS)
    assert neighborhood_of(mask, BATCH, TOKENS, TOKENS) is nb and nb.sets.causal
    assert neighborhood_of(block_mask("everyone"), BATCH, TOKENS, TOKENS).blocks == (2, 40, 40)


def test_refusals() -> None:
    nodes = leaves()

    def soft_cap(score: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return 20 * torch.tanh(score / 20)

    with pytest.raises(NotImplementedError, match="score_mod: soft_cap does more than add a bias"):
        flex_attention(*nodes, soft_cap)
    by_head = torchs.create_block_mask(MASKS["causal"], None, HEADS, TOKENS, TOKENS, device="cpu")
    with pytest.raises(NotImplementedError, match="block_mask: made for 3 heads"):
        flex_attention(*nodes, block_mask=by_head)
    with pytest.raises(ValueError, match="block_mask: made for"):
        flex_attention(*(t[:, :, :30] for t in nodes), block_mask=block_mask("causal"))
    with pytest.raises(ValueError, match="key, value: shapes"):
        flex_attention(nodes[0], nodes[1][:, :1], nodes[2][:, :1])
    with pytest.raises(ValueError, match=r"key: shape \(.*\), expected \[batch, heads, tokens"):
        flex_attention(nodes[0], nodes[1][0], nodes[2])
    with pytest.raises(ValueError, match="key: 2 heads, expected a divisor of the query's 3"):
        flex_attention(nodes[0], nodes[1][:, :2], nodes[2][:, :2], enable_gqa=True)


@pytest.mark.parametrize("bound", [10, 200])
def test_a_bound_on_scores_is_refused(bound: int) -> None:
    q = torch.randn(1, 2, 8, 4)
    with pytest.raises(NotImplementedError, match="does more than add a bias"):
        flex_attention(q, q, q, lambda s, *_: s.clamp(-bound, bound))


@pytest.mark.parametrize("shape", [(1, HEADS, 0, 8), (0, HEADS, TOKENS, 8)])
def test_nobody_asks(shape: tuple[int, ...]) -> None:
    query, key = torch.randn(shape), torch.randn(shape[0], HEADS, TOKENS, 8)
    assert flex_attention(query, key, key).shape == shape
