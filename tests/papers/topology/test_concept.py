"""The least risk of the concept class on targets."""

import pytest
import torch
from torch import Generator

from graphtheory.graph import Neighborhood
from graphtheory.papers.topology.figures_targets import Descent, TargetFunction, least_risk


@pytest.fixture
def adjacency(generator: Generator) -> Neighborhood:
    dense = torch.rand(12, 12, generator=generator) * (
        torch.rand(12, 12, generator=generator) < 0.4
    )
    rows, columns = dense.nonzero().t()
    return Neighborhood.from_edge_index(
        torch.stack([columns, rows]), 12, weight=dense[rows, columns]
    )


def dense_of(nb: Neighborhood) -> torch.Tensor:
    dense = torch.zeros(nb.num_dst, nb.num_src)
    dense[nb.targets(), nb.indices] = nb.weight
    return dense


def test_it_is_the_printed_formula_and_projected_parameters_are_in_the_class(
    adjacency: Neighborhood, generator: Generator
) -> None:
    made, x = TargetFunction(5, 3, 2, generator), torch.randn(12, 5, generator=generator)
    a = dense_of(adjacency)
    r_1 = a @ (a @ x @ made.W[0]).sin() @ made.V[0]
    r_2 = a @ (a @ x @ made.W[1]).tanh() @ made.V[1]
    assert torch.allclose(made(x, adjacency), a @ (r_1.sin() * r_2) @ made.C, atol=1e-6)
    made = TargetFunction(5, 3, 2, generator)
    with torch.no_grad():
        for value in made.parameters():
            value.mul_(7)
    made.project()
    for matrices in (made.W, made.V):
        assert torch.allclose(matrices.norm(dim=1), torch.ones(2, 3))
    assert made.C.abs().max() == 1


def test_output_weights_are_the_best_of_their_box(
    adjacency: Neighborhood, generator: Generator
) -> None:
    true, x = TargetFunction(5, 3, 2, generator), torch.randn(12, 5, generator=generator)
    y, found = true(x, adjacency).detach(), TargetFunction(5, 3, 2, generator)
    found.W, found.V = true.W, true.V
    assert found.fit_outputs(x, y, adjacency) < 1e-10
    assert torch.allclose(found.C, true.C, atol=1e-3)
    found.requires_grad_(False)
    left = found.fit_outputs(x, 5 * y, adjacency)  # out of reach of entries up to 1
    assert found.C.abs().max() <= 1
    assert left == pytest.approx(float((found(x, adjacency) - 5 * y).square().mean()), rel=1e-3)
    nearer = [((1 - e) * found.C) for e in (0.02, -0.02)]
    for other in nearer:
        error = found.hidden(x, adjacency) @ other.clamp(-1, 1) - 5 * y
        assert float(error.square().mean()) >= left - 1e-9


def test_least_risk_is_at_most_that_of_zero_and_finds_a_function_of_the_class(
    adjacency: Neighborhood, generator: Generator
) -> None:
    true, x = TargetFunction(3, 2, 2, generator), torch.randn(12, 3, generator=generator)
    y = 1e-4 * true(x, adjacency).detach()  # small, as sampled targets are
    descent = Descent(starts=3, rounds=30, steps=5)
    least = least_risk(x, y, adjacency, 4, descent, Generator().manual_seed(1))
    assert least < 0.02 * float(y.square().mean())
    noise = torch.randn(12, 2, generator=generator)
    assert least_risk(x, noise, adjacency, 1, descent, generator) > 0.2
    x, y = (torch.randn(12, n, generator=generator) for n in (3, 2))
    least = least_risk(x, 1e-9 * y, adjacency, 4, Descent(1, 1, 1), generator)
    assert least <= 1e-18 * float(y.square().mean()) * (1 + 1e-5)
