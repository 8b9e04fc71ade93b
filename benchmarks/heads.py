"""Time and memory of a transformer projection head beside torch's own encoder of the same sizes.

    python benchmarks/heads.py --out benchmarks/results/cpu.csv

A batch of embeddings is one sequence. Torch's encoder attends with a batch of 1, pre-norm, GELU and
a last norm, with our head's own parameters; outputs and gradients of both are compared before
anything is timed. "parts" are what one step of ours consists of, each alone in its own loop.
Memory is that of benchmarks/topk.py: the highest resident memory of a step in a fresh process.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Literal, get_args

import torch
import tyro
from _rows import ratios, save, seconds, show
from memory import MIB, in_a_fresh_process, peak_of
from ops import assert_equal
from torch import Tensor, nn

from graphtheory import cliques
from graphtheory.lab.bench.rows import Row
from graphtheory.vision.nn import TransformerHead
from graphtheory.vision.nn.token_sets import token_cliques

Form = Literal["TransformerHead", "TransformerEncoder"]
OURS, THEIRS = get_args(Form)
MAPS = f"{OURS} with maps of attention"
_NAMES = {
    "blocks.": "layers.", "attention.qkv.": "self_attn.in_proj_", "mlp.fc1.": "linear1.",
    "attention.out.": "self_attn.out_proj.", "mlp.fc2.": "linear2.",
}  # fmt: skip


class Theirs(nn.Module):
    """Torch's encoder between the maps of a head of ours."""

    def __init__(self, head: TransformerHead, heads: int, hidden: int, depth: int) -> None:
        super().__init__()
        width = head.norm.normalized_shape[0]
        layer = nn.TransformerEncoderLayer(
            width, heads, hidden, 0.0, "gelu", 1e-6, batch_first=True, norm_first=True
        )
        norm = nn.LayerNorm(width)
        self.encoder = nn.TransformerEncoder(layer, depth, norm, enable_nested_tensor=False)
        self.inward = head.inward
        self.encoder.load_state_dict({_theirs(n): t for n, t in head.state_dict().items()
                                      if not n.startswith("inward")})  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        return self.encoder(self.inward(x)[None])[0]


def _theirs(name: str) -> str:
    for ours, theirs in _NAMES.items():
        name = name.replace(ours, theirs)
    return name


def module_of(form: Form, width: int, depth: int, heads: int, hidden: int) -> nn.Module:
    """A head with the same parameters in either form."""
    torch.manual_seed(0)
    head = TransformerHead(width, width=width, depth=depth, heads=heads, hidden_channels=hidden)
    return head if form == OURS else Theirs(head, heads, hidden, depth)


def draw(batch: int, width: int) -> tuple[Tensor, Tensor]:
    """Embeddings and a gradient of the projections."""
    generator = torch.Generator().manual_seed(0)
    return (torch.randn(batch, width, generator=generator) for _ in range(2))  # type: ignore[return-value]


