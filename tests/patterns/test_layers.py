from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch
from torch import Tensor

from graphtheory import Neighborhood, bipartite
from graphtheory.patterns import (
    LADIES,
    AddSelf,
    Compose,
    DegreeGroups,
    FastGCN,
    GraphSAGE,
    KHop,
    Pattern,
    Sample,
    SymmetricNormalize,
    UniformNodes,
    per_layer,
)
from tests.patterns.laws import GRAPHS, pairs, random_directed, source

GRAPH = random_directed(7, 0.4, seed=2)
SAMPLERS: list[Pattern] = [
    DegreeGroups(share=0.6),
    FastGCN(count=4),
    FastGCN(count=4, replace=False),
    GraphSAGE(2),
    LADIES(count=4),
    LADIES(count=4, replace=False),
    UniformNodes(share=0.6),
]


@pytest.mark.parametrize("sampler", SAMPLERS, ids=repr)
def test_product_of_the_layers_has_the_mean_of_the_powers(sampler: Pattern) -> None:
    base = Compose(AddSelf(), SymmetricNormalize())(GRAPH)
    base = base.replace(weight=base.weight.double())
    drawn = source(3)
    found = torch.stack(
        [
            layers[1].to_dense() @ layers[0].to_dense()
            for layers in (per_layer(sampler, base, 2, generator=drawn) for _ in range(2000))
        ]
    )
    error = found.std(0) / 2000**0.5
    expected = base.to_dense() @ base.to_dense()
    assert ((found.mean(0) - expected).abs() <= 4 * error + 1e-12).all()


@pytest.mark.parametrize("sampler", SAMPLERS, ids=repr)
def test_layers_are_different_draws_that_the_seed_decides(sampler: Pattern) -> None:
    pattern = Compose(AddSelf(), sampler)
    first, again = (per_layer(pattern, GRAPH, 3, generator=source(1)) for _ in range(2))
    assert [pairs(a) for a in first] == [pairs(b) for b in again]
    assert len({str(sorted(pairs(a))) for a in first}) == 3


@pytest.mark.parametrize(
    "sampler",
    [*SAMPLERS, FastGCN(share=0.6), FastGCN(share=0.3, replace=False), LADIES(normalize=True)],
    ids=repr,
)
def test_threads_change_nothing(sampler: Pattern, two_threads: None) -> None:
    edges = torch.randint(50_000, (2, 200_000), generator=source())
    weight = torch.rand(200_000, generator=source())
    graph = Neighborhood.from_edge_index(edges, 50_000, weight=weight)
    two = sampler(graph, generator=source(6))
    torch.set_num_threads(1)
    one = sampler(graph, generator=source(6))
    assert torch.equal(one.indices, two.indices) and torch.equal(one.weight, two.weight)


@pytest.mark.parametrize("sampler", SAMPLERS, ids=repr)
def test_ids_of_32_bits_change_no_layer(sampler: Pattern) -> None:
    two = (per_layer(sampler, g, 3, generator=source(1)) for g in (GRAPH, GRAPH.to_int32()))
    for wide, narrow in zip(*two, strict=True):
        assert torch.equal(narrow.edge_index(), wide.edge_index())


def test_ladies_goes_down_from_the_targets_that_are_needed() -> None:
    needed = torch.tensor([3])
    low, middle, top = per_layer(
        LADIES(count=3), AddSelf()(GRAPH), 3, generator=source(), targets=needed
    )
    assert top.targets().unique().tolist() == [3]
    assert set(middle.targets().tolist()) <= set(top.indices.tolist())
    assert set(low.targets().tolist()) <= set(middle.indices.tolist())


def test_ladies_behind_other_patterns_still_goes_down() -> None:
    pattern = Compose(Compose(AddSelf(), SymmetricNormalize()), LADIES(count=2))
    _, top = per_layer(pattern, GRAPH, 2, generator=source(), targets=torch.tensor([0]))
    assert top.targets().unique().tolist() == [0]


def test_what_is_not_random_is_made_once() -> None:
    first, second = per_layer(KHop(2), GRAPH, 2)
    assert first is second
    assert len(per_layer(Compose(Sample(1), AddSelf()), GRAPH, 1, generator=source())) == 1


@dataclass(frozen=True)
class Alternating(Pattern):
    """Two hops in the layers of even number; one hop elsewhere."""

    is_random: ClassVar[bool] = True

    def __call__(
        self, neighborhood: Neighborhood, *, generator: torch.Generator | None = None
    ) -> Neighborhood:
        return KHop(1)(neighborhood)

    def mask(self, base: Tensor) -> Tensor:
        return KHop(1).mask(base)

    def layers(
        self, neighborhood: Neighborhood, num_layers: int, **options: object
    ) -> list[Neighborhood]:
        return [KHop(2 - place % 2)(neighborhood) for place in range(num_layers)]


@pytest.mark.parametrize("pattern", [Alternating(), Compose(KHop(1), Alternating())], ids=repr)
def test_a_pattern_of_the_users_own_says_what_its_layers_are(pattern: Pattern) -> None:
    found = per_layer(pattern, GRAPH, 3)
    two, one = (pairs(KHop(hops)(GRAPH)) for hops in (2, 1))
    assert [pairs(layer) for layer in found] == [two, one, two]


def test_what_does_not_fit_is_refused() -> None:
    for wrong in (0, 1.5):
        with pytest.raises(ValueError, match=f"num_layers: got {wrong}, expected at least 1"):
            per_layer(FastGCN(), GRAPH, wrong)
    with pytest.raises(ValueError, match="3 sources and 2 targets"):
        per_layer(FastGCN(), bipartite([2], [3]), 2)
    assert len(per_layer(FastGCN(), GRAPHS["no nodes"], 2)) == 2
