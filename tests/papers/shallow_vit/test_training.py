from dataclasses import replace

import pytest
import torch
from torch import Generator, Tensor

from graphtheory import Neighborhood
from graphtheory.lab.datasets.image_sets import Images
from graphtheory.papers.shallow import ShallowAttention
from graphtheory.papers.shallow_vit import backgrounds as scenes
from graphtheory.papers.shallow_vit import training as tokens
from graphtheory.papers.shallow_vit.backgrounds import Pasted, ScoredViT, textures
from graphtheory.papers.shallow_vit.training import CNN, Learner, ShallowViT, TokenPatterns
from graphtheory.vision.models import ReducedViT, vit_pico
from graphtheory.vision.nn import Keep
from graphtheory.vision.nn.reduce import Oracle
from tests.papers.conftest import drawn


def test_sets_have_their_shares_in_random_order_and_some_noisier_tokens(generator) -> None:
    data = TokenPatterns(20, 0.4, 0.2, c_0=0.0)
    mu = data.patterns(generator)
    torch.testing.assert_close(mu @ mu.t(), torch.eye(5))
    sets = data.sample(6, mu, generator)
    assert sets.y.tolist() == [1, -1, 1, -1, 1, -1]
    for pattern, y, relevant in zip(sets.pattern, sets.y, sets.relevant, strict=True):
        counts = pattern.bincount(minlength=5).tolist()
        assert counts[:2] == ([8, 4] if y > 0 else [4, 8]) and sorted(counts[2:]) == [2, 3, 3]
        assert torch.equal(relevant, pattern == (0 if y > 0 else 1))
    assert not torch.equal(sets.pattern[0], sets.pattern[2])
    torch.testing.assert_close(sets.x, mu[sets.pattern])
    data = TokenPatterns(50, 0.6, 0.05, c_0=0.01, noisy=0.2, c_noisy=1.0)
    mu = data.patterns(generator)
    sets = data.sample(40, mu, generator)
    off = (sets.x - mu[sets.pattern]).norm(dim=2)
    assert ((off > 0.2).sum(1) == 10).all()
    assert float(off[off < 0.2].square().mean()) == pytest.approx(10 * 0.01**2, rel=0.1)
    again = data.sample(40, mu, Generator().manual_seed(1))
    assert torch.equal(again.x, data.sample(40, mu, Generator().manual_seed(1)).x)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("tokens", 0), ("alpha_star", 0.05), ("alpha_star", 1.0), ("alpha_confusion", -0.1),
        ("num_patterns", 2), ("dim", 4), ("c_0", -1.0), ("noisy", 1.1),
    ],
)  # fmt: skip
def test_parameters_out_of_range_are_named(name: str, value: object) -> None:
    with pytest.raises(ValueError, match=f"{name}: got {value!r}, expected"):
        TokenPatterns(**{name: value})


DIM, TRIALS, TOKENS = 3, 2, 4


def net(positions: int) -> ShallowAttention:
    return ShallowAttention(DIM, 2, 5, trials=TRIALS, positions=positions, generator=drawn())


def by_hand(model: ShallowAttention, t: int, x: Tensor, places: list[int]) -> Tensor:
    """Eq. (2.1) of one set, token by token."""
    total = torch.zeros(())
    for own, place in zip(x, places, strict=True):
        weights = torch.stack([(model.W_K[t] @ s) @ (model.W_Q[t] @ own) for s in x]).softmax(0)
        heard = model.W_V[t] @ (weights[:, None] * x).sum(0)
        total = total + model.a[t, place] @ torch.relu(model.W_O[t] @ heard)
    return total / len(x)


@pytest.mark.parametrize("positions", [1, TOKENS])
def test_sets_are_the_formula_on_the_tokens_that_stay(positions: int) -> None:
    """Two trials with two sets of four tokens; of each set three stay."""
    model, x = net(positions), torch.randn(16, DIM, generator=drawn(1))
    place = torch.arange(16) % TOKENS
    stay = torch.tensor([[0, 2, 3], [5, 4, 7], [8, 9, 11], [12, 13, 14]])
    rows = Neighborhood(torch.arange(5) * 3, stay.flatten(), 16)
    vit = ShallowViT(model, place if positions > 1 else None)
    out = vit(x, rows, torch.tensor([0, 4, 8, 12]))
    for index, ids in enumerate(stay.tolist()):
        t, b = divmod(index, 2)
        places = [i % TOKENS if positions > 1 else 0 for i in ids]
        torch.testing.assert_close(out[t, b], by_hand(model, t, x[ids], places))


