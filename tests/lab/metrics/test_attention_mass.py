import pytest
import torch

from graphtheory import Neighborhood
from graphtheory.lab.metrics import mass_by_distance, mass_on

# Row 0 sees 0 (itself) and 1; row 1 sees 0, 1 and 2; row 2 sees nobody.
NB = Neighborhood(
    torch.tensor([0, 2, 5, 5]),
    torch.tensor([0, 1, 0, 1, 2]),
    distance=torch.tensor([0, 1, 1, 0, 255], dtype=torch.uint8),
)
# Two heads, rows sum to one.
WEIGHTS = torch.tensor([[0.8, 0.4], [0.2, 0.6], [0.5, 0.1], [0.5, 0.1], [0.0, 0.8]])


def test_mass_by_distance_by_hand() -> None:
    rows = mass_by_distance([WEIGHTS], NB)
    assert [row["distance"] for row in rows] == [0, 1, 255]
    assert [row["layer"] for row in rows] == [1, 1, 1]
    # Mean over heads: row 0 gives 0.6 and 0.4, row 1 gives 0.3, 0.3, 0.4; mean over 2 busy rows.
    assert [row["mass"] for row in rows] == pytest.approx([0.45, 0.35, 0.2])
    # Uniform: 1/2, 1/2 and 1/3, 1/3, 1/3.
    assert [row["uniform"] for row in rows] == pytest.approx([5 / 12, 5 / 12, 1 / 6])


def test_every_layer_has_its_rows_and_sums_to_one() -> None:
    rows = mass_by_distance([WEIGHTS, WEIGHTS.flip(1), WEIGHTS[:, :1]], NB)
    for layer in (1, 2, 3):
        of_layer = [row for row in rows if row["layer"] == layer]
        assert sum(row["mass"] for row in of_layer) == pytest.approx(1)
        assert sum(row["uniform"] for row in of_layer) == pytest.approx(1)
    assert [r["mass"] for r in rows if r["layer"] == 3] == pytest.approx([0.65, 0.35, 0.0])


def test_uniform_attention_has_the_uniform_mass() -> None:
    even = (1 / NB.degree()[NB.targets()])[:, None].expand(-1, 4)
    for row in mass_by_distance([even], NB):
        assert row["mass"] == pytest.approx(row["uniform"])


def test_no_edges_have_no_mass() -> None:
    nobody = Neighborhood(
        torch.zeros(4, dtype=torch.int64),
        torch.zeros(0, dtype=torch.int64),
        distance=torch.zeros(0, dtype=torch.uint8),
    )
    assert mass_by_distance([torch.zeros(0, 2)], nobody) == []


def test_distances_are_needed() -> None:
    with pytest.raises(ValueError, match="neighborhood: has no distance"):
        mass_by_distance([WEIGHTS], NB.replace(distance=None))


def test_concentration_by_hand() -> None:
    relevant = NB.indices == 1
    # Row 0 puts 0.4 on node 1, row 1 puts 0.3; the empty row 2 does not count.
    assert mass_on(WEIGHTS, NB, relevant) == pytest.approx(0.35)
    only = torch.tensor([False, True, True])
    assert mass_on(WEIGHTS, NB, relevant, only) == pytest.approx(0.3)


def test_everything_and_nothing_relevant() -> None:
    everything = torch.ones(5, dtype=torch.bool)
    assert mass_on(WEIGHTS, NB, everything) == pytest.approx(1)
    assert mass_on(WEIGHTS, NB, ~everything) == 0


def test_concentration_needs_a_target() -> None:
    only_the_empty_row = torch.tensor([False, False, True])
    with pytest.raises(ValueError, match="nodes: none of them has a row"):
        mass_on(WEIGHTS, NB, NB.indices == 1, only_the_empty_row)
