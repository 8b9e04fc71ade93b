import math
from dataclasses import replace
from itertools import product

import pytest
import torch

from graphtheory.papers.chain import training as chain
from graphtheory.papers.chain.data import ChainData, TrajectoryErrors, step_positions
from graphtheory.papers.chain.figures import FIGURES, fewer_examples
from graphtheory.papers.chain.figures_attention import FIGURES as ATTENTION_FIGURES
from graphtheory.papers.chain.figures_attention import Dynamics, best_heads, stages
from graphtheory.papers.chain.model import ChainAttention, ChainTransformer, cot_generate
from graphtheory.papers.chain.training import MASSES, Learner, Probe, chain_mass, error_of
from graphtheory.papers.figure import Figure
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
            told = r"columns: shape .* \[B, L, 8\] with L at least 2"
            with pytest.raises(ValueError, match=told):
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


BY_ID = {figure.id: figure for figure in (*FIGURES, *ATTENTION_FIGURES)}


@pytest.mark.parametrize("figure", FIGURES, ids=lambda figure: figure.id)
def test_lines_are_where_they_say(figure: Figure) -> None:
    for case in figure.grid.cases:
        facts = case.facts(DATA)
        if case.letter in ("tau", "rho", "tau_o", "rho_o"):
            assert facts[case.letter] == pytest.approx(case.value, abs=1e-3)
        if figure.id == "fig-7-5":
            assert facts["tau_o"] == pytest.approx(0.4, abs=1e-3)
            assert facts["rho_o"] == pytest.approx(0.1, abs=1e-3)
            assert facts["condition"] == bool(case.value)
        elif figure.id.startswith("fig-7-3"):
            assert facts["condition"] and facts["tau"] <= facts["tau_o"] + 1e-3
        else:
            assert facts["condition"]


@pytest.mark.parametrize(
    ("fails", "chain", "holds"), [(0.7, 0.0, True), (0.4, 0.0, False), (0.7, 0.5, False)]
)
def test_the_verdict_of_figure_7_5(fails: float, chain: float, holds: bool) -> None:
    figure = BY_ID["fig-7-5"]
    lengths = figure.grid.lengths
    last = {("ICL", True): 0.1, ("ICL", False): fails, ("CoT", True): 0.0, ("CoT", False): chain}
    facts = dict.fromkeys(("tau", "rho", "tau_o", "rho_o"), 0.5)
    rows = [
        {"panel": panel, "series": str(condition), "condition": condition, "contexts": contexts,
         "error": end if contexts == lengths[-1] else 0.5 + seed / 100, "seed": seed}
        | facts
        for ((panel, condition), end), contexts, seed in product(last.items(), lengths, (0, 1))
    ]  # fmt: skip
    rows = [r | {"error": r["error"] + 0.02 * (r["panel"] == "ICL")} for r in rows]
    verdict = figure.report(figure.grid, rows).verdict
    assert verdict.endswith("holds." if holds else "not found.")


def test_the_data_of_the_section_are_the_default() -> None:
    assert ChainData() == ChainData(30, 20, 10, 3, 0.4, 20, 0.2)


def lengths_needed(value: float, needed: float, error: float | None = None) -> list[dict]:
    """Of three trials, errors that fall as the length to the power -2, or do not."""
    return [
        {"panel": "CoT", "series": f"tau = {value}", "value": value, "seed": seed, "contexts": n,
         "error": error or 0.05 * (needed * (1 + seed / 10) / n) ** 2}
        for seed, n in product(range(3), (5, 10, 20, 40, 80, 160))
    ]  # fmt: skip


def test_fewer_examples_with_every_larger_value() -> None:
    falling = fewer_examples(None, [r for v in (0.2, 0.4) for r in lengths_needed(v, 3 * v**-1.5)])
    assert "fewer with every larger value: holds" in falling.text
    assert any(row.name == "exponent" for row in falling.rows)
    never = fewer_examples(None, [r for v in (0.2, 0.4) for r in lengths_needed(v, 9, 0.5)])
    assert "needs more, more examples" in never.text and "not found" in never.text
    assert [row.value for row in never.rows] == [0, 0]


def look(step: int, seed: int, head: int, *mass: float) -> dict:
    own = {"own columns": 1 - sum(mass)}
    where = {"step": step, "seed": seed, "layer": 1, "head": head}
    return where | own | dict(zip(MASSES, mass, strict=True))


def test_stages_and_the_best_head() -> None:
    rows = [
        look(0, 0, 1, 0.2, 0.2, 0.3, 0.3), look(0, 0, 2, 0.25, 0.25, 0.25, 0.25),
        look(9, 0, 1, 0.3, 0.6, 0.05, 0.0), look(9, 0, 2, 0.1, 0.1, 0.4, 0.4),
    ]  # fmt: skip
    later = look(20, 0, 1, 0.98, 0.02, 0.0, 0.0)
    first = [row for row in rows if row["head"] == 1]
    assert stages(first) == {0: (9, math.inf)}  # 0.05 of 0.6 is less than a tenth
    assert stages([*first, later]) == {0: (9, 20)}  # 0.02 / 1 of 0.2 / 0.4
    pattern_first = look(9, 0, 1, 0.49, 0.01, 0.25, 0.25)
    assert stages([first[0], pattern_first]) == {0: (math.inf, 9)}
    best = best_heads(rows)[1]
    assert best == {"start": 0.2, "end": 0.3, "leads": 0, "seeds": 1}
    assert best_heads([*rows, later])[1]["leads"] == 1
    own_columns = look(20, 0, 1, 0.3, 0.2, 0.0, 0.0)
    assert best_heads([*rows, own_columns])[1]["leads"] == 0


def test_rows_of_a_small_grid() -> None:
    data = ChainData(dim=12, num_patterns=6, num_test_patterns=6, contexts=6)
    grid = Dynamics(Learner(steps=2, batch_size=4), data, every=2, seeds=1)
    rows = grid.measure(BY_ID["fig-7-6"].run)
    assert [r["step"] for r in rows] == [0, 2] and "error" in rows[1] and "error" not in rows[0]


def looks(layer: int, *ends: float) -> list[dict]:
    """Rows of one head per seed that begins at a quarter and ends with so much of what it seeks."""
    others = ("same step, other pattern", "other step, same pattern", "other step, other pattern")
    return [
        {"step": step, "seed": seed, "layer": layer, "head": 1, "same step, same pattern": seeks,
         "own columns": 0.0} | dict.fromkeys(others, (1 - seeks) / 3)
        | ({"error": 0.0} if step else {})
        for seed, end in enumerate(ends)
        for step, seeks in ((0, 0.25), (9, end))
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("first", "verdict"),
    [
        (0.95, "found"), (0.775, "it selects, not to 1: layer 1 to 0.775"),
        (0.2, "in part, in layers 2"), (None, "not found"),
    ],
)  # fmt: skip
def test_the_verdict_of_figure_7_7(first: float | None, verdict: str) -> None:
    rows = looks(1, first or 0.2, first or 0.2)
    rows += looks(2, 0.97, 0.98) if first else looks(2, 0.2, 0.2)
    told = BY_ID["fig-7-7"].report(BY_ID["fig-7-7"].grid, rows).verdict
    assert f"A head of every layer selects: {verdict}. Test error" in told


def test_trials_without_an_end_of_a_stage_are_told() -> None:
    found = BY_ID["fig-7-6"].report(BY_ID["fig-7-6"].grid, looks(1, 0.97, 0.6)).rows
    shares = [r.value for r in found if "share of trials where a tenth is left" in r.name]
    assert shares == [0.5, 0.5]
