from collections.abc import Callable
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
from matplotlib.figure import Figure
from torch import Generator

from graphtheory.papers.icl import data, picture
from graphtheory.papers.icl import training as icl
from graphtheory.papers.icl.prompts import Linear
from graphtheory.papers.icl.training import DiagonalStart, Learner, PromptTest, icl_predict, world
from graphtheory.papers.shallow import LINEAR, ROOT, ShallowAttention


def test_worlds_are_those_of_their_seed_and_tests_have_prompts_of_their_own() -> None:
    given = world(6, 3)
    assert torch.equal(given.patterns.relevant, world(6, 3).patterns.relevant)
    assert not torch.equal(given.patterns.relevant, world(6, 4).patterns.relevant)
    inside, outside = given.test(PromptTest(0.6, 7)), given.test(PromptTest(0.6, 7, 1.1))
    assert torch.equal(inside.tasks, data.unseen_tasks(given.tasks, 6)) and len(inside.tasks) == 24
    assert len(outside.tasks) == 6 and outside.patterns.spread == icl.SPREAD_OUTSIDE
    assert (inside.alpha, inside.length) == (0.6, 7)
    trained = world(6, 3, blocks=4).training(0.7, 5)
    assert len(trained.tasks) == 24 and (trained.alpha, trained.length) == (0.7, 5)
    settings = product((0.6, 0.8), (4, 5), (None, -0.6, 0.0, 1.0))
    every = [PromptTest(*setting) for setting in settings]
    assert len({test.seed(0) for test in every}) == len(every)


TRIALS, DIM = 2, 8


def net(generator: Generator) -> ShallowAttention:
    return ShallowAttention(DIM, (9, 10), 12, trials=TRIALS, scale=1 / 12, generator=generator)


def test_the_start_is_that_of_the_text(generator: Generator) -> None:
    model = net(generator)
    a = model.a.clone()
    DiagonalStart(5, delta=0.2)(model, generator)
    for weight, count in ((model.W_Q, 5), (model.W_K, 5), (model.W_V, 8)):
        wanted = torch.zeros(weight.shape[1:])
        wanted[range(count), range(count)] = 0.2
        assert torch.equal(weight[1], wanted)
    assert float(model.W_O.detach().std()) == pytest.approx(12**-0.5, rel=0.15)
    assert torch.equal(model.a, a)
    torch.testing.assert_close(a.unique(), torch.tensor([-1 / 12, 1 / 12]))
    with pytest.raises(ValueError, match="features: got 9, expected at most 8"):
        DiagonalStart(9)(model, generator)


def test_prediction_is_the_formula_of_every_prompt(generator: Generator) -> None:
    model, columns = net(generator), torch.randn(TRIALS, 7, 6, DIM, generator=generator)
    found = icl_predict(model, columns, chunk=4)
    assert found.attention is not None
    for t, p in product(range(TRIALS), range(7)):
        contexts, query = columns[t, p, :-1], columns[t, p, -1]
        weights = (contexts @ model.W_K[t].t() @ (model.W_Q[t] @ query)).softmax(0)
        heard = (weights[:, None] * (contexts @ model.W_V[t].t())).sum(0)
        value = model.a[t, 0] @ torch.relu(model.W_O[t] @ heard)
        torch.testing.assert_close(found.attention[t, p], weights)
        torch.testing.assert_close(found.value[t, p], value)
    shared = icl_predict(model, columns[0], attention=False)
    torch.testing.assert_close(shared.value[0], found.value[0])
    assert shared.attention is None
    model = ShallowAttention(DIM, DIM, 4)
    torch.nn.init.zeros_(model.W_O)
    found = icl_predict(model, torch.randn(3, 2, DIM))
    assert found.wrong(torch.tensor([1.0, -1.0, 1.0])).all()
    found = icl_predict(net(generator), torch.zeros(0, 6, DIM))
    assert found.value.shape == (TRIALS, 0)
    assert found.attention is not None and found.attention.shape == (TRIALS, 0, 5)
    found = icl.PromptPrediction(torch.tensor([[torch.nan, torch.nan, 2.0, -2.0]]), None)
    assert found.wrong(torch.tensor([1.0, -1.0, 1.0, 1.0])).tolist() == [[True, True, False, True]]
    with pytest.raises(ValueError, match=r"columns: shape \(3, 2, 5\), expected \[P, l \+ 1, 8\]"):
        icl_predict(net(generator), torch.zeros(3, 2, 5))


