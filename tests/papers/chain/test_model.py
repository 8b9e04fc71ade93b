import pytest
import torch

from graphtheory.papers.chain.data import ChainData, step_positions
from graphtheory.papers.chain.model import (
    ChainAttention,
    ChainTransformer,
    cot_generate,
)
from graphtheory.papers.chain.training import chain_mass, error_of
from graphtheory.vision.nn import LearnedPositions, PeriodicPositions, SinusoidalPositions

DATA = ChainData()


def by_formula(model: ChainAttention, columns: torch.Tensor, size: int) -> torch.Tensor:
    """Eq. (7.2) of one prompt as it is printed."""
    c = model.position.vectors
    p = torch.stack([columns[i] + c[i % len(c)] for i in range(size)])
    weight = torch.softmax(p[:-1] @ model.W[0] @ p[-1], 0)
    d = columns.size(1) // 2
    value = torch.cat([torch.zeros(d, d), torch.eye(d)], 1)
    return value @ (weight[:, None] * p[:-1]).sum(0)


def test_it_is_the_formula_for_every_trial_and_length(generator: torch.Generator) -> None:
    c = step_positions(DATA.patterns(generator), 3, generator)
    model = ChainAttention(c, trials=2, xi=1.0, generator=generator)
    columns = torch.randn(6, 12, 60, generator=generator)
    sizes = torch.tensor([12, 2, 7, 5, 12, 9])
    whole, cut = model(columns), model(columns, sizes)
    weights = model.attention(columns, sizes)[0]
    for row in range(6):
        alone = model.trial(row // 3)
        torch.testing.assert_close(whole[row], by_formula(alone, columns[row], 12))
        torch.testing.assert_close(cut[row], by_formula(alone, columns[row], int(sizes[row])))
        assert weights[row, 0, sizes[row] - 1 :].count_nonzero() == 0
    heard = (weights @ (columns + model.position(torch.arange(12))))[:, 0, 30:]
    torch.testing.assert_close(heard, cut)
    torch.autograd.grad(cut.sum(), model.W)
    with pytest.raises(ValueError, match="sizes: from 1 to 12, expected 2 to 12"):
        model(columns, sizes.clamp(max=1) + 11 * (sizes == 12))


@pytest.mark.parametrize(
    "model",
    [
        ChainAttention(torch.eye(3, 8)),
        ChainTransformer(PeriodicPositions(torch.eye(3, 8)), 8, depth=1, heads=2),
    ],
)
def test_prompts_that_cannot_be_are_named(model: ChainAttention | ChainTransformer) -> None:
    columns = torch.randn(2, 5, 8)
    for ask in (model, model.attention):
        for wrong in (0, -3, 1, 9):
            low, high = min(wrong, 5), max(wrong, 5)
            with pytest.raises(ValueError, match=f"sizes: from {low} to {high}, expected 2 to 5"):
                ask(columns, torch.tensor([5, wrong]))
        with pytest.raises(ValueError, match=r"sizes: shape \(1,\), expected \(2,\)"):
            ask(columns, torch.tensor([5]))
        for bad in (columns[:, :1], columns[..., :6], columns[0]):
            with pytest.raises(
                ValueError, match=r"columns: shape .* \[B, L, 8\] with L at least 2"
            ):
                ask(bad)


def test_no_model_is_refused() -> None:
    with pytest.raises(ValueError, match="trials: got 0, expected at least 1"):
        ChainAttention(torch.eye(3, 8), trials=0)


@pytest.mark.parametrize("kind", [LearnedPositions(12, 8), SinusoidalPositions(8), "period"])
def test_a_transformer_answers_each_prompt_alone(
    kind: torch.nn.Module | str, generator: torch.Generator
) -> None:
    position = PeriodicPositions(torch.eye(3, 8)) if kind == "period" else kind
    model = ChainTransformer(position, 8, depth=2, heads=2, generator=generator)
    columns, sizes = torch.randn(3, 12, 8, generator=generator), torch.tensor([12, 4, 7])
    out, weights = model(columns, sizes), model.attention(columns, sizes)
    assert [w.shape for w in weights] == [(3, 2, 12)] * 2
    for row, size in enumerate(sizes.tolist()):
        own = columns[row : row + 1, :size]
        torch.testing.assert_close(out[row], model(own)[0])
        for layer, alone in zip(weights, model.attention(own), strict=True):
            torch.testing.assert_close(layer[row, :, :size], alone[0])
            assert not layer[row, :, size:].any()
            torch.testing.assert_close(alone.sum(2), torch.ones(1, 2))


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
    found = cot_generate(model, prompts.columns(), prompts.query[:, 0], mu, 3)
    assert torch.equal(found, prompts.query_pattern[:, 1:])
    assert not error_of(found, prompts.query_pattern[:, 1:]).any()
    for k in range(1, 4):
        (weights,) = model.attention(prompts.at(torch.full((200,), k))[0][:, : 60 + k])
        assert weights.shape == (200, 1, 60 + k)
        mass = chain_mass(weights, *prompts.relation(torch.full((200,), k)))
        assert mass["same step, same pattern"].item() > 0.999
        assert sum(mass.values()).item() == pytest.approx(1)
    answer = cot_generate(model, prompts.icl_columns(), prompts.query[:, 0], mu, 1)
    assert not error_of(answer, prompts.query_pattern[:, 3:]).any()


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


def test_decoding_takes_the_nearest_and_bad_prompts_are_refused() -> None:
    model, words = ChainAttention(torch.eye(2, 6)), torch.eye(3)
    with pytest.raises(ValueError, match=r"context: shape \(2, 0, 6\), expected .* at least 1"):
        cot_generate(model, torch.zeros(2, 0, 6), torch.zeros(2, 3), words, 1)
    for query in (torch.zeros(1, 3), torch.zeros(2, 4)):
        with pytest.raises(ValueError, match=r"query: shape .*, expected \(2, 3\), as context"):
            cot_generate(model, torch.zeros(2, 4, 6), query, words, 1)
    words, outputs = torch.tensor([[1.0, 0.0], [3.0, 0.0]]), torch.tensor([[1.9, 5.0], [2.1, -5.0]])
    found = cot_generate(lambda columns: outputs, torch.zeros(2, 1, 4), torch.zeros(2, 2), words, 1)
    assert found.tolist() == [[0], [1]]
