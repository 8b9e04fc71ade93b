import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Generator
from torch.utils._python_dispatch import TorchDispatchMode

from graphtheory.papers.icl import data
from graphtheory.papers.icl import prompts as families
from graphtheory.papers.icl.prompts import DecisionTree, Linear, NoisyLinear, Quadratic, TwoLayer


def drawn(count: int, generator: Generator) -> families.Prompts:
    """Prompts of eight contexts with five patterns."""
    q = torch.randn(3, generator=generator)
    return families.Prompts(
        torch.randn(count, 9, 10, generator=generator),
        torch.randint(2, (count, 9), generator=generator) * 2.0 - 1,
        torch.stack([-q, q]),
        torch.randint(5, (count, 9), generator=generator),
        torch.randint(5, (count, 2), generator=generator),
    )


def test_columns_are_inputs_above_labels_of_each_prompt(generator: Generator) -> None:
    prompts = drawn(50, generator)
    columns, (minus, plus) = prompts.columns(), prompts.labels
    assert columns.shape == (50, 9, 13) and not columns[:, -1, 10:].any()
    assert torch.equal(columns[..., :10], prompts.x)
    for p in range(50):
        for i in range(8):
            wanted = plus if prompts.y[p, i] > 0 else minus
            torch.testing.assert_close(columns[p, i, 10:], wanted)
    assert torch.equal(prompts[3:5].columns(), columns[3:5])
    prompts = drawn(3, generator)
    assert [len(one) for one in prompts] == [1, 1, 1]
    assert torch.equal(prompts[-1].columns(), prompts[2:].columns())
    with pytest.raises(IndexError):
        prompts[3]
    none = drawn(0, generator)
    assert len(none) == 0 and none.columns().shape == (0, 9, 13)


def test_prompts_are_stars(generator: Generator) -> None:
    prompts = drawn(6, generator)
    x, rows, queries = prompts.graph()
    assert torch.equal(x, prompts.columns().flatten(0, 1)) and rows.num_dst == 6
    for p, query in enumerate(queries.tolist()):
        contexts = rows.indices[rows.indptr[p] : rows.indptr[p + 1]].tolist()
        assert contexts == list(range(9 * p, 9 * p + 8)) and query == 9 * p + 8


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
def test_shapes_that_do_not_fit_are_named(name: str, change: torch.Tensor, generator) -> None:
    with pytest.raises(ValueError, match=f"{name}: shape"):
        replace(drawn(3, generator), **{name: change})


def test_contexts_with_the_pattern_of_the_query(generator: Generator) -> None:
    prompts = drawn(20, generator)
    assert prompts.pattern is not None
    same_pattern = prompts.same_pattern().tolist()
    for pattern, same in zip(prompts.pattern.tolist(), same_pattern, strict=True):
        assert same == [j == pattern[-1] for j in pattern[:-1]]
    with pytest.raises(ValueError, match="no patterns"):
        replace(prompts, pattern=None).same_pattern()


FAMILIES = (Linear(), Quadratic(), families.SparseLinear(2), TwoLayer(7), DecisionTree(3))


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: type(family).__name__)
def test_a_prompt_has_one_function_and_its_answer(family, generator: Generator) -> None:
    prompts = family.prompts(5, 41, 3, generator)
    assert prompts.columns().shape == (5, 41, 4)
    again = family.prompts(5, 41, 3, Generator().manual_seed(0))
    assert torch.equal(again.y, prompts.y)
    assert torch.equal(prompts.columns()[:, :-1, 3], prompts.y[:, :-1])


