from dataclasses import replace

import pytest

from graphtheory.papers.chain.data import ChainData
from graphtheory.papers.chain.study import CONTEXTS, DYNAMICS, quick, study
from graphtheory.papers.chain.training import Learner

DATA = ChainData()


@pytest.mark.parametrize("figure", CONTEXTS)
def test_lines_are_where_they_say(figure: str) -> None:
    for case in study(figure).cases:
        letters = case.letters(DATA)
        if case.letter in letters:
            assert letters[case.letter] == pytest.approx(case.value, abs=1e-3)
        if figure == "fig-7-5":
            assert letters["tau_o"] == pytest.approx(0.4, abs=1e-3)
            assert letters["rho_o"] == pytest.approx(0.1, abs=1e-3)
            assert letters["condition"] == bool(case.value)
        elif figure.startswith("fig-7-3"):
            assert letters["condition"] and letters["tau"] <= letters["tau_o"] + 1e-3
        else:
            assert letters["condition"]


def test_every_figure_has_a_quick_form_and_settings_that_tell_its_steps_apart() -> None:
    for figure in (*CONTEXTS, *DYNAMICS):
        for given in (study(figure), quick(study(figure))):
            settings = [str(step.settings) for step in given.steps()]
            assert len(set(settings)) == len(settings) > 0


def test_rows_of_a_small_study() -> None:
    data = ChainData(dim=12, num_patterns=6, num_test_patterns=10 - 4, contexts=6)
    learner = Learner(steps=2, batch_size=4)
    small = replace(
        study("fig-7-4a"), data=data, learner=learner, lengths=(3, 6), prompts=5, seeds=2, first=7,
        cases=study("fig-7-4a").cases[:1],
    )  # fmt: skip
    rows = small.run()
    assert [(r["seed"], r["contexts"]) for r in rows] == [(7, 3), (7, 6), (8, 3), (8, 6)]
    curve = replace(DYNAMICS["fig-7-6"], data=data, learner=learner, every=2, seeds=1)
    looks = curve.run()
    assert [r["step"] for r in looks] == [0, 2] and "error" in looks[1] and "error" not in looks[0]
