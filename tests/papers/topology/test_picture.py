from collections.abc import Callable

import pytest
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure

from graphtheory.lab.bench.rows import Row
from graphtheory.papers.topology.diagnosis import sampling_picture
from tests.lab.test_plot import lines

KARATE = {"dataset": "Karate", "sampling": "T"}
INFLUENCE = [
    Row("influence", KARATE | {"degree": d}, 1 / d, "1", 1 / d, 0.5 / d, 2 / d, 3)
    for d in (2, 30, 5)
]
PICTURES: dict[str, Callable[[], Figure]] = {
    "sampling_picture": lambda: sampling_picture(INFLUENCE)
}


def test_influence_is_a_line_in_a_band() -> None:
    (axes,) = sampling_picture(INFLUENCE).axes
    assert lines(axes) == {"nodes of the degree": ([2, 5, 30], [1 / 2, 1 / 5, 1 / 30])}
    (band,) = (c for c in axes.collections if isinstance(c, PolyCollection))
    assert band.get_paths()[0].get_extents().ymax == pytest.approx(1)
    with pytest.raises(ValueError, match="rows: none of influence"):
        sampling_picture([])