def test_each_family_has_the_functions_of_its_name(generator: Generator) -> None:
    for family, nonzero in ((Linear(), 6), (families.SparseLinear(2), 2)):
        prompts = family.prompts(4, 21, 6, generator)
        w = torch.linalg.lstsq(prompts.x[:, :-1], prompts.y[:, :-1, None]).solution
        torch.testing.assert_close((prompts.x[:, -1:] @ w).flatten(), prompts.answer)
        assert ((w.abs() > 1e-4).sum(1) == nonzero).all()
        assert not torch.allclose(w[0], w[1])
    x = torch.randn(3, 4, 5, generator=generator)
    ends = torch.cat([x, 2 * x, -x], 1)
    once, twice, back = TwoLayer(50).outputs(ends, generator).split(4, 1)
    torch.testing.assert_close(twice, 2 * once)
    assert not torch.allclose(back, -once, atol=1e-2)
    many = TwoLayer(100).prompts(4000, 2, 5, generator).y
    assert float(many.var()) == pytest.approx(5, rel=0.15)  # 2 / r * r * d / 2
    signs = torch.cartesian_prod(*[torch.tensor([-1.0, 1.0])] * 3).expand(6, 8, 3)
    size = torch.rand(6, 8, 3, generator=generator) + 0.1
    here = DecisionTree(2).outputs(signs, Generator().manual_seed(4))
    assert torch.equal(here, DecisionTree(2).outputs(signs * size, Generator().manual_seed(4)))
    assert all(2 <= len(row.unique()) <= 4 for row in here)
    draw = torch.Generator().manual_seed(0)
    quadratic = Quadratic().prompts(4000, 5, 6, draw)
    assert quadratic.y.square().mean() == pytest.approx(6, rel=0.1)
    x = torch.randn(1, 9, 3, generator=draw)
    one, other = (Quadratic().outputs(s * x, torch.Generator().manual_seed(1)) for s in (1, -1))
    assert torch.equal(one, other)
    x = torch.zeros(500, 4, 3)
    assert NoisyLinear(0.5).outputs(x, draw).std() == pytest.approx(0.5, rel=0.1)
    with pytest.raises(ValueError, match="noise: got 0, expected a number above 0"):
        NoisyLinear(0)
    with pytest.raises(ValueError, match="depth: got 0"):
        DecisionTree(0)


DRAW = torch.Generator()


def test_patterns_of_the_thesis_and_conditions_of_a_theorem(generator: torch.Generator) -> None:
    inside = data.Patterns.orthogonal(generator=generator)
    both = torch.cat([inside.relevant, inside.irrelevant])
    torch.testing.assert_close(both @ both.t(), 9 * torch.eye(30), atol=1e-4, rtol=0)
    outside = inside.combined(data.section_6_5(1.1))
    products = outside.relevant @ outside.relevant.t()
    torch.testing.assert_close(products, 9 * torch.eye(3), atol=1e-4, rtol=0)
    assert torch.equal(outside.irrelevant, inside.irrelevant[:3]) and outside.spread == 5
    a, b = data.section_6_5(1.1)[0, 4:].tolist()
    assert a + b == pytest.approx(1.1) and a**2 + b**2 + 2 * 0.3**2 == pytest.approx(1)
    most = math.sqrt(2 * 0.82)
    assert all(not data.unmet_conditions(data.section_6_5(total)) for total in (1.0, 1.2, most))
    assert data.unmet_conditions(data.section_6_5(0.9)) == ["S_1 = 0.9, expected at least 1"]
    skewed = torch.tensor([[2.0, 0.0], [1.0, 0.5]])
    told = data.unmet_conditions(skewed)
    assert "pattern 1 has the norm 2 beta, expected beta" in told
    assert "patterns 1 and 2 are not orthogonal" in told


def test_blocks_cover_every_pattern_and_label_evenly_or_say_what_they_do_not() -> None:
    for blocks in range(1, 6):
        tasks = data.training_tasks(6, blocks)
        assert len(tasks) == 6 * blocks and len(tasks.unique(dim=0)) == len(tasks)
        assert not data.uncovered(tasks, 6)
    assert data.training_tasks(6, 2)[6:8].tolist() == [[0, 2], [1, 3]]
    left = data.unseen_tasks(data.training_tasks(6, 4), 6)
    known = set(map(tuple, data.training_tasks(6, 4).tolist()))
    assert len(left) == 6 and not set(map(tuple, left.tolist())) & known
    with pytest.raises(ValueError, match="all 6 are given"):
        data.unseen_tasks(data.all_tasks(3), 3)
    more = torch.cat([data.training_tasks(3), torch.tensor([[0, 2]])])
    assert data.uncovered(more, 3) == ["4 tasks, expected a multiple of M1 = 3"]
    few = data.uncovered(torch.tensor([[0, 1], [1, 0]]), 3)
    assert few[1:] == ["no task maps mu_3 to +1", "no task maps mu_3 to -1"]
    twice = data.uncovered(torch.tensor([[0, 1], [1, 0], [0, 2]]), 3)
    assert twice == ["2 tasks map mu_1 to +1, expected 1", "no task maps mu_3 to +1"]


def source(alpha: float = 0.6, length: int = 8, generator: Any = None) -> data.PromptSource:
    drawn = generator or Generator().manual_seed(1)
    return data.PromptSource(
        data.Patterns.orthogonal(5, 4, dim=10, generator=drawn), data.training_tasks(5),
        data.label_embedding(3, generator=drawn), alpha, length,
    )  # fmt: skip


