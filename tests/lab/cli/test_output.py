"""--json, --quiet and progress, of every command."""

import json
import re
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from graphtheory.lab.bench import node_task
from graphtheory.lab.bench.spaces import Space
from graphtheory.lab.cli import progress
from graphtheory.lab.cli.progress import Steps, steps, working

Run = Callable[..., tuple[int, str, str]]
KARATE = ("--dataset", "karate", "--epochs", "2")
WORDS: dict[str, tuple[str, ...]] = {
    "train": ("train", *KARATE, "--model", "gat", "--set", "heads=2", "--explorer"),
    "bench": ("bench", *KARATE, "--models", "mlp,gcn", "--seeds", "1", "--distances", "0"),
    "tune": ("tune", "--dataset", "karate", "--models", "mlp", "--budget", "1"),
    "diagnose": ("diagnose", "--dataset", "karate", "--max-distance", "2"),
    "sampling": ("diagnose", "--dataset", "karate", "--sampling", "fastgcn", "--draws", "2"),
    "reproduce": ("reproduce", "fig-6-2", "--quick"),
    "reproduce --list": ("reproduce", "--list"),
    "datasets": ("datasets",),
    "doctor": ("doctor",),
    "completion": ("completion", "fish"),
    "contrastive": ("train", "--task", "contrastive", *KARATE, "--head", "mlp"),
}
KEYS: dict[str, set[str]] = {
    "train": {"folder", "command", "options", "set_by_hand", "result", "environment"},
    "bench": {"folder", "runs", "settings", "differences"},
    "tune": {"folder", "best", "candidates"},
    "diagnose": {"folder", "rows", "verdicts"},
    "sampling": {"folder", "rows", "environment"},
    "reproduce": {"folder", "rows", "verdict", "grid"},
    "doctor": {"device", "versions", "backends", "optional"},
    "completion": {"shell", "script"},
    "contrastive": {"folder", "recipe", "result"},
}


@pytest.fixture(autouse=True)
def _small_space(monkeypatch: pytest.MonkeyPatch) -> None:
    axes = {"hidden": (4, 8), "lr": (0.01, 0.1), "residual": (True,)}
    monkeypatch.setattr(node_task, "node_space", lambda *_: Space(2, 2, 1, axes))


@pytest.mark.parametrize("name", WORDS)
def test_json_is_one_document_and_the_only_output(run: Run, name: str) -> None:
    code, out, err = run(*WORDS[name], "--json")
    assert code == 0, err
    found = json.loads(out)
    if name in KEYS:
        assert KEYS[name] <= set(found)
    else:
        assert len(found) > 10 and all("name" in row or "id" in row for row in found)


@pytest.mark.parametrize("name", WORDS)
def test_quiet_says_results_alone(run: Run, name: str) -> None:
    code, out, err = run(*WORDS[name], "-q")
    assert (code, err) == (0, "")
    assert out and "Set by hand:" not in out and "; --resume" not in out


def test_json_holds_what_the_file_holds(run: Run, tmp_path: Any) -> None:
    found = json.loads(run(*WORDS["train"], "--json", "--out", "here")[1])
    assert found.pop("folder") == "here"
    assert found == json.loads((tmp_path / "here/result.json").read_text())
    again = json.loads(run(*WORDS["bench"], "--json", "--out", "b")[1])
    assert again.pop("folder") == "b"
    assert again == json.loads((tmp_path / "b/results.json").read_text())


def test_remarks_go_to_the_error_stream_beside_json(run: Run) -> None:
    _, _, err = run(*WORDS["train"], "--json")
    assert "Set by hand: heads=2." in err and "epoch 2/2" in err
    assert run(*WORDS["train"], "--json", "-q", "--out", "other")[2] == ""


def test_a_refusal_is_a_sentence_and_no_json(run: Run) -> None:
    code, out, err = run("train", "--dataset", "karate", "--model", "gtt", "--json", "-q")
    assert (code, out) == (2, "") and err.startswith("graphtheory: --model: unknown name 'gtt'")


# Progress -----------------------------------------------------------------------------------------


