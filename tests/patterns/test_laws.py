"""The laws of patterns, on every pattern of the package that there is."""

from collections.abc import Callable
from dataclasses import FrozenInstanceError, dataclass, fields, is_dataclass
from typing import ClassVar

import pytest
import torch
from torch import Tensor
from torch_geometric.data import Data, HeteroData

from graphtheory import Neighborhood, patterns
from graphtheory.patterns import (
    LADIES,
    AddSelf,
    AtDistance,
    Compose,
    DegreeGroups,
    DilatedHops,
    Effective,
    Expander,
    FastGCN,
    GraphSAGE,
    KHop,
    Pattern,
    Sample,
    ScorePattern,
    SymmetricNormalize,
    UniformNodes,
    VirtualNode,
    Window,
)
from graphtheory.patterns.base import Randomness, layers_on_rows, on_rows, per_layer
from tests.conftest import case
from tests.patterns import laws
from tests.patterns.laws import GRAPHS, kinds_of

# Besides the default of every kind, which a new pattern is tried with without a line here.
MORE: list[Pattern] = [
    KHop(2), KHop(254), KHop(3, max_degree=2), AtDistance(0), AtDistance(2), DilatedHops(5, 1),
    DilatedHops(5, 3), Sample(1), Sample(2), Sample(3, whole_graph=True),
    Compose(KHop(2), AddSelf()), Compose(AddSelf(), SymmetricNormalize()),
    Compose(KHop(2), Sample(3), AddSelf()), Compose(AtDistance(2), Sample(2)),
    DegreeGroups((3,), share=(0.5, 0.6), p_star=(0.7, 0.3)),
    DegreeGroups(share=0.7, symmetric=True), FastGCN(count=3), FastGCN(share=0.4, replace=False),
    FastGCN(share=0.4, replace=False, unbiased=False), GraphSAGE(2),
    LADIES(share=0.4, replace=False, normalize=True), UniformNodes(share=0.6),
    Compose(AddSelf(), SymmetricNormalize(), FastGCN(share=0.5)),
    Effective(Compose(AddSelf(), SymmetricNormalize(), UniformNodes())), Window(0), Window(3),
    Expander(2), Compose(KHop(1), AddSelf(), Expander(4), VirtualNode()),
]  # fmt: skip
# Divided by degrees, some of these graphs have a group that is empty.
ANY_GRAPH = [p for p in MORE if not (isinstance(p, DegreeGroups) and p.groups != 1)]
ALL = [*(kind() for kind in kinds_of(Pattern)), *ANY_GRAPH]
FIXED = [p for p in ALL if not p.is_random]
RANDOM = [p for p in ALL if p.is_random]
# A new pattern to which the ids of nodes matter needs its name here.
BY_POSITION = Window | VirtualNode
NAMELESS = [p for p in FIXED if not isinstance(p, BY_POSITION)]
# A new pattern whose result has distances needs its name here, or nothing checks them.
BY_DISTANCE = KHop | AtDistance | DilatedHops
CARRYING = [
    *(p for p in ALL if isinstance(p, BY_DISTANCE) and p.max_degree is None),
    *(
        p
        for p in MORE
        if isinstance(p, Compose)
        and isinstance(p.patterns[0], BY_DISTANCE)
        and not any(isinstance(part, Expander) for part in p.patterns)
    ),
    Sample(3, whole_graph=True),
    Compose(Sample(3, whole_graph=True), AddSelf()),
]
# n of n leave no choice.
NO_CHOICE = (Sample(), GraphSAGE())
KNOWN_MEAN = [p for p in [*ALL, *MORE] if p.is_random and p.expected(GRAPHS["star"]) is not None]
UNIFORM = [Sample(1), Sample(3), Sample(3, whole_graph=True), Compose(KHop(2), Sample(3))]


def on_every_graph(law: Callable[[Pattern, Neighborhood], None]) -> Callable[[Pattern], None]:
    """The law of a pattern on one graph after the other, in one test."""

    def test(pattern: Pattern) -> None:
        for name, graph in GRAPHS.items():
            with case(name):
                law(pattern, graph)

    test.__name__ = law.__name__
    return test


