from dataclasses import dataclass
from typing import Any

import pytest
import torch
from sklearn.neighbors import NearestNeighbors
from torch import Tensor

from graphtheory import Neighborhood, bipartite, causal, cliques, ops
from graphtheory.graph import Grid, windows
from graphtheory.lab import metrics
from graphtheory.lab.metrics import count_macs
from graphtheory.nn import Attention, Block
from graphtheory.nn.conv import GATConv, GATv2Conv, GCNConv
from graphtheory.vision import models

# Row 0 sees 0 (itself) and 1; row 1 sees 0, 1 and 2; row 2 sees nobody.
HOPS = torch.tensor([0, 1, 1, 0, 255], dtype=torch.uint8)
NB = Neighborhood(torch.tensor([0, 2, 5, 5]), torch.tensor([0, 1, 0, 1, 2]), distance=HOPS)
X, Y = torch.eye(2).repeat(3, 1), torch.arange(6) % 2
# Two heads, rows sum to one.
WEIGHTS = torch.tensor([[0.8, 0.4], [0.2, 0.6], [0.5, 0.1], [0.5, 0.1], [0.0, 0.8]])


def test_mass_by_distance_by_hand() -> None:
    rows = metrics.mass_by_distance([WEIGHTS], NB)
    assert [row["distance"] for row in rows] == [0, 1, 255]
    assert [row["layer"] for row in rows] == [1, 1, 1]
    # Mean over heads: row 0 gives 0.6 and 0.4, row 1 gives 0.3, 0.3, 0.4; mean over 2 busy rows.
    assert [row["mass"] for row in rows] == pytest.approx([0.45, 0.35, 0.2])
    # Uniform: 1/2, 1/2 and 1/3, 1/3, 1/3.
    assert [row["uniform"] for row in rows] == pytest.approx([5 / 12, 5 / 12, 1 / 6])
    rows = metrics.mass_by_distance([WEIGHTS, WEIGHTS.flip(1), WEIGHTS[:, :1]], NB)
    for layer in (1, 2, 3):
        of_layer = [row for row in rows if row["layer"] == layer]
        assert sum(row["mass"] for row in of_layer) == pytest.approx(1)
        assert sum(row["uniform"] for row in of_layer) == pytest.approx(1)
    assert [r["mass"] for r in rows if r["layer"] == 3] == pytest.approx([0.65, 0.35, 0.0])
    even = (1 / NB.degree()[NB.targets()])[:, None].expand(-1, 4)
    for row in metrics.mass_by_distance([even], NB):
        assert row["mass"] == pytest.approx(row["uniform"])
    many = cliques([10] * 40_000)
    many = many.replace(distance=torch.ones(many.num_edges, dtype=torch.uint8))
    (row,) = metrics.mass_by_distance([torch.full((many.num_edges, 1), 0.1)], many)
    assert (row["mass"], row["uniform"]) == pytest.approx((1, 1), abs=1e-6)
    one, half = cliques([1000]), torch.full((1_000_000, 1), 1 / 1000).bfloat16()
    assert metrics.mass_on(half, one, half[:, 0] > 0) == pytest.approx(1, abs=1e-3)
    nobody = Neighborhood(torch.zeros(4).long(), torch.zeros(0).long(), distance=HOPS[:0])
    assert metrics.mass_by_distance([torch.zeros(0, 2)], nobody) == []
    with pytest.raises(ValueError, match="neighborhood: has no distance"):
        metrics.mass_by_distance([WEIGHTS], NB.replace(distance=None))


def test_concentration_by_hand() -> None:
    relevant = NB.indices == 1
    # Row 0 puts 0.4 on node 1, row 1 puts 0.3; the empty row 2 does not count.
    assert metrics.mass_on(WEIGHTS, NB, relevant) == pytest.approx(0.35)
    only = torch.tensor([False, True, True])
    assert metrics.mass_on(WEIGHTS, NB, relevant, only) == pytest.approx(0.3)
    everything = torch.ones(5, dtype=torch.bool)
    assert metrics.mass_on(WEIGHTS, NB, everything) == pytest.approx(1)
    assert metrics.mass_on(WEIGHTS, NB, ~everything) == 0
    only_the_empty_row = torch.tensor([False, False, True])
    with pytest.raises(ValueError, match="nodes: none of them has a row"):
        metrics.mass_on(WEIGHTS, NB, NB.indices == 1, only_the_empty_row)


IMAGE = (1, 3, 224, 224)


def macs(name: str, **options: object) -> float:
    """GMACs for one image of 224 pixels; nothing is computed."""
    with torch.device("meta"):
        model, image = getattr(models, name)(**options), torch.zeros(IMAGE)
    return count_macs(model, image).total / 1e9


