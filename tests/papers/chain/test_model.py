from dataclasses import replace

import pytest
import torch

from graphtheory.papers.chain import training as chain
from graphtheory.papers.chain.data import ChainData, TrajectoryErrors, step_positions
from graphtheory.papers.chain.model import ChainAttention, ChainTransformer, cot_generate
from graphtheory.papers.chain.training import MASSES, Learner, Probe, chain_mass, error_of
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
def test_a_transformer_answers_each_prompt_alone(kind: torch.nn.Module | str, generator) -> None:
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


def test_errors_count_steps_and_ends_and_columns_are_of_one_kind() -> None:
    found, wanted = torch.tensor([[0, 1, 2], [0, 0, 0]]), torch.tensor([[0, 1, 2], [0, 1, 2]])
    assert error_of(found, wanted).tolist() == pytest.approx([0, 2 / 3])
    assert error_of(found[:, 2:], wanted[:, 2:]).tolist() == [0, 1]
    with pytest.raises(ValueError, match=r"found: shape \(2,\), expected \(2, 3\)"):
        error_of(torch.zeros(2), wanted)
    # Powers of two as weights tell which columns were added up; two prompts are averaged.
    weights = 2.0 ** torch.arange(5).expand(2, 1, 5)
    step = torch.tensor([[True, True, False, False], [False, False, False, True]])
    pattern = torch.tensor([[True, False, True, False], [True, True, False, True]])
    mass = chain_mass(weights, step, pattern)
    assert [mass[name].item() for name in MASSES] == [(1 + 8) / 2, 2 / 2, (4 + 3) / 2, (8 + 4) / 2]
    assert mass["own columns"].item() == 16


SMALL = ChainData(dim=12, num_patterns=6, num_test_patterns=4, steps=2, contexts=10, noise=0.1)
RIGHT = TrajectoryErrors((1.0, 1.0), (0.0, 0.0))
QUICK = Learner(step_size=20.0, steps=60, batch_size=50)


def test_a_trained_layer_selects_and_reasons() -> None:
    model, mu = chain.train(QUICK, SMALL, 2, 0)
    assert isinstance(model, ChainAttention)
    probe = Probe("CoT", 0.8, RIGHT, 100)
    for trial in (model.trial(0), model.trial(1)):
        ((mass,),) = chain.masses(trial, SMALL, mu, probe, 0)
        assert mass["same step, same pattern"] > 0.8
        assert sum(mass.values()) == pytest.approx(1, abs=1e-5)
        for inference in ("CoT", "ICL"):
            assert replace(probe, inference=inference).error(trial, SMALL, mu, 10, 1) == 0
    assert not torch.equal(model.W[0], model.W[1])
    untrained, _ = chain.train(replace(QUICK, steps=0), SMALL, 1, 0)
    assert probe.error(untrained, SMALL, mu, 10, 1) > 0.2


def test_prompts_are_asked_in_parts_with_the_same_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    model, mu = chain.train(replace(QUICK, steps=0), SMALL, 1, 0)
    monkeypatch.setattr(chain, "_COLUMNS", 10 * 2 * 7)
    counts, sample = [], ChainData.testing

    def note(self: ChainData, patterns: torch.Tensor, count: int, *rest: object) -> object:
        counts.append(count)
        return sample(self, patterns, count, *rest)

    monkeypatch.setattr(ChainData, "testing", note)
    Probe("ICL", 0.8, RIGHT, 16).error(model, SMALL, mu, 10, 1)
    assert counts == [7, 7, 2]


@pytest.mark.parametrize("position", ["orthonormal", "sinusoidal"])
def test_a_transformer_learns_with_any_position(position: str) -> None:
    learner = Learner(depth=1, heads=2, position=position, step_size=3e-3, steps=8, batch_size=8)
    losses = []

    def watch(step: int, model: torch.nn.Module, mu: torch.Tensor) -> None:
        prompts = SMALL.training(mu, 200, torch.Generator().manual_seed(5))
        columns, sizes, label = prompts.at(torch.arange(200) % 2 + 1)
        losses.append(float((model(columns, sizes) - label).detach().square().sum(1).mean()))

    chain.train(learner, SMALL, 1, 0, watch)
    assert len(losses) == 9 and losses[-1] < losses[0]
