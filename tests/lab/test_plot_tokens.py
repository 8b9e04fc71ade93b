"""Pictures of tokens over an image."""

import numpy as np
import pytest

from graphtheory.lab import plot

IMAGE = np.linspace(0, 1, 64).reshape(1, 8, 8)
WEIGHTS = np.arange(12, dtype=float).reshape(3, 2, 2)


def test_every_token_has_a_picture_on_one_scale() -> None:
    figure = plot.token_attention(IMAGE, WEIGHTS, names=("a", "b", "c"), title="Karate")
    assert figure.get_suptitle() == "Karate"
    first, *panels, bar = figure.axes
    assert [axes.get_title() for axes in (first, *panels)] == ["image", "a", "b", "c"]
    for axes, weight in zip(panels, WEIGHTS, strict=True):
        (shown,) = axes.images
        assert (shown.get_array() == weight).all() and shown.get_clim() == (0, 11)
        assert shown.get_extent() == [0, 8, 8, 0]  # over the whole image
    assert bar.get_ylabel() == "attention weight"


def test_patches_of_one_token_have_one_number_and_color() -> None:
    figure = plot.token_assignment(IMAGE, [[0, 0, 7], [3, -1, 7]])
    _, tokens = figure.axes
    assert [text.get_text() for text in tokens.texts] == ["1", "1", "8", "4", "8"]
    (shown,) = tokens.images
    colors = shown.to_rgba(shown.get_array())[..., :3]
    assert (colors[0, 0] == colors[0, 1]).all() and (colors[0, 2] == colors[1, 2]).all()
    assert len(np.unique(colors.reshape(-1, 3)[[0, 2, 3]], axis=0)) == 3
    assert "white: dropped" in tokens.get_title()


def test_shapes_that_do_not_fit() -> None:
    with pytest.raises(ValueError, match=r"image: shape \(8, 8\)"):
        plot.token_attention(IMAGE[0], WEIGHTS)
    with pytest.raises(ValueError, match=r"weights: shape \(2, 2\)"):
        plot.token_attention(IMAGE, WEIGHTS[0])
    with pytest.raises(ValueError, match="names: 2, expected one a token: 3"):
        plot.token_attention(IMAGE, WEIGHTS, names=("a", "b"))
    with pytest.raises(ValueError, match=r"slot: shape \(3, 2, 2\)"):
        plot.token_assignment(IMAGE, WEIGHTS)