def step(module: nn.Module, x: Tensor, grad: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Forward and backward: projections, gradients of the embeddings and of the first map."""
    x = x.detach().requires_grad_()
    module.zero_grad()
    out = module(x)
    out.backward(grad)
    return out.detach(), x.grad, module.inward.weight.grad  # type: ignore[return-value,union-attr]


class WithMaps(nn.Module):
    """A head that is asked for the attention of its blocks in the same pass."""

    def __init__(self, head: TransformerHead) -> None:
        super().__init__()
        self.head, self.inward = head, head.inward

    def forward(self, x: Tensor) -> Tensor:
        return self.head.with_attention(x)[0]


def parts(head: TransformerHead, x: Tensor) -> dict[str, Callable[[], object]]:
    """What a step of ours consists of: maps and norms of all blocks, attention of all blocks."""
    clique, seen = token_cliques(1, len(x), x.device), torch.randn_like(x)

    def attention() -> None:
        for block in head.blocks:
            query, key, value = (t.detach().requires_grad_() for t in block.attention.project(seen))
            block.attention.pattern(query, key, value, clique).sum().backward()

    def mlps() -> None:
        for block in head.blocks:
            block.mlp(block.norm2(seen.detach().requires_grad_())).sum().backward()

    def maps() -> None:
        for block in head.blocks:
            qkv = block.attention.qkv(block.norm1(seen.detach().requires_grad_()))
            block.attention.out(qkv[:, : block.attention.out.in_features]).sum().backward()

    return {
        "part attention": attention, "part MLPs": mlps, "part maps of attention": maps,
        "part clique built anew": partial(cliques, [len(x)]),
    }  # fmt: skip


def times(about: dict[str, int], repeats: int) -> list[Row]:
    """Rows of time, ours beside torch's, and the parts of ours."""
    sizes = {name: about[name] for name in ("width", "depth", "heads", "hidden")}
    x, grad = draw(about["batch"], about["width"])
    modules = {form: module_of(form, **sizes) for form in get_args(Form)}
    assert_equal(OURS, step(modules[OURS], x, grad), step(modules[THEIRS], x, grad))
    maps = WithMaps(modules[OURS])  # type: ignore[arg-type]
    assert_equal(OURS, step(maps, x, grad), step(modules[THEIRS], x, grad))
    works: dict[str, Callable[[], object]] = {
        MAPS: partial(step, maps, x, grad),
        **{form: partial(step, module, x, grad) for form, module in modules.items()},
    }
    found = seconds(works | parts(modules[OURS], x), repeats)  # type: ignore[arg-type]
    rows = [Row.of(f"head forward+backward, {name}", t, "s", **about) for name, t in found.items()]
    compared = {name: ratios(found[THEIRS], found[name]) for name in (OURS, MAPS)}
    return rows + [
        Row.of(f"head forward+backward, {THEIRS} over {name}", ratio, "1", **about)
        for name, ratio in compared.items()
    ]


def extra_peak(form: Form, batch: int, **sizes: int) -> int:
    """Bytes that one step needs on top of what is there before."""
    module = module_of(form, **sizes)
    step(module, *draw(8, sizes["width"]))
    x, grad = draw(batch, sizes["width"])
    token_cliques(1, batch, x.device)
    return peak_of(lambda: step(module, x, grad))


def peaks(about: dict[str, int], repeats: int) -> list[Row]:
    """Rows of the peak of additional memory."""
    found = {
        form: [in_a_fresh_process(__file__, form, **about) / MIB for _ in range(repeats)]
        for form in get_args(Form)
    }
    name = "head extra peak memory"
    rows = [Row.of(f"{name}, {form}", taken, "MiB", **about) for form, taken in found.items()]
    return [*rows, Row.of(f"{name}, {THEIRS} over {OURS}", ratios(found[THEIRS], found[OURS]), "1",
                          **about)]  # fmt: skip


def main(
    batch: tuple[int, ...] = (1024,),
    width: int = 128,
    depth: int = 5,
    heads: int = 8,
    hidden: int = 512,
    threads: int = 2,
    repeats: int = 9,
    quick: bool = False,
    out: Path | None = None,
    measure: Form | None = None,
) -> None:
    """Measure a transformer projection head forward and backward in float32.

    Args:
        batch: Samples, one clique.
        width: Features of an embedding and of the blocks.
        depth: Blocks.
        heads: Attention heads of width / heads features each.
        hidden: Width of a block's FFN.
        threads: Of torch and of the kernels.
        repeats: Rounds; every round runs everything once. Memory takes a third as many processes.
        quick: One round on a small batch, to see that everything runs.
        out: CSV file to put the rows of each batch size in, after the conformance tests.
        measure: Measure only the memory of this form, in this process, and print bytes.
    """
    torch.set_num_threads(threads)
    if quick:
        batch, repeats = (64,), 1
    for count in batch:
        sizes = {"batch": count, "width": width, "depth": depth, "heads": heads, "hidden": hidden}
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
