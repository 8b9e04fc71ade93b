"""Time and memory of k-nearest attention beside the paper's masked form and dense attention.

    python benchmarks/topk.py --out benchmarks/results/cpu.csv

The masked form is that of the paper's code: all logits, their k largest, a scattered mask, softmax.
Dense attention is torch's scaled_dot_product_attention, which chooses nobody. Query, key and value
are given node by node on all sides. Outputs and gradients of ours and of the masked form are
compared before anything is timed. Every figure of memory comes from a fresh process: the highest
resident memory during one step, less the resident memory before it. The neighborhood of the images
exists before, as one would keep it; the form "cliques + topk_attention" builds it in each step.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Literal, get_args

import torch
import tyro
from _rows import ratios, save, seconds, show
from memory import MIB, in_a_fresh_process, peak_of
from ops import Attention, assert_equal, draw, step
from torch import Tensor

from graphtheory import cliques, ops
from graphtheory.lab.bench.rows import Row

Form = Literal["topk_attention", "cliques + topk_attention", "masked form", "dense attention"]
OURS, ANEW, *OTHERS = get_args(Form)
MASKED = OTHERS[0]


def by_image(nodes: Tensor, batch: int) -> Tensor:
    """[batch * tokens, heads, head_dim] as [batch, heads, tokens, head_dim]."""
    return nodes.unflatten(0, (batch, -1)).transpose(1, 2)


def masked(query: Tensor, key: Tensor, value: Tensor, k: int) -> Tensor:
    """The paper's form: logits [batch, heads, tokens, tokens] and more tensors of their size."""
    logits = query @ key.transpose(-2, -1) * query.size(-1) ** -0.5
    mask = torch.zeros_like(logits).scatter_(-1, logits.topk(k, -1).indices, 1.0)
    logits = torch.where(mask > 0, logits, -torch.inf)
    return logits.softmax(-1) @ value


def attention_of(form: Form, batch: int, tokens: int, k: int, device: str = "cpu") -> Attention:
    """One way to attend within each image of a batch."""
    sizes = [tokens] * batch
    if form == OURS:
        return partial(ops.topk_attention, neighborhood=cliques(sizes).to(device), k=k)
    if form == ANEW:
        return lambda *nodes: ops.topk_attention(*nodes, cliques(sizes), k)
    dense = torch.nn.functional.scaled_dot_product_attention

    def attention(*nodes: Tensor) -> Tensor:
        images = (by_image(t, batch) for t in nodes)
        out = masked(*images, k) if form == MASKED else dense(*images)
        return out.transpose(1, 2).flatten(0, 1)

    return attention


def assert_same(
    about: dict[str, int], leaves: list[Tensor], grad: Tensor, forms: Sequence[Form] = (OURS, ANEW)
) -> None:
    """Ours and the masked form agree, but for rows where a rounding may change the choice."""
    batch, tokens, k = about["batch"], about["tokens"], about["k"]
    query, key = (by_image(t.detach(), batch) for t in leaves[:2])
    largest = (query @ key.transpose(-2, -1)).topk(min(k + 1, tokens), -1).values
    sure = k >= tokens or (largest[..., -2] - largest[..., -1] > 1e-4).all(1).view(-1, 1, 1)

    def on_sure_rows(form: Form) -> tuple[Tensor, ...]:
        attention = attention_of(form, batch, tokens, k, str(grad.device))
        out, *grads = step(attention, leaves, grad * sure)
        return out * sure, *grads

    for ours in forms:
        assert_equal(ours, on_sure_rows(ours), on_sure_rows(MASKED))


def compared(what: str, found: dict[str, Sequence[float]], unit: str, about: dict) -> list[Row]:
    """Rows of what was measured, and of how many times as much the others need, round by round."""
    rows = [Row.of(f"{what}, {form}", of, unit, **about) for form, of in found.items()]
    for ours in (OURS, ANEW):
        for other in OTHERS:
            times = ratios(found[other], found[ours])
            rows.append(Row.of(f"{what}, {other} over {ours}", times, "1", **about))
    return rows


def times(about: dict[str, int], repeats: int) -> list[Row]:
    """Rows of time for one batch size."""
    batch, tokens, k = about["batch"], about["tokens"], about["k"]
    leaves, grad = draw(batch * tokens, about["heads"], about["head_dim"])
    steps = {
        form: partial(step, attention_of(form, batch, tokens, k), leaves, grad)
        for form in get_args(Form)
    }
    assert_same(about, leaves, grad)
    return compared("forward+backward", seconds(steps, repeats), "s", about)


def extra_peak(form: Form, batch: int, tokens: int, k: int, heads: int, head_dim: int) -> int:
    """Bytes that one forward and backward needs on top of what is there before."""
    step(attention_of(form, 1, tokens, k), *draw(tokens, heads, head_dim))  # compilers, threads
    leaves, grad = draw(batch * tokens, heads, head_dim)
    attention = attention_of(form, batch, tokens, k)
    return peak_of(lambda: step(attention, leaves, grad))


def peaks(about: dict[str, int], repeats: int) -> list[Row]:
    """Rows of memory for one batch size."""
    found = {
        form: [in_a_fresh_process(__file__, form, **about) / MIB for _ in range(repeats)]
        for form in get_args(Form)
    }
    return compared("extra peak memory", found, "MiB", about)


def main(
    batch: tuple[int, ...] = (16, 128),
    tokens: int = 197,
    k: int = 100,
    heads: int = 6,
    head_dim: int = 64,
    threads: int = 2,
    repeats: int = 9,
    quick: bool = False,
    out: Path | None = None,
    measure: Form | None = None,
) -> None:
    """Measure k-nearest attention forward and backward in float32 beside two other forms.

    Args:
        batch: Images side by side, each its own block.
        tokens: Of an image.
        k: Neighbors of a token and head.
        heads: Attention heads.
        head_dim: Features of a head.
        threads: Of torch and of the kernels.
        repeats: Rounds; every round runs everything once. Memory takes a third as many processes.
        quick: One round on a small batch, to see that everything runs.
        out: CSV file to put the rows of each batch size in, after the conformance tests.
        measure: Measure only the memory of this form, in this process, and print bytes.
    """
    torch.set_num_threads(threads)
    if quick:
        batch, tokens, k, repeats = (8,), 100, 50, 1
    for count in batch:
        sizes = {"batch": count, "tokens": tokens, "k": k, "heads": heads, "head_dim": head_dim}
        if measure is not None:
            print(extra_peak(measure, **sizes))
            continue
        about = sizes | {"threads": threads}
        found = times(about, repeats) + peaks(about, max(1, repeats // 3))
        show(found)
        if out is not None:
            save(found, out)


if __name__ == "__main__":
    tyro.cli(main)
