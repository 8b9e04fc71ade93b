"""Every picture: what it draws is what the rows say, it is labeled, and it can be told apart."""

import io
import math
from collections.abc import Callable
from itertools import product
from pathlib import Path
from statistics import fmean, stdev

import matplotlib
import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PolyCollection
from matplotlib.figure import Figure

from graphtheory.lab import plot

SCORES = {"gt": (0.9, 0.8, 0.85), "gcn": (0.7, 0.75, 0.65), "mlp": (0.6, 0.6, 0.6)}
RUNS = [{"model": m, "seed": s, "test": t} for m, own in SCORES.items() for s, t in enumerate(own)]
PAIRED = [
    {"model": "gcn", "difference": 0.15, "half_width": 0.04, "reading": "ahead"},
    {"model": "gat", "difference": -0.1, "half_width": 0.04, "reading": "behind"},
    {"model": "mlp", "difference": 0.01, "half_width": math.nan, "reading": "one seed"},
]
EPOCHS = [
    {"model": m, "seed": s, "epoch": e, "train_loss": 2.0 / e + s, "val": 0.1 * e}
    for m, lengths in (("gt", (4, 4, 6)), ("gcn", (2, 5, 5)))
    for s, length in enumerate(lengths)
    for e in range(1, length + 1)
]
BIAS = [
    {"layer": layer, "head": h, "distance": z, "bias": h - z * layer}
    for layer, h, z in product((1, 2), (1, 2), range(4))
]
NEAR = [
    {"distance": z, "test": 0.9 - 0.1 * z, "series": name}
    for z, name in product((1, 2, 3), ("model", "control"))
]
MASS = [
    {"layer": layer, "distance": z, "mass": m, "uniform": u}
    for layer, (z, m, u) in product((1, 2), ((0, 0.25, 0.1), (1, 0.75, 0.9)))
]
MARGIN = [
    {"series": name, "distance": z, "margin": top / z}
    for (name, top), z in product((("Cora", 0.6), ("Actor", 0.02)), (2, 1, 3))
]
BARS = [
    {"group": f"class {c}", "series": name, "value": 10 * c + shift}
    for (name, shift), c in product((("found", 0), ("printed", 5)), (1, 2, 3))
]
PATCHES = np.array([[x, y] for y in (1, 3) for x in (1, 3, 5)], dtype=float)
LINKED = np.array([[0, 1, 2, 4, 4], [1, 1, 1, 1, 5]])  # one of them from a patch to itself
IMAGE = np.linspace(0.7, 1, 3 * 4 * 6).reshape(3, 4, 6)
DIGIT = np.linspace(0, 1, 64).reshape(1, 8, 8)
TOKENS = np.arange(12, dtype=float).reshape(3, 2, 2)
COSTLY = [
    {"model": name, "gmacs": cost, "test": 0.9 + 0.01 * seed + cost}
    for (name, cost), seed in product((("vit", 0.014), ("stvit", 0.007)), range(3))
]
PICTURES: dict[str, Callable[..., Figure]] = {
    "score_bars": lambda **o: plot.score_bars(RUNS, **o),
    "paired_differences": lambda **o: plot.paired_differences(PAIRED, first="gt", **o),
    "learning_curves": lambda **o: plot.learning_curves(EPOCHS, **o),
    "learned_bias": lambda **o: plot.learned_bias(BIAS, **o),
    "learned_bias, accuracy": lambda **o: plot.learned_bias(BIAS, NEAR, **o),
    "attention_mass": lambda **o: plot.attention_mass(MASS, **o),
    "winning_margin": lambda **o: plot.winning_margin(MARGIN, **o),
    "grouped_bars": lambda **o: plot.grouped_bars(BARS, label="share (%)", **o),
    "score_over_cost": lambda **o: plot.score_over_cost(COSTLY, **o),
    "image_graph": lambda **o: plot.image_graph(IMAGE, PATCHES, LINKED, **o),
}