def test_the_same_generator_gives_the_same_prompts(generator: Generator) -> None:
    prompts, again = (source().sample(50, Generator().manual_seed(0)) for _ in range(2))
    assert torch.equal(again.x, prompts.x) and torch.equal(again.y, prompts.y)
    assert torch.equal(prompts.labels[1], -prompts.labels[0])
    assert len(source().sample(0, generator)) == 0


def test_inputs_and_labels_are_those_of_their_patterns(generator: Generator) -> None:
    made = source()
    prompts = made.sample(300, generator)
    assert prompts.pattern is not None and prompts.task is not None
    mu, nu = made.patterns.relevant, made.patterns.irrelevant
    along = prompts.x @ mu.t() / 9
    torch.testing.assert_close(along, torch.eye(5)[prompts.pattern], atol=1e-4, rtol=0)
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
    wanted = torch.tensor([0.3, 0.3, 0.4 / 3, 0.4 / 3, 0.4 / 3])
    torch.testing.assert_close(counts, wanted, atol=5e-3, rtol=0)
    queries = prompts.pattern[:, -1].bincount() / len(prompts)
    torch.testing.assert_close(queries, torch.full((5,), 0.2), atol=0.01, rtol=0)
    assert abs(float(prompts.answer.mean())) < 0.02


def test_a_task_may_be_given_and_the_user_brings_labels(generator: Generator) -> None:
    labels = torch.tensor([[0.0, 2.0], [5.0, 0.0]])
    made = data.PromptSource(source().patterns, torch.tensor([[0, 1], [3, 2]]), labels, 1.0, 4)
    prompts = made.sample(40, generator, task=torch.ones(40, dtype=torch.int64))
    assert prompts.task is not None and (prompts.task == torch.tensor([3, 2])).all()
    assert prompts.pattern is not None and set(prompts.pattern.unique().tolist()) == {2, 3}
    told = prompts.columns()[:, :-1, 10:]
    assert torch.equal(told, labels[(prompts.y[:, :-1] > 0).long()])
    assert torch.equal(prompts.same_pattern(), (prompts.y[:, :-1] == prompts.answer[:, None]))


class Counting(TorchDispatchMode):
    """Counts the operations of torch inside it."""

    count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += 1
        return func(*args, **(kwargs or {}))


def test_drawing_is_vectorized(generator: Generator) -> None:
    made, counts = source(), []
    for prompts in (10, 1000):
        with Counting() as counting:
            made.sample(prompts, generator).columns()
        counts.append(counting.count)
    assert counts[0] == counts[1] > 0


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: data.Patterns(torch.zeros(1, 3), torch.zeros(0, 3)), "relevant: shape"),
        (lambda: data.Patterns(torch.zeros(2, 3), torch.zeros(2, 4)), "irrelevant: shape"),
        (lambda: data.Patterns(torch.zeros(2, 3), torch.zeros(2, 3), -1), "spread: got -1"),
        (lambda: data.section_6_5(1.3), "total: got 1.3, expected at most 1.2806"),
        (lambda: data.Patterns.orthogonal(norm=-1.0, generator=DRAW),
         "norm: got -1.0, expected above 0"),
        (lambda: data.Patterns.orthogonal(irrelevant=-1, generator=DRAW),
         "irrelevant: got -1, expected"),
        (lambda: data.Patterns.orthogonal(20, 20, generator=torch.Generator()), "M1 \\+ M2 = 40"),
        (lambda: data.uncovered(torch.tensor([[0, 0]]), 3), "tasks:"),
        (lambda: data.uncovered(torch.tensor([[0, 3]]), 3), "tasks:"),
        (lambda: data.uncovered(torch.tensor([[-1, 0]]), 3), "tasks:"),
        (lambda: source().sample(-1, DRAW), "count: got -1, expected 0 or more"),
        (lambda: source().sample(3, DRAW, task=torch.zeros(2, dtype=torch.int64)),
         r"task: shape \(2,\), expected \(3,\)"),
        (lambda: source().sample(2, DRAW, task=torch.tensor([0, 99])),
         "task: from 0 to 99, expected 0 to"),
        (lambda: source(alpha=0.0), "alpha: got 0.0"),
        (lambda: source(length=0), "length: got 0"),
        (lambda: replace(source(), labels=torch.zeros(3, 2)), "labels: shape"),
        (lambda: replace(source(), tasks=torch.tensor([[0, 7]])), "tasks: patterns 0 to 7"),
    ],
)  # fmt: skip
def test_what_is_refused(make: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()  # type: ignore[operator]
