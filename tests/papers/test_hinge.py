"""SGD on the hinge loss of many networks, against loops."""

from collections import Counter
from dataclasses import replace

import torch
from torch import Tensor

from graphtheory import Neighborhood
from graphtheory.papers.hinge import (
    Algorithm4,
    HingeBatch,
    HingeTask,
    Outcome,
    descend,
    train_hinge,
)
from graphtheory.papers.shallow import ShallowAttention
from graphtheory.patterns import AddSelf, Compose, Sample
from tests.papers.conftest import drawn

NODES, DIM, TRIALS = 12, 4, 2
WHOLE = Algorithm4(step_size=0.1, steps=4, batch_size=20, pattern=Compose())


def task(labels: int = 6) -> HingeTask:
    edges = torch.cat([torch.randint(NODES, (2, 40), generator=drawn(t)) + NODES * t
                       for t in range(TRIALS)], 1)  # fmt: skip
    x = torch.randn(TRIALS * NODES, DIM, generator=drawn(5))
    labeled = torch.arange(labels) + NODES * torch.arange(TRIALS)[:, None]
    graph = Neighborhood.from_edge_index(edges, TRIALS * NODES)
    return HingeTask(x, x[:, 0].sign(), labeled, AddSelf()(graph))


def net() -> ShallowAttention:
    return ShallowAttention(DIM, DIM, 8, trials=TRIALS, generator=drawn())


def test_steps_are_those_of_sgd_on_each_trial_alone() -> None:
    given, together = task(), net()
    others = [together.trial(t) for t in range(TRIALS)]
    train_hinge(together, given, list(together.parameters()), WHOLE, drawn())
    for t, alone in enumerate(others):
        optimizer = torch.optim.SGD(alone.parameters(), lr=WHOLE.step_size)
        own = torch.arange(NODES) + NODES * t
        rows = given.candidates.rows(own)
        mine = Neighborhood(rows.indptr, rows.indices - NODES * t, NODES)
        nodes = given.labeled[t] - NODES * t
        for _ in range(WHOLE.steps):
            out = alone(given.x[own], mine)[0, nodes]
            optimizer.zero_grad()
            torch.nn.functional.relu(1 - given.y[own][nodes] * out).mean().backward()
            optimizer.step()
        for name, value in alone.named_parameters():
            torch.testing.assert_close(together.get_parameter(name)[t], value[0])


def test_batches_hold_different_labeled_nodes_and_fresh_sources() -> None:
    given, seen = task(), []

    def network(x: Tensor, rows: Neighborhood, nodes: Tensor) -> Tensor:
        seen.append((nodes.view(TRIALS, -1), rows))
        return (x[nodes, 0] * weight).view(TRIALS, -1)

    weight = torch.zeros(1, requires_grad=True)
    options = Algorithm4(steps=300, batch_size=2, pattern=Compose(Sample(1), AddSelf()))
    assert train_hinge(network, given, [weight], options, drawn()) == 300
    counts = Counter(int(n) for nodes, _ in seen for n in nodes.flatten())
    assert set(counts) == set(given.labeled.flatten().tolist())
    assert all(60 < count < 140 for count in counts.values())
    assert all(len(set(row.tolist())) == 2 for nodes, _ in seen for row in nodes)
    own, rows = seen[0]
    assert rows.num_dst == 4 and bool((rows.degree() <= 2).all())
    for i, node in enumerate(own.flatten().tolist()):
        heard = rows.indices[rows.indptr[i] : rows.indptr[i + 1]].tolist()
        assert node in heard
    assert len({tuple(rows.indices.tolist()) for _, rows in seen}) > 100


def test_training_ends_when_all_is_quiet_or_the_watcher_says_so() -> None:
    steps: list[int] = []
    options = replace(WHOLE, steps=50, quiet=5)

    def right(x: Tensor, rows: Neighborhood, nodes: Tensor) -> Tensor:
        return (2 * task().y[nodes] + 0 * weight).view(TRIALS, -1)

    weight = torch.zeros(1, requires_grad=True)
    assert train_hinge(right, task(), [weight], options, drawn()) == 5
    model = net()

    def watch(step: int) -> bool:
        steps.append(step)
        return step == 3

    given = list(model.parameters())
    assert train_hinge(model, task(), given, options, drawn(), watch=watch) == 3
    assert steps == [0, 1, 2, 3]


def test_a_run_is_a_function_of_its_generator() -> None:
    runs = [net() for _ in range(2)]
    options = Algorithm4(step_size=0.1, steps=5, batch_size=3, pattern=Sample(2))
    for model in runs:
        train_hinge(model, task(), list(model.parameters()), options, drawn(3))
    assert torch.equal(runs[0].W_O, runs[1].W_O)


def test_batches_may_be_new_data_in_every_step() -> None:
    given, model = task(), net()
    other, asked = net(), []
    train_hinge(other, given, list(other.parameters()), WHOLE, drawn())

    def draw(step: int) -> HingeBatch:
        asked.append(step)
        nodes = given.labeled.flatten()
        rows = given.candidates.rows(nodes)
        return HingeBatch(given.x, given.y[given.labeled], rows, nodes)

    assert descend(model, draw, list(model.parameters()), WHOLE) == WHOLE.steps
    assert asked == list(range(WHOLE.steps))
    assert torch.equal(model.W_O, other.W_O)


def test_an_output_of_0_or_nan_is_an_error() -> None:
    assert Outcome.of(torch.tensor([2.0, 0.0, -1.0, torch.nan])).error == 0.75
