"""Runs tests of a copy of the tree, each time in a fork of a process that has torch already.

`python -m battery.mutation_tests` reads a `Job` as JSON a line, and answers with what came of it.
Nothing of the library is imported before the fork: a child meets the file that is mutated.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
import time
import traceback
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import coverage
import numba
import pytest

GREEN, RED, OUT_OF_TIME, NOTHING = "green", "red", "out of time", "nothing"
_MEMORY = 8 * 2**30  # bytes that a child may take
_IDLE = 100.0  # seconds in which a child has to do something
_ELSEWHERE = 99  # exit code: the library that was imported is not the copy's


@dataclass(frozen=True)
class Job:
    """What a child runs.

    Attributes:
        files: Test files, or modules with docstrings, relative to the tree.
        tests: Which of their tests, in this order; None for the first case of each, in pytest's.
        cases: Tests whose other cases follow, one of each in turn.
        cache: Folder of machine code.
        seconds: Processor time after which no further test begins.
        limit: Processor time after which the child is ended.
        traced: Folders of the package whose lines are recorded; none for a run that stops at the
            first failure.
        out: File of the answer.
    """

    files: list[str]
    tests: list[str] | None
    cases: list[str]
    cache: str
    seconds: float
    limit: int
    traced: list[str]
    out: str


class _Chosen:
    """Leaves the tests that are asked for, in their order, until the time is over."""

    def __init__(self, job: Job) -> None:
        self.job, self.began, self.ran, self.failed = job, time.process_time(), 0, ""

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Put them into order."""
        found = {item.nodeid: item for item in items}
        first = [name for name in self.job.tests or () if name in found]
        rank = {name: at for at, name in enumerate(self.job.cases)}
        turns, rest = Counter[str](), []
        for name in found:
            test = name.partition("[")[0]
            if test in rank and name not in first:
                rest.append((turns[test], rank[test], name))
                turns[test] += 1
        items[:] = [found[name] for name in [*first, *(name for *_, name in sorted(rest))]]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Remember the first failure."""
        if report.failed and not self.failed:
            self.failed = report.nodeid

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        """Count."""
        self.ran += 1

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> None:
        """Stop if the time is over."""
        if time.process_time() - self.began > self.job.seconds:
            item.session.shouldstop = "the time is over"


class _Traced:
    """Records the lines and the time of each test."""

    def __init__(self, job: Job) -> None:
        folders = [str(Path.cwd() / one) for one in job.traced]
        self.tracer = coverage.Coverage(data_file=None, source=folders, config_file=False)
        self.seconds: dict[str, float] = {}
        self.failed: list[str] = []
        self.skipped: set[str] = set()
        self.tracer.start()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Any:
        """Name the test that runs, and take its time."""
        self.tracer.switch_context(item.nodeid)
        began = time.process_time()
        result = yield
        if item.nodeid not in self.skipped:
            self.seconds[item.nodeid] = round(time.process_time() - began, 4)
        self.tracer.switch_context("")
        return result

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep what is not green; a test that is skipped covers nothing."""
        if report.failed:
            self.failed.append(report.nodeid)
        if report.skipped:
            self.skipped.add(report.nodeid)

    def found(self) -> dict[str, Any]:
        """Seconds of each test, and the tests of each line by their number."""
        self.tracer.stop()
        data, names = self.tracer.get_data(), list(self.seconds)
        number = {name: at for at, name in enumerate(names)}
        lines = {}
        for file in sorted(data.measured_files()):
            by_line = {
                line: sorted(number[name] for name in found if name in number)
                for line, found in data.contexts_by_lineno(file).items()
            }
            kept = {line: found for line, found in sorted(by_line.items()) if found}
            if kept:
                lines[str(Path(file).relative_to(Path.cwd()))] = kept
        return {"seconds": self.seconds, "failed": self.failed, "lines": lines}