def test_at_the_start_the_query_looks_at_its_own_pattern(generator: Generator) -> None:
    source = data.PromptSource(
        data.Patterns.orthogonal(3, 2, dim=5, generator=generator), data.training_tasks(3),
        data.label_embedding(3, generator=generator), length=12,
    )  # fmt: skip
    model = net(generator)
    DiagonalStart(5, delta=0.5)(model, generator)
    prompts = source.sample(60, generator)
    found = icl_predict(model, prompts.columns())
    assert found.attention is not None
    own = torch.where(prompts.same_pattern(), found.attention[0], 0).sum(1)
    assert bool((own >= prompts.same_pattern().float().mean(1)).all())


SMALL = Learner(steps=3, batch_size=8, width=10, length=4)


def test_networks_learn_what_sgd_on_the_same_prompts_gives() -> None:
    given = world(6, 0)
    model = icl.train(replace(SMALL, steps=1, step_size=0.5), given, 2, 0)
    start = icl.train(replace(SMALL, steps=0), given, 2, 0)
    generator = torch.Generator().manual_seed(icl.derive(0, 2, 60))
    SMALL.model(2, generator)
    prompts = given.training(SMALL.alpha, SMALL.length).sample(16, generator)
    losses = []
    for t in range(2):
        x, rows, queries = prompts[slice(8 * t, 8 * t + 8)].graph()
        own = start.trial(t)
        losses.append((1 - prompts.answer[8 * t : 8 * t + 8] * own(x, rows, queries)).clamp(min=0))
        losses[-1].mean().backward()
        torch.testing.assert_close(model.W_O[t], (own.W_O - 0.5 * own.W_O.grad)[0])
        torch.testing.assert_close(model.W_Q[t], (own.W_Q - 0.5 * own.W_Q.grad)[0])


def test_scales_of_the_output_layer() -> None:
    generator = torch.Generator().manual_seed(0)
    for scale, size in ((LINEAR, 0.1), (ROOT, 10**-0.5)):
        a = replace(SMALL, scale=scale).model(1, generator).a
        torch.testing.assert_close(a.abs(), torch.full_like(a, size))


def test_outcomes_count_signs_and_zero_as_wrong() -> None:
    given = world(6, 0)
    model = icl.train(SMALL, given, 2, 0)
    source = given.test(PromptTest(0.8, 5))
    found = icl.outcomes(model, source, 600, 9)
    wrong, seen = torch.zeros(2), 0
    for prompts, columns in icl.prompts_of(source, 2, 600, 9):
        seen += columns.size(1)
        for t in range(2):
            value = icl.icl_predict(model.trial(t), columns[t]).value[0]
            wrong[t] += (value.sign() != prompts.answer.view(2, -1)[t]).sum()
    assert seen == 600 and [o.error for o in found] == [float(w) / 600 for w in wrong]
    with torch.no_grad():
        model.W_O.zero_()
    assert [tuple(o) for o in icl.outcomes(model, source, 50, 9)] == [(1.0, 1.0)] * 2


def test_a_trained_learner_answers_unseen_tasks() -> None:
    learner = Learner(steps=120, batch_size=64, width=60, length=12, step_size=3.0)
    given = world(6, 0)
    start, source = learner.model(1, torch.Generator()), given.test(PromptTest(0.8, 20))
    before = icl.outcomes(start, source, 300, 1)
    after = icl.outcomes(icl.train(learner, given, 1, 0), given.test(PromptTest(0.8, 20)), 300, 1)
    assert before[0].error > 0.1 > 0.05 > after[0].error


ERRORS = [
    {"domain": domain, "method": name, "length": at, "error": error + 0.01 * seed}
    for domain in ("in domain", "out of domain")
    for name, errors in (("ICL", (0.2, 0.0)), ("1-NN", (0.3, 0.1)))
    for (at, error), seed in product(zip((5, 40), errors, strict=True), range(3))
]
LOOKS = [
    {"step": step, "seed": seed, "domain": domain, "same": step / 10}
    | {
        f"{p} {k}": 0.1 * step + seed
        for p, k in product(("query", "key"), ("whole", "along", "across"))
    }
    for domain, step, seed in product(("in domain", "out of domain"), (0, 5, 10), (0, 1, 2))
]
NEURONS = [
    {"step": step, "neuron": n, "sign": 1 - 2 * n, "input norm": step + n, "label norm": step}
    | {"input cosine": 0.05 * step, "label cosine": -0.05 * step}
    for n, step in product((0, 1), (0, 5, 10))
]  # fmt: skip
PRUNED = [
    {"width": width, "rule": rule, "rate": rate, "error": rate * seed / 10}
    for width in (60, 200)
    for rule in ("random", "smallest first")
    for rate in (0.0, 0.5)
    for seed in range(3)
]
NAMES: Any = {
    "panel": "{domain}", "series": "by {method}", "at": "length", "xlabel": "contexts",
}  # fmt: skip
NORMS = [{"width": 60, "rank": r, "norm": 2 * r} for r in (0.25, 0.75)]
PICTURES: dict[str, Callable[[], Figure]] = {
    "prompt_errors": lambda: picture.prompt_errors(ERRORS, **NAMES, title="T", log=True),
    "prompt_mechanism": lambda: picture.prompt_mechanism(LOOKS, NEURONS, title="T"),
    "pruning_curves": lambda: picture.pruning_curves(PRUNED, NORMS, title="T"),
}


