import pytest

from graphtheory import plot
from graphtheory.papers.topology.picture import score_dots
from tests.test_plot import lines, pixels

SAMPLED = [
    {"series": name, "setting": setting, "test": base + 0.01 * s}
    for name, setting, base in (
        ("whole", "all", 0.8),
        ("ladies", "a tenth", 0.7),
        ("ladies", "a third", 0.75),
    )
    for s in range(3)
]


def test_a_picture_has_ink_a_title_and_named_axes() -> None:
    figure = score_dots(SAMPLED, reference="whole", title="Karate")
    assert 0.005 < (pixels(figure)[:, :3] < 200).any(1).mean() < 0.7
    (axes,) = figure.axes
    assert axes.get_title(loc="left") == "Karate" and axes.get_xlabel()
    again = score_dots(SAMPLED, reference="whole", title="Karate")
    assert plot.svg(figure) == plot.svg(again)


def test_dots_are_means_with_runs_and_a_band_below_the_reference() -> None:
    (axes,) = score_dots(SAMPLED, reference="whole", margin=2).axes
    found = lines(axes)
    assert [pytest.approx(x) for x, _ in found.values()] == [[81], [71], [76]]
    (tenth,), (third,) = found["a tenth"][1], found["a third"][1]
    assert tenth < 1 < third  # both beside the line of their series, the second
    band = axes.patches[0].get_extents().transformed(axes.transData.inverted())
    assert (band.x0, band.x1) == (pytest.approx(79), pytest.approx(81))
