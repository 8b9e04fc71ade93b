import random
import time
from dataclasses import replace

import pytest
import torch
from torch import Generator
from torch_geometric.data import Batch

from graphtheory.data.prompts import Prompts, label_embedding
from graphtheory.papers.icl.data import PromptSource
from graphtheory.papers.icl.patterns import Patterns
from graphtheory.papers.icl.tasks import training_tasks


def source(alpha: float = 0.6, length: int = 8, generator: Generator | None = None) -> PromptSource:
    drawn = generator or Generator().manual_seed(1)
    return PromptSource(
        Patterns.orthogonal(5, 4, dim=10, generator=drawn), training_tasks(5),
        label_embedding(3, generator=drawn), alpha, length,
    )  # fmt: skip


def test_columns_are_inputs_above_labels(generator: Generator) -> None:
    made = source()
    prompts = made.sample(50, generator)
    columns, (minus, plus) = prompts.columns(), made.labels
    assert columns.shape == (50, 9, 13) and not columns[:, -1, 10:].any()
    assert torch.equal(plus, -minus)
    for p in range(50):
        for i in range(8):
            wanted = plus if prompts.y[p, i] > 0 else minus
            torch.testing.assert_close(columns[p, i, 10:], wanted)
    assert torch.equal(prompts[3:5].columns(), columns[3:5])
    again = made.sample(50, Generator().manual_seed(0))
    assert torch.equal(again.x, prompts.x)


def test_inputs_and_labels_are_those_of_their_patterns(generator: Generator) -> None:
    made = source()
    prompts = made.sample(300, generator)
    assert prompts.pattern is not None and prompts.task is not None
    mu, nu = made.patterns.relevant, made.patterns.irrelevant
    torch.testing.assert_close(
        prompts.x @ mu.t() / 9, torch.eye(5)[prompts.pattern], atol=1e-4, rtol=0
    )
    kappa = prompts.x @ nu.t() / 9
    assert ((kappa.abs() > 1e-4).sum(2) <= 1).all() and kappa.abs().max() <= 0.5001
    assert kappa.min() < -0.45 and kappa.max() > 0.45
    plus, minus = (prompts.pattern == prompts.task[:, side, None] for side in (0, 1))
    assert (prompts.y[plus] == 1).all() and (prompts.y[minus] == -1).all()
    assert (plus | minus)[:, -1].all()  # the query decides
    other = prompts.y[:, :-1][~(plus | minus)[:, :-1]]
    assert abs(float(other.mean())) < 0.15 and set(other.tolist()) == {-1.0, 1.0}


def test_shares_of_patterns(generator: Generator) -> None:
    prompts = source(alpha=0.6).sample(20_000, generator)
    assert prompts.pattern is not None and prompts.task is not None
    counts = torch.zeros(5)
    for j in range(5):  # relative to the task's first pattern; the second is the next one
        counts[j] = (prompts.pattern[:, :-1] == (prompts.task[:, :1] + j) % 5).float().mean()
    torch.testing.assert_close(
        counts, torch.tensor([0.3, 0.3, 0.4 / 3, 0.4 / 3, 0.4 / 3]), atol=5e-3, rtol=0
    )
    queries = prompts.pattern[:, -1].bincount() / len(prompts)
    torch.testing.assert_close(queries, torch.full((5,), 0.2), atol=0.01, rtol=0)
    assert abs(float(prompts.answer.mean())) < 0.02


def test_prompts_are_stars_as_tensors_and_in_pyg(generator: Generator) -> None:
    prompts = source().sample(6, generator)
    x, rows, queries = prompts.graph()
    batch = prompts.batch()
    assert isinstance(batch, Batch) and torch.equal(batch.x, x)
    assert torch.equal(batch.edge_index, rows.edge_index() * torch.tensor([[1], [9]]) +
                       torch.tensor([[0], [8]]))  # fmt: skip
    assert torch.equal(batch.query_index, queries) and torch.equal(batch.y, prompts.answer)
    assert torch.equal(batch.get_example(4).x, prompts.columns()[4])
    assert torch.equal(rows.edge_index()[0], batch.edge_index[0])


