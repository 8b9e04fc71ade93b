"""Time of a training step of the GPT-2-style model beside Hugging Face's GPT-2 in the same run.

    python benchmarks/gpt.py --out benchmarks/results/cpu.csv
    python benchmarks/gpt.py --quick

Both have the same weights and get the same embedded prompts, as in-context regression has them.
Hugging Face's model runs on torch's scaled_dot_product_attention and has no dropout. Losses and
gradients are compared before anything is timed. Ragged prompts are padded on the right; theirs gets
the mask, ours leaves the padding out.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
import transformers
import tyro
from _rows import ratios, save, seconds, show
from torch import Tensor, nn

from graphtheory.lab.bench.rows import Row
from graphtheory.vision.integrations.transformers import from_huggingface
from graphtheory.vision.models import GPT

OURS, THEIRS = "graphtheory GPT", "Hugging Face GPT-2"
Model = Callable[[Tensor, Tensor | None], Tensor]


def pair(tokens: int, dim: int, depth: int, heads: int) -> tuple[GPT, nn.Module]:
    """Both models with one set of weights; inputs are vectors of the width of the model."""
    torch.manual_seed(0)
    config = transformers.GPT2Config(
        vocab_size=1, n_positions=tokens, n_embd=dim, n_layer=depth, n_head=heads, use_cache=False,
        attn_pdrop=0.0, resid_pdrop=0.0, embd_pdrop=0.0, attn_implementation="sdpa",
        bos_token_id=0, eos_token_id=0,
    )  # fmt: skip
    theirs = transformers.GPT2Model(config).train()
    ours = from_huggingface(theirs)
    ours.embed = nn.Identity()
    return ours, theirs


def step(model: nn.Module, inputs: Tensor, mask: Tensor | None) -> Tensor:
    """Loss of every real token, forward and backward."""
    model.zero_grad(set_to_none=True)
    if isinstance(model, GPT):
        out = model(inputs, mask)
    else:
        whole = None if mask is None else mask.long()
        out = model(inputs_embeds=inputs, attention_mask=whole).last_hidden_state
    real = out if mask is None else out[mask]
    loss = (real - (inputs if mask is None else inputs[mask])).square().mean()
    loss.backward()
    return loss.detach()


def assert_same(ours: GPT, theirs: nn.Module, inputs: Tensor, mask: Tensor | None) -> None:
    """Losses and two gradients agree."""
    losses = [float(step(model, inputs, mask)) for model in (ours, theirs)]
    assert abs(losses[0] - losses[1]) < 1e-4 * losses[1], f"losses differ: {losses}"
    block, other = ours.blocks[0], theirs.h[0]
    for name, a, b in (
        ("qkv", block.attention.qkv.weight.grad, other.attn.c_attn.weight.grad.t()),
        ("mlp", block.mlp.fc1.weight.grad, other.mlp.c_fc.weight.grad.t()),
    ):
        error = float((a - b).abs().max() / b.abs().max())
        assert error < 1e-3, f"gradient of {name} differs by {error:.1e} of its largest entry"


def measured(about: dict[str, int], ragged: bool, repeats: int) -> list[Row]:
    """Rows of one kind of batch."""
    batch, tokens, dim = about["batch"], about["tokens"], about["dim"]
    ours, theirs = pair(tokens, dim, about["depth"], about["heads"])
    generator = torch.Generator().manual_seed(1)
    inputs, mask = torch.randn(batch, tokens, dim, generator=generator), None
    if ragged:
        sizes = torch.randint(tokens // 3, tokens + 1, (batch, 1), generator=generator)
        mask = torch.arange(tokens) < sizes
    assert_same(ours, theirs, inputs, mask)
    steps = {n: partial(step, m, inputs, mask) for n, m in ((OURS, ours), (THEIRS, theirs))}
    found = seconds(steps, repeats)
    what = "training step" + (", ragged prompts" if ragged else "")
    rows = [Row.of(f"{what}, {name}", of, "s", **about) for name, of in found.items()]
    times = ratios(found[THEIRS], found[OURS])
    return [*rows, Row.of(f"{what}, {THEIRS} over {OURS}", times, "1", **about)]


def main(
    batch: int = 64,
    tokens: int = 41,
    dim: int = 256,
    depth: int = 6,
    heads: int = 8,
    threads: int = 2,
    repeats: int = 9,
    quick: bool = False,
    out: Path | None = None,
) -> None:
    """Measure a training step, forward and backward, in float32.

    Args:
        batch: Prompts.
        tokens: Of a prompt, at most.
        dim: Features of a token.
        depth: Layers.
        heads: Of each layer.
        threads: Of torch and of the kernels.
        repeats: Rounds; every round runs everything once.
        quick: One round on a small model, to see that everything runs.
        out: CSV file to put the rows in, after the conformance tests.
    """
    torch.set_num_threads(threads)
    about = {"batch": batch, "tokens": tokens, "dim": dim, "depth": depth, "heads": heads}
    if quick:
        about, repeats = dict.fromkeys(about, 2) | {"tokens": 20, "dim": 16}, 1
    about |= {"threads": threads}
    rows = measured(about, False, repeats) + measured(about, True, repeats)
    show(rows)
    if out is not None:
        save(rows, out)


if __name__ == "__main__":
    tyro.cli(main)
