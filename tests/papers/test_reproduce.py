"""`graphtheory reproduce`: every study from the command line to its files."""

import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from graphtheory.lab.cli import main
from graphtheory.lab.train.checkpoint import locked
from graphtheory.papers import index
from graphtheory.papers.core_neighborhood import figures_labels


def test_the_list_names_every_entry_and_its_data(capsys: pytest.CaptureFixture[str]) -> None:
    every = index.figures()
    assert main(["reproduce", "--list"]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("│")]
    assert [line.split("│")[1].strip() for line in lines] == list(every)
    assert all(entry.summary in line for entry, line in zip(every.values(), lines, strict=True))
    data = {name: str(entry.data or "draws its own") for name, entry in every.items()}
    assert data["fig-3-8"] == "any graph, else Cora" and data["fig-5-1"] == "draws its own"
    assert data["encoding"] == "Cora, minesweeper"


def test_an_interrupted_study_goes_on_and_a_new_one_sets_its_runs_aside(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["reproduce", "fig-3-9", "--dataset", "karate", "--quick", "--out", str(tmp_path)]
    kept = tmp_path / "fig-3-9-karate.jsonl"
    train = figures_labels.train_nodes
    monkeypatch.setattr(figures_labels, "_QUICK_EPOCHS", 1)

    def until_the_third(*args: Any, **options: Any) -> Any:
        if kept.exists() and len(kept.read_text().splitlines()) == 2:
            raise KeyboardInterrupt
        return train(*args, **options)

    with monkeypatch.context() as patched:
        patched.setattr(figures_labels, "train_nodes", until_the_third)
        assert main(words) == 130
    assert "Finished runs are in" in capsys.readouterr().out
    assert main([*words, "--resume"]) == 0
    assert "run 3/" in (told := capsys.readouterr().err) and "run 2/" not in told
    assert len(kept.read_text().splitlines()) == 12
    networks = tmp_path / "fig-3-9-karate.under-way"
    (networks / "a network").mkdir(parents=True)
    monkeypatch.setattr(figures_labels, "train_nodes", until_the_third)
    with locked(tmp_path, ".fig-3-9-karate.lock"):
        assert main(words) == 2
    assert "another run is using it" in capsys.readouterr().err and networks.exists()
    assert main(words) == 130
    assert "Earlier runs are now in" in capsys.readouterr().out
    assert len((tmp_path / "fig-3-9-karate.1.jsonl").read_text().splitlines()) == 12
    assert (tmp_path / "fig-3-9-karate.1.under-way" / "a network").exists()
    assert not networks.exists()


@pytest.mark.skipif(sys.platform == "win32", reason="needs POSIX signals")
def test_sigterm_tells_what_is_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def told_to_leave(*_: Any, **__: Any) -> Any:
        signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(figures_labels, "train_nodes", told_to_leave)
    before = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        with pytest.raises(SystemExit) as caught:
            main(["reproduce", "fig-3-9", "--dataset", "karate", "--quick", "--out", str(tmp_path)])
    finally:
        signal.signal(signal.SIGTERM, before)
    assert caught.value.code == 143 and "Finished runs are in" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["fig-3-88"], "did you mean 'fig-3-8'"),
        (["encoding", "--dataset", "karate"], "expected Cora, minesweeper"),
        (["fig-3-8", "--dataset", "nowhere"], "nowhere"),
        (["fig-3-8", "--seeds", "0"], "expected 1 or more"),
        (["fig-3-8", "--seed", "1"], "takes splits from 0 on"),
        (["fig-5-1", "--dataset", "Cora"], "fig-5-1 draws its data"),
        (["table-b-1", "--dataset", "Actor"], "table-b-1 has no Actor, expected Cora"),
        (["table-b-1", "--seeds", "3"], "table-b-1 draws nothing"),
        (["table-b-2", "--root", "{}"], "PubMed: 8 of 8 raw files are missing"),
        (["fig-4-8", "--dataset", "cifar10"], "fig-4-8 has no cifar10, expected digits, mnist"),
        (["deep-fusion-heads", "--dataset", "Cora"], "expected digits, mnist"),
        (["deep-fusion-heads", "--dataset", "mnist"], "MNIST/raw"),
    ],
)
def test_what_cannot_be_run_is_refused_in_one_line(
    words: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.delenv("GRAPHTHEORY_DATA", raising=False)
    words = [word.format(tmp_path) for word in words]
    assert main(["reproduce", *words, "--out", str(tmp_path)]) == 2
    error = capsys.readouterr().err.strip()
    assert message in error and "\n" not in error