def test_attention_is_among_the_tokens_of_a_set_of_even_size() -> None:
    x = torch.randn(8, DIM, generator=drawn(1))
    rows = Neighborhood(torch.tensor([0, 4, 8]), torch.arange(8).flip(0), 8)
    weights, inside, ids = ShallowViT(net(1)).attention(x, rows)
    assert ids.tolist() == [7, 6, 5, 4, 3, 2, 1, 0] and inside.num_edges == 32
    sums = torch.zeros(8).index_add(0, inside.targets(), weights[:, 0].detach())
    torch.testing.assert_close(sums, torch.ones(8))
    rows = Neighborhood(torch.tensor([0, 3, 4]), torch.arange(4), 4)
    with pytest.raises(ValueError, match="rows: 1 to 3 tokens"):
        ShallowViT(net(1))(torch.zeros(4, DIM), rows, torch.tensor([0, 3]))
    with pytest.raises(ValueError, match=r"place: not given, expected 0\.\.3"):
        ShallowViT(net(TOKENS))


DATA = TokenPatterns(12, 0.5, 0.2, noisy=0.25, c_noisy=1.0)
LEARNER = Learner(steps=3, batch_size=4, width=16)


def test_each_rule_removes_what_it_says_and_tokens_keep_their_places() -> None:
    rules = (tokens.RANDOM, tokens.RELEVANT, tokens.NOISE, tokens.ATTENTION)
    kept = {rule: tokens.draw(DATA, 30, 0, 6, rule).train for rule in rules}
    mu = tokens.draw(DATA, 30, 0).mu
    share = {rule: float(sets.relevant.float().mean()) for rule, sets in kept.items()}
    assert share[tokens.RELEVANT] == 1 and share[tokens.RANDOM] == pytest.approx(0.5, abs=0.1)
    assert share[tokens.ATTENTION] > 0.65
    noise = {rule: float(torch.cdist(s.x, mu).amin(2).max()) for rule, s in kept.items()}
    assert noise[tokens.NOISE] < 0.1 < noise[tokens.RANDOM]
    whole = tokens.draw(DATA, 5, 0).train
    some = tokens.draw(DATA, 5, 0, 6, tokens.RELEVANT).train
    assert some.x.shape == (5, 6, 10)
    picked = whole.x.gather(1, some.place[..., None].expand(-1, -1, 10))
    assert torch.equal(picked, some.x)
    assert torch.equal(whole.relevant.gather(1, some.place), some.relevant)


def test_a_trained_network_keeps_what_it_attends_to_most() -> None:
    trials = [tokens.draw(DATA, 30, seed) for seed in range(2)]
    model, _ = tokens.run(LEARNER, trials, 12, 0)
    attended = zip(trials, tokens.most_attended(model, trials, 6), strict=True)
    for index, (whole, some) in enumerate(attended):
        one, alone = whole.test, model.trial(index)
        query, key = one.x @ alone.W_Q[0].t(), one.x @ alone.W_K[0].t()
        received = (query @ key.transpose(1, 2)).softmax(2).sum(1)
        expected = received.topk(6).indices.sort().values
        assert torch.equal(some.test.place, expected)
        assert some.train.x.shape == (30, 6, 10)


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
    vit = ShallowViT(alone, sets.place.flatten())
    out = vit(sets.x.flatten(0, 1), sets.rows(), torch.arange(4))
    (1 - sets.y * out[0]).clamp(min=0).mean().backward()
    assert alone.W_O.grad is not None
    torch.testing.assert_close(model.W_O[1], alone.W_O[0] - learner.step_size * alone.W_O.grad[0])


def test_a_majority_is_learned_and_attended_to() -> None:
    data = TokenPatterns(12, 0.5, 0.1)
    trials = [tokens.draw(data, 40, seed) for seed in range(2)]
    learner = Learner(steps=150, width=100, places=False)
    start, _ = tokens.run(replace(learner, steps=0), trials, 12, 0)
    model, _ = tokens.run(learner, trials, 12, 0)
    scores = (tokens.evaluate(network, trials) for network in (model, start))
    for found, other in zip(*scores, strict=True):
        assert found.error == 0 and found.hinge < 0.05 < other.hinge
    masses = (tokens.relevant_mass(network, trials) for network in (model, start))
    for after, before in zip(*masses, strict=True):
        assert after > before + 0.05


CANVAS = Pasted(12, 8, 4)


def test_an_image_lies_whole_on_patches_and_is_marked(generator: Generator) -> None:
    images = torch.randint(256, (20, 3, 8, 8), generator=generator).to(torch.uint8)
    pictures = CANVAS(images, generator)
    assert pictures.shape == (20, 4, 12, 12) and pictures.dtype == torch.uint8
    corners = set()
    for image, picture in zip(images, pictures, strict=True):
        rows, columns = (picture[3] == 255).nonzero(as_tuple=True)
        top, left = int(rows.min()), int(columns.min())
        corners.add((top, left))
        assert torch.equal(picture[:3, top : top + 8, left : left + 8], image)
        ranks = picture[3].view(3, 4, 3, 4).transpose(1, 2).flatten(2)
        assert bool((ranks == ranks[..., :1]).all())
        assert int((ranks[..., 0] == 255).sum()) == CANVAS.relevant == 4
    assert corners == {(0, 0), (0, 4), (4, 0), (4, 4)}


