from typing import Any

import pytest
import torch
from torch import Tensor
from torch_geometric.data import Data

from graphtheory import Neighborhood, patterns
from graphtheory.models import SampledGCN
from graphtheory.patterns import AddSelf, Compose, DegreeGroups, SymmetricNormalize, per_layer
from tests.models.conftest import Tiny

SAMPLERS = [DegreeGroups(p_star=0.7), patterns.GraphSAGE(2)]
SAMPLERS += [patterns.FastGCN(), patterns.LADIES(), patterns.UniformNodes()]


def adjacency(graph: Neighborhood) -> Neighborhood:
    nb = Compose(AddSelf(), SymmetricNormalize())(graph)
    return nb.replace(weight=nb.weight.double())


def formula(model: SampledGCN, x: Tensor, layers: list[Neighborhood]) -> Tensor:
    """Eq. (5.4) with dense matrices."""
    first, second, third = (nb.to_dense() for nb in layers)
    row = torch.ones(len(x), 1, dtype=x.dtype)
    hidden = torch.relu(first @ x @ model.W + row * model.B1)
    return third @ torch.relu(second @ hidden @ model.V + row * model.B2) @ model.C


@pytest.mark.parametrize("hidden", [3, (4, 9), (9, 4)])
@pytest.mark.parametrize("fixed", [False, True])
@pytest.mark.parametrize("sampler", SAMPLERS, ids=repr)
def test_output_and_gradients_follow_the_formula(tiny, sampler, fixed, hidden, generator) -> None:
    model = SampledGCN(6, hidden, 3, fixed=fixed, generator=generator).double()
    x = tiny.x.double().requires_grad_()
    layers = per_layer(sampler, adjacency(tiny.graph), 3, generator=generator)
    found, true = model(x, layers), formula(model, x, layers)
    torch.testing.assert_close(found, true, rtol=1e-12, atol=1e-12)
    upstream = torch.randn(true.shape, generator=generator, dtype=torch.float64)
    inputs = [x, *model.parameters()]
    assert len(inputs) == (3 if fixed else 6)
    slopes = (torch.autograd.grad((out * upstream).sum(), inputs) for out in (found, true))
    for one, other in zip(*slopes, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-11, atol=1e-11)


def test_layers_are_applied_first_to_last(tiny: Tiny, generator: torch.Generator) -> None:
    model = SampledGCN(6, 5, 3, generator=generator).double()
    a = adjacency(tiny.graph)
    layers = [a, a.replace(weight=2 * a.weight), a.replace(weight=-a.weight)]
    x = tiny.x.double()
    torch.testing.assert_close(model(x, layers), formula(model, x, layers))
    assert not torch.allclose(model(x, layers), model(x, layers[::-1]))
    assert torch.equal(model(x, a), model(x, [a] * 3))
    torch.testing.assert_close(model(x.to_sparse_csr(), a), model(x, a))


def test_prediction_with_the_effective_adjacency(tiny: Tiny, generator: torch.Generator) -> None:
    # Without an activation in the way the mean of the outputs is the output of the mean: with
    # the biases far above 0 every unit is on, and the layers are drawn apart.
    model = SampledGCN(6, 4, 2, fixed=True, generator=generator).double()
    model.B1.fill_(50.0)
    model.B2.fill_(500.0)
    a, x = adjacency(tiny.graph), tiny.x.double()
    sampler = DegreeGroups(share=0.8, p_star=0.7)
    star = patterns.effective_adjacency(sampler, a).neighborhood
    with torch.no_grad():
        draws = (per_layer(sampler, a, 3, generator=generator) for _ in range(1500))
        outputs = torch.stack([model(x, layers) for layers in draws])
        error = outputs.std(0) / 1500**0.5
        assert ((outputs.mean(0) - model(x, star)).abs() <= 4 * error + 1e-9).all()
        assert ((outputs.mean(0) - model(x, a)).abs() > 4 * error).all()


