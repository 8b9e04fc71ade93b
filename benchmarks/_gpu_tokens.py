"""What `gpu_models.py` times of attention among the tokens of images and of texts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import product
from typing import Any

import torch
from _gpu import Job, Step, Where, compared, replayed, runnable
from _gpu_attention import DTYPES
from _graphs import lengths
from flex import FLEX, REACH, bias_of
from flex import OURS as OWN
from ops import draw, step
from topk import OTHERS, OURS, assert_same, attention_of, by_image
from torch import Tensor

from graphtheory import Neighborhood, causal, cliques, ops
from graphtheory.lab.bench.rows import Row

IMAGES = ((197, 64), (1024, 8))  # tokens, images side by side
APART = {"bf16": 3e-2, "fp32": 1e-4}  # of the largest entry, between ours and FlexAttention


def there(
    nodes: int, heads: int, dim: int, precision: str, where: Where
) -> tuple[list[Tensor], Tensor]:
    """Query, key and value on the device, and the gradient of the output."""
    leaves, grad = draw(nodes, heads, dim)
    kind = {"device": where.device, "dtype": DTYPES[precision]}
    return [t.detach().to(**kind).requires_grad_() for t in leaves], grad.to(**kind)


def nearest(tokens: int, batch: int, precision: str, what: str, where: Where) -> Iterator[Row]:
    """k-nearest attention within images beside the paper's masked form and dense attention."""
    sizes = {"batch": batch, "tokens": tokens, "k": tokens // 2, "heads": 6, "head_dim": 64}
    if where.tiny:
        sizes |= {"tokens": 9, "k": 4, "heads": 2, "head_dim": 16}
    given = [sizes[name] for name in ("batch", "tokens", "k")]
    exact, up = there(batch * sizes["tokens"], sizes["heads"], sizes["head_dim"], "fp32", where)
    assert_same(sizes, exact, up, forms=(OURS,))
    leaves = [t.detach().to(DTYPES[precision]).requires_grad_() for t in exact]
    ways = {form: attention_of(form, *given, device=where.device) for form in (OURS, *OTHERS)}
    makers = {form: partial(_stepper, way, leaves, up) for form, way in ways.items()}
    steps = runnable(what, makers, OURS.__eq__, where.device)
    about: dict[str, Any] = sizes | {"precision": precision}
    # Of new leaves: those that have got gradients are tied to a stream.
    anew = [t.detach().clone().requires_grad_() for t in leaves]
    again = {form: partial(_stepper, ways[form], anew, up) for form in steps}
    yield from compared(what, steps, where, **about)
    yield from replayed(what, again, where, **about)


def _stepper(attention: Callable[..., Tensor], leaves: list[Tensor], grad: Tensor) -> Step:
    return partial(step, attention, leaves, grad.to(leaves[0].dtype))


def biased(
    nb: Neighborhood, sizes: Sequence[int], is_causal: bool, precision: str, what: str, where: Where
) -> list[Row]:
    """Attention with a learned bias by relative position beside FlexAttention, compiled.

    FlexAttention has the bias as its `score_mod`, equal sets as a batch, and of others a block mask
    of the sequences side by side.
    """
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    heads, dim = (2, 16) if where.tiny else (8, 64)
    leaves, grad = there(nb.num_dst, heads, dim, precision, where)
    table = torch.randn(heads, 2 * REACH + 1, generator=torch.Generator().manual_seed(2))
    leaves.append(table.to(where.device).requires_grad_())
    sources, targets = nb.edge_index().long()
    bucket = ((targets - sources).clamp(-REACH, REACH) + REACH).to(torch.uint8)
    sequence = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes)).to(where.device)

    def mask(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        same = sequence[i] == sequence[j]
        return same & (i >= j) if is_causal else same

    def ours(query: Tensor, key: Tensor, value: Tensor, table: Tensor) -> Tensor:
        bias = ops.BucketedBias(bucket, table.t())
        return ops.attention(query, key, value, nb, bias=bias)

    def theirs() -> Step:
        batch = len(sizes) if len(set(sizes)) == 1 and not is_causal else 1
        count, blocks = nb.num_dst, None
        if batch == 1:
            blocks = create_block_mask(mask, None, None, count, count, where.device)
        run = torch.compile(flex_attention, dynamic=False)

        def flex(query: Tensor, key: Tensor, value: Tensor, table: Tensor) -> Tensor:
            nodes = (by_image(t, batch) for t in (query, key, value))
            out = run(*nodes, score_mod=bias_of(table), block_mask=blocks)
            return out.transpose(1, 2).flatten(0, 1)

        return partial(step, flex, leaves, grad)

    makers: dict[str, Callable[[], Step]] = {OWN: lambda: partial(step, ours, leaves, grad)}
    if where.device == "cuda":  # FlexAttention has no backward pass on a CPU
        makers[FLEX] = theirs
    steps = runnable(what, makers, OWN.__eq__, where.device)
    if FLEX in steps:
        for place, (a, b) in enumerate(zip(steps[OWN](), steps[FLEX](), strict=True)):
            error = ((a - b).abs().max() / b.abs().max()).item()
            assert error <= APART[precision], f"{what}: result {place} differs by {error:.1e}"
    about: dict[str, Any] = {"tokens": nb.num_dst, "edges": nb.num_edges, "heads": heads}
    return compared(what, steps, where, **about, head_dim=dim, precision=precision)


def tokens(where: Where) -> Iterator[Job]:
    """k-nearest attention at two lengths; sequences side by side, whole and causal."""
    for (count, batch), precision in product(IMAGES, ("bf16", "fp32")):
        what = f"k-nearest attention among {count} tokens, {precision}"
        yield what, partial(nearest, count, 2 if where.tiny else batch, precision, what, where)
    sets: dict[str, tuple[list[int], bool]] = {
        "32 images of 197": ([3] * 2 if where.tiny else [197] * 32, False),
        "4 sequences of 1024": ([5] * 2 if where.tiny else [1024] * 4, False),
        "64 texts of 20 to 200, causal": ([3, 5] if where.tiny else lengths(64).tolist(), True),
    }
    for (name, (sizes, is_causal)), precision in product(sets.items(), ("bf16", "fp32")):
        nb = causal(torch.tensor(sizes)) if is_causal else cliques(sizes)
        what = f"attention with a bias, {name}, {precision}"
        yield what, partial(biased, nb.to(where.device), sizes, is_causal, precision, what, where)