def pixels(figure: Figure) -> np.ndarray:
    file = io.BytesIO()
    figure.savefig(file, format="rgba", dpi=60)
    return np.frombuffer(file.getvalue(), dtype=np.uint8).reshape(-1, 4)


def lines(axes: Axes) -> dict[str, tuple[list[float], list[float]]]:
    """Label -> (x, y) of each line with a label."""
    named = [line for line in axes.get_lines() if not str(line.get_label()).startswith("_")]
    values = [[list(map(float, part)) for part in line.get_data()] for line in named]
    return {str(n.get_label()): (x, y) for n, (x, y) in zip(named, values, strict=True)}


@pytest.mark.parametrize("draw", PICTURES.values(), ids=PICTURES)
def test_pictures_have_ink_a_title_named_axes_and_equal_bytes(draw: Callable[..., Figure]) -> None:
    before = dict(matplotlib.rcParams)
    figure = draw(title="Karate")
    titles = [axes.get_title(loc="left") for axes in figure.axes] + [figure.get_suptitle()]
    assert "Karate" in titles
    hidden = [axes for axes in figure.axes if not (axes.get_xlabel() or axes.get_ylabel())]
    assert len(hidden) <= len(figure.axes) // 3  # a twin axis between two panels
    assert figure.axes[0].get_xlabel() or figure.axes[0].get_xticklabels()[0].get_text()
    assert plot.svg(figure) == plot.svg(draw(title="Karate"))
    found = pixels(draw())
    dark = (found[:, :3] < 200).any(1).mean()
    assert 0.005 < dark < 0.7
    assert len(np.unique(found, axis=0)) > 20
    assert (pixels(Figure())[:, :3] >= 200).all()  # an empty picture has none
    assert dict(matplotlib.rcParams) == before  # the caller's settings stay


def test_bars_are_means_and_dots_are_runs() -> None:
    bars, dots = plot.score_bars(RUNS).axes
    assert [patch.get_width() for patch in bars.patches] == pytest.approx([85, 70, 60])
    assert [text.get_text() for text in bars.texts] == ["85.0 ± 5.0", "70.0 ± 5.0", "60.0 ± 0.0"]
    shown = [sorted(n.get_xdata()) for n in dots.get_lines() if len(n.get_xdata()) == 3]
    assert shown == [pytest.approx(sorted(100 * v for v in own)) for own in SCORES.values()]
    spread = dots.containers[0].lines[2][0].get_segments()[0]
    mean, std = 100 * fmean(SCORES["gt"]), 100 * stdev(SCORES["gt"])
    assert spread[:, 0] == pytest.approx([mean - std, mean + std])
    bars, _ = plot.score_bars(RUNS[:1]).axes
    assert bars.texts[0].get_text() == "90.0"


def test_differences_that_are_decided_stand_out() -> None:
    (axes,) = plot.paired_differences(PAIRED, first="gt").axes
    colors = [box.lines[0].get_color() for box in axes.containers]
    assert len(set(colors)) == 3  # ahead, behind, undecided
    assert [float(box.lines[0].get_xdata()[0]) for box in axes.containers] == [15, -10, 1]
    assert axes.containers[0].lines[2][0].get_segments()[0][:, 0] == pytest.approx([11, 19])
    names = [tick.get_text() for tick in axes.get_yticklabels()]
    assert names == ["gt - gcn", "gt - gat", "gt - mlp"]


def test_curves_are_medians_and_a_loss_below_1_has_plain_labels() -> None:
    loss, score = plot.learning_curves(EPOCHS).axes
    epochs, found = lines(loss)["gt"]
    assert epochs == [1, 2, 3, 4]  # one run of three goes on to 6
    assert found == pytest.approx([2 / e + 1 for e in epochs])
    assert lines(loss)["gcn"][0] == [1, 2, 3, 4, 5]
    assert lines(loss)["gcn"][1][4] == pytest.approx(2 / 5 + 1.5)  # seeds 1 and 2 are left
    assert lines(score)["gt"][1] == pytest.approx([10, 20, 30, 40])
    bands = [c for c in loss.collections if isinstance(c, PolyCollection)]
    assert len(bands) == 2
    rows = [{"model": "gt", "seed": 0, "epoch": e, "train_loss": 0.95 - 0.05 * e} for e in range(5)]
    axes = plot.learning_curves(rows).axes[0]
    places, formatter = axes.yaxis.get_minorticklocs(), axes.yaxis.get_minor_formatter()
    assert {"0.8", "0.9"} <= set(formatter.format_ticks(places))


