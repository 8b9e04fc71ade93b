"""`graphtheory train --explorer`."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[..., tuple[int, str, str]]
TRAIN = ("train", "--dataset", "karate", "--epochs", "2", "--explorer", "--model")


@pytest.mark.parametrize("model", ["gt", "gat"])
def test_a_page_is_written_beside_the_report(run: Run, tmp_path: Path, model: str) -> None:
    code, out, err = run(*TRAIN, model, "--out", "o")
    assert code == 0, err
    assert "Written to o: report.html, explorer.html" in out
    page = (tmp_path / "o/explorer.html").read_text(encoding="utf-8")
    assert f"{model} on karate" in page and "34 nodes" in page and "drawn: 78 of 78 edges" in page
    assert "Every epoch" in (tmp_path / "o/report.html").read_text(encoding="utf-8")


def test_a_set_of_graphs_shows_those_of_validation(run: Run, tmp_path: Path) -> None:
    import torch
    from torch_geometric.data import Data

    edges = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    made = [Data(x=torch.rand(3, 2), y=torch.tensor([i % 2]), edge_index=edges) for i in range(40)]
    torch.save(made, tmp_path / "mine.pt")
    words = ("train", "--data", "mine.pt", "--epochs", "1", "--explorer", "--out", "o", "--model")
    code, _, err = run(*words, "gatv2")
    assert code == 0, err
    page = (tmp_path / "o/explorer.html").read_text(encoding="utf-8")
    assert re.search(r"drawn: \d+ of \d+ edges", page)


def test_too_many_nodes_are_refused_before_training(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("graphtheory.lab.report.explorer.MOST_NODES", 33)
    code, _, err = run(*TRAIN, "gt")
    assert code == 2 and "--explorer: the graph has 34 nodes, expected 33 or fewer" in err
    assert not (tmp_path / "runs").exists()