def of(some: list[Pattern]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("pattern", some, ids=repr)


def test_the_known_kinds_are_found() -> None:
    names = {kind.__name__ for kind in kinds_of(Pattern)}
    assert names >= {"AddSelf", "AtDistance", "Compose", "KHop", "Sample", "SymmetricNormalize"}
    assert any(p.is_random for p in (kind() for kind in kinds_of(Pattern)))


@pytest.mark.parametrize("kind", [*kinds_of(Pattern), *kinds_of(ScorePattern)])
def test_every_kind_is_exported_and_a_frozen_value(kind: type[Pattern]) -> None:
    assert getattr(patterns, kind.__name__, None) is kind and kind.__name__ in patterns.__all__
    assert is_dataclass(kind) and kind() == kind() and hash(kind()) == hash(kind())
    for field in fields(kind()):
        with pytest.raises(FrozenInstanceError):
            setattr(kind(), field.name, 1)


@of([p for p in ALL if not isinstance(p, DegreeGroups)])
@pytest.mark.parametrize("num_nodes", [None, 9])
def test_an_edge_list_and_data_are_read_as_pyg_reads_them(pattern, num_nodes) -> None:
    edge_index = torch.tensor([[0, 1, 1, 2, 5, 3, 4, 0], [1, 0, 2, 1, 3, 5, 0, 4]])
    data = Data(edge_index=edge_index, num_nodes=num_nodes)
    given = edge_index if num_nodes is None else data
    graph = Neighborhood.from_edge_index(edge_index, num_nodes or 6)
    found, wanted = (pattern(g, generator=laws.source(1)) for g in (given, graph))
    assert found.num_dst == (num_nodes or 6)
    for name in ("indptr", "indices", "weight", "distance"):
        mine, other = getattr(found, name), getattr(wanted, name)
        assert mine is other is None or torch.equal(mine, other)


def test_what_is_no_graph_is_refused() -> None:
    with pytest.raises(TypeError, match="got HeteroData, expected a Neighborhood"):
        KHop(2)(HeteroData())


@of(ALL)
@on_every_graph
def test_result_is_valid_on_every_backend_and_input_untouched(pattern, graph) -> None:
    laws.is_valid_and_leaves_its_input(pattern, graph)
    laws.runs_on_every_backend(pattern, graph)


@of(ALL)
def test_ids_of_32_bits_change_nothing(pattern: Pattern) -> None:
    graph, rows = GRAPHS["random directed"], torch.tensor([7, 2, 5])
    for run in (
        lambda g: pattern(g, generator=laws.source(3)),
        lambda g: on_rows(pattern, g, rows, generator=laws.source(3)),
        lambda g: layers_on_rows(pattern, g, rows, 2, generator=laws.source(3))[1][0],
        lambda g: per_layer(pattern, g, 3, generator=laws.source(3))[0],
    ):
        wide, narrow = run(graph), run(graph.to_int32())
        assert torch.equal(narrow.edge_index(), wide.edge_index())
        assert (narrow.weight is None) == (wide.weight is None)
        assert wide.weight is None or torch.equal(narrow.weight, wide.weight)


@of(FIXED)
@on_every_graph
def test_deterministic_pattern_is_its_mask(pattern: Pattern, graph: Neighborhood) -> None:
    laws.equals_its_mask(pattern, graph)


@of(FIXED)
def test_deterministic_pattern_is_its_mask_on_random_graphs(pattern: Pattern) -> None:
    for seed in range(20):
        laws.equals_its_mask(pattern, laws.random_directed(1 + seed, 0.4 / (1 + seed / 8), seed))


@of(RANDOM)
@on_every_graph
def test_random_pattern_draws_from_its_mask(pattern: Pattern, graph: Neighborhood) -> None:
    laws.draws_from_its_mask(pattern, graph)


@of([p for p in RANDOM if p not in NO_CHOICE])
def test_seed_decides_what_is_drawn(pattern: Pattern) -> None:
    laws.seed_decides(pattern, laws.random_directed(20, 0.25, seed=1))


@of(UNIFORM)
def test_draws_are_uniform(pattern: Pattern) -> None:
    laws.draws_uniformly(pattern, GRAPHS["random directed"])
    laws.draws_uniformly(pattern, GRAPHS["clique"])


@of(list(dict.fromkeys(KNOWN_MEAN)))
def test_mean_of_the_draws_is_the_expected_one(pattern: Pattern) -> None:
    laws.means_what_it_expects(pattern, laws.random_directed(7, 0.4, seed=2))


def test_every_sampler_of_weights_has_a_known_mean() -> None:
    kinds = {type(p) for p in KNOWN_MEAN}
    assert kinds >= {DegreeGroups, FastGCN, GraphSAGE, LADIES, Sample, UniformNodes}


@of(CARRYING)
@on_every_graph
def test_distances_are_those_of_the_graph(pattern: Pattern, graph: Neighborhood) -> None:
    laws.carries_distances(pattern, graph)


@of(NAMELESS)
def test_batch_is_the_union_of_its_graphs(pattern: Pattern) -> None:
    laws.works_on_a_batch(pattern, list(GRAPHS.values()))


@of(NAMELESS)
@on_every_graph
def test_names_of_nodes_do_not_matter(pattern: Pattern, graph: Neighborhood) -> None:
    laws.follows_names(pattern, graph)


# Each breaks one law; a law that cannot fail would be none.


@dataclass(frozen=True)
class OneHopMore(KHop):
    def __call__(self, neighborhood: Neighborhood, *, generator: Randomness = None) -> Neighborhood:
        return KHop(self.radius + 1)(neighborhood)


@dataclass(frozen=True)
class Transposed(KHop):
    def __call__(self, neighborhood: Neighborhood, *, generator: Randomness = None) -> Neighborhood:
        return KHop(self.radius)(neighborhood.transpose())


@dataclass(frozen=True)
class FirstOnes(Sample):
    def __call__(self, neighborhood: Neighborhood, *, generator: Randomness = None) -> Neighborhood:
        place = torch.arange(neighborhood.num_edges) - neighborhood.indptr[neighborhood.targets()]
        return neighborhood.keep(place < self.n)


@dataclass(frozen=True)
class Global(Sample):
    def __call__(self, neighborhood: Neighborhood, *, generator: Randomness = None) -> Neighborhood:
        return super().__call__(neighborhood)


@dataclass(frozen=True)
class OddNodesOnly(Pattern):
    """By name, which is what relabelling and batching forbid."""

    is_random: ClassVar[bool] = False

    def apply(self, neighborhood: Neighborhood, *, generator: Randomness = None) -> Neighborhood:
        return neighborhood.keep(neighborhood.indices % 2 == 1)

    def mask(self, base: Tensor) -> Tensor:
        return base & (torch.arange(base.size(1)) % 2 == 1)


@dataclass(frozen=True)
class OffByOneDistance(KHop):
    def __call__(self, neighborhood: Neighborhood, *, generator: Randomness = None) -> Neighborhood:
        ball = super().__call__(neighborhood)
        assert ball.distance is not None
        return ball.replace(distance=ball.distance - 1)


@dataclass(frozen=True)
class NotRescaled(DegreeGroups):
    def __call__(self, neighborhood: Neighborhood, *, generator: Randomness = None) -> Neighborhood:
        drawn = super().__call__(neighborhood, generator=generator)
        groups = self.groups_of(neighborhood)
        share = (groups.drawn / groups.size.double())[groups.group[drawn.indices]]
        return drawn.replace(weight=drawn.weight * share.to(drawn.weight))


@dataclass(frozen=True)
class RowsForColumns(DegreeGroups):
    """Scales the target's row where the source's column is meant."""

    def __call__(self, neighborhood: Neighborhood, *, generator: Randomness = None) -> Neighborhood:
        drawn = super().__call__(neighborhood, generator=generator)
        groups = self.groups_of(neighborhood)
        of_node = groups.p_star[groups.group]
        return drawn.replace(
            weight=drawn.weight * of_node[drawn.targets()] / of_node[drawn.indices]
        )


@dataclass(frozen=True)
class NextColumn(FastGCN):
    """Each weight is divided by the probability of the next node."""

    def __call__(self, neighborhood: Neighborhood, *, generator: Randomness = None) -> Neighborhood:
        drawn = super().__call__(neighborhood, generator=generator)
        square = neighborhood.weight.square()
        norm = square.new_zeros(neighborhood.num_src).index_add(0, neighborhood.indices, square)
        wrong = norm / norm.roll(1)
        return drawn.replace(weight=drawn.weight * wrong[drawn.indices])


@dataclass(frozen=True)
class DegreeForgotten(GraphSAGE):
    def __call__(self, neighborhood: Neighborhood, *, generator: Randomness = None) -> Neighborhood:
        return Sample(self.n)(neighborhood, generator=generator)


@pytest.mark.parametrize("pattern", [
    NotRescaled(share=0.5),
    RowsForColumns((3,), share=0.6, p_star=(0.7, 0.3)),
    NextColumn(count=4),
    DegreeForgotten(2),
])  # fmt: skip
def test_planted_fault_moves_the_mean(pattern: Pattern) -> None:
    with pytest.raises(AssertionError, match="off by"):
        laws.means_what_it_expects(pattern, laws.random_directed(7, 0.4, seed=2))


@pytest.mark.parametrize(("law", "pattern"), [
    (laws.equals_its_mask, OneHopMore(1)),
    (laws.equals_its_mask, Transposed(1)),
    (laws.draws_uniformly, FirstOnes(2)),
    (laws.seed_decides, FirstOnes(2)),
    (laws.seed_decides, Global(2)),
    (laws.is_valid_and_leaves_its_input, Global(2)),
    (laws.follows_names, OddNodesOnly()),
    (laws.carries_distances, OffByOneDistance(2)),
    (laws.carries_distances, AddSelf()),
])  # fmt: skip
def test_planted_fault_breaks_its_law(law: laws.Law, pattern: Pattern) -> None:
    with pytest.raises(AssertionError):
        law(pattern, laws.random_directed(20, 0.2, seed=4))


def test_planted_fault_breaks_the_law_of_batches() -> None:
    with pytest.raises(AssertionError):
        laws.works_on_a_batch(OddNodesOnly(), list(GRAPHS.values()))


def _drawn_alike(pattern: Pattern, ids: Tensor, nodes: int, weight: Tensor | None = None) -> Tensor:
    """Weights and edges of the pattern on a graph, drawn from the same seed each time."""
    torch.manual_seed(0)
    found = pattern(Neighborhood.from_edge_index(ids, nodes, weight=weight))
    values = found.indices.double() if found.weight is None else found.weight.double()
    return values * (1 + found.targets())


@of([kind() for kind in kinds_of(Pattern)])
def test_every_kind_is_compiled_for_graphs_of_any_size(pattern: Pattern) -> None:
    torch.compiler.reset()
    compiled = torch.compile(
        lambda ids, nodes: _drawn_alike(pattern, ids, nodes), backend="aot_eager", dynamic=True
    )
    for nodes in (9, 12):
        ids = torch.randint(nodes, (2, 20), generator=torch.Generator().manual_seed(nodes))
        torch.testing.assert_close(compiled(ids, nodes), _drawn_alike(pattern, ids, nodes))


@of([kind() for kind in kinds_of(Pattern)])
def test_every_kind_is_differentiated_by_torch_func(pattern: Pattern) -> None:
    ids, weight = torch.tensor([[0, 1, 2, 3], [1, 2, 3, 0]]), torch.rand(4, dtype=torch.float64)

    def total(weight: Tensor) -> Tensor:
        return _drawn_alike(pattern, ids, 4, weight).sum() + 0 * weight.sum()

    given = weight.clone().requires_grad_()
    (wanted,) = torch.autograd.grad(total(given), given)
    torch.testing.assert_close(torch.func.grad(total)(weight), wanted)


def test_edges_that_vmap_batches_are_refused() -> None:
    def drawn(indices: Tensor) -> Tensor:
        rows = Neighborhood(torch.tensor([0, 1, 2]), indices, validate=False)
        return AddSelf()(rows).indices

    with pytest.raises(NotImplementedError, match="ids are batched, expected one graph for all"):
        torch.vmap(drawn)(torch.tensor([[0, 1], [1, 0]]))