def _run(job: Job) -> dict[str, Any]:
    sys.path.insert(0, str(Path.cwd()))
    numba.config.CACHE_DIR = job.cache
    timeout = ["-p", "pytest_timeout", "--timeout", "0"]  # the child has one of its own
    common = ["-q", "-p", "no:cacheprovider", *timeout, *job.files]
    if job.traced:
        traced = _Traced(job)
        code = pytest.main(["--tb", "no", "--first-case", *common], plugins=[traced])
        answer = traced.found()
    else:
        sys.dont_write_bytecode = True
        chosen = _Chosen(job)
        code = pytest.main(["-x", "--tb", "no", *common], plugins=[chosen])
        answer = {"ran": chosen.ran, "failed": chosen.failed}
    import graphtheory  # the one that the tests met

    if not str(graphtheory.__file__).startswith(str(Path.cwd())):
        os._exit(_ELSEWHERE)
    return answer | {"code": int(code)}


def _child(job: Job) -> None:
    os.setpgid(0, 0)
    resource.setrlimit(resource.RLIMIT_CPU, (job.limit, job.limit + 5))
    resource.setrlimit(resource.RLIMIT_DATA, (_MEMORY, _MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nowhere, stream)
    code = 1
    try:
        answer = _run(job)
        Path(job.out).write_text(json.dumps(answer))
        code = 0
    except BaseException:  # told to whoever asked
        Path(job.out).write_text(json.dumps({"failed": traceback.format_exc(), "code": 1}))
        code = 0
    finally:
        os._exit(code)


def run(job: Job) -> dict[str, Any]:
    """What came of a job: `end`, and what the child recorded."""
    Path(job.out).unlink(missing_ok=True)
    began = time.monotonic()
    child = os.fork()
    if child == 0:
        _child(job)
    ended, seen, since = 0, 0.0, began
    while ended == 0 and time.monotonic() - since < _IDLE:
        ended, status, used = os.wait4(child, os.WNOHANG)
        time.sleep(0.02)
        if not ended and _used(child) > seen + 0.2:
            seen, since = _used(child), time.monotonic()
    if ended == 0:
        os.kill(child, signal.SIGKILL)
        _, status, used = os.wait4(child, 0)
    _end_group(child)
    code = os.waitstatus_to_exitcode(status)
    if code == _ELSEWHERE:
        raise RuntimeError("graphtheory: imported from elsewhere, expected from the copied tree")
    took = used.ru_utime + used.ru_stime
    answer: dict[str, Any] = {"cpu": round(took, 2), "wall": round(time.monotonic() - began, 2)}
    if ended == 0 or code in (-signal.SIGXCPU, -signal.SIGKILL):
        return answer | {"end": OUT_OF_TIME}
    if code != 0 or not Path(job.out).exists():
        return answer | {"end": RED, "failed": f"the process ended with {code}"}
    answer |= json.loads(Path(job.out).read_text())
    ends = {pytest.ExitCode.OK: GREEN, pytest.ExitCode.NO_TESTS_COLLECTED: NOTHING}
    stopped = answer["code"] == pytest.ExitCode.INTERRUPTED and answer.get("ran") and not (
        answer["failed"]
    )  # fmt: skip
    return answer | {"end": GREEN if stopped else ends.get(answer["code"], RED)}


def _used(child: int) -> float:
    """Its processor time so far."""
    fields = Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _end_group(child: int) -> None:
    """Processes that the tests left."""
    try:
        os.killpg(child, signal.SIGKILL)
    except ProcessLookupError:
        return


def main() -> None:
    """Answer jobs until there are no more."""
    import networkx  # noqa: F401
    import scipy.sparse.csgraph  # noqa: F401
    import torch
    import torch_geometric.nn
    import torch_geometric.utils  # noqa: F401

    torch.set_num_threads(1)
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # they warn of what is imported already
    for line in sys.stdin:
        print(json.dumps(run(Job(**json.loads(line)))), flush=True)


if __name__ == "__main__":
    main()