def test_errors_are_medians_in_percent_and_bars_stand_behind_the_curves() -> None:
    inside, _ = picture.prompt_errors(ERRORS, **NAMES, marks=(1.0,)).axes
    drawn = {str(n.get_label()): list(n.get_ydata()) for n in inside.get_lines()}
    assert drawn["by ICL"] == pytest.approx([21, 1]) and drawn["by 1-NN"] == pytest.approx([31, 11])
    assert inside.get_ylim()[0] < 0 < 33 < inside.get_ylim()[1]
    assert [1.0, 1.0] in [list(n.get_ydata()) for n in inside.get_lines()]
    first, second, twin = picture.pruning_curves(PRUNED, NORMS, small={60: 0.4}).axes
    assert [bar.get_height() for bar in twin.patches] == [0.5, 1.5]
    assert first.get_zorder() > twin.get_zorder() and not second.patches
    assert [40.0, 40.0] in [list(n.get_xdata()) for n in first.get_lines()]


def test_keys_and_queries_are_those_of_the_last_domain() -> None:
    changed = [row | {"query along": 9.0} if row["domain"] == "in domain" else row for row in LOOKS]
    norms, mass, *_ = picture.prompt_mechanism(changed, NEURONS).axes
    drawn = {str(n.get_label()): list(n.get_ydata()) for n in norms.get_lines()}
    assert drawn["query: along its pattern"] == pytest.approx([1.0, 1.5, 2.0])
    rest = {str(n.get_label()): list(n.get_ydata()) for n in mass.get_lines()}
    assert rest["others, in domain"] == pytest.approx([1, 0.5, 0])


def test_a_page_of_prompts_is_one_file(tmp_path: Path) -> None:
    source = world(6, 0).test(PromptTest(0.8, 5))
    prompts = source.sample(3, torch.Generator().manual_seed(0))
    weights = torch.rand(3, 5)
    value = prompts.answer * torch.tensor([1.0, 0.0, -1.0])
    page = picture.prompt_page(prompts, weights, value)
    page.save(tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text()
    assert text.count("data:image/svg+xml") == 3
    assert "1 of 3 answers are right" in text
    assert text.count(": wrong.</figcaption>") == 2
    assert " src=" not in text.replace(' src="data:', "")
    assert "http" not in text.replace("http-equiv", "")
    plain = Linear().prompts(2, 61, 3, torch.Generator().manual_seed(0))
    assert "μ" not in picture.prompt_page(plain, torch.ones(2, 60) / 60, plain.answer).html()
    with pytest.raises(ValueError, match=r"attention: shape \(3, 4\), expected \(3, 5\)"):
        picture.prompt_page(prompts, weights[:, :4], value)
    with pytest.raises(ValueError, match="attention: 15 infinite or NaN, expected finite"):
        picture.prompt_page(prompts, weights * torch.nan, value)
    bare = replace(prompts, x=prompts.x[:, :1], y=prompts.y[:, :1], pattern=None)
    with pytest.raises(ValueError, match="prompts: got no contexts, expected at least one"):
        picture.prompt_page(bare, weights[:, :0], bare.answer)


def test_a_bar_is_a_weight_and_a_frame_the_pattern_of_the_query() -> None:
    source = world(6, 0).test(PromptTest(0.8, 5))
    prompt = source.sample(1, torch.Generator().manual_seed(0))
    weights = [0.1, 0.2, 0.3, 0.4, 0.0]
    (axes,) = picture._drawing(prompt, weights).axes
    assert [bar.get_height() for bar in axes.patches] == weights
    framed = [bar.get_linewidth() > 0 for bar in axes.patches]
    assert framed == prompt.same_pattern()[0].tolist() and 0 < sum(framed) < 5
    assert [text.get_text() for text in axes.texts] == [f"{weight:.2f}" for weight in weights]
