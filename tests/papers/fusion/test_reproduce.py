"""The figures of Deep Fusion from the command line to their files."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from graphtheory.bench import contrastive
from graphtheory.cli import main
from graphtheory.papers.fusion import study as fusion_study


@pytest.fixture(autouse=True)
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    """Recipes of a moment."""
    whole = contrastive.recipe_for

    def small(*asked: Any) -> contrastive.ContrastiveRecipe:
        return replace(whole(*asked), limit=1, batch_size=32, width=16)

    monkeypatch.setattr(contrastive, "recipe_for", small)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("deep-fusion-attention", ("growth with depth", "mean within / mean between")),
        ("deep-fusion-heads", ("transformer minus others", "no head")),
        ("deep-fusion-batch", ("transformer minus MLP by samples a batch", "512")),
        ("deep-fusion-temperature", ("transformer minus MLP by temperature", "0.02")),
        ("theorem-1", ("Theorem 1 holds in", "half-space")),
    ],
)
def test_a_figure_prints_and_draws(
    words: str, told: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if words != "theorem-1":
        pytest.importorskip("kornia", reason="kornia is not installed")
    assert main(["reproduce", words, "--quick", "--out", str(tmp_path)]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert all(text in printed for text in told)
    (found,) = tmp_path.glob("*.json")
    assert json.loads(found.read_text())["verdict"] in printed
    (picture,) = tmp_path.glob("*.png")
    assert picture.read_bytes()[:4] == b"\x89PNG"


def test_the_figure_of_graphs_prints_and_draws(
    data_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    whole = fusion_study.on_graph
    monkeypatch.setattr(
        fusion_study,
        "on_graph",
        lambda recipe: replace(whole(recipe), heads=("transformer", "dgi")),
    )
    words = ["reproduce", "deep-fusion-graphs", "--quick", "--root", str(data_root)]
    assert main([*words, "--out", str(tmp_path)]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "DGI: linear probe" in printed and list(tmp_path.glob("*.png"))


def test_train_learns_without_labels_and_resumes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("kornia", reason="kornia is not installed")
    monkeypatch.chdir(tmp_path)
    words = ["train", "--task", "contrastive", "--head", "mlp", "--epochs", "2"]
    assert main(words) == 0
    said = capsys.readouterr().out
    assert "cnn with mlp head on digits" in said and "1-nearest neighbour" in said
    folder = tmp_path / "runs/contrastive-digits-cnn-mlp-0"
    kept = json.loads((folder / "result.json").read_text())
    assert len(kept["result"]["history"]) == 2 and kept["recipe"]["head"] == "mlp"
    assert main(words) == 2 and "add --resume" in capsys.readouterr().err
    assert main([*words, "--resume"]) == 0
    again = json.loads((folder / "result.json").read_text())
    assert again["result"]["probe"] == kept["result"]["probe"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["train", "--task", "contrast"], "did you mean 'contrastive'"),
        (["train", "--task", "contrastive", "--head", "dgi"], "--head: unknown name 'dgi'"),
        (["train", "--task", "contrastive", "--model", "gat"], "known: cnn, resnet18"),
        (["train", "--task", "contrastive", "--dataset", "mnist"], "folder that has MNIST/raw"),
        (
            ["train", "--task", "contrastive", "--split", "random"],
            "--split: got random, but a contr",
        ),
        (["train", "--task", "contrastive", "--dataset", "minst"], "cifar10-jpeg"),
        (["train", "--head", "mlp"], "--head: got mlp, but only --task contrastive"),
        (["reproduce", "deep-fusion-heads", "--dataset", "Cora"], "expected digits, mnist"),
        (["reproduce", "deep-fusion-heads", "--dataset", "mnist"], "MNIST/raw"),
    ],
)
def test_what_cannot_be_run_is_refused_in_one_line(
    words: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.delenv("GRAPHTHEORY_DATA", raising=False)
    assert main([*words, "--out", str(tmp_path)]) == 2
    error = capsys.readouterr().err.strip()
    assert message in error and "\n" not in error