def test_stvit_costs_what_table_6_says_and_in_other_sizes() -> None:
    """The counts of the tiny and the base size are not published, but 58 % fewer operations are."""
    found = [macs("stvit_deit_small", base=base) for base in (3, 4, 5, 7, 8, 10)]
    assert found == pytest.approx([1.56, 1.91, 2.25, 2.95, 3.30, 4.00], abs=0.02)
    found = [macs(f"stvit_deit_{size}") for size in ("tiny", "base")]
    assert found == pytest.approx([0.523, 7.266], abs=0.001)
    found = [macs("stvit_deit_small", semantic=n) for n in (3, 4)]
    assert found == pytest.approx([1.97, 2.03], abs=0.01)
    found = [macs("stvit_deit_small", tokens=n) for n in (25, 100)]
    assert found == pytest.approx([2.04, 3.15], abs=0.01)
    assert macs("deit_small") == pytest.approx(4.60, abs=0.02)
    assert macs("swin_tiny") == pytest.approx(4.5, abs=0.03)  # windows with a bias, not computed


@dataclass(frozen=True)
class GlobalCost:
    """Blocks in which N patches, M tokens attend to all: Chang et al. (2023), eqs. (1) to (4)."""

    patches: int
    tokens: int
    dim: int

    def among(self, nodes: int) -> int:
        return 4 * nodes * self.dim**2 + 2 * nodes**2 * self.dim + self.mlp(nodes)

    def mlp(self, nodes: int) -> int:
        return 8 * nodes * self.dim**2

    def tokens_to(self, sources: int) -> int:
        m, c = self.tokens, self.dim
        return 2 * m * c**2 + 2 * sources * c**2 + 2 * m * sources * c + self.mlp(m)

    def deit(self, depth: int = 12) -> int:
        return depth * self.among(self.patches)

    def stvit_printed(self) -> int:
        """Eq. (4) with 4 + 2 + 6 blocks; what it leaves out is in the test below."""
        n, m, c = self.patches, self.tokens, self.dim
        return 52 * n * c**2 + 12 * m**2 * c + 76 * m * c**2 + 8 * n**2 * c + 4 * m * n * c

    def stvit(self, base: int = 4, semantic: int = 2, depth: int = 12) -> int:
        n, m = self.patches, self.tokens
        on_both = self.tokens_to(n) + (semantic - 1) * self.tokens_to(n + m)
        return self.deit(base) + on_both + (depth - base - semantic) * self.among(m)


def test_closed_formulas_are_the_blocks_and_the_printed_one_leaves_some_out() -> None:
    with torch.device("meta"):
        model, image = models.stvit_deit_tiny(base=5, semantic=3, tokens=9), torch.zeros(IMAGE)
        whole = models.deit_tiny(readout=models.MeanToken)
    found, deit = (count_macs(m, image).by_module for m in (model, whole))
    cost = GlobalCost(patches=196, tokens=9, dim=192)
    assert sum(m for n, m in deit.items() if n.count(".") == 1 and "blocks" in n) == cost.deit()
    blocks = [f"base.{i}" for i in range(5)] + [f"blocks.{i}" for i in range(4)]
    blocks += [f"semantic.blocks.{i}" for i in range(3)]
    assert sum(found[name] for name in blocks) == cost.stvit(5, 3)
    n, m, c = 196, 16, 384
    cost = GlobalCost(n, m, c)
    assert cost.deit() == 144 * n * c**2 + 24 * n**2 * c
    left_out = 16 * m * c**2 + 2 * m * c**2 + 2 * m**2 * c
    assert cost.stvit() - cost.stvit_printed() == left_out
    assert cost.stvit_printed() / 1e9 == pytest.approx(1.81, abs=0.005)


