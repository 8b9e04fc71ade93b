"""The benchmarks of a GPU, dry: every job's code runs, a failure or a limit stops no other."""

import math
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from graphtheory.lab.bench.rows import Row

pytest.importorskip("transformers")
Script = Callable[[str], Any]


@pytest.mark.parametrize("name", ["gpu", "gpu_models", "gpu_kernels"])
def test_no_gpu_is_code_2(script: Script, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(SystemExit) as ended:
        script(name).main()
    assert ended.value.code == 2


EXPECTED = {
    "graphs": "epoch of GT with SPD on pubmed, two hops: times faster than PyG ",
    "tokens": "k-nearest attention among 1024 tokens, fp32: times faster than masked form ",
    "vision": "DeiT-B training step, batch 2: STViT-DeiT-B, 16 tokens over DeiT-B ",
    "gpt": "GPT training step, ragged prompts, bf16: times faster than Hugging Face GPT-2 ",
    "heads": "head forward+backward, bf16: times faster than TransformerEncoder ",
    "distances": "SPD of all pairs: distances a second ",
    "accelerate": "epoch of unimp_arxiv.py on arxiv: times faster than PyG ",
}


@pytest.mark.parametrize("section", EXPECTED)
def test_a_dry_run_of_a_section_does_every_job(
    script: Script, section: str, capsys: pytest.CaptureFixture[str]
) -> None:
    script("gpu_models").main(only=(section,), device="cpu", tiny=True)  # another code if one fails
    said = capsys.readouterr()
    assert EXPECTED[section] in said.out
    assert "left out" not in said.out and not said.err


def test_a_failure_and_a_limit_keep_what_was_found(
    script: Script, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    gpu, row = script("_gpu"), Row.of("a", 1.0, "s")
    monkeypatch.setattr(gpu, "tidy", lambda: None)

    def endless() -> Iterator[Row]:
        yield row
        try:
            time.sleep(60)
        except Exception:  # as `runnable` guards against rivals
            return

    def half() -> Iterator[Row]:
        yield row
        raise ZeroDivisionError

    jobs = [("one", lambda: [row, row]), ("two", lambda: 1 / 0), ("three", half)]
    failed: list[str] = []
    found = gpu.attempted(iter([*jobs, ("four", endless), jobs[0]]), 2.0, failed)
    assert list(found) == [[row, row], [row], [row]] and failed == ["two", "three"]
    said = capsys.readouterr()
    assert "four and what follows left out" in said.out and "ZeroDivisionError" in said.err


def test_jobs_are_chosen_by_name(
    script: Script, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    gpu, failed, rows = script("_gpu"), [], [[Row.of(name, 1.0, "s")] for name in "abc"]
    monkeypatch.setattr(gpu, "tidy", lambda: None)
    jobs = [(f"case {row.name}", lambda found=found: found) for found in rows for row in found]
    assert list(gpu.attempted(iter(jobs), 60.0, failed, "a$|c$")) == [rows[0], rows[2]]
    assert capsys.readouterr().out == "-- case a\n-- case c\n" and not failed


def test_rivals_may_fail_and_ours_not(script: Script, capsys: pytest.CaptureFixture[str]) -> None:
    gpu, works = script("_gpu"), {"ours": lambda: int, "rival": lambda: lambda: 1 / 0}
    assert list(gpu.runnable("case", works, lambda name: name == "ours", "cpu")) == ["ours"]
    assert "case: rival left out: division by zero" in capsys.readouterr().out
    with pytest.raises(ZeroDivisionError):
        gpu.runnable("case", works, lambda name: name == "rival", "cpu")


def test_other_losses_are_not_timed(script: Script) -> None:
    gpu = script("_gpu")
    rows = gpu.same_losses("case", {"ours": [2.0, 1.0], "rival": [2.0, 1.0005]})
    assert rows[0].value == pytest.approx(5e-4, rel=1e-3)
    for wrong in (1.002, math.nan):
        with pytest.raises(AssertionError, match="losses of rival differ"):
            gpu.same_losses("case", {"ours": [2.0, 1.0], "rival": [2.0, wrong]})


REPORT = """<testsuites><testsuite tests="7" failures="1" errors="1" skipped="2">
</testsuite></testsuites>"""


def test_tests_are_counted(script: Script, monkeypatch: pytest.MonkeyPatch) -> None:
    dense = script("_gpu_dense")

    def run(command: list[str], **_: Any) -> SimpleNamespace:
        report = next(part.partition("=")[2] for part in command if part.startswith("--junitxml="))
        if "a_test.py" in command:
            Path(report).write_text(REPORT)
        return SimpleNamespace(returncode=4)

    monkeypatch.setattr(dense, "subprocess", SimpleNamespace(run=run))
    counted = dense.tests_counted("a_test.py", 60)
    assert counted == {"passed": 3, "failed": 2, "skipped": 2}
    with pytest.raises(RuntimeError, match=r"missing\.py ended with 4 and left no report"):
        dense.tests_counted("missing.py", 60)


def test_targets_are_judged_by_rows(script: Script, capsys: pytest.CaptureFixture[str]) -> None:
    models = script("gpu_models")
    arxiv, pubmed = sorted(name for name in models.TARGETS if name.startswith("epoch"))
    models.against_targets([Row.of(pubmed, 5.5, "1"), Row.of(arxiv, 4.0, "1")])
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith("target met") and second.startswith("target MISSED")


def test_moving_each_row_once_is_less(script: Script) -> None:
    graphs, predicted = script("_graphs"), script("predicted")
    dense = graphs.uniform(50, 1000)
    assert predicted.once(dense, 4, 64, 2) < graphs.gathered(dense, 4, 64, 2) / 5


def test_device_names_become_files(script: Script, monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = script("_gpu")
    seen = SimpleNamespace(is_available=lambda: True, get_device_name=lambda: "NVIDIA H200")
    monkeypatch.setattr(gpu.torch, "cuda", seen)
    assert gpu.results_of("cuda").name == "nvidia-h200.csv"
