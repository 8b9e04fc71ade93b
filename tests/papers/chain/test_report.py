"""`graphtheory reproduce` of chapter 7: small studies from the command line to their files."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from graphtheory.cli import main
from graphtheory.papers.chain import study as chain_study
from graphtheory.papers.chain.data import ChainData
from graphtheory.papers.chain.report import chain as report
from graphtheory.papers.chain.study import ContextStudy


@pytest.mark.parametrize("figure", ["fig-7-3c", "fig-7-5", "fig-7-6", "fig-7-7"])
def test_a_figure_prints_and_draws(
    figure: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    given = chain_study.quick(chain_study.study(figure))
    learner = replace(given.learner, steps=4, batch_size=8)
    data = replace(given.data, dim=18, num_patterns=10, contexts=6)
    small = replace(given, learner=learner, data=data, seeds=2)
    if isinstance(small, ContextStudy):
        small = replace(small, lengths=(5, 10), prompts=10)
    else:
        small = replace(small, every=2, probe=replace(small.probe, prompts=6))
    monkeypatch.setattr(chain_study, "quick", lambda given: replace(small, first=3))
    assert main(["reproduce", figure, "--quick", "--seed", "3", "--out", str(tmp_path)]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    found = json.loads((tmp_path / f"{figure}.json").read_text())
    assert found["verdict"] in printed and found["rows"][0]["seed"] == 3
    assert (tmp_path / f"{figure}.png").read_bytes()[:4] == b"\x89PNG"
    assert (tmp_path / f"{figure}.csv").exists()


@pytest.mark.parametrize(
    ("fails", "chain", "holds"), [(0.7, 0.0, True), (0.4, 0.0, False), (0.7, 0.5, False)]
)
def test_the_verdict_of_figure_7_5(fails: float, chain: float, holds: bool) -> None:
    study = chain_study.study("fig-7-5")
    assert isinstance(study, ContextStudy)
    last = {("ICL", True): 0.1, ("ICL", False): fails, ("CoT", True): 0.0, ("CoT", False): chain}
    letters = dict.fromkeys(("tau", "rho", "tau_o", "rho_o"), 0.5)
    rows = [
        {"panel": panel, "series": str(condition), "condition": condition, "contexts": contexts,
         "error": end if contexts == study.lengths[-1] else 0.5 + seed / 100, "seed": seed}
        | letters
        for (panel, condition), end in last.items()
        for contexts in study.lengths
        for seed in (0, 1)
    ]  # fmt: skip
    rows = [r | {"error": r["error"] + 0.02 * (r["panel"] == "ICL")} for r in rows]
    assert report("fig-7-5", study, rows).verdict.endswith("holds." if holds else "not found.")


def looks(layer: int, *ends: float) -> list[dict]:
    """Rows of one head per seed that begins at a quarter and ends with so much of what it seeks."""
    others = ("same step, other pattern", "other step, same pattern", "other step, other pattern")
    return [
        {"step": step, "seed": seed, "layer": layer, "head": 1, "same step, same pattern": seeks,
         "own columns": 0.0} | dict.fromkeys(others, (1 - seeks) / 3)
        | ({"error": 0.0} if step else {})
        for seed, end in enumerate(ends)
        for step, seeks in ((0, 0.25), (9, end))
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("first", "verdict"),
    [(0.95, "found"), (0.775, "it selects, not to 1: layer 1 to 0.775"), (0.2, "not found")],
)
def test_the_verdict_of_figure_7_7(first: float, verdict: str) -> None:
    rows = looks(1, first, first) + looks(2, 0.97, 0.98)
    told = report("fig-7-7", chain_study.study("fig-7-7"), rows).verdict
    assert f"A head of every layer selects: {verdict}. Test error" in told


def test_trials_without_an_end_of_a_stage_are_told() -> None:
    found = report("fig-7-6", chain_study.study("fig-7-6"), looks(1, 0.97, 0.6)).rows
    shares = [r.value for r in found if "share of trials where a tenth is left" in r.name]
    assert shares == [0.5, 0.5]


def test_the_data_of_the_section_are_the_default() -> None:
    assert ChainData() == ChainData(30, 20, 10, 3, 0.4, 20, 0.2)
