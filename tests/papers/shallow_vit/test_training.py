from dataclasses import replace

import pytest
import torch

from graphtheory.papers.shallow_vit import training as tokens
from graphtheory.papers.shallow_vit.training import CNN, Learner, ShallowViT, TokenPatterns

DATA = TokenPatterns(12, 0.5, 0.2, noisy=0.25, c_noisy=1.0)
LEARNER = Learner(steps=3, batch_size=4, width=16)


def test_each_rule_removes_what_it_says() -> None:
    kept = {
        rule: tokens.draw(DATA, 30, 0, 6, rule).train
        for rule in (tokens.RANDOM, tokens.RELEVANT, tokens.NOISE, tokens.ATTENTION)
    }
    mu = tokens.draw(DATA, 30, 0).mu
    share = {rule: float(sets.relevant.float().mean()) for rule, sets in kept.items()}
    assert share[tokens.RELEVANT] == 1 and share[tokens.RANDOM] == pytest.approx(0.5, abs=0.1)
    assert share[tokens.ATTENTION] > 0.65
    noise = {rule: float(torch.cdist(s.x, mu).amin(2).max()) for rule, s in kept.items()}
    assert noise[tokens.NOISE] < 0.1 < noise[tokens.RANDOM]


def test_a_trained_network_keeps_what_it_attends_to_most() -> None:
    trials = [tokens.draw(DATA, 30, seed) for seed in range(2)]
    model, _ = tokens.run(LEARNER, trials, 12, 0)
    for index, (whole, some) in enumerate(
        zip(trials, tokens.most_attended(model, trials, 6), strict=True)
    ):
        one, alone = whole.test, model.trial(index)
        query, key = one.x @ alone.W_Q[0].t(), one.x @ alone.W_K[0].t()
        received = (query @ key.transpose(1, 2)).softmax(2).sum(1)
        expected = received.topk(6).indices.sort().values
        assert torch.equal(some.test.place, expected)
        assert some.train.x.shape == (30, 6, 10)


def test_tokens_keep_their_places() -> None:
    whole = tokens.draw(DATA, 5, 0).train
    some = tokens.draw(DATA, 5, 0, 6, tokens.RELEVANT).train
    assert some.x.shape == (5, 6, 10)
    picked = whole.x.gather(1, some.place[..., None].expand(-1, -1, 10))
    assert torch.equal(picked, some.x)
    assert torch.equal(whole.relevant.gather(1, some.place), some.relevant)


def test_only_what_learns_changes() -> None:
    trials = [tokens.draw(DATA, 8, seed) for seed in range(2)]
    model, steps = tokens.run(LEARNER, trials, 12, 0)
    start, _ = tokens.run(replace(LEARNER, steps=0), trials, 12, 0)
    cnn, _ = tokens.run(replace(LEARNER, network=CNN), trials, 12, 0)
    assert steps == 3 and model.positions == 12
    changed = {n for n, v in model.named_parameters() if not torch.equal(v, start.get_parameter(n))}
    assert changed == {"W_Q", "W_K", "W_V", "W_O"}
    frozen = {n for n, v in cnn.named_parameters() if torch.equal(v, start.get_parameter(n))}
    assert frozen == {"W_Q", "W_K", "b"}
    again, _ = tokens.run(LEARNER, trials, 12, 0)
    assert torch.equal(again.W_O, model.W_O)


def test_a_step_is_that_of_the_mean_loss_over_the_sets() -> None:
    trials = [tokens.draw(DATA, 4, seed) for seed in range(2)]
    learner = replace(LEARNER, steps=1, batch_size=4)
    start, _ = tokens.run(replace(learner, steps=0), trials, 12, 0)
    model, _ = tokens.run(learner, trials, 12, 0)
    sets, alone = trials[1].train, start.trial(1)
    out = ShallowViT(alone, sets.place.flatten())(
        sets.x.flatten(0, 1), sets.rows(), torch.arange(4)
    )
    (1 - sets.y * out[0]).clamp(min=0).mean().backward()
    assert alone.W_O.grad is not None
    torch.testing.assert_close(model.W_O[1], alone.W_O[0] - learner.step_size * alone.W_O.grad[0])


def test_a_majority_is_learned_and_attended_to() -> None:
    data = TokenPatterns(12, 0.5, 0.1)
    trials = [tokens.draw(data, 40, seed) for seed in range(2)]
    learner = Learner(steps=150, width=100, places=False)
    start, _ = tokens.run(replace(learner, steps=0), trials, 12, 0)
    model, _ = tokens.run(learner, trials, 12, 0)
    for found, other in zip(
        tokens.evaluate(model, trials), tokens.evaluate(start, trials), strict=True
    ):
        assert found.error == 0 and found.hinge < 0.05 < other.hinge
    for after, before in zip(
        tokens.relevant_mass(model, trials), tokens.relevant_mass(start, trials), strict=True
    ):
        assert after > before + 0.05
