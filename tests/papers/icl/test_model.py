import pytest
import torch
from torch import Generator

from graphtheory.papers.icl.data import Patterns, PromptSource, label_embedding, training_tasks
from graphtheory.papers.icl.training import DiagonalStart, PromptPrediction, icl_predict
from graphtheory.papers.shallow import ShallowAttention

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
    for t in range(TRIALS):
        for p in range(7):
            contexts, query = columns[t, p, :-1], columns[t, p, -1]
            weights = (contexts @ model.W_K[t].t() @ (model.W_Q[t] @ query)).softmax(0)
            heard = (weights[:, None] * (contexts @ model.W_V[t].t())).sum(0)
            value = model.a[t, 0] @ torch.relu(model.W_O[t] @ heard)
            torch.testing.assert_close(found.attention[t, p], weights)
            torch.testing.assert_close(found.value[t, p], value)
    shared = icl_predict(model, columns[0], attention=False)
    torch.testing.assert_close(shared.value[0], found.value[0])
    assert shared.attention is None


def test_a_value_of_zero_is_wrong() -> None:
    model = ShallowAttention(DIM, DIM, 4)
    torch.nn.init.zeros_(model.W_O)
    found = icl_predict(model, torch.randn(3, 2, DIM))
    assert found.wrong(torch.tensor([1.0, -1.0, 1.0])).all()


def test_no_prompt_is_answered(generator: Generator) -> None:
    found = icl_predict(net(generator), torch.zeros(0, 6, DIM))
    assert found.value.shape == (TRIALS, 0)
    assert found.attention is not None and found.attention.shape == (TRIALS, 0, 5)


def test_a_value_that_is_no_number_is_wrong() -> None:
    found = PromptPrediction(torch.tensor([[torch.nan, torch.nan, 2.0, -2.0]]), None)
    assert found.wrong(torch.tensor([1.0, -1.0, 1.0, 1.0])).tolist() == [[True, True, False, True]]


def test_at_the_start_the_query_looks_at_its_own_pattern(generator: Generator) -> None:
    source = PromptSource(
        Patterns.orthogonal(3, 2, dim=5, generator=generator), training_tasks(3),
        label_embedding(3, generator=generator), length=12,
    )  # fmt: skip
    model = net(generator)
    DiagonalStart(5, delta=0.5)(model, generator)
    prompts = source.sample(60, generator)
    found = icl_predict(model, prompts.columns())
    assert found.attention is not None
    own = torch.where(prompts.same_pattern(), found.attention[0], 0).sum(1)
    assert bool((own >= prompts.same_pattern().float().mean(1)).all())


def test_other_columns_are_refused(generator: Generator) -> None:
    with pytest.raises(ValueError, match=r"columns: shape \(3, 2, 5\), expected \[P, l \+ 1, 8\]"):
        icl_predict(net(generator), torch.zeros(3, 2, 5))
