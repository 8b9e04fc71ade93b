from dataclasses import replace

import pytest
import torch

from graphtheory.papers.chain import training as chain
from graphtheory.papers.chain.data import ChainData, TrajectoryErrors
from graphtheory.papers.chain.model import ChainAttention
from graphtheory.papers.chain.training import (
    MASSES,
    Learner,
    Probe,
    chain_mass,
    error_of,
)


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
