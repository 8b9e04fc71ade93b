from collections.abc import Callable

import pytest
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure

from graphtheory.lab.bench.rows import Row
from graphtheory.papers.topology.diagnosis import sampling_picture
from graphtheory.papers.topology.figures_sampling import score_dots
from tests.lab.test_plot import lines

SAMPLED = [
    {"series": name, "setting": setting, "test": base + 0.01 * s}
    for name, setting, base in (
        ("whole", "all", 0.8),
        ("ladies", "a tenth", 0.7),
        ("ladies", "a third", 0.75),
    )
    for s in range(3)
]
KARATE = {"dataset": "Karate", "sampling": "T"}
INFLUENCE = [
    Row("influence", KARATE | {"degree": d}, 1 / d, "1", 1 / d, 0.5 / d, 2 / d, 3)
    for d in (2, 30, 5)
]
PICTURES: dict[str, Callable[[], Figure]] = {
    "score_dots": lambda: score_dots(SAMPLED, reference="whole", title="T"),
    "sampling_picture": lambda: sampling_picture(INFLUENCE),
}


def test_dots_are_means_and_influence_is_a_line_in_a_band() -> None:
    (axes,) = score_dots(SAMPLED, reference="whole", margin=2).axes
    found = lines(axes)
    assert [pytest.approx(x) for x, _ in found.values()] == [[81], [71], [76]]
    (tenth,), (third,) = found["a tenth"][1], found["a third"][1]
    assert tenth < 1 < third  # both beside the line of their series, the second
    band = axes.patches[0].get_extents().transformed(axes.transData.inverted())
    assert (band.x0, band.x1) == (pytest.approx(79), pytest.approx(81))
    (axes,) = sampling_picture(INFLUENCE).axes
    assert lines(axes) == {"nodes of the degree": ([2, 5, 30], [1 / 2, 1 / 5, 1 / 30])}
    (band,) = (c for c in axes.collections if isinstance(c, PolyCollection))
    assert band.get_paths()[0].get_extents().ymax == pytest.approx(1)
    with pytest.raises(ValueError, match="rows: none of influence"):
        sampling_picture([])