def in_a_file(capsys: pytest.CaptureFixture[str]) -> Console:
    return Console(stderr=True, width=160)


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time that progress reads, which a test moves on."""
    found = [0.0]
    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: found[0]))
    return found


def test_lines_in_a_file_say_how_long_the_rest_takes(
    capsys: pytest.CaptureFixture[str], now: list[float]
) -> None:
    with steps(in_a_file(capsys), "run") as tell:
        for done in range(4):  # two are known from earlier
            tell.before("gt", done + 2, 6)
            now[0] += 50
            tell.finished("ready")
    assert capsys.readouterr().err.splitlines() == [
        "run 3/6  ready  (2 min left)", "run 4/6  ready  (2 min left)",
        "run 5/6  ready  (50 s left)", "run 6/6  ready",
    ]  # fmt: skip


def test_what_was_kept_tells_nothing_of_the_rest(
    capsys: pytest.CaptureFixture[str], now: list[float]
) -> None:
    with steps(in_a_file(capsys), "candidate") as tell:
        for done in range(15):
            tell("gt", done, 20)
        tell.before("gt", 15, 20)
        now[0] += 100
        tell.epoch(1, 4)
    last = capsys.readouterr().err.splitlines()[-1]
    left = "(5 min left of this one, 32 min of all)"
    assert last == f"candidate 16/20  gt, epoch 1 of at most 4  {left}"


def test_the_first_of_many_epochs_tells_no_time(
    capsys: pytest.CaptureFixture[str], now: list[float]
) -> None:
    with steps(in_a_file(capsys), "run") as tell:
        tell.before("gt", 0, 20)
        for epoch in (1, 2, 3):  # the first one compiles
            now[0] += 25
            tell.epoch(epoch, 100)
    assert capsys.readouterr().err.splitlines() == [
        "run 1/20  gt, epoch 1 of at most 100",
        "run 1/20  gt, epoch 2 of at most 100",
        "run 1/20  gt, epoch 3 of at most 100  (40 min left of this one, 13 h 52 min of all)",
    ]


def test_a_long_step_tells_of_its_epochs(
    capsys: pytest.CaptureFixture[str], now: list[float]
) -> None:
    with steps(in_a_file(capsys), "run") as tell:
        tell.before("gt", 0, 2)
        for epoch in range(1, 9):
            now[0] += 4
            tell.epoch(epoch, 10)
        tell.finished("ready")
    assert capsys.readouterr().err.splitlines() == [
        "run 1/2  gt, epoch 3 of at most 10  (28 s left of this one, 1 min of all)",
        "run 1/2  gt, epoch 6 of at most 10  (16 s left of this one, 56 s of all)",
        "run 1/2  ready  (32 s left)",
    ]


def test_the_last_step_is_timed_by_itself(
    capsys: pytest.CaptureFixture[str], now: list[float]
) -> None:
    with steps(in_a_file(capsys), "run") as tell:
        for done, each in enumerate((900, 30)):
            tell.before("gt", done, 2)
            now[0] += each
            tell.epoch(1, 4)
    assert capsys.readouterr().err.splitlines() == [
        "run 1/2  gt, epoch 1 of at most 4  (45 min left of this one, 1 h 45 min of all)",
        "run 2/2  gt, epoch 1 of at most 4  (2 min left)",
    ]


def test_a_benchmark_tells_of_epochs(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "_SILENCE", 0.0)
    assert "gcn, epoch 1 of at most 2" in run(*WORDS["bench"])[2]
    assert "mlp, epoch 1 of at most 2" in run(*WORDS["tune"])[2]


def test_draws_tell_of_the_time_left(capsys: pytest.CaptureFixture[str], now: list[float]) -> None:
    with steps(in_a_file(capsys), "ladies on Cora") as tell:
        tell.before("effective adjacency", 0, 1)
        for drawn in (1, 2):
            now[0] += 20.0
            tell.draw(drawn, 4)
    err = capsys.readouterr().err
    assert "ladies on Cora 1/1  effective adjacency, draw 2 of 4  (40 s left)" in err


def test_long_work_in_a_file_says_how_long_it_has_taken(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "PATIENCE", 0.01)
    monkeypatch.setattr(progress, "_SILENCE", 0.02)
    with working(in_a_file(capsys), "reading Cora"):
        time.sleep(0.2)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "reading Cora ..." and "reading Cora ...  (0 s)" in lines[1:]


def test_work_without_steps_is_told_of_when_it_takes_long(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "PATIENCE", 0.05)
    with working(in_a_file(capsys), "reading Cora"):
        time.sleep(0.3)
    assert capsys.readouterr().err == "reading Cora ...\n"
    with working(in_a_file(capsys), "reading Cora"):
        pass
    with working(in_a_file(capsys), "reading Cora", shown=False):
        time.sleep(0.2)
    assert capsys.readouterr().err == ""


def test_a_terminal_has_a_moving_line(capsys: pytest.CaptureFixture[str]) -> None:
    console = Console(stderr=True, force_terminal=True, width=100)
    with working(console, "reading Cora"), steps(console, "run", shown=False) as tell:
        assert isinstance(tell, Steps)
    assert re.search("reading Cora.*0:00:00", capsys.readouterr().err)
