from dataclasses import replace

import pytest

from graphtheory.papers.shallow_vit import background_study as studies
from graphtheory.papers.shallow_vit import backgrounds as scenes
from graphtheory.papers.shallow_vit.background_study import BackgroundStudy, SpuriousStudy

SCENE = replace(scenes.SCENES["digits"], updates=2, batch_size=16)


def test_rows_of_shares_and_numbers() -> None:
    study = BackgroundStudy(SCENE, (25, 16), (40,), seeds=1)
    rows = study.run()
    assert [(r["kept"], r["alpha_star"], r["labels"]) for r in rows] == [
        (25, 0.64, 40), (16, 1.0, 40),
    ]  # fmt: skip
    assert all(0 <= r["accuracy"] <= 1 for r in rows)
    with pytest.raises(ValueError, match="labels: got 2000, expected at most 1237 images"):
        BackgroundStudy(SCENE, (25,), (2000,), seeds=1).run()


def test_rows_of_backgrounds_that_give_the_class_away() -> None:
    study = SpuriousStudy(SCENE, (16,), 100, seeds=1)
    rows = study.run()
    assert [r["start"] for r in rows] == [studies.DRAWN, studies.EIGHT]
    for row in rows:
        mean = (row[studies.AGREEING] + row[studies.CONFLICTING]) / 2
        assert row["accuracy"] == pytest.approx(mean)
        assert row[studies.AGREEING] == row[studies.CONFLICTING]  # no background is left


@pytest.mark.parametrize("dataset", list(scenes.SCENES))
@pytest.mark.parametrize("figure", ["fig-2-6a", "fig-2-6b", "fig-2-6c"])
def test_a_quick_study_is_a_small_one(figure: str, dataset: str) -> None:
    study = studies.study(figure, dataset)
    canvas = study.scene.canvas
    assert canvas.alpha_star(study.kept[0]) == pytest.approx(0.64)
    assert canvas.alpha_star(study.kept[-1]) == 1 == canvas.alpha_star(canvas.relevant)
    few = studies.quick(study)
    assert len(few.steps()) < len(study.steps()) and few.kept == (25, 16)