def test_bias_is_drawn_by_layer_and_head_and_accuracy_on_the_other_axis() -> None:
    first, second = plot.learned_bias(BIAS).axes
    assert lines(first)["head 2"] == ([0, 1, 2, 3], [2, 1, 0, -1])
    assert lines(second)["head 1"] == ([0, 1, 2, 3], [1, -1, -3, -5])
    *layers, left, right = plot.learned_bias(BIAS, NEAR).axes
    assert len(layers) == 2
    for twin in (left, right):
        assert set(lines(twin)) == {"model", "control"}
        assert lines(twin)["model"][1] == pytest.approx([80, 70, 60])
        assert twin.spines["right"].get_visible()
    assert "distance z (%)" in right.get_ylabel() and not left.get_ylabel()


def test_bars_and_lines_are_what_the_rows_say() -> None:
    (axes,) = plot.attention_mass(MASS).axes
    heights = [[bar.get_height() for bar in box] for box in axes.containers if len(box) == 2]
    assert heights == [pytest.approx([10, 90]), pytest.approx([25, 75]), pytest.approx([25, 75])]
    assert axes.get_legend().get_texts()[0].get_text() == "uniform attention"
    (axes,) = plot.winning_margin(MARGIN).axes
    assert lines(axes)["Cora"] == ([1, 2, 3], pytest.approx([0.6, 0.3, 0.2]))
    (axes,) = plot.grouped_bars(BARS, label="nodes", reference=("mean", 20.0)).axes
    heights = [[bar.get_height() for bar in box] for box in axes.containers]
    assert heights == [[10, 20, 30], [15, 25, 35]]
    assert lines(axes)["mean"][1] == [20, 20]
    (axes,) = plot.score_over_cost(COSTLY).axes
    assert axes.get_xlim()[0] == 0
    (first, *_), *_ = (box.lines for box in axes.containers)
    assert first.get_xdata() == pytest.approx([14]) and first.get_ydata() == pytest.approx([92.4])
    assert [box.get_label() for box in axes.containers] == ["vit", "stvit"]


def segments(figure: Figure) -> list[list[list[float]]]:
    (found,) = (c for c in figure.axes[0].collections if isinstance(c, LineCollection))
    return [part.tolist() for part in found.get_segments()]


def test_edges_are_lines_over_the_image_and_heavier_ones_wider() -> None:
    every = [[[1, 1], [3, 1]], [[5, 1], [3, 1]], [[3, 3], [3, 1]], [[3, 3], [5, 3]]]
    assert segments(plot.image_graph(IMAGE, PATCHES, LINKED)) == every
    one = plot.image_graph(IMAGE, PATCHES, LINKED, target=5, weight=[1, 1, 1, 1, 2])
    assert segments(one) == every[3:]
    _, _, sources, target = one.axes[0].collections
    assert sources.get_offsets().tolist() == [[3, 3]]
    assert target.get_offsets().tolist() == [[5, 3]]
    assert one.axes[0].images[0].get_extent() == [0, 6, 4, 0]
    gray = plot.image_graph(IMAGE[:1], PATCHES, LINKED).axes[0].images[0].get_array()
    assert gray.shape == (4, 6, 3) and (gray[..., 0] == gray[..., 2]).all()
    (axes,) = plot.image_graph(IMAGE, PATCHES, LINKED, weight=[1, 9, 2, 4, 0]).axes
    (found,) = (c for c in axes.collections if isinstance(c, LineCollection))
    assert np.argsort(found.get_linewidths()).tolist() == [3, 0, 1, 2]


