from dataclasses import replace

import pytest
import torch
from torch import Generator

from graphtheory.papers.icl.prompts import (
    DecisionTree,
    FunctionFamily,
    Linear,
    NoisyLinear,
    Prompts,
    Quadratic,
    SparseLinear,
    TwoLayer,
)


def drawn(count: int, generator: Generator) -> Prompts:
    """Prompts of eight contexts with five patterns."""
    q = torch.randn(3, generator=generator)
    return Prompts(
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
def test_shapes_that_do_not_fit_are_named(
    name: str, change: torch.Tensor, generator: Generator
) -> None:
    with pytest.raises(ValueError, match=f"{name}: shape"):
        replace(drawn(3, generator), **{name: change})


def test_contexts_with_the_pattern_of_the_query(generator: Generator) -> None:
    prompts = drawn(20, generator)
    assert prompts.pattern is not None
    for pattern, same in zip(
        prompts.pattern.tolist(), prompts.same_pattern().tolist(), strict=True
    ):
        assert same == [j == pattern[-1] for j in pattern[:-1]]
    with pytest.raises(ValueError, match="no patterns"):
        replace(prompts, pattern=None).same_pattern()


FAMILIES = (Linear(), Quadratic(), SparseLinear(2), TwoLayer(7), DecisionTree(3))


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: type(family).__name__)
def test_a_prompt_has_one_function_and_its_answer(
    family: FunctionFamily, generator: Generator
) -> None:
    prompts = family.prompts(5, 41, 3, generator)
    assert prompts.columns().shape == (5, 41, 4)
    again = family.prompts(5, 41, 3, Generator().manual_seed(0))
    assert torch.equal(again.y, prompts.y)
    assert torch.equal(prompts.columns()[:, :-1, 3], prompts.y[:, :-1])


def test_each_family_has_the_functions_of_its_name(generator: Generator) -> None:
    for family, nonzero in ((Linear(), 6), (SparseLinear(2), 2)):
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