def test_what_learns_begins_with_its_variance_from_the_generator(generator) -> None:
    theory, practice = SampledGCN(6, 5, 3, fixed=True), SampledGCN(6, 5, 3)
    assert {n for n, _ in theory.named_parameters()} == {"W", "V"}
    assert {n for n, _ in practice.named_parameters()} == {"W", "V", "B1", "B2", "C"}
    assert set(theory.state_dict()) == set(practice.state_dict())
    assert not practice.B1.any() and not practice.B2.any()
    assert theory.B1.all() and theory.B2.all()
    model = SampledGCN(200, (300, 500), 100, fixed=True, generator=generator)
    for value, variance in (
        (model.W, 1 / 300), (model.B1, 1 / 300), (model.V, 1 / 500), (model.B2, 1 / 500),
        (model.C, 1),
    ):  # fmt: skip
        error = variance * (2 / value.numel()) ** 0.5
        assert abs(float(value.detach().square().mean()) - variance) < 4 * error
    seeds = (torch.Generator().manual_seed(s) for s in (1, 1, 2))
    one, same, other = (SampledGCN(6, 5, 3, generator=seed) for seed in seeds)
    assert torch.equal(one.V, same.V) and torch.equal(one.C, same.C)
    assert not torch.equal(one.V, other.V)


def test_dropout_is_for_training_only(tiny: Tiny) -> None:
    model, a = SampledGCN(6, 50, 3, dropout=0.5).double(), adjacency(tiny.graph)
    x = tiny.x.double()
    assert not torch.equal(model(x, a), model(x, a))
    model.eval()
    torch.testing.assert_close(model(x, a), formula(model, x, [a] * 3))


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((0, 5, 3), {}, "in_channels: got 0, expected at least 1"),
        ((6, (5, 0), 3), {}, "hidden_channels: got 0"),
        ((6, 5, -1), {}, "out_channels: got -1"),
        ((6, 5, 3), {"dropout": 1.0}, "dropout: got 1.0, expected a probability"),
    ],
)
def test_what_does_not_fit_is_refused(arguments: Any, options: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SampledGCN(*arguments, **options)


@pytest.mark.parametrize("layers", [1, 2, 3, 5])
def test_any_number_of_layers(layers: int, tiny: Tiny, generator: torch.Generator) -> None:
    widths = tuple(range(4, 3 + layers))
    model = SampledGCN(6, widths, 3, generator=generator).double()
    names = [["W", "V", "W3", "W4"][k] for k in range(layers - 1)]
    biases = [f"B{k + 1}" for k in range(layers - 1)]
    assert list(model.state_dict()) == [*names, *biases, "C"]
    graphs = [adjacency(tiny.graph)] + [tiny.graph] * (layers - 1)
    h = tiny.x.double()
    for weight, bias, nb in zip(names, biases, graphs, strict=False):
        torch.nn.init.normal_(getattr(model, bias))
        rows = nb.to_dense().double() @ h @ getattr(model, weight) + getattr(model, bias)
        h = rows.relu()
    expected = graphs[-1].to_dense().double() @ h @ model.C
    torch.testing.assert_close(model(tiny.x.double(), graphs), expected)
    with pytest.raises(ValueError, match=f"got {layers + 1}, expected one or {layers}"):
        model(tiny.x.double(), [tiny.graph] * (layers + 1))


@pytest.mark.parametrize("wrap", [lambda one: one, lambda one: [one] * 3])
def test_what_is_no_neighborhood_is_refused(tiny: Tiny, wrap: Any) -> None:
    for given, kind in ((tiny.graph.edge_index(), "Tensor"), (Data(), "Data"), (None, "NoneType")):
        told = f"neighborhoods: got {kind}, expected one Neighborhood"
        with pytest.raises(TypeError, match=told):
            SampledGCN(6, 5, 3)(tiny.x, wrap(given))


def of_lab(module: str) -> Any:
    """A module that needs the packages of the extra `lab`."""
    return pytest.importorskip(f"graphtheory.{module}", exc_type=ImportError)


def karate() -> Data:
    data = of_lab("lab.datasets.graphs").load("karate")
    part = torch.arange(34) % 3
    masks = {f"{name}_mask": part == i for i, name in enumerate(("train", "val", "test"))}
    return Data(x=data.x, y=data.y, edge_index=data.edge_index, **masks)


def test_it_learns_classes_by_adam_and_predicts_with_the_effective_adjacency() -> None:
    data = karate()
    sampler = Compose(AddSelf(), SymmetricNormalize(), DegreeGroups(share=0.9))
    model = SampledGCN(data.x.size(1), 16, 4, generator=torch.Generator().manual_seed(0))
    nodes = of_lab("lab.train.nodes")
    task = nodes.NodeTask(model, num_classes=4)
    source = nodes.FullGraph(data, sampler, evaluation=patterns.Effective(sampler))
    found = of_lab("lab.train.fit").fit(task, source, epochs=60, progress=False)
    assert found.test is not None and found.test > 0.6
