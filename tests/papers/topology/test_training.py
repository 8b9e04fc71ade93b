"""Algorithm 2, against loops written out with dense matrices; a model of three dense layers."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, mse_loss

from graphtheory import Neighborhood
from graphtheory.papers.topology.training import (
    Algorithm2,
    Perturbation,
    Regularizers,
    SampledRun,
    train_on_samples,
)
from graphtheory.patterns import (
    LADIES,
    AddSelf,
    Compose,
    DegreeGroups,
    FastGCN,
    Pattern,
    SymmetricNormalize,
    UniformNodes,
)


def test_penalties_by_hand() -> None:
    w = torch.tensor([[3.0, 0.0], [4.0, 2.0]])  # columns of norm 5 and 2
    v = torch.tensor([[1.0, 2.0, 2.0]])
    # lambda = 1/4: (5/2)^4 + 1 and 9/4.
    assert Regularizers(1.0, 0.0)(w, v, 0.25) == 2.5**4 + 1
    assert Regularizers(0.0, 2.0)(w, v, 0.25) == 4.5
    assert Regularizers()(w, v, 1.0) == 0


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        (Perturbation, {"sigma_w": -1.0}, "sigma_w: got -1.0, expected 0 or more"),
        (Perturbation, {"noise": float("nan")}, "noise: got nan"),
        (Regularizers, {"lambda_v": -0.1}, "lambda_v: got -0.1"),
        (Algorithm2, {"step_size": 0.0}, "step_size: got 0.0, expected above 0 and below 1"),
        (Algorithm2, {"step_size": 1.0}, "step_size: got 1.0"),
        (Algorithm2, {"outer": 0}, "outer: got 0, expected a whole number, at least 1"),
        (Algorithm2, {"inner": -1}, "inner: got -1"),
        (Algorithm2, {"batch_size": 0}, "batch_size: got 0"),
        (Algorithm2, {"batch_size": 2.5}, "batch_size: got 2.5, expected a whole number"),
        (Algorithm2, {"inner": 10.0}, "inner: got 10.0, expected a whole number"),
    ],
)
def test_what_does_not_fit_is_refused(kind: type, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        kind(**options)


NODES = 12
SHORT = Algorithm2(step_size=0.05, outer=2, inner=5, batch_size=3)


class Dense(nn.Module):
    """Eq. (5.4) without biases, in float64; remembers what it was given."""

    def __init__(self, learn_c: bool = False, dropout: float = 0.0) -> None:
        super().__init__()
        drawn = torch.Generator().manual_seed(3)
        self.W, self.V, self.C = (
            nn.Parameter(torch.randn(shape, generator=drawn, dtype=torch.float64) / 2)
            for shape in ((4, 5), (5, 6), (6, 2))
        )
        self.C.requires_grad_(learn_c)
        self.drop = nn.Dropout(dropout)
        self.seen: list[tuple[Tensor, ...]] = []

    def forward(self, x: Tensor, layers: list[Neighborhood]) -> Tensor:
        first, second, third = (nb.to_dense().to(x.dtype) for nb in layers)
        self.seen.append((first, second, third))
        hidden = self.drop(torch.relu(first @ x @ self.W))
        return third @ torch.relu(second @ hidden @ self.V) @ self.C


def graph() -> Neighborhood:
    ring = torch.arange(NODES)
    edges = torch.cat([torch.stack([ring, ring.roll(k)]) for k in (1, -1, 3, -3)], 1)
    nb = Compose(AddSelf(), SymmetricNormalize())(Neighborhood.from_edge_index(edges, NODES))
    return nb.replace(weight=nb.weight.double())


def problem() -> tuple[Tensor, Tensor, Tensor]:
    drawn = torch.Generator().manual_seed(1)
    x = torch.randn(NODES, 4, generator=drawn, dtype=torch.float64)
    y = torch.randn(NODES, 2, generator=drawn, dtype=torch.float64)
    return x, y, torch.arange(NODES) < 8


def trained(
    algorithm: Algorithm2 = SHORT, sampler: Pattern | None = None, seed: int = 0, **options: Any
) -> tuple[Dense, SampledRun]:
    model = options.pop("model", None) or Dense()
    run = train_on_samples(
        model, *problem(), graph(), sampler, algorithm=algorithm,
        generator=torch.Generator().manual_seed(seed), **options,
    )  # fmt: skip
    return model, run


def by_hand(algorithm: Algorithm2) -> tuple[Tensor, Tensor, list[float]]:
    """SGD on all labeled nodes and all of A, so that nothing is left to chance."""
    x, y, labeled = problem()
    a, model = graph().to_dense(), Dense()
    w_0, v_0 = model.W.detach().clone(), model.V.detach().clone()
    w, v = (torch.zeros_like(value).requires_grad_() for value in (w_0, v_0))
    scale, losses = 1.0, []
    for t in range(algorithm.outer):
        scale = (1 - algorithm.step_size) ** t if algorithm.decay else 1.0
        for _ in range(algorithm.inner):
            whole_w, whole_v = scale**0.5 * (w_0 + w), scale**0.5 * (v_0 + v)
            out = a @ torch.relu(a @ torch.relu(a @ x @ whole_w) @ whole_v) @ model.C
            loss = mse_loss(out[labeled], y[labeled])
            losses.append(float(loss.detach()))
            r = algorithm.regularizers
            columns = (scale**0.5 * w).norm(dim=0)
            loss = loss + r.lambda_w * (columns**4).nan_to_num().sum()
            loss = loss + r.lambda_v * (scale**0.5 * v).square().sum()
            # The norm of a column of zeros has no gradient, its fourth power has: 0.
            steps = [g.nan_to_num() for g in torch.autograd.grad(loss, (w, v))]
            w = (w - algorithm.step_size * steps[0]).detach().requires_grad_()
            v = (v - algorithm.step_size * steps[1]).detach().requires_grad_()
    return scale**0.5 * (w_0 + w).detach(), scale**0.5 * (v_0 + v).detach(), losses


@pytest.mark.parametrize("decay", [False, True])
@pytest.mark.parametrize(
    "regularizers", [Regularizers(), Regularizers(0.3, 0.0), Regularizers(0.2, 0.4)]
)
def test_without_chance_it_is_gradient_descent(decay: bool, regularizers: Regularizers) -> None:
    algorithm = replace(SHORT, batch_size=99, decay=decay, regularizers=regularizers)
    model, run = trained(algorithm)
    w, v, losses = by_hand(algorithm)
    torch.testing.assert_close(model.W.detach(), w)
    torch.testing.assert_close(model.V.detach(), v)
    assert run.losses == pytest.approx(losses)
    assert run.scale == pytest.approx(0.95 if decay else 1.0)


def test_outputs_are_start_and_what_was_learned() -> None:
    model, run = trained(replace(SHORT, outer=4))
    torch.testing.assert_close(run.scale, 0.95**3)
    expected = run.scale**0.5 * (Dense().W + run.learned_w)
    torch.testing.assert_close(model.W.detach(), expected.detach())
    assert len(run.losses) == 20 and run.learned_v.abs().sum() > 0


OPTIONS: dict[str, Callable[[Algorithm2], Algorithm2]] = {
    "step size": lambda a: replace(a, step_size=0.01),
    "decay": lambda a: replace(a, decay=False),
    "one draw": lambda a: replace(a, one_draw=True),
    "batch": lambda a: replace(a, batch_size=4),
    "sigma_w": lambda a: replace(a, perturbation=Perturbation(sigma_w=0.1)),
    "sigma_v": lambda a: replace(a, perturbation=Perturbation(sigma_v=0.1)),
    "signs": lambda a: replace(a, perturbation=Perturbation(signs=True)),
    "noise": lambda a: replace(a, perturbation=Perturbation(noise=0.1)),
    "lambda_w": lambda a: replace(a, regularizers=Regularizers(lambda_w=1.0)),
    "lambda_v": lambda a: replace(a, regularizers=Regularizers(lambda_v=1.0)),
}


@pytest.mark.parametrize("option", OPTIONS)
def test_every_option_changes_what_is_learned(option: str) -> None:
    plain, _ = trained(SHORT, UniformNodes(share=0.8))
    other, _ = trained(OPTIONS[option](SHORT), UniformNodes(share=0.8))
    assert not torch.allclose(plain.W, other.W) or not torch.allclose(plain.V, other.V)


def test_a_seed_gives_the_same_run_and_without_one_torch_decides() -> None:
    algorithm = replace(SHORT, perturbation=Perturbation(5**-0.99, 6**-0.51, signs=True, noise=0.1))
    before = torch.get_rng_state()
    runs = [
        trained(algorithm, DegreeGroups(), seed, model=Dense(dropout=0.4)) for seed in (1, 1, 2)
    ]
    assert torch.equal(torch.get_rng_state(), before)
    (one, first), (same, again), (other, _) = runs
    torch.testing.assert_close(one.W, same.W)
    assert first.losses == pytest.approx(again.losses)
    assert not torch.allclose(one.W, other.W)
    found = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        model = Dense()
        train_on_samples(model, *problem(), graph(), UniformNodes(), algorithm=SHORT)
        found.append(model.W.detach())
    assert torch.equal(found[0], found[1]) and not torch.equal(found[0], found[2])


def test_every_step_and_layer_has_its_own_draw_and_ladies_serves_the_batch() -> None:
    model, _ = trained(SHORT, FastGCN(count=6))
    assert len(model.seen) == 10
    assert all(not torch.equal(first, second) for first, second, _ in model.seen)
    assert len({str(layers[0].tolist()) for layers in model.seen}) == 10
    model, _ = trained(replace(SHORT, one_draw=True), FastGCN(count=6))
    assert all(torch.equal(first, third) for first, _, third in model.seen)
    model, _ = trained(SHORT, LADIES(count=4))
    for *_, third in model.seen:
        assert int((third.abs().sum(1) > 0).sum()) <= 3


def test_smoothing_signs_and_turns_are_around_the_weights() -> None:
    sigma = Perturbation(sigma_w=0.5, signs=True)
    still = replace(SHORT, step_size=1e-12, outer=1, inner=1, decay=False)
    moved = [trained(replace(still, perturbation=sigma), seed=s)[0].W for s in range(60)]
    off = torch.stack(moved).detach() - Dense().W.detach()
    assert float(off.std()) == pytest.approx(0.5, rel=0.1) and abs(float(off.mean())) < 0.06
    start, signs = Dense(), []
    algorithm = replace(SHORT, perturbation=Perturbation(signs=True), decay=False)
    for seed in range(20):
        model, run = trained(algorithm, seed=seed)
        off_w, off_v = (model.W - start.W).detach(), (model.V - start.V).detach()
        sign = (off_w * run.learned_w).sum(0).sign()
        torch.testing.assert_close(off_w, run.learned_w * sign)
        torch.testing.assert_close(off_v, sign[:, None] * run.learned_v)
        signs.append(sign)
    share = (torch.stack(signs) > 0).double().mean(0)  # of +1, for each of the hidden units
    assert ((share > 0.15) & (share < 0.85)).all()


def test_penalties_shrink_what_is_learned_and_other_parameters_take_steps_too() -> None:
    long = replace(SHORT, inner=60)
    _, plain = trained(long)
    _, both = trained(replace(long, regularizers=Regularizers(5.0, 5.0)))
    assert both.learned_w.norm() < plain.learned_w.norm()
    assert both.learned_v.norm() < plain.learned_v.norm()
    practice, _ = trained(model=Dense(learn_c=True))
    theory, _ = trained()
    assert not torch.equal(practice.C, Dense().C) and torch.equal(theory.C, Dense().C)


def test_it_learns_what_weights_nearby_would_say() -> None:
    x, _, labeled = problem()
    drawn, teacher = torch.Generator().manual_seed(5), Dense()
    with torch.no_grad():
        teacher.W += torch.randn(teacher.W.shape, generator=drawn) / 2
        y = teacher(x, [graph()] * 3)
    model = Dense()
    algorithm = Algorithm2(step_size=0.1, inner=600, batch_size=4)
    run = train_on_samples(model, x, y, labeled, graph(), algorithm=algorithm, generator=drawn)
    assert sum(run.losses[-50:]) < 0.1 * sum(run.losses[:50])
    assert model.training


def test_two_classes_or_a_loss_of_ones_own() -> None:
    x, _, labeled = problem()
    y = torch.arange(NODES) % 2
    run = train_on_samples(
        Dense(), x, y, labeled, graph(), algorithm=SHORT, loss=cross_entropy,
    )  # fmt: skip
    assert all(value > 0 for value in run.losses)

    def hinge(out: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return (1 - y * out[:, 0]).relu().mean()

    sign = torch.arange(NODES) % 2 * 2 - 1
    assert train_on_samples(Dense(), x, sign, labeled, graph(), algorithm=SHORT, loss=hinge).losses


def test_what_does_not_fit_is_refused_of_training() -> None:
    x, y, labeled = problem()
    with pytest.raises(TypeError, match=r"model: learns \['bias', 'weight'\], expected W and V"):
        train_on_samples(nn.Linear(4, 2), x, y, labeled, graph())
    with pytest.raises(TypeError, match=r"labeled: torch\.int64 of shape \(2,\), expected bool"):
        train_on_samples(Dense(), x, y, torch.tensor([0, 1]), graph())
    with pytest.raises(ValueError, match="labeled: no node"):
        train_on_samples(Dense(), x, y, labeled & False, graph())
    with pytest.raises(FloatingPointError, match="loss: nan, expected a finite one"):
        train_on_samples(Dense(), x * torch.nan, y, labeled, graph(), algorithm=SHORT)


@pytest.mark.parametrize(
    ("y", "loss", "error", "message"),
    [
        (
            torch.zeros(NODES - 1, 2),
            mse_loss,
            ValueError,
            "expected a row for each of the 12 nodes",
        ),
        (None, mse_loss, ValueError, "y: got NoneType, expected a row"),
        (torch.zeros(NODES), mse_loss, ValueError, r"y: shape \(8,\) .*, expected \(8, 2\)"),
        (torch.zeros(NODES, 3), mse_loss, ValueError, r"y: shape \(8, 3\) .*, expected \(8, 2\)"),
        (torch.zeros(NODES, 2).long(), mse_loss, TypeError, "y: dtype torch.int64, expected float"),
        (
            torch.zeros(NODES).int(),
            cross_entropy,
            TypeError,
            "y: dtype torch.int32, expected .* or",
        ),
        (torch.zeros(NODES, 2).long(), cross_entropy, ValueError, r"y: shape \(8, 2\) .* \(8,\)"),
        (torch.arange(NODES), cross_entropy, ValueError, r"y: classes 0 to \d, expected 0\.\.1"),
        (-torch.ones(NODES).long(), cross_entropy, ValueError, "y: classes -1 to -1, expected"),
    ],
)
def test_targets_that_do_not_fit_are_refused(
    y: Any, loss: Any, error: type[Exception], message: str
) -> None:
    x, _, labeled = problem()
    model, start = Dense(), Dense().W
    with pytest.raises(error, match=message):
        train_on_samples(model, x, y, labeled, graph(), algorithm=SHORT, loss=loss)
    assert torch.equal(model.W, start)
