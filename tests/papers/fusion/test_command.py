"""`graphtheory train --task contrastive`."""

import json
from pathlib import Path

import pytest

from graphtheory.lab.cli import main


@pytest.mark.usefixtures("few_images")
def test_train_learns_without_labels_and_resumes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["train", "--task", "contrastive", "--head", "mlp", "--epochs", "2"]
    assert main(words) == 0
    said = capsys.readouterr().out
    assert "cnn with mlp head on digits" in said and "1-nearest neighbor" in said
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
        (["train", "--task", "contrastive", "--dataset", "minst"], "did you mean 'mnist'"),
        (["train", "--head", "mlp"], "--head: got mlp, expected none without --task contrastive"),
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
