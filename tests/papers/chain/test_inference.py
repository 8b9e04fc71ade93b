import pytest
import torch

from graphtheory.papers.chain.data import ChainData, step_positions
from graphtheory.papers.chain.model import ChainAttention, cot_generate, icl_infer, nearest
from graphtheory.papers.chain.training import chain_mass, cot_error, icl_error

DATA = ChainData()


def ideal(data: ChainData, generator: torch.Generator) -> tuple[ChainAttention, torch.Tensor]:
    """W that attends to the query's step and pattern alone, as proposition 3 says."""
    mu = data.patterns(generator)
    c = step_positions(mu, data.steps, generator)
    model = ChainAttention(c)
    upper = torch.cat([mu, torch.zeros_like(mu)], 1)
    model.W.data[0] = 40 * (upper.t() @ upper + c.t() @ c)
    return model, mu


def test_the_ideal_attention_reasons_without_error(generator: torch.Generator) -> None:
    model, mu = ideal(DATA, generator)
    prompts = DATA.training(mu, 200, generator)
    found = cot_generate(
        model, prompts.columns(), prompts.query[:, 0], mu, 3, attention=True
    )  # fmt: skip
    assert torch.equal(found.pattern, prompts.query_pattern[:, 1:])
    assert not cot_error(found.pattern, prompts.query_pattern[:, 1:]).any()
    for k, (weights,) in enumerate(found.attention, 1):
        assert weights.shape == (200, 1, 60 + k)
        mass = chain_mass(weights, *prompts.relation(torch.full((200,), k)))
        assert mass["same step, same pattern"].item() > 0.999
        assert sum(mass.values()).item() == pytest.approx(1)
    answer = icl_infer(model, prompts.icl_columns(), prompts.query[:, 0], mu)
    assert not icl_error(answer, prompts.query_pattern[:, 3]).any()


def test_an_answer_becomes_the_next_input(generator: torch.Generator) -> None:
    """The columns that the model sees in every step are those of the prompt of that step."""
    _, mu = ideal(DATA, generator)
    prompts, seen = DATA.training(mu, 5, generator), []

    class Right:
        def __call__(self, columns: torch.Tensor, sizes: None = None) -> torch.Tensor:
            seen.append(columns.clone())
            return prompts.query[:, len(seen)]

    cot_generate(Right(), prompts.columns(), prompts.query[:, 0], mu, 3)
    for k, columns in enumerate(seen, 1):
        wanted, sizes, _ = prompts.at(torch.full((5,), k))
        assert torch.equal(columns, wanted[:, : int(sizes[0])])


def test_prompts_without_an_example_or_with_another_query_are_refused() -> None:
    model, words = ChainAttention(torch.eye(2, 6)), torch.eye(3)
    with pytest.raises(ValueError, match=r"context: shape \(2, 0, 6\), expected .* at least 1"):
        cot_generate(model, torch.zeros(2, 0, 6), torch.zeros(2, 3), words, 1)
    for query in (torch.zeros(1, 3), torch.zeros(2, 4)):
        with pytest.raises(ValueError, match=r"query: shape .*, expected \(2, 3\), as context"):
            icl_infer(model, torch.zeros(2, 4, 6), query, words)


def test_decoding_takes_the_nearest_of_any_length() -> None:
    words = torch.tensor([[1.0, 0.0], [3.0, 0.0]])
    assert nearest(torch.tensor([[1.9, 5.0], [2.1, -5.0]]), words).tolist() == [0, 1]
