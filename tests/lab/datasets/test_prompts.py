from dataclasses import replace

import pytest
import torch
from torch import Generator
from torch_geometric.data import Batch

from graphtheory.lab.datasets.prompts import Prompts


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


def test_columns_are_inputs_above_labels(generator: Generator) -> None:
    prompts = drawn(50, generator)
    columns, (minus, plus) = prompts.columns(), prompts.labels
    assert columns.shape == (50, 9, 13) and not columns[:, -1, 10:].any()
    assert torch.equal(columns[..., :10], prompts.x)
    for p in range(50):
        for i in range(8):
            wanted = plus if prompts.y[p, i] > 0 else minus
            torch.testing.assert_close(columns[p, i, 10:], wanted)
    assert torch.equal(prompts[3:5].columns(), columns[3:5])


def test_prompts_are_stars_as_tensors_and_in_pyg(generator: Generator) -> None:
    prompts = drawn(6, generator)
    x, rows, queries = prompts.graph()
    batch = prompts.batch()
    assert isinstance(batch, Batch) and torch.equal(batch.x, x)
    assert torch.equal(batch.edge_index, rows.edge_index() * torch.tensor([[1], [9]]) +
                       torch.tensor([[0], [8]]))  # fmt: skip
    assert torch.equal(batch.query_index, queries) and torch.equal(batch.y, prompts.answer)
    assert torch.equal(batch.get_example(4).x, prompts.columns()[4])
    assert torch.equal(rows.edge_index()[0], batch.edge_index[0])


def test_no_prompt_is_a_number_of_prompts(generator: Generator) -> None:
    none = drawn(0, generator)
    assert len(none) == 0 and none.columns().shape == (0, 9, 13)
    with pytest.raises(ValueError, match="prompts: got none, expected at least one"):
        none.batch()


def test_one_of_the_prompts_is_prompts(generator: Generator) -> None:
    prompts = drawn(3, generator)
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
