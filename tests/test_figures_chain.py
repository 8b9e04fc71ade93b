"""`graphtheory reproduce` of chapter 7: small studies from the command line to their files."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from graphtheory.cli import main
from graphtheory.data.chain import ChainData
from graphtheory.experiments import chain_study
from graphtheory.experiments.chain_study import ContextStudy


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


def test_the_data_of_the_section_are_the_default() -> None:
    assert ChainData() == ChainData(30, 20, 10, 3, 0.4, 20, 0.2)
