"""In-context learning: prompts are star graphs, and a one-layer network answers unseen tasks."""

from pathlib import Path

import torch

from graphtheory.papers.hinge import Algorithm4, HingeBatch, descend
from graphtheory.papers.icl.data import (
    Patterns,
    PromptSource,
    label_embedding,
    section_6_5,
    training_tasks,
    uncovered,
    unseen_tasks,
)
from graphtheory.papers.icl.figures_mechanism import mass_by_kind
from graphtheory.papers.icl.picture import prompt_page
from graphtheory.papers.icl.training import DiagonalStart, icl_predict
from graphtheory.papers.shallow import ShallowAttention

STEPS, BATCH, LENGTH = 150, 64, 20
draw = torch.Generator().manual_seed(0)

# Six relevant patterns decide tasks: "mu_1 is +1, mu_2 is -1, all others random", and so on.
patterns = Patterns.orthogonal(generator=draw)
labels = label_embedding(generator=draw)
tasks = training_tasks(6)
print("six of the thirty tasks are learned; what they fail to cover:", uncovered(tasks, 6))
source = PromptSource(patterns, tasks, labels, alpha=0.8, length=LENGTH)

# Each prompt is a star: the query node aggregates from its contexts.
net = ShallowAttention(60, 60, width=200, scale=1 / 200, generator=draw)
DiagonalStart(features=30)(net, draw)


def batch(step: int) -> HingeBatch:
    prompts = source.sample(BATCH, draw)
    x, rows, queries = prompts.graph()
    return HingeBatch(x, prompts.answer[None], rows, queries)


descend(net, batch, [net.W_O, net.W_V, net.W_K, net.W_Q], Algorithm4(step_size=3.0, steps=STEPS))

outside = patterns.combined(section_6_5(1.28))
asked = {
    "unseen tasks": PromptSource(patterns, unseen_tasks(tasks, 6), labels, 0.8, LENGTH),
    "new patterns": PromptSource(outside, torch.tensor([[0, 1], [2, 0]]), labels, 0.8, LENGTH),
}
for name, test in asked.items():
    prompts = test.sample(500, draw)
    found = icl_predict(net, prompts.columns())
    wrong = found.wrong(prompts.answer).float().mean()
    mass = mass_by_kind(found.attention, prompts.pattern, prompts.task)
    print(f"{name}: {wrong:.1%} wrong, {mass['same']:.0%} of the attention on the query's pattern, "
          f"which {mass['uniform same']:.0%} of the contexts have")  # fmt: skip

found = icl_predict(net, (few := asked["unseen tasks"].sample(6, draw)).columns())
prompt_page(few, found.attention[0], found.value[0]).save("prompts.html")
print(f"prompts.html: {Path('prompts.html').stat().st_size // 1000} kB, open it in a browser")
