import pytest

from graphtheory.papers.core_neighborhood.figures_labels import accuracy_over_labels
from tests.lab.test_plot import lines, pixels

LABELS = [
    {"model": m, "labels": n, "test": base + 0.01 * n + 0.02 * s}
    for m, base in (("gt", 0.5), ("gcn", 0.4))
    for n in (10, 20)
    for s in range(3)
]


def test_pictures_have_ink_a_title_and_medians() -> None:
    figure = accuracy_over_labels(LABELS, title="Karate")
    assert 0.005 < (pixels(figure)[:, :3] < 200).any(1).mean() < 0.7
    assert figure.axes[0].get_title(loc="left") == "Karate"
    (axes,) = accuracy_over_labels(LABELS, metric="ROC AUC").axes
    assert lines(axes)["gt"] == ([10, 20], pytest.approx([62, 72]))
    assert axes.get_ylabel() == "test ROC AUC (%)"
