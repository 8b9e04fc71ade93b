"""Variants of k-NN attention and of semantic tokens on images."""

from dataclasses import replace

import pytest
import torch

from graphtheory.lab.zoo.image_models import ImageKind
from graphtheory.papers.vision.figures_theory import FIGURES, Variant, Variants, accuracies

KIND = ImageKind(size=8, channels=1, classes=10)
GRIDS = [figure.grid for figure in FIGURES if isinstance(figure.grid, Variants)]
VARIANTS = {v.name: v for grid in GRIDS for v in grid.variants}


@pytest.mark.parametrize("name", VARIANTS)
def test_every_variant_is_a_network_for_digits(name: str) -> None:
    model = VARIANTS[name].build(KIND)
    assert model(torch.rand(2, 1, 8, 8)).shape == (2, 10)


def test_variants_differ_in_what_they_name() -> None:
    assert len(VARIANTS["3 before"].build(KIND).base) == 3
    assert VARIANTS["windows alone"].build(KIND).semantic.global_centers is None
    kinds = {type(VARIANTS[n].build(KIND)).__name__ for n in ("all", "1/2", "windows")}
    assert kinds == {"ViT", "STViT"}


@pytest.mark.usefixtures("few_images")
def test_a_run_tells_validation_of_every_epoch_and_repeats() -> None:
    grid = replace(GRIDS[0], epochs=2)
    (one,), (again,) = (accuracies(grid, Variant("1/2", 0.5), 0) for _ in range(2))
    assert one == again and {"epoch 1", "epoch 2", "test"} <= one.keys()