def test_series_differ_in_more_than_color() -> None:
    (axes,) = plot.winning_margin([r | {"series": str(i)} for i in range(6) for r in MARGIN]).axes
    drawn = [n for n in axes.get_lines() if not str(n.get_label()).startswith("_")]
    looks = {(n.get_marker(), n.get_linestyle()) for n in drawn}
    assert len({n.get_marker() for n in drawn}) == len(drawn) == 6 <= len(looks) + 1
    (bars,) = plot.grouped_bars(BARS, label="nodes").axes
    assert len({box[0].get_hatch() for box in bars.containers}) == 2


@pytest.mark.parametrize(("draw", "message"), [
    (lambda: plot.token_attention(DIGIT[0], TOKENS), r"image: shape \(8, 8\)"),
    (lambda: plot.token_attention(DIGIT, TOKENS[0]), r"weights: shape \(2, 2\)"),
    (lambda: plot.token_attention(DIGIT, TOKENS, names=("a", "b")),
     "names: 2, expected one a token: 3"),
    (lambda: plot.token_assignment(DIGIT, TOKENS), r"slot: shape \(3, 2, 2\)"),
    (lambda: plot.score_bars([]), "runs: no rows"),
    (lambda: plot.learning_curves([]), "rows: no rows"),
    (lambda: plot.winning_margin([]), "rows: no rows"),
    (lambda: plot.attention_mass([]), "rows: no rows"),
    (lambda: plot.score_bars([{"model": "gt"}]), r"runs: .*\['model'\], expected 'test'"),
    (lambda: plot.image_graph(IMAGE, PATCHES, LINKED, target=6), "target: got 6, expected 0..5"),
    (lambda: plot.image_graph(IMAGE, PATCHES, LINKED, weight=[1.0]),
     r"weight: shape \(1,\), expected \[5\]"),
    (lambda: plot.image_graph(IMAGE[0], PATCHES, LINKED),
     r"image: shape \(4, 6\), expected \[1 or 3, H, W\]"),
])  # fmt: skip
def test_what_cannot_be_drawn_is_refused(draw: Callable[[], Figure], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        draw()


def test_every_token_has_a_picture_on_one_scale() -> None:
    figure = plot.token_attention(DIGIT, TOKENS, names=("a", "b", "c"), title="Karate")
    assert figure.get_suptitle() == "Karate"
    first, *panels, bar = figure.axes
    assert [axes.get_title() for axes in (first, *panels)] == ["image", "a", "b", "c"]
    for axes, weight in zip(panels, TOKENS, strict=True):
        (shown,) = axes.images
        assert (shown.get_array() == weight).all() and shown.get_clim() == (0, 11)
        assert shown.get_extent() == [0, 8, 8, 0]  # over the whole image
    assert bar.get_ylabel() == "attention weight"


def test_patches_of_one_token_have_one_number_and_color() -> None:
    figure = plot.token_assignment(DIGIT, [[0, 0, 7], [3, -1, 7]])
    _, tokens = figure.axes
    assert [text.get_text() for text in tokens.texts] == ["1", "1", "8", "4", "8"]
    (shown,) = tokens.images
    colors = shown.to_rgba(shown.get_array())[..., :3]
    assert (colors[0, 0] == colors[0, 1]).all() and (colors[0, 2] == colors[1, 2]).all()
    assert len(np.unique(colors.reshape(-1, 3)[[0, 2, 3]], axis=0)) == 3
    assert "white: dropped" in tokens.get_title()


@pytest.mark.parametrize("ending", ["png", "svg"])
def test_a_picture_is_saved_as_its_ending_says(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"margin.{ending}"
    plot.save(plot.winning_margin(MARGIN), path)
    head = path.read_bytes()[:5]
    assert head == {"png": b"\x89PNG\r", "svg": b"<?xml"}[ending]