def test_backgrounds_are_smooth_textures_or_black(generator: Generator) -> None:
    images = torch.full((4, 1, 16, 16), 7, dtype=torch.uint8)
    textured = torch.tensor([True, False, True, False])
    pictures = CANVAS(images, generator, textured)
    for own, picture in zip(textured, pictures, strict=True):
        outside = picture[0][picture[1] < 255]
        assert bool(outside.any()) == bool(own)
        assert set(picture[0][picture[1] == 255].tolist()) == {7}  # resized
    drawn = textures(50, 3, 20, generator).float()
    beside = (drawn[..., 1:] - drawn[..., :-1]).square().mean()
    apart = (drawn[..., 10:] - drawn[..., :10]).square().mean()
    assert beside < 0.6 * apart and drawn.mean((1, 2, 3)).std() > 15


def test_alpha_star_is_1_once_the_background_is_gone() -> None:
    assert [CANVAS.alpha_star(k) for k in (9, 8, 4, 2)] == [0.444, 0.5, 1.0, 1.0]
    with pytest.raises(ValueError, match="region: got 26, expected a multiple of 4"):
        Pasted(32, 26, 4)
    with pytest.raises(ValueError, match="region: got 16, expected at most 12"):
        Pasted(12, 16, 4)


SCENE = scenes.SCENES["digits"]


def test_classes_are_numbered_as_given_and_backgrounds_agree_as_often_as_said(generator) -> None:
    given = Images(torch.arange(6, dtype=torch.uint8).view(6, 1, 1, 1), torch.tensor([2, 0, 1] * 2))
    found = scenes.of_classes(given, (1, 2))
    assert found.pixels.flatten().tolist() == [0, 2, 3, 5] and found.y.tolist() == [1, 0, 1, 0]
    y = torch.arange(4000) % 2
    textured = scenes.backgrounds(y, 0.9, generator).float()
    assert float(textured[y == 0].mean()) == pytest.approx(0.9, abs=0.03)
    assert float(textured[y == 1].mean()) == pytest.approx(0.1, abs=0.03)


def test_a_network_sees_no_background_where_only_the_image_stays(generator: Generator) -> None:
    model = scenes.network(SCENE, 1, 10, SCENE.canvas.relevant, 0).eval()
    whole = scenes.network(SCENE, 1, 10, SCENE.canvas.tokens, 0).eval()
    image = torch.randint(256, (3, 1, 8, 8), generator=generator).to(torch.uint8)
    fills = (torch.full((3,), on) for on in (True, False))
    pictures = (SCENE.canvas(image, Generator().manual_seed(1), fill) for fill in fills)
    textured, black = (picture.float() / 255 for picture in pictures)
    assert not torch.equal(textured[:, :1], black[:, :1])
    torch.testing.assert_close(model(textured), model(black))
    assert not torch.allclose(whole(textured), whole(black), atol=1e-3)


def test_a_start_is_all_but_the_head() -> None:
    one, other = (scenes.network(SCENE, 1, classes, 25, seed) for classes, seed in ((8, 0), (2, 1)))
    scenes.begun_from(other, one)
    same = {
        n for n, v in one.state_dict().items()
        if v.shape == other.state_dict()[n].shape and torch.equal(v, other.state_dict()[n])
    }  # fmt: skip
    weights = {n for n in one.state_dict() if "head" not in n}
    assert weights <= same and "vit.head.linear.weight" not in same


def test_the_last_channel_decides_which_patches_are_seen(generator: torch.Generator) -> None:
    torch.manual_seed(0)
    vit = ReducedViT(vit_pico(out_channels=5, image_size=16), {0: Keep(6, Oracle())})
    images = torch.randn(3, 4, 16, 16, generator=generator)
    rank = torch.rand(3, 16, generator=generator).argsort(1).view(3, 1, 4, 4).float()
    images[:, 3:] = rank.repeat_interleave(4, 2).repeat_interleave(4, 3)
    model = ScoredViT(vit).eval()
    score = model.score(images)
    assert score.shape == (3, 17) and bool((score[:, 0] == 0).all())
    torch.testing.assert_close(score[:, 1:], rank.flatten(1))
    torch.testing.assert_close(model(images), vit.head(vit.tokens(images[:, :3], score=score)))
    kept = torch.zeros(3, 17).scatter(1, 1 + score[:, 1:].topk(6, 1).indices, 1)[:, 1:]
    seen = kept.view(3, 1, 4, 4).repeat_interleave(4, 2).repeat_interleave(4, 3).bool()
    hidden = images.clone()
    hidden[:, :3][~seen.expand(-1, 3, -1, -1)] = 9.0
    torch.testing.assert_close(model(hidden), model(images))
