"""Time of attention within equal token sets by size: loops over sets, over edges, dense kernel.

    python benchmarks/sets.py --out benchmarks/results/cpu-sets.csv

`ops.backends.blocks` decides by these figures. The dense kernel is torch's
scaled_dot_product_attention, given query, key and value node by node as ours are. In float32
outputs and gradients are compared before anything is timed; in bfloat16 the kernels round at
other places.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Literal

import torch
import tyro
from _graphs import Shape
from _rows import beside, save, seconds, show
from ops import Attention, assert_equal, draw, step
from topk import attention_of

from graphtheory import cliques, ops
from graphtheory.lab.bench.rows import Row

OURS, OTHERS = "loops over sets", ("dense kernel", "loops over edges")
_LOGITS, _FEATURES, _LONG_ROW = 2**22, 2**21, 64  # of all sets together; a row of many edges


def attentions(count: int, tokens: int) -> dict[str, Attention]:
    """Ways to attend within each set."""
    nb = cliques([tokens] * count)
    found = {
        OURS: partial(ops.topk_attention, neighborhood=nb, k=tokens),
        OTHERS[0]: attention_of("dense attention", count, tokens, tokens),
    }
    if tokens <= _LONG_ROW:
        found[OTHERS[1]] = partial(ops.attention, neighborhood=nb, backend="numba_csr")
    return found


def times(about: dict, repeats: int) -> list[Row]:
    """Rows of time of one size."""
    leaves, grad = draw(about["sets"] * about["tokens"], about["heads"], about["head_dim"])
    forms = attentions(about["sets"], about["tokens"])
    if about["dtype"] == "float32":
        for name in forms.keys() - {OURS}:
            ours, theirs = (step(forms[form], leaves, grad) for form in (OURS, name))
            assert_equal(name, ours, theirs)
    dtype = getattr(torch, about["dtype"])
    leaves, grad = [t.detach().to(dtype).requires_grad_() for t in leaves], grad.to(dtype)
    works = {
        "forward+backward": {n: partial(step, f, leaves, grad) for n, f in forms.items()},
        "forward": {n: partial(torch.no_grad()(f), *leaves) for n, f in forms.items()},
    }
    rows = []
    for what, work in works.items():
        rows += beside(OURS, what, seconds(work, repeats), **about)
    return rows


def main(
    tokens: tuple[int, ...] = (4, 8, 16, 32, 64, 128, 197, 256, 512, 1024),
    shapes: tuple[Shape, ...] = ("8x16", "4x64", "1x128"),
    dtypes: tuple[Literal["float32", "bfloat16"], ...] = ("float32", "bfloat16"),
    threads: int = 2,
    repeats: int = 7,
    quick: bool = False,
    out: Path | None = None,
) -> None:
    """Measure attention within equal token sets.

    Args:
        tokens: Of a set; there are as many sets as make about the same work.
        shapes: Heads x features of a head.
        dtypes: Of query, key and value.
        threads: Of torch and of the kernels.
        repeats: Rounds; every round runs everything once.
        quick: One round on two sizes, to see that everything runs.
        out: CSV file to put the rows in, after the conformance tests.
    """
    torch.set_num_threads(threads)
    if quick:
        tokens, shapes, repeats = (8, 65), ("8x16",), 1
    for dtype in dtypes:
        for shape in shapes:
            heads, head_dim = map(int, shape.split("x"))
            for n in tokens:
                sets = max(1, min(_LOGITS // (n * n * heads), _FEATURES // (n * heads * head_dim)))
                sizes = {"sets": sets, "tokens": n, "heads": heads, "head_dim": head_dim}
                found = times({**sizes, "dtype": dtype, "threads": threads}, repeats)
                show(found)
                if out is not None:
                    save(found, out)


if __name__ == "__main__":
    tyro.cli(main)
