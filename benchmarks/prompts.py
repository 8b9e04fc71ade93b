"""How many prompts a second are drawn: in-context ones, their columns, and chains of thought.

python benchmarks/prompts.py --out benchmarks/results/cpu.csv
python benchmarks/prompts.py --quick
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch
import tyro
from _rows import save, seconds, show

from graphtheory.lab.bench.rows import Row
from graphtheory.papers.chain.data import ChainData
from graphtheory.papers.icl.data import Patterns, PromptSource, label_embedding, training_tasks
from graphtheory.papers.icl.prompts import Linear


def draws(count: int, contexts: int, dim: int) -> dict[str, Callable[[], object]]:
    """Work that draws that many prompts, by name."""
    generator = torch.Generator().manual_seed(0)
    patterns = Patterns.orthogonal(6, dim - 6, dim=dim, generator=generator)
    labels = label_embedding(dim, generator=generator)
    source = PromptSource(patterns, training_tasks(6), labels, 0.8, contexts)
    chain = ChainData(dim=dim, contexts=contexts)
    mu = chain.patterns(generator)
    return {
        "in-context prompts": lambda: source.sample(count, generator),
        "in-context prompts, as columns": lambda: source.sample(count, generator).columns(),
        "linear regression": lambda: Linear().prompts(count, contexts + 1, dim, generator),
        "chains of thought": lambda: chain.training(mu, count, generator),
    }


def main(
    count: int = 2000,
    contexts: int = 20,
    dim: int = 30,
    threads: int = 2,
    repeats: int = 15,
    quick: bool = False,
    out: Path | None = None,
) -> None:
    """Measure how fast prompts are drawn.

    Args:
        count: Prompts at once; several megabytes, so that a cache holds them, as in training.
        contexts: Of a prompt, and examples of a chain of three steps.
        dim: Features of an input.
        threads: Of torch.
        repeats: Rounds.
        quick: One round of few prompts, to see that everything runs.
        out: CSV file to put the rows in, after the conformance tests.
    """
    torch.set_num_threads(threads)
    if quick:
        count, repeats = 50, 1
    about = {"count": count, "contexts": contexts, "dim": dim, "threads": threads}
    taken = seconds(draws(count, contexts, dim), repeats)
    rows = [
        Row.of(f"drawing {name}", [count / t for t in times], "1/s", **about)
        for name, times in taken.items()
    ]
    show(rows)
    if out is not None:
        save(rows, out)


if __name__ == "__main__":
    tyro.cli(main)
