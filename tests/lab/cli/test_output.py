"""--json, --quiet and progress of every command, and completion in a shell."""

import json
import os
import re
import shutil
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from graphtheory.lab import progress
from graphtheory.lab.cli.show import Output, Screen
from graphtheory.lab.progress import Steps

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
    "doctor": {"device", "versions", "backends", "threads", "optional"},
    "completion": {"shell", "script"},
    "contrastive": {"folder", "recipe", "result"},
}


pytestmark = pytest.mark.usefixtures("small_space")


@pytest.mark.parametrize("name", WORDS)
def test_json_is_one_document_and_the_only_output(run, tmp_path, name: str) -> None:
    """What the file holds, beside it; remarks go to the error stream."""
    file = {"train": "result.json", "bench": "results.json"}.get(name)
    code, out, err = run(*WORDS[name], "--json", *(("--out", "here") if file else ()))
    assert code == 0, err
    found = json.loads(out)
    if name in KEYS:
        assert KEYS[name] <= set(found)
    else:
        assert len(found) > 10 and all("name" in row or "id" in row for row in found)
    if file:
        assert found.pop("folder") == "here"
        assert found == json.loads((tmp_path / "here" / file).read_text())
    if name == "train":
        assert "Set by hand: heads=2." in err and "epoch 2/2" in err


@pytest.mark.parametrize("name", WORDS)
def test_quiet_says_results_alone(run, name: str) -> None:
    code, out, err = run(*WORDS[name], "-q")
    assert (code, err) == (0, "")
    assert out and "Set by hand:" not in out and "; --resume" not in out


def test_quiet_leaves_out_remarks_beside_json(run) -> None:
    assert run(*WORDS["train"], "--json", "-q")[2] == ""


def test_a_refusal_is_a_sentence_and_no_json(run) -> None:
    code, out, err = run("train", "--dataset", "karate", "--model", "gtt", "--json", "-q")
    assert (code, out) == (2, "") and err.startswith("graphtheory: --model: unknown name 'gtt'")


# Progress -----------------------------------------------------------------------------------------


@pytest.fixture
def in_a_file(capsys: pytest.CaptureFixture[str]) -> Screen:
    return Screen(Console(), Console(stderr=True, width=160), "")


# What is told after so many seconds, and the lines that are written.
TOLD: dict[str, tuple[list[tuple[Any, ...]], list[str]]] = {
    "four of six, as two are known": (
        [told for done in range(2, 6)
         for told in ((0, "before", "gt", done, 6), (50, "finished", "ready"))],
        ["3/6  ready  (2 min left)", "4/6  ready  (2 min left)", "5/6  ready  (50 s left)",
         "6/6  ready"],
    ),
    "mostly kept": (
        [*((0, "before", "gt", done, 20) for done in range(16)), (100, "epoch", 1, 4)],
        ["16/20  gt, epoch 1 of at most 4"],
    ),
    "the first compiles": (
        [(0, "before", "gt", 0, 20), *((25, "epoch", epoch, 100) for epoch in (1, 2, 3))],
        ["1/20  gt, epoch 1 of at most 100", "1/20  gt, epoch 2 of at most 100  (13 h 52 min left)",
         "1/20  gt, epoch 3 of at most 100  (13 h 52 min left)"],
    ),
    "a long step": (
        [(0, "before", "gt", 0, 2), *((4, "epoch", epoch, 10) for epoch in range(1, 9)),
         (0, "finished", "ready")],
        ["1/2  gt, epoch 3 of at most 10  (1 min left)",
         "1/2  gt, epoch 6 of at most 10  (56 s left)", "1/2  ready  (32 s left)"],
    ),
    "a long epoch": (
        [(0, "before", "gt", 0, 1), *((6, "epoch", 2 + batch / 4, 4) for batch in range(1, 5))],
        ["1/1  gt, epoch 3 of at most 4 (50% of it)  (36 s left)",
         "1/1  gt, epoch 3 of at most 4  (24 s left)"],
    ),
    "draws": (
        [(0, "before", "gt", 0, 1), (20, "draw", 1, 4), (20, "draw", 2, 4)],
        ["1/1  gt, draw 1 of 4", "1/1  gt, draw 2 of 4  (40 s left)"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", TOLD)
def test_lines_in_a_file_say_how_long_the_rest_takes(name, in_a_file, capsys, monkeypatch) -> None:
    now = [0.0]  # the time that progress reads
    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: now[0]))
    told, expected = TOLD[name]
    with in_a_file.steps("run") as tell:
        for seconds, method, *given in told:
            now[0] += seconds
            getattr(tell, method)(*given)
    assert capsys.readouterr().err.splitlines() == [f"run {line}" for line in expected]


def test_a_benchmark_tells_of_epochs(run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "SILENCE", 0.0)
    assert "gcn, epoch 1 of at most 2" in run(*WORDS["bench"])[2]
    assert "mlp, epoch 1 of at most 2" in run(*WORDS["tune"])[2]


def test_long_work_in_a_file_is_told_of(in_a_file: Screen, monkeypatch, capsys) -> None:
    monkeypatch.setattr(progress, "PATIENCE", 0.05)
    with in_a_file.working("reading Cora"):
        time.sleep(0.3)
    assert capsys.readouterr().err == "reading Cora ...\n"
    with in_a_file.working("reading Cora"):
        pass
    with replace(in_a_file, output=Output(quiet=True)).working("reading Cora"):
        time.sleep(0.2)
    assert capsys.readouterr().err == ""


def test_a_terminal_has_a_moving_line(capsys: pytest.CaptureFixture[str]) -> None:
    screen = Screen(Console(), Console(stderr=True, force_terminal=True, width=100), "")
    quiet = replace(screen, output=Output(quiet=True))
    with screen.working("reading Cora"), quiet.steps("run") as tell:
        assert isinstance(tell, Steps)
    assert re.search("reading Cora.*0:00:00", capsys.readouterr().err)


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        (("tr",), {"train"}),
        (("train", "--da"), {"--dataset", "--data"}),
        (("bench", "--dataset", "Cora", "--se"), {"--seeds", "--set", "--search-log"}),
        (("diagnose", "--q"), {"--quiet"}),
    ],
)
def test_bash_completes(run, tmp_path, typed: tuple[str, ...], expected: set[str]) -> None:
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("needs bash")
    script = tmp_path / "graphtheory.bash"
    script.write_text(run("completion", "bash")[1])
    asked = (
        f"source {script}; COMP_WORDS=(graphtheory {' '.join(typed)}); COMP_CWORD={len(typed)}; "
        'for name in $(complete -p graphtheory); do [[ $name == _* ]] && "$name"; done; '
        'printf "%s\\n" "${COMPREPLY[@]}"'
    )
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    options = {"text": True, "check": True, "env": {"PATH": path}}
    said = subprocess.run([bash, "-c", asked], capture_output=True, **options)
    assert set(said.stdout.split("\n")) - {""} == expected


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_script_is_one_that_its_shell_reads(run, tmp_path: Path, shell: str) -> None:
    code, out, err = run("completion", shell)
    assert (code, err) == (0, "") and "graphtheory" in out and "--explorer" in out
    if shutil.which(shell) is None:
        pytest.skip(f"needs {shell} to read it")
    script = tmp_path / "script"
    script.write_text(out)
    subprocess.run([shell, "-n", str(script)], check=True, capture_output=True)
