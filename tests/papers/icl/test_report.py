"""Chapter 6 from the command line to its files, and the page of prompts."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from graphtheory.cli import main
from graphtheory.data.prompt_tasks import Linear
from graphtheory.papers.icl import studies as icl_figures
from graphtheory.papers.icl import training as icl
from graphtheory.papers.icl.gpt import GptStudy
from graphtheory.papers.icl.page import prompt_page
from graphtheory.papers.icl.report import icl as report
from graphtheory.papers.icl.training import Learner

TINY = Learner(steps=6, batch_size=4, width=12, length=4)


def tiny(study: Any) -> Any:
    """The same with next to nothing to do."""
    if isinstance(study, GptStudy):
        small, some = (
            {"depth": 1, "dim": 8, "steps": 2, "batch_size": 4},
            len(study.tests) // 4 or 1,
        )
        learners = tuple(replace(one, **small) for one in study.learners[:2])
        return replace(study, learners=learners, tests=study.tests[::some], prompts=20, seeds=2)
    if hasattr(study, "learners"):
        learners = tuple(replace(TINY, delta=one.delta) for one in study.learners[:2])
        made = replace(study, learners=learners, tests=study.tests[:: len(study.tests) // 2 or 1])
        made = replace(made, prompts=20, seeds=2)
        return replace(made, methods=made.methods[-2:]) if hasattr(made, "methods") else made
    made = replace(study, learner=TINY, prompts=20, seeds=2)
    made = replace(made, every=3) if hasattr(made, "every") else made
    return replace(made, threshold=0.9) if hasattr(made, "threshold") else made


@pytest.mark.parametrize(
    "figure",
    ["fig-6-2", "fig-6-3a", "fig-6-3a-gpt", "steps-6-gpt", "fig-6-4b", "fig-6-5b", "fig-e-1"],
)
def test_a_figure_prints_and_draws(
    figure: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    quick: Callable[[Any], Any] = lambda study: tiny(replace(study, first=3))  # noqa: E731
    monkeypatch.setattr(icl_figures, "quick", quick)
    assert main(["reproduce", figure, "--quick", "--seed", "3", "--out", str(tmp_path)]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    found = json.loads((tmp_path / f"{figure}.json").read_text())
    assert found["verdict"] in printed
    assert {row["seed"] for row in found["rows"] if "seed" in row} == {3, 4}
    if not figure.startswith("steps"):
        assert (tmp_path / f"{figure}.png").read_bytes()[:4] == b"\x89PNG"
    assert (tmp_path / f"{figure}.csv").exists()


def test_verdicts_follow_the_errors() -> None:
    study = icl_figures.STUDIES["fig-6-3a"]
    study = replace(study, learners=study.learners[:1], seeds=2)  # type: ignore[call-arg]

    def verdict(below: float, above: float, inside: float) -> str:
        rows = [
            {"method": TINY.name, "s_1": test.s_1, "seed": seed,
             "error": inside if test.s_1 is None else above if test.s_1 >= 1 else below}
            for test in study.tests  # type: ignore[union-attr]
            for seed in (0, 1)
        ]  # fmt: skip
        return report("fig-6-3a", study, rows).verdict

    assert verdict(0.05, 0.005, 0.001).endswith("holds.")
    for wrong in ((0.02, 0.005, 0.001), (0.05, 0.02, 0.001), (0.05, 0.005, 0.006)):
        assert verdict(*wrong).endswith("not found.")


def test_a_step_size_whose_loss_is_no_number_is_not_the_best() -> None:
    study = icl_figures.STUDIES["steps-6-gpt"]
    first, second = (replace(study.learners[0], step_size=step) for step in (0.1, 0.2))  # type: ignore[union-attr]
    study = replace(study, learners=(first, second), seeds=1)  # type: ignore[call-arg]
    rows = [
        {"method": learner.name, "s_1": test.s_1, "error": 0.5, "hinge": hinge}
        for learner, hinge in ((first, torch.nan), (second, 0.3))
        for test in study.tests  # type: ignore[union-attr]
    ]
    told = report("steps-6-gpt", study, rows).verdict
    assert told == f"Least loss on unseen tasks: {first.family}: 0.2."


def test_a_page_of_prompts_is_one_file(tmp_path: Path) -> None:
    source = icl.world(TINY, 0).source(0.8, 5)
    prompts = source.sample(3, torch.Generator().manual_seed(0))
    weights = torch.rand(3, 5)
    value = prompts.answer * torch.tensor([1.0, 0.0, -1.0])
    page = prompt_page(prompts, {"head <1>": weights, "head 2": weights}, value)
    page.save(tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text()
    assert text.count("<svg ") == 3 and text.count("<rect ") == 2 * 3 * 5
    assert "1 of 3 answers are right" in text and text.count(": wrong.") == 2
    assert f"{float(weights[1, 2]):.4f}</title>" in text and "head &lt;1&gt;" in text
    assert "<script" not in text and "http" not in text.replace("http-equiv", "")
    plain = Linear().sample(2, 60, 3, torch.Generator().manual_seed(0))
    assert "μ" not in prompt_page(plain, torch.ones(2, 60) / 60, plain.answer).html()
    with pytest.raises(ValueError, match=r"attention: attention of shape \(3, 4\), expected"):
        prompt_page(prompts, weights[:, :4], value)
    with pytest.raises(ValueError, match="attention: head has 15 infinite or NaN, expected finite"):
        prompt_page(prompts, {"head": weights * torch.nan}, value)
    bare = replace(prompts, x=prompts.x[:, :1], y=prompts.y[:, :1], pattern=None)
    with pytest.raises(ValueError, match="prompts: got no contexts, expected at least one"):
        prompt_page(bare, weights[:, :0], bare.answer)