def test_windows_cost_what_the_corrected_formulas_say() -> None:
    """Eqs. (5) to (7) of the same supplement, which prints 2 W^2 N C for 2 W N C in (5), 8 M C^2
    for 8 (N / W) M C^2 in (6), and 2 (N / W) M^2 C for 2 N M C in (7)."""
    n, w, m, c = 36, 9, 4, 8
    block, made = Block(Attention(c, 2)), n // w * m
    cut = windows(Grid(2, 6, 6), 3).neighborhood
    on_patches = 12 * n * c**2 + 2 * w * n * c
    assert count_macs(block, torch.zeros(72, c), cut).total == 2 * on_patches
    tokens = windows(Grid(2, 4, 4), 2).neighborhood
    on_tokens = 12 * made * c**2 + 2 * m * made * c
    assert count_macs(block, torch.zeros(32, c), tokens).total == 2 * on_tokens

    of_window = bipartite([4] * 8, [9] * 8)

    class Semantic(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attention = Attention(c, 2)

        def forward(self, x: Tensor, sources: Tensor) -> Tensor:
            return self.attention(x, of_window, sources=sources)

    found = count_macs(Semantic(), torch.zeros(32, c), torch.zeros(72, c)).total
    assert found == 2 * (2 * (made + n) * c**2 + 2 * n * m * c)


class Attend(torch.nn.Module):
    def forward(self, nodes: Tensor, nb: Neighborhood, backend: str) -> Tensor:
        return ops.attention(nodes, nodes, nodes, nb, backend=backend)


class TopK(torch.nn.Module):
    def forward(self, nodes: Tensor, nb: Neighborhood, backend: str) -> Tensor:
        return ops.topk_attention(nodes, nodes, nodes, nb, 3, backend=backend)


@pytest.mark.parametrize("backend", ["blocks", "numba_csr", "torch_csr"])
def test_every_backend_counts_the_same(backend: str) -> None:
    nodes, edges = torch.randn(40, 2, 4), 2 * 20 * 20
    for layer in (Attend(), TopK()):
        assert count_macs(layer, nodes, cliques([20, 20]), backend).total == 2 * edges * 2 * 4


def test_layers_on_graphs_count_their_edges() -> None:
    graph = Neighborhood.from_edge_index(torch.tensor([[0, 1, 2, 3, 4], [1, 2, 3, 4, 0]]), 6)
    x, edges = torch.randn(6, 3), graph.edge_index()
    with_self = 5 + 6
    assert count_macs(GCNConv(3, 4), x, edges).total == 6 * 3 * 4 + with_self * (4 + 1)  # degrees
    scores = 6 * 8 * 4  # of sources and targets, as one product of matrices
    assert count_macs(GATConv(3, 4, heads=2), x, edges).total == 144 + with_self * 8 + scores
    dense = 2 * 6 * 3 * 8
    assert count_macs(GATv2Conv(3, 4, heads=2), x, edges).total == dense + 2 * with_self * 8
    assert count_macs(Attend(), torch.randn(6, 2, 4), causal([6]), "numba_csr").total == 2 * 21 * 8


def test_the_mode_stays() -> None:
    model = models.stvit_pico()
    model.norm.eval()
    total = count_macs(model, torch.zeros(2, 3, 32, 32)).total
    assert model.training and not model.norm.training
    with torch.device("meta"):
        model, images = models.stvit_pico(), torch.zeros(2, 3, 32, 32)
    assert count_macs(model, images).total == total


def test_a_sample_is_not_its_own_neighbor(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = torch.randn(50, 3), torch.randint(3, (50,))
    near = NearestNeighbors(n_neighbors=2).fit(x.numpy()).kneighbors(x.numpy())[1][:, 1]
    assert metrics.nearest_accuracy(x, y) == pytest.approx(float((y[near] == y).float().mean()))
    assert metrics.nearest_accuracy(torch.zeros(2, 1), torch.tensor([0, 1])) == 0
    with pytest.raises(ValueError, match=r"features: shape \(1, 3\), .* n at least 2"):
        metrics.nearest_accuracy(x[:1], y[:1])
    y = torch.arange(40) % 4  # beside a large offset
    x = torch.rand(32) + 1e-4 * (torch.randn(4, 32)[y] + 0.05 * torch.randn(40, 32))
    assert metrics.nearest_accuracy(x, y) == 1.0


def test_the_probe_learns_what_is_linear_at_any_scale() -> None:
    y = torch.arange(60) % 2
    x = torch.randn(60, 2) * torch.tensor([1e4, 1e-4])
    x[:, 1] += 1e-3 * (2 * y - 1)
    assert metrics.linear_probe(x[:40], y[:40], x[40:], y[40:]) == 1.0
    assert metrics.linear_probe(x[:40], y[:40], x[40:], 1 - y[40:]) == 0.0


@pytest.mark.parametrize(("change", "error", "message"), [
    ({"train": X[0]}, ValueError, r"train: shape \(2,\), expected \[n, F\] with n at least 2"),
    ({"test": X[:0]}, ValueError, r"test: shape \(0, 2\), expected \[n, F\] with n at least 1"),
    ({"test": X[:, :1]}, ValueError, r"test: shape \(6, 1\), expected \[m, 2\] as train"),
    ({"train_y": Y[:5]}, ValueError, r"train_y: shape \(5,\), expected a class per sample \[6\]"),
    ({"test_y": Y[:, None]}, ValueError, r"test_y: shape \(6, 1\), expected a class per sample"),
    ({"test_y": Y.float()}, TypeError, "test_y: dtype torch.float32, expected integers"),
    ({"train": X / 0}, ValueError, "train: got NaN or infinity, expected finite features"),
    ({"train_y": Y * 0}, ValueError, "train_y: got 1 class, expected 2 or more"),
    ({"strength": 0.0}, ValueError, "strength: got 0.0, expected a number above 0"),
])  # fmt: skip
def test_what_a_probe_cannot_learn_from_is_named(
    change: dict[str, Any], error: type[Exception], message: str
) -> None:
    given: dict[str, Any] = {"train": X, "train_y": Y, "test": X, "test_y": Y}
    assert metrics.linear_probe(**given) == 1.0
    with pytest.raises(error, match=message):
        metrics.linear_probe(**given | change)
