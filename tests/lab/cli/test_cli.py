"""The command line: what it writes, what it says, how it ends."""

import csv
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from rich.console import Console
from torch_geometric.data import Data

from graphtheory.lab.bench import node_task
from graphtheory.lab.bench.rows import FIELDS
from graphtheory.lab.cli import main, script
from graphtheory.lab.cli.bench import Bench, Tune
from graphtheory.lab.cli.diagnose import Diagnose
from graphtheory.lab.cli.main import _COMMANDS
from graphtheory.lab.cli.show import message_of
from graphtheory.lab.cli.train import Train
from graphtheory.lab.zoo import image_models as image_zoo
from graphtheory.lab.zoo import node_models as zoo
from graphtheory.papers.topology.diagnosis import SAMPLERS
from tests.lab.bench.conftest import decided_at

KARATE = ("--dataset", "karate", "--epochs", "3")
EXPLORED = ("train", "--dataset", "karate", "--epochs", "2", "--explorer", "--model")
ON_DATA = ("train", "bench", "tune", "diagnose")
_LINES = Path(__file__).with_name("refused.txt").read_text(encoding="utf-8").splitlines()
REFUSED = [line for line in _LINES if " => " in line]
SAMPLED = ("diagnose", "--dataset", "karate", "--sampling")
BENCH = ("bench", *KARATE, "--models", "gt,mlp", "--seeds", "2", "--distances", "1", "--out", "b")


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a small benchmark, kept by the name "b"."""
    folder = tmp_path_factory.mktemp("finished")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert main(list(BENCH)) == 0
    return folder / "b"


@pytest.fixture
def copied(run, finished: Path, tmp_path: Path) -> Path:
    """A copy of that benchmark where `run` works."""
    return Path(shutil.copytree(finished, tmp_path / "b"))


def read(file: Path) -> Any:
    return json.loads(file.read_text(encoding="utf-8"))


def lines_of(file: Path) -> list[Any]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def names_in(folder: Path) -> set[str]:
    return {file.name for file in folder.iterdir()}


def refused(result: tuple[int, str, str]) -> str:
    """The one line of a refusal; before it may stand what took seconds, such as "reading ..."."""
    code, _, err = result
    *before, last = err.splitlines(keepends=True)
    waits = r".* \.\.\.(  \(.*\))?\n"  # with the time so far after ten seconds
    assert code == 2 and all(re.fullmatch(waits, line) for line in before), err
    assert last.startswith("graphtheory: ") and last.endswith("\n") and "Traceback" not in err
    return last


# Help ---------------------------------------------------------------------------------------------


def test_help_is_quick_to_import_and_names_every_command() -> None:
    code = (
        "import sys; from graphtheory.lab.cli import main\n"
        "try: main(['--help'])\n"
        "except SystemExit as leaving: print('left', leaving.code)\n"
        "print('heavy', {'lightning', 'torch_geometric', 'matplotlib', 'sklearn', 'torchmetrics'}"
        " & set(sys.modules))"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "left 0" in said.stdout and "heavy set()" in said.stdout
    for word in (*_COMMANDS, "GRAPHTHEORY_DATA", "--version", "Exit codes"):
        assert word in said.stdout


POSITIONAL = {"shell", "figure", "edges", "nodes", "folder"}


@pytest.mark.parametrize("name", _COMMANDS)
def test_help_of_a_command_teaches(run, name: str) -> None:
    kind, (code, out, _) = _COMMANDS[name], run(name, "--help")
    assert code == 0 and f"graphtheory {name}" in out
    options = {field.name for field in fields(kind)} - {"output"}
    assert set(kind.helps) == options and all(kind.helps.values())
    named = {f"--{option.replace('_', '-')}" for option in options - POSITIONAL}
    named |= {"--json", "--quiet"}
    assert all(option in out for option in named)
    example = re.search(r"Try:  graphtheory (.*)", out)  # a line to copy
    assert example is not None and example[1].split()[0] == name
    assert {word for word in example[1].split() if word.startswith("--")} <= named


def test_help_is_wrapped_at_the_width_of_the_terminal(run, monkeypatch) -> None:
    assert re.fullmatch(r"graphtheory \d+\.\d+\S*\n", run("--version")[1])
    code, out, _ = run()
    assert code == 0 and "graphtheory bench" in out
    monkeypatch.setenv("COLUMNS", "1000")  # each paragraph and each option is one line
    out = run("train", "--help")[1]
    assert out == run("train", "--help")[1]  # asking changes nothing
    assert "first test image. With --explorer, on graphs," in out
    assert "cnn, resnet18, resnet20, resnet50 or vit for images, and gcn for a graph" in out
    assert "Data (a class for each node) or of a list of Data" in out
    monkeypatch.setenv("COLUMNS", "80")
    for name in _COMMANDS:
        lines = run(name, "--help")[1].split("\u256d")[0].splitlines()  # above the options
        prose = [line for line in lines if not line.startswith(("Try:", "      "))]
        assert max(map(len, prose)) <= 80, prose
    assert Bench().models == Tune().models == zoo.COMPARED
    assert Train().model in zoo.NAMES
    for text in (Train.helps["model"], Bench.helps["models"]):
        assert all(name in text for name in zoo.NAMES + image_zoo.NAMES)
    assert all(name in (Diagnose.__doc__ or "") for name in SAMPLERS)


# Wrong usage --------------------------------------------------------------------------------------


@pytest.mark.parametrize("line", REFUSED, ids=lambda line: line.partition(" => ")[0])
def test_what_cannot_be_done_is_refused_in_a_line(run, molecules, tmp_path, line: str) -> None:
    words, _, expected = line.partition(" => ")
    code, out, err = run(*shlex.split(words))
    by_tyro = ("Error parsing", "Unrecognized", "Invalid choice")  # which it tells in a box
    if not expected.startswith(by_tyro):
        err = refused((code, out, err))
    assert (code, out) == (2, "") and not any(p.is_file() for p in tmp_path.glob("runs/**/*"))
    said = " ".join(err.replace("│", " ").split())
    assert re.search(".*".join(map(re.escape, expected.split(" ... "))), said), err


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("train --epochs 0", "--epochs"),
        ("train --task contrast", "--task"),
        ("bench --seeds 0", "--seeds"),
        ("bench --data none.pt", "--data"),
        ("tune --budget 0", "--budget"),
        ("diagnose --max-distance 0", "--max-distance"),
        ("diagnose --root nowhere", "--root"),
        ("reproduce --seeds 0", "--seeds"),
        ("reproduce", "ID"),
        *((f"{name} --dataset karte", "did you mean 'karate'") for name in ON_DATA),
    ],
)
def test_what_names_show_is_refused_without_torch(run, monkeypatch, line, expected) -> None:
    monkeypatch.setattr(sys.modules["graphtheory.lab.cli.main"], "import_module", None)
    assert expected in refused(run(*line.split()))


@pytest.mark.parametrize("name", ON_DATA)
def test_folders_that_are_files_or_not_there_are_refused(run, tmp_path, monkeypatch, name) -> None:
    (tmp_path / "taken").write_text("")
    assert "taken" in refused(run(name, "--dataset", "karate", "--out", "taken"))
    monkeypatch.setenv("GRAPHTHEORY_DATA", "gone")
    assert "$GRAPHTHEORY_DATA: gone is not a folder" in refused(run(name, "--dataset", "karate"))


# Failures -----------------------------------------------------------------------------------------


def failing(error: BaseException) -> Callable[..., Any]:
    def fail(*args: Any, **options: Any) -> Any:
        raise error

    return fail


def test_failures_have_codes_and_a_bug_its_traceback(run, monkeypatch) -> None:
    def trained(error: BaseException) -> tuple[int, str, str]:
        monkeypatch.setattr("graphtheory.lab.train.fit", failing(error))
        return run("train", *KARATE, "--out", "here")

    nan = trained(FloatingPointError("epoch 1: training loss nan"))
    assert nan[::2] == (1, "graphtheory: epoch 1: training loss nan\n")
    with pytest.raises(KeyError, match="a bug"):
        trained(KeyError("a bug"))
    code, out, err = trained(KeyboardInterrupt())
    assert (code, err) == (130, "graphtheory: interrupted\n")
    assert "Checkpoint in here; --resume continues" in out


# train --------------------------------------------------------------------------------------------


def test_train_writes_a_run_and_resumes_it(run, tmp_path: Path) -> None:
    code, out, _ = run("train", *KARATE, "--model", "gt", "--seed", "1")
    assert code == 0
    folder = tmp_path / "runs/train-karate-gt-random-60-20-20-1"
    files = {"last.ckpt", "best.ckpt", "history.csv", "result.json", "report.html"}
    assert files <= names_in(folder)
    assert "best epoch" in out and "parameters" in out and str(folder.name) in out
    kept = read(folder / "result.json")
    assert kept["result"]["epochs"] == 3
    assert kept["command"].startswith("graphtheory train --dataset karate")

    again = ("train", *KARATE[:2], "--model", "gt", "--seed", "1", "--epochs", "5")
    assert "add --resume" in refused(run(*again))
    assert run(*again, "--resume")[0] == 0
    longer = read(folder / "result.json")
    histories = [kept["result"]["history"] for kept in (kept, longer)]
    rows = [[{k: v for k, v in row.items() if k != "seconds"} for row in of] for of in histories]
    assert len(rows[1]) == 5 and rows[1][:3] == rows[0]


def test_a_checkpoint_of_another_model_or_a_damaged_one_is_refused(run, tmp_path) -> None:
    words = ("train", *KARATE, "--out", "one", "--model")
    assert run(*words, "mlp")[0] == 0
    assert "checkpoint of another run" in refused(run(*words, "gcn", "--resume"))
    (tmp_path / "one/last.ckpt").write_bytes(b"PK")
    assert "last.ckpt" in refused(run(*words, "mlp", "--resume"))


@pytest.mark.parametrize("model", ["gt", "gat"])
def test_a_page_is_written_beside_the_report(run, tmp_path: Path, model: str) -> None:
    code, out, err = run(*EXPLORED, model, "--out", "o")
    assert code == 0, err
    assert "Written to o: report.html, explorer.html" in out
    page = (tmp_path / "o/explorer.html").read_text(encoding="utf-8")
    assert f"{model} on karate" in page and "34 nodes" in page and "drawn: 78 of 78 edges" in page
    assert "Every epoch" in (tmp_path / "o/report.html").read_text(encoding="utf-8")


def test_a_set_of_graphs_shows_those_of_validation(run, tmp_path: Path) -> None:
    edges = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    made = [Data(x=torch.rand(3, 2), y=torch.tensor([i % 2]), edge_index=edges) for i in range(40)]
    torch.save(made, tmp_path / "mine.pt")
    words = ("train", "--data", "mine.pt", "--epochs", "1", "--explorer", "--out", "o", "--model")
    code, _, err = run(*words, "gatv2")
    assert code == 0, err
    page = (tmp_path / "o/explorer.html").read_text(encoding="utf-8")
    assert re.search(r"drawn: \d+ of \d+ edges", page)


def test_too_many_nodes_are_refused_before_training(run, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("graphtheory.lab.report.page.MOST_NODES", 33)
    code, _, err = run(*EXPLORED, "gt")
    assert code == 2 and "--explorer: the graph has 34 nodes, expected 33 or fewer" in err
    assert not (tmp_path / "runs").exists()


# bench --------------------------------------------------------------------------------------------


def test_bench_writes_everything(finished: Path) -> None:
    assert names_in(finished) == {
        "runs.jsonl", "distances.jsonl", "results.json", "results.csv", "report.html",
    }  # fmt: skip
    found = read(finished / "results.json")
    assert [(r["model"], r["seed"]) for r in found["runs"]] == [
        ("gt", 0), ("mlp", 0), ("gt", 1), ("mlp", 1),
    ]  # fmt: skip
    assert found["settings"]["models"]["gt"]["epochs"] == 3
    assert found["environment"]["versions"]["torch"]
    assert {row["kind"] for row in found["distance_study"]} == {"b", "model", "control", "majority"}
    with (finished / "results.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert tuple(rows[0]) == FIELDS
    scores = {r["parameters"]: float(r["value"]) for r in rows if r["name"] == "test accuracy"}
    tests = [r["test"] for r in found["runs"] if r["model"] == "gt"]
    where = "dataset=karate; split=random-60-20-20; model=gt; options=defaults, not tuned"
    (score,) = (value for name, value in scores.items() if name.startswith(where))
    assert score == pytest.approx(sum(tests) / 2)
    report = (finished / "report.html").read_text(encoding="utf-8")
    assert report.count("<img") == 6 and not re.search(r"https?://", report)
    assert "graphtheory bench --dataset karate --epochs 3" in report


def test_resume_adds_what_is_missing(copied: Path, run) -> None:
    before = (copied / "runs.jsonl").read_text()
    more = ("bench", *KARATE, "--models", "gt,gcn", "--seeds", "3", "--distances", "0")
    code, out, err = run(*more, "--out", "b", "--resume")
    assert code == 0 and "2 of 6 runs are known" in out
    assert len(re.findall(r"^run \d/6 .*: test", err, flags=re.MULTILINE)) == 4
    after = (copied / "runs.jsonl").read_text()
    assert after.startswith(before) and len(after.splitlines()) == 8


def test_resume_says_what_it_finds_and_runs_what_was_cut_short(copied: Path, run) -> None:
    code, out, err = run(*BENCH, "--resume")
    assert code == 0 and "4 of 4 runs are known from earlier." in out
    assert "test mean ± std" in out and "gt - mlp" in out and "Written to b" in out
    assert "run 1/4" not in err  # nothing was trained
    file = copied / "runs.jsonl"
    whole = file.read_bytes()
    file.write_bytes(whole[:-40])
    code, out, _ = run(*BENCH, "--resume")
    assert code == 0 and "3 of 4 runs are known" in out
    keep = ("model", "seed", "test", "val")
    runs = [line["run"] for line in lines_of(file)]
    first = [json.loads(line)["run"] for line in whole.splitlines()]
    assert [[r[k] for k in keep] for r in runs] == [[r[k] for k in keep] for r in first]
    line = refused(run(*BENCH, "--resume", "--epochs", "4"))
    assert "holds model gt, seed 0 under other settings: epochs 3 there, 4 here" in line
    for content in ("[1]\n", "no JSON\n", '{"run": {}}\n', "1\n"):
        file.write_text(content)
        assert "is no finished run" in refused(run(*BENCH, "--resume"))


def test_without_resume_earlier_runs_are_set_aside(copied: Path, run) -> None:
    before = (copied / "runs.jsonl").read_text()
    (copied / "runs.1.jsonl").write_text("older")
    few = ("--models", "mlp", "--seeds", "1", "--distances", "0", "--out", "b")
    code, out, _ = run("bench", *KARATE, *few)
    assert code == 0 and "Earlier runs are now in b/runs.2.jsonl" in out
    assert (copied / "runs.2.jsonl").read_text() == before
    assert (copied / "runs.1.jsonl").read_text() == "older"
    assert len((copied / "runs.jsonl").read_text().splitlines()) == 1


def test_an_interrupted_bench_keeps_its_runs_and_goes_on(run, tmp_path, monkeypatch) -> None:
    trained = node_task.NodeBenchTask.run
    calls = iter(range(2))

    def until_interrupted(*args: Any, **options: Any) -> Any:
        if next(calls, None) is None:
            signal.raise_signal(signal.SIGINT)
            time.sleep(60)  # which Ctrl-C ends
        return trained(*args, **options)

    monkeypatch.setattr(node_task.NodeBenchTask, "run", until_interrupted)
    code, out, err = run(*BENCH)
    assert (code, err.splitlines()[-1]) == (130, "graphtheory: interrupted")
    assert "2 of 4 runs are in b/runs.jsonl; the same command with --resume continues." in out
    monkeypatch.setattr(node_task.NodeBenchTask, "run", trained)
    code, out, _ = run(*BENCH, "--resume")
    assert code == 0 and "2 of 4 runs are known" in out
    assert len((tmp_path / "b/runs.jsonl").read_text().splitlines()) == 4


# sets of graphs, and own data -------------------------------------------------------------------


def molecule(i: int, **more: Any) -> Data:
    edges, y = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]]), torch.tensor([[0.3 * i]])
    return Data(x=torch.full((3, 2), 0.1 * i), edge_index=edges, y=y, **more)


@pytest.fixture
def molecules(tmp_path: Path) -> str:
    """A file with twenty small graphs that have a value each."""
    torch.save([molecule(i) for i in range(20)], tmp_path / "mine.pt")
    return "mine.pt"


def test_commands_on_the_users_own_graphs(run, tmp_path, molecules: str, monkeypatch) -> None:
    words = ("bench", "--data", molecules, "--epochs", "2", "--models", "gine,mlp", "--seeds")
    code, out, err = run(*words, "1")
    assert code == 0 and "mine, split random-80-10-10" in out and "lower is better" in out
    assert "mlp - gine" in out and "Positive values favor gine (lower" in out and "run 2/2" in err
    folder = tmp_path / "runs/bench-mine"
    assert names_in(folder) == {"runs.jsonl", "results.json", "results.csv", "report.html"}
    assert "lower is better" in (folder / "report.html").read_text(encoding="utf-8")
    code, out, err = run(*words, "2", "--resume")
    assert code == 0 and "2 of 4 runs are known" in out
    code, out, _ = run("train", "--data", molecules, "--model", "gcn", "--epochs", "2")
    assert code == 0 and re.search(r"RMSE: test \d\.\d+, validation \d\.\d+, best epoch", out)
    assert (tmp_path / "runs/train-mine-gcn-random-80-10-10-0/last.ckpt").exists()
    from graphtheory.lab.bench import graph_task

    monkeypatch.setattr(graph_task, "_MOST_EPOCHS", 2)
    monkeypatch.setattr(graph_task, "_LEAST_EPOCHS", 2)
    words = ("tune", "--data", molecules, "--models", "gine,mlp", "--budget", "1")
    code, out, err = run(*words)
    assert code == 0 and "candidate 2/2  mlp" in err and "nodes_per_batch=" in out
    (key,) = read(tmp_path / "runs/tune-mine/tuned.json")
    assert key.startswith("mine-")


def test_options_set_by_hand(run, tmp_path: Path, molecules: str) -> None:
    by_hand = ("--data", molecules, "--epochs", "1", "--set", "walk=4,readout=token,lr=0.002")
    words = ("bench", *by_hand, "--models", "gt,gcn", "--seeds", "1", "--out", "b")
    told = "walk=4, readout=token, lr=0.002 (gcn ignores readout=token)"
    code, out, _ = run(*words)
    assert code == 0 and out.count(f"Set by hand: {told}.") == 2
    page = (tmp_path / "b/report.html").read_text("utf-8")
    assert told in page and "set by hand: walk=4, lr=0.002; others default" in page
    assert "2 of 2 runs are known" in run(*words, "--resume")[1]
    other = (*words[:6], "walk=5", *words[7:])
    assert "under other settings: network" in refused(run(*other, "--resume"))
    code, out, _ = run("train", *by_hand, "--model", "gt", "--out", "t")
    assert code == 0 and "Set by hand: walk=4, readout=token, lr=0.002." in out
    kept = read(tmp_path / "t/result.json")
    assert kept["options"]["network"]["walk"] == 4 and kept["options"]["optimizer"]["lr"] == 0.002
    assert kept["set_by_hand"] == "walk=4, readout=token, lr=0.002"
    other = ("train", *by_hand[:-1], "walk=4,readout=token,lr=0.003", "--model", "gt", "--out", "t")
    assert "another run" in refused(run(*other, "--resume"))


@pytest.mark.parametrize(("words", "studied"), [(("--models", "mlp"), []), ((), [3])])
def test_named_models_are_trained_alone(run, tmp_path, monkeypatch, words, studied) -> None:
    asked: list[int] = []

    def study(name: str, root: Any, farthest: int, **options: Any) -> list[Any]:
        return asked.append(farthest) or []

    monkeypatch.setattr("graphtheory.lab.cli.bench.paper", lambda _: study)
    code, _, _ = run("bench", *KARATE, *words, "--seeds", "1", "--out", "b", "-q")
    assert code == 0 and asked == studied
    trained = {line["run"]["model"] for line in lines_of(tmp_path / "b/runs.jsonl")}
    assert trained == ({"mlp"} if words else set(zoo.COMPARED))


NAN = float("nan")
BAD: dict[str, tuple[dict[str, Any], str]] = {
    "labels": ({"y": torch.tensor([[0.1, 0.2]])}, "y is float32 [1, 2], expected float [1, 1] as"),
    "no-label": ({"y": torch.tensor([[NAN]])}, "y is NaN, so that no label is left"),
    "no-nodes": ({"x": torch.zeros(0, 2)}, "graph 5 has no nodes"),
    "edge-attr": ({"edge_attr": torch.rand(4, 3)}, "edge_attr is float32 [4, 3], expected 2 colu"),
    "width": ({"x": torch.rand(3, 3)}, "x is float32 [3, 3], expected 2 columns of float32 as in"),
    "nan": ({"x": torch.full((3, 2), NAN)}, "graph 5: x holds nan, expected finite numbers"),
    "smiles": ({"smiles": "no molecule"}, "cannot read the SMILES of graph 5, 'no molecule'"),
}


@pytest.mark.parametrize("what", BAD)
def test_bad_graphs_are_named_in_one_line(run, tmp_path: Path, what: str) -> None:
    import graphtheory

    change, expected = BAD[what]
    if what == "smiles":
        pytest.importorskip("lightgbm")
    each = torch.ones(4, 2)
    graphs = [molecule(i, edge_attr=each, smiles="C" * (i + 1)) for i in range(20)]
    for name, value in change.items():
        graphs[5][name] = value
    models = ("mlp", "ecfp") if what == "smiles" else ("mlp",)
    torch.save(graphs, tmp_path / "bad.pt")
    said = refused(run("bench", "--data", "bad.pt", "--models", ",".join(models)))
    assert expected in said and "graph 5" in said and not (tmp_path / "runs").exists()
    if what != "smiles":
        assert expected in refused(run("train", "--data", "bad.pt", "--model", "mlp"))
    with pytest.raises(ValueError, match=re.escape(expected)):
        graphtheory.bench(graphs, models, seeds=1, epochs=1)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"y": torch.arange(8) % 3}, "data.x: got 9 rows beside 8 labels, expected one for each"),
        ({"y": torch.rand(9)},
         "data.y: got torch.float32 [9], expected whole numbers [N], a class"),
        ({"y": -torch.ones(9).long()}, "data.y: the largest class is -1 among 0 nodes with one"),
        ({"x": torch.full((9, 2), NAN)}, "data.x: 18 entries are NaN or infinite"),
        ({"x": None}, "data.x: got None beside 9 labels"),
        ({"edge_index": torch.tensor([[0], [9]])}, "entry 0 is 9, expected a node id in 0..8"),
    ],
)  # fmt: skip
def test_a_bad_graph_with_classes_of_nodes(run, tmp_path, change: Any, expected: str) -> None:
    made = {
        "x": torch.rand(9, 2), "y": torch.arange(9) % 3, "edge_index": torch.tensor([[0], [1]]),
    } | change  # fmt: skip
    torch.save(Data(**made), tmp_path / "bad.pt")
    assert expected in refused(run("bench", "--data", "bad.pt", "--models", "mlp"))
    assert expected in refused(run("train", "--data", "bad.pt", "--model", "mlp"))


def test_python_and_the_command_line_give_the_same_numbers(run, tmp_path, molecules) -> None:
    import graphtheory
    from graphtheory.lab.datasets.own_graphs import read_graph_file

    threads = str(torch.get_num_threads())  # sums of two threads round in another order
    words = ("--models", "gt,gine", "--seeds", "2", "--epochs", "2", "--threads", threads)
    assert run("bench", "--data", molecules, *words, "--out", "b")[0] == 0
    written = read(tmp_path / "b/results.json")
    graphs = read_graph_file(molecules)
    few = {"seeds": 2, "epochs": 2, "threads": int(threads), "progress": False}
    found = graphtheory.bench(graphs, ("gt", "gine"), **few)
    for one, other in zip(found.runs, written["runs"], strict=True):
        assert (one.model, one.seed) == (other["model"], other["seed"])
        assert (one.test, one.val) == (other["test"], other["val"])
    against = [d["difference"] for d in written["differences"]["others"]]
    assert [d.difference for d in found.differences()] == against


def test_bench_on_a_set_of_graphs_by_name(run, tmp_path: Path, data_root: Path) -> None:
    words = ("bench", "--dataset", "ogbg-molesol", "--epochs", "1", "--seeds", "1", "--out", "m")
    code, out, _ = run(*words, "--models", "mlp,gcn", "--root", str(data_root))
    assert code == 0 and "ogbg-molesol, split scaffold" in out
    assert "Test RMSE (lower is better)" in out


# images ------------------------------------------------------------------------------------------


def test_train_on_images_writes_a_run_and_resumes_it(run, tmp_path: Path) -> None:
    small = ("--set", "width=32,depth=4,batch_size=128")
    words = ("train", "--dataset", "digits", "--model", "stvit", *small, "--epochs", "2")
    code, out, _ = run(*words)
    assert code == 0 and "GMACs an image" in out and "data scikit-learn's digits" in out
    folder = tmp_path / "runs/train-digits-stvit-random-90-10-0"
    kept = read(folder / "result.json")
    assert {"test", "val", "gmacs", "parameters", "seconds_per_epoch"} <= kept["result"].keys()
    assert kept["data"] == "scikit-learn's digits" and kept["options"]["model"] == "stvit"
    with (folder / "predictions.csv").open() as file:
        right = [row["class"] == row["predicted"] for row in csv.DictReader(file)]
    assert sum(right) / len(right) == pytest.approx(kept["result"]["test"])
    assert names_in(folder / "pictures") == {"semantic-attention.png", "assignment.png"}
    assert "add --resume" in refused(run(*words))
    assert run(*words, "--resume")[0] == 0
    again = read(folder / "result.json")
    assert again["result"]["test"] == kept["result"]["test"]
    other = refused(run(*words[:-1], "3", "--resume"))
    assert "another run" in other and "epochs=2" in other


def test_a_folder_of_images_with_options_of_the_network(run, tmp_path: Path) -> None:
    from sklearn.datasets import load_digits

    pixels, y = load_digits(return_X_y=True)
    for i in range(120):
        folder = tmp_path / f"own/{y[i] % 2}"
        folder.mkdir(parents=True, exist_ok=True)
        image = Image.fromarray((pixels[i] * 15).astype("uint8").reshape(8, 8))
        image.save(folder / f"{i}.png")
    words = ("train", "--dataset", "own", "--epochs", "1", "--set")
    code, out, _ = run(*words, "k=0.25,depth=3,width=32,lr=0.001,batch_size=16", "--model", "kvt")
    assert code == 0 and "Set by hand: k=0.25, depth=3, width=32, lr=0.001, batch_size=16." in out
    assert "own, 96 + 24 images of 2 classes" in out
    folder = tmp_path / "runs/train-own-kvt-random-90-10-0"
    kept = read(folder / "result.json")["options"]
    assert kept["network"]["k"] == 0.25 and kept["recipe"]["lr"] == 0.001
    page = (folder / "report.html").read_text()
    assert "The patches that the class token attends to" in page and "most often taken for" in page
    words = ("bench", "--dataset", "own", "--models", "cnn,stvit", "--seeds", "1", "--epochs", "1")
    code, out, _ = run(*words, "--set", "tokens=4,depth=4", "--image-size", "12")
    assert code == 0 and "tokens=4, depth=4 (cnn ignores tokens, depth)" in out
    assert "unknown 'tokes'" in refused(run(*words, "--set", "tokes=4", "--out", "x"))
    assert "runs.jsonl holds" in refused(run(*words, "--resume"))
    words = ("train", "--task", "contrastive", "--dataset", "own", "--head", "mlp", "--epochs", "1")
    code, out, _ = run(*words, "--set", "temperature=0.5,batch_size=32")
    assert code == 0 and "temperature 0.5" in out
    page = (tmp_path / "runs/contrastive-own-cnn-mlp-0/report.html").read_text()
    assert "cnn with mlp head on own, without labels" in page and "1-nearest neighbor" in page


def test_bench_on_images_goes_on_where_it_stopped(run, tmp_path: Path) -> None:
    small = ("--set", "width=32,depth=4,batch_size=128", "--epochs", "1")
    words = ("bench", "--dataset", "digits", *small, "--models")
    code, out, _ = run(*words, "cnn,stvit", "--seeds", "1")
    assert code == 0 and "cnn - stvit" in out and "MMACs" in out
    folder = tmp_path / "runs/bench-digits-images"
    assert {"report.html", "results.csv", "runs.jsonl", "cnn-0"} <= names_in(folder)
    assert (folder / "stvit-0/predictions.csv").exists()
    code, out, err = run(*words, "cnn", "--seeds", "2", "--resume")
    assert code == 0 and "1 of 2 runs are known" in out and "run 2/2" in err


# tune, diagnose, datasets -------------------------------------------------------------------------


def test_tune_keeps_a_log_and_goes_on(run, tmp_path, monkeypatch, small_space: None) -> None:
    from graphtheory.lab.bench.search import read_log
    from graphtheory.lab.bench.task import TUNED, kept_options

    words = ("tune", "--dataset", "karate", "--models", "mlp,gcn", "--out", "t", "--budget")
    code, out, err = run(*words, "1")
    assert code == 0 and "candidate 2/2  gcn" in err and "Search log" in out
    first = read_log(tmp_path / "t/search.log")
    assert len(first) == 2
    monkeypatch.setenv("GRAPHTHEORY_CACHE", str(tmp_path / "cache"))
    shipped = TUNED.read_bytes()
    code, out, _ = run(*words, "2", "--keep")
    assert code == 0 and f"Kept for `train` and `bench` in {tmp_path / 'cache/tuned.json'}" in out
    assert kept_options("karate", "gcn") and TUNED.read_bytes() == shipped
    longer = read_log(tmp_path / "t/search.log")
    assert [one.config for one in longer[::2]] == [one.config for one in first]
    assert [one.seeds for one in longer] == [3] * 4
    assert set(read(tmp_path / "t/tuned.json")["karate"]) == {"mlp", "gcn"}
    bench = ("bench", "--dataset", "karate", "--models", "mlp,gcn", "--no-kept", "--seeds", "1")
    assert run(*bench, "--distances", "0", "--budget", "2", "--out", "t")[0] == 0
    assert read_log(tmp_path / "t/search.log") == longer  # bench's candidates are the same
    (tmp_path / "t/search.jsonl").write_text("")
    assert "rename or delete it" in refused(run(*words, "2"))


def test_a_recipe_is_repeated_and_judged(run, tmp_path, monkeypatch) -> None:
    from graphtheory.lab.bench import recipes

    own = recipes.Recipe(
        "own/karate/gcn", "a paper", "a file", "karate", "accuracy", "gcn", (1.0, 0.5), epochs=2,
        runs=2, note="Another order.",
    )  # fmt: skip
    monkeypatch.setattr(recipes, "RECIPES", {own.name: own})
    code, out, _ = run("bench", "--recipe", "own/karate/gcn", "--seeds", "1")
    assert code == 0 and "1.00 ± 0.50" in out and "1 of 2" in out and "Another order." in out
    assert "--resume goes on with them" in refused(run("bench", "--recipe", own.name))
    code, out, _ = run("bench", "--recipe", own.name, "--resume", "--json")
    found = json.loads(out)
    assert code == 0 and len(found["test"]) == 2 and found["reproduced"] == "yes"
    code, out, _ = run("recipes", "--source", "own")
    assert code == 0 and "a paper (a file)" in out and "2 of 2" in out
    assert "did you mean 'own'" in refused(run("recipes", "--source", "onw"))


def test_diagnose_writes_tables_and_pictures(run, tmp_path: Path) -> None:
    code, out, _ = run("diagnose", "--dataset", "Karate", "--max-distance", "3")
    assert code == 0 and "Core distance" in out and "Discriminative nodes by class" in out
    folder = tmp_path / "runs/diagnose-karate"
    assert names_in(folder) == {
        "report.html", "diagnosis.json", "diagnosis.csv", "margin.png", "total-margin.png",
        "shares.png", "balance.png",
    }  # fmt: skip
    found = read(folder / "diagnosis.json")
    assert found["verdicts"] == [] and found["rows"][0]["name"] == "nodes"


def test_diagnose_answers_first_and_takes_your_own_graph(run, tmp_path, monkeypatch) -> None:
    torch.save(decided_at(2), tmp_path / "mine.pt")
    wide = lambda stderr=False: Console(  # noqa: E731
        stderr=stderr, width=80, force_terminal=not stderr, color_system=None
    )
    monkeypatch.setattr("graphtheory.lab.cli.show.console", wide)
    code, out, err = run("diagnose", "--data", "mine.pt", "--max-distance", "4", "--out", "d")
    assert code == 0, err
    assert out.startswith("Distance matters here: a linear classifier reaches")
    assert "`graphtheory bench` with the same data and" in " ".join(out.split())
    assert max(map(len, out.splitlines())) <= 80
    page = (tmp_path / "d/report.html").read_text("utf-8")
    assert "mine: what the graph offers" in page and "A linear classifier on" in page
    torch.save([decided_at(2)] * 3, tmp_path / "several.pt")
    assert "--kind: got 'node', but a list" in refused(run("diagnose", "--data", "several.pt"))


def test_diagnose_says_what_a_sampler_makes_of_the_graph(run, tmp_path: Path) -> None:
    words = ("--sampling", "degree-groups", "--p-star", "1,0.5,0.25", "--draws", "3")
    code, out, _ = run("diagnose", "--dataset", "Karate", *words)
    assert code == 0 and "norm of A*, closed form" in out and "loses most" in out
    folder = tmp_path / "runs/diagnose-karate-degree-groups"
    assert names_in(folder) == {"report.html", "sampling.json", "sampling.csv", "influence.png"}
    page = (folder / "report.html").read_text()
    assert "norm of A*, closed form" in page and "data:image/svg+xml" in page
    rows = read(folder / "sampling.json")["rows"]
    kept = [r["value"] for r in rows if r["name"] == "group influence of A* over A"]
    assert kept == pytest.approx([1, 0.5, 0.25])
    off = []
    for count in ("2", "8"):
        words = ("--neighbors", count, "--draws", "3", "--out", count)
        assert run(*SAMPLED, "graphsage", *words)[0] == 0
        rows = read(tmp_path / count / "sampling.json")["rows"]
        off += [r["value"] for r in rows if r["name"] == "norm of A^s - A*"]
    assert off[0] > off[1] > 0  # the more are drawn, the closer


def test_diagnose_sets_the_printed_numbers_beside_and_misses_features(run, data_root) -> None:
    code, out, _ = run("diagnose", "--dataset", "cora", "--root", str(data_root))
    assert code == 0
    assert re.search(r"B\.8 +│ class sizes, largest gap \(nodes\) +│ +431\.14 │ +431\.14", out)
    if (data_root / "Planetoid/PubMed/raw/ind.pubmed.allx").exists():
        pytest.skip("PubMed's features are at hand")
    code, out, _ = run("diagnose", "--dataset", "PubMed", "--root", str(data_root))
    assert code == 0 and "not measured" in out and "44324" in out


def test_datasets_lists_where_files_go(run, tmp_path: Path) -> None:
    code, out, _ = run("datasets")
    assert code == 0
    assert "Planetoid/Cora/raw" in out and "embedded" in out and "600 graphs" in out
    assert "set GRAPHTHEORY_DATA" in out
    assert "60,000 + 10,000 images" in out and "MNIST/raw" in out
    (tmp_path / "MUSAE_Facebook").mkdir()
    (tmp_path / "MUSAE_Facebook/facebook_pagepage.npz").write_text("")
    _, out, _ = run("datasets", "--root", str(tmp_path))
    assert re.search(r"facebook .*there", out) and re.search(r"Cora .* 0 of 8", out)


def test_a_download_that_is_not_needed_says_so(run) -> None:
    assert run("datasets", "--download", "karate")[1] == "karate: its files are embedded.\n"
    found = json.loads(run("datasets", "--download", "karate", "--json")[1])
    assert found == {"name": "karate", "files": "embedded"}


def test_small_graphs_take_one_thread_and_it_is_restored(run, tmp_path, two_threads) -> None:
    words = ("bench", *KARATE, "--models", "mlp", "--seeds", "1", "--distances", "0", "--out")
    assert run(*words, "one")[0] == run(*words, "two", "--threads", "2")[0] == 0
    for name, expected in (("one", ", 1 of "), ("two", ", 2 of ")):
        found = read(tmp_path / name / "results.json")
        assert expected in found["environment"]["device"]
    assert torch.get_num_threads() == 2


# Doctor -------------------------------------------------------------------------------------------


def test_doctor_names_versions_backends_and_optional_packages(run) -> None:
    code, out, _ = run("doctor")
    assert code == 0
    assert torch.__version__ in out and "numba_csr" in out and "transformers" in out
    assert "pip install '.[EXTRA]'" in out
    code, out, err = run("doctor", "--json")
    found = json.loads(out)
    assert (code, err) == (0, "")
    assert found["versions"]["torch"] == torch.__version__
    assert found["threads"]["threads"] == str(torch.get_num_threads())
    assert found["backends"]["reference"].startswith("could run it")
    assert found["backends"]["blocks"].startswith("runs attention on complete")
    assert torch.cuda.is_available() or "expected cuda" in found["backends"]["triton_csr"]
    assert {"hf", "timm", "gpu"} <= set(found["optional"]) and "dev" not in found["optional"]


def test_warmup_says_where_the_machine_code_lies(run, monkeypatch) -> None:
    monkeypatch.setattr("graphtheory.integrations.warmup._SIZES", ())
    code, out, _ = run("warmup")
    assert code == 0 and "their machine code lies in" in out
    code, out, _ = run("warmup", "--json")
    assert code == 0 and Path(json.loads(out)["folder"]).is_absolute()


def test_doctor_notices_the_other_project_of_that_name(run, monkeypatch) -> None:
    for other, told in (("1.1.0", True), (None, False)):
        of = {"graphtheory": other}
        there = "graphtheory.lab.cli.doctor.installed"
        monkeypatch.setattr(there, lambda package, of=of: of.get(package, "1"))
        assert ("Another project, graphtheory 1.1.0, is installed" in run("doctor")[1]) is told
        assert ("then pip install . in your clone." in run("doctor")[1]) is told


def test_a_short_search_before_a_benchmark(run, tmp_path: Path, small_space: None) -> None:
    from graphtheory.lab.bench.search import best, read_log

    quick = ("--seeds", "1", "--epochs", "2", "--distances", "0")
    words = ("bench", "--dataset", "karate", "--models", "mlp,gcn", *quick, "--out", "b")
    assert "mlp and gcn use default hyperparameters. Add --budget 16 to tune" in run(*words)[1]
    kept = ("bench", "--dataset", "core-distance", "--models", "mlp", *quick)
    assert "default" not in run(*kept, "--out", "k")[1]
    assert "mlp uses default hyperparameters." in run(*kept, "--out", "n", "--no-kept")[1]
    code, out, err = run(*words, "--budget", "2")
    assert code == 0 and "candidate 4/4  gcn" in err and "not tuned" not in out
    assert "1 seed. Hyperparameters are the best of 2 on validation." in " ".join(out.split())
    log = tmp_path / "b/search.log"
    tried = read_log(log)
    written = read(tmp_path / "b/results.json")
    for model, found in best(tried).items():
        used = written["settings"]["models"][model]
        assert used["network"]["hidden"] == found.config.network.hidden
        assert used["optimizer"]["lr"] == found.config.optimizer.lr
    assert "4 candidates are known" in run(*words, "--budget", "2", "--resume")[1]
    assert read_log(log) == tried and len(tried) == 4
    assert used["options"] == "best of 2 on validation"
    timed = ("bench", "--dataset", "karate", "--models", "mlp", *quick, "--out", "t")
    code, out, err = run(*timed, "--budget", "1m")  # there are no more than four
    assert code == 0 and "candidate 4  mlp, best" in err and "candidate 5" not in err
    assert "Hyperparameters are the best of a search of 1m on validation." in " ".join(out.split())
    log.write_text(log.read_text().replace('"epochs":2', '"epochs":3', 1))
    assert "does not match its own digest" in refused(run(*words, "--budget", "2"))


def test_a_full_disk_is_one_sentence(run, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    code, _, err = run("bench", "--dataset", "karate", "--models", "mlp", "--epochs", "1", "-q")
    assert code == 1 and "No space left on device" in err and "Traceback" not in err


@pytest.mark.skipif(os.name != "posix", reason="pipes of a POSIX system")
def test_a_reader_that_goes_away_ends_the_help_quietly() -> None:
    program = (
        "import sys; from graphtheory.lab.cli.main import main; sys.exit(main(['bench', '-h']))"
    )
    there, here = os.pipe()
    os.close(there)
    options = {"stdout": here, "stderr": subprocess.PIPE, "text": True}
    done = subprocess.run([sys.executable, "-c", program], **options, check=False)
    os.close(here)
    assert done.stderr == ""


def test_a_second_ctrl_c_while_the_process_ends_is_no_error(monkeypatch) -> None:
    monkeypatch.setattr(sys.modules["graphtheory.lab.cli.main"], "main", lambda: 130)
    before = signal.getsignal(signal.SIGINT)
    try:
        with pytest.raises(SystemExit) as ended:
            script()
        assert ended.value.code == 130
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_folder_in_use_is_told_by_the_option() -> None:
    error = OSError(11, "out_dir: another run is using it", "runs/a")
    assert message_of(error) == "--out: another run is using it: runs/a"
    assert message_of(OSError(2, "No such file", "out_dir/a")) == "No such file: out_dir/a"
    assert message_of(OSError("out_dir cannot be written to")) == "--out cannot be written to"


def test_resume_says_where_there_is_nothing_to_go_on_from(tmp_path, capsys) -> None:
    words = ["train", "--dataset", "karate", "--epochs", "1", "--resume", "--out", str(tmp_path)]
    assert main(words) == 0
    assert f"No checkpoint in {tmp_path}, so training" in capsys.readouterr().out
    assert main(words) == 0
    assert "No checkpoint" not in capsys.readouterr().out