def test_a_task_may_be_given_and_the_user_brings_labels(generator: Generator) -> None:
    labels = torch.tensor([[0.0, 2.0], [5.0, 0.0]])
    made = PromptSource(source().patterns, torch.tensor([[0, 1], [3, 2]]), labels, 1.0, 4)
    prompts = made.sample(40, generator, task=torch.ones(40, dtype=torch.int64))
    assert prompts.task is not None and (prompts.task == torch.tensor([3, 2])).all()
    assert prompts.pattern is not None and set(prompts.pattern.unique().tolist()) == {2, 3}
    told = prompts.columns()[:, :-1, 10:]
    assert torch.equal(told, labels[(prompts.y[:, :-1] > 0).long()])
    assert torch.equal(prompts.same_pattern(), (prompts.y[:, :-1] == prompts.answer[:, None]))


def test_no_prompt_is_a_number_of_prompts(generator: Generator) -> None:
    none = source().sample(0, generator)
    assert len(none) == 0 and none.x.shape == (0, 9, 10) and none.columns().shape == (0, 9, 13)
    with pytest.raises(ValueError, match="prompts: got none, expected at least one"):
        none.batch()
    with pytest.raises(ValueError, match="count: got -1, expected 0 or more"):
        source().sample(-1, generator)


def test_one_of_the_prompts_is_prompts(generator: Generator) -> None:
    prompts = source().sample(3, generator)
    assert [len(one) for one in prompts] == [1, 1, 1]
    assert torch.equal(prompts[-1].columns(), prompts[2:].columns())
    with pytest.raises(IndexError):
        prompts[3]


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("x", torch.zeros(3, 10)),
        ("y", torch.zeros(3, 8)),
        ("labels", torch.zeros(3)),
        ("pattern", torch.zeros(3, 8, dtype=torch.int64)),
        ("task", torch.zeros(2, 2, dtype=torch.int64)),
    ],
)
def test_shapes_that_do_not_fit_are_named(
    name: str, change: torch.Tensor, generator: Generator
) -> None:
    with pytest.raises(ValueError, match=f"{name}: shape"):
        replace(source().sample(3, generator), **{name: change})


def test_tasks_that_are_not_there_are_refused(generator: Generator) -> None:
    with pytest.raises(ValueError, match=r"task: shape \(2,\), expected \(3,\)"):
        source().sample(3, generator, task=torch.zeros(2, dtype=torch.int64))
    with pytest.raises(ValueError, match="task: from 0 to 99, expected 0 to"):
        source().sample(2, generator, task=torch.tensor([0, 99]))


def test_drawing_is_vectorised(generator: Generator) -> None:
    made = PromptSource(
        Patterns.orthogonal(generator=generator), training_tasks(6), label_embedding(
            generator=generator), 0.8, 20,
    )  # fmt: skip
    made.sample(100, generator).columns()

    def fast() -> float:
        start = time.process_time()
        made.sample(2000, generator).columns()
        return (time.process_time() - start) / 2000

    def loop(count: int) -> float:
        start = time.process_time()
        for _ in range(count):
            one_by_one(made)
        return (time.process_time() - start) / count

    assert loop(20) > 10 * min(fast() for _ in range(3))


def one_by_one(made: PromptSource) -> torch.Tensor:
    """A prompt, column by column."""
    a, b = random.choice(made.tasks.tolist())
    columns = []
    for place in range(made.length + 1):
        others = [j for j in range(6) if j not in (a, b)]
        j = random.choices([a, b, *others], [0.4, 0.4] + [0.05] * 4)[0]
        if place == made.length:
            j = random.choice([a, b])
        nu = random.choice(made.patterns.irrelevant.unbind())
        x = made.patterns.relevant[j] + random.uniform(-0.5, 0.5) * nu
        z = 1 if j == a else -1 if j == b else random.choice([1, -1])
        columns.append(torch.cat([x, (0 if place == made.length else z) * made.labels[1]]))
    return torch.stack(columns)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"alpha": 0.0}, "alpha: got 0.0"),
        ({"length": 0}, "length: got 0"),
        ({"labels": torch.zeros(3, 2)}, "labels: shape"),
        ({"tasks": torch.tensor([[0, 7]])}, "tasks: patterns 0 to 7"),
    ],
)
def test_what_is_refused(change: dict[str, object], message: str) -> None:
    made = source()
    given = {"alpha": 0.5, "length": 3, "labels": made.labels, "tasks": made.tasks} | change
    with pytest.raises(ValueError, match=message):
        PromptSource(made.patterns, **given)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="no patterns"):
        Prompts(torch.zeros(1, 2, 3), torch.zeros(1, 2), torch.zeros(2, 1)).same_pattern()
