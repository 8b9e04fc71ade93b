"""Runs tests of a copy of the tree, each time in a fork of a process that has torch already.

`python -m battery.mutation_tests` reads a `Job` as JSON a line, and answers with what came of it.
Nothing of the library is imported before the fork: a child meets the file that is mutated. With
files of tests behind, these are imported and collected before, and a child changes functions in
place, which takes a tenth of the time.
"""

from __future__ import annotations

import gc
import json
import os
import resource
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, TextIO

import coverage
import numba
import pytest

from battery.mutation_patch import Functions

GREEN, RED, OUT_OF_TIME, NOTHING = "green", "red", "out of time", "nothing"
NOT_HERE = "not here"  # the change is not one of functions alone
_MEMORY = 8 * 2**30  # bytes that a child may take
_OF_A_TEST = 3.0  # seconds after which no more of its cases are traced
_IDLE = 100.0  # seconds in which a child has to do something
_ELSEWHERE = 99  # exit code: the library that was imported is not the copy's


@dataclass(frozen=True)
class Job:
    """What a child process has to run.

    Attributes:
        files: Test files, or modules with docstrings, relative to the tree.
        tests: Which of their tests, in this order; none to trace some cases of each, in pytest's.
        cases: Tests whose other cases follow, one of each in turn.
        cache: Folder of machine code.
        seconds: Processor time after which no further test begins.
        limit: Processor time after which the child is ended.
        traced: Folders of the package whose lines are recorded; none for a run that stops at the
            first failure.
        out: File of the answer.
        change: Where tests are collected already: a file, its text and its new text; or nothing.
    """

    files: list[str]
    tests: list[str] | None
    cases: list[str]
    cache: str
    seconds: float
    limit: int
    traced: list[str]
    out: str
    change: list[str]


class _Chosen:
    """Leaves the tests that are asked for, in their order, until the time is over."""

    def __init__(self, job: Job) -> None:
        self.job, self.began, self.ran, self.failed = job, time.process_time(), 0, ""

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Put the tests into the order of the job."""
        items[:] = self.in_order(items)

    def in_order(self, items: list[pytest.Item]) -> list[pytest.Item]:
        """Those that are asked for."""
        found = {item.nodeid: item for item in items}
        first = [name for name in self.job.tests or () if name in found]
        rank = {name: at for at, name in enumerate(self.job.cases)}
        turns, rest = Counter[str](), []
        for name in found:
            test = name.partition("[")[0]
            if test in rank and name not in first:
                rest.append((turns[test], rank[test], name))
                turns[test] += 1
        return [found[name] for name in [*first, *(name for *_, name in sorted(rest))]]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Remember the first test that failed."""
        if report.failed and not self.failed:
            self.failed = report.nodeid

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        """Count the tests that have run."""
        self.ran += 1

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> None:
        """Stop if the time is over."""
        if self.over():
            item.session.shouldstop = "the time is over"

    def over(self) -> bool:
        """Whether the time is over."""
        return time.process_time() - self.began > self.job.seconds


class _Traced:
    """Records the lines and the time of each test."""

    def __init__(self, job: Job) -> None:
        self.job, self.tracer = job, _tracer(job.traced)
        self.seconds: dict[str, float] = {}
        self.spent = Counter[str]()
        self.failed: list[str] = []
        self.skipped: set[str] = set()
        self.tracer.start()

    def in_order(self, items: list[pytest.Item]) -> list[pytest.Item]:
        """Every test of the files."""
        return [item for item in items if item.nodeid.partition("::")[0] in self.job.files]

    def enough(self, item: pytest.Item) -> bool:
        """Whether cases of a test took as long as is worth it; the first is always run."""
        return self.spent[item.nodeid.partition("[")[0]] > _OF_A_TEST

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Any:
        """Name the test that runs, and take its time."""
        self.tracer.switch_context(item.nodeid)
        began = time.process_time()
        result = yield
        took = time.process_time() - began
        self.spent[item.nodeid.partition("[")[0]] += took
        if item.nodeid not in self.skipped:
            self.seconds[item.nodeid] = round(took, 4)
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


def _tracer(folders: list[str]) -> coverage.Coverage:
    whole = [str(Path.cwd() / one) for one in folders]
    tracer = coverage.Coverage(data_file=None, source=whole, config_file=False)
    tracer.set_option("run:disable_warnings", ["no-data-collected"])  # tests that are skipped
    return tracer


_COMMON = [
    "-q", "--tb", "no", "-p", "no:cacheprovider", "-p", "no:faulthandler", "-p", "pytest_timeout",
    "--timeout", "0",
]  # fmt: skip


def _fresh(job: Job) -> dict[str, Any]:
    """Import everything, and run tests until one fails."""
    sys.path.insert(0, str(Path.cwd()))
    numba.config.CACHE_DIR = job.cache
    sys.dont_write_bytecode = True
    chosen = _Chosen(job)
    code = pytest.main(["-x", *_COMMON, *job.files], plugins=[chosen])
    _check_place()
    return {"ran": chosen.ran, "failed": chosen.failed, "code": int(code)}


def _check_place() -> None:
    import graphtheory  # the one that the tests met

    if not str(graphtheory.__file__).startswith(str(Path.cwd())):
        os._exit(_ELSEWHERE)


class _Collected:
    """Answers jobs where pytest would run the tests that it has collected."""

    def __init__(self, jobs: TextIO, answers: TextIO, imported: dict[str, set[int]]) -> None:
        self.jobs, self.answers, self.imported = jobs, answers, imported

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Run the jobs that arrive, in place of pytest's own loop."""
        self.session, self.functions = session, Functions(str(Path.cwd() / "graphtheory"))
        gc.freeze()  # a child that looks for garbage would copy every page
        for line in self.jobs:
            job = Job(**json.loads(line))
            print(json.dumps(run(job, self._run)), file=self.answers, flush=True)
        return True

    def _run(self, job: Job) -> dict[str, Any]:
        if job.change:
            file, old, new = job.change
            whole = str(Path.cwd() / file)
            if not self.functions.change(whole, old, new, self.imported.get(file, set())):
                return {"code": 0, "end": NOT_HERE}
        plugin = _Traced(job) if job.traced else _Chosen(job)
        self.session.config.pluginmanager.register(plugin)
        items = plugin.in_order(self.session.items)
        for item, following in zip(items, [*items[1:], None], strict=True):
            if isinstance(plugin, _Traced) and plugin.enough(item):
                continue
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            if isinstance(plugin, _Chosen) and (plugin.failed or plugin.over()):
                break
        if isinstance(plugin, _Traced):
            return plugin.found() | {"code": 0}
        return {"ran": plugin.ran, "failed": plugin.failed, "code": int(bool(plugin.failed))}


def _child(job: Job, work: Callable[[Job], dict[str, Any]]) -> None:
    os.setpgid(0, 0)
    resource.setrlimit(resource.RLIMIT_CPU, (job.limit, job.limit + 5))
    resource.setrlimit(resource.RLIMIT_DATA, (_MEMORY, _MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    try:
        answer = work(job)
        Path(job.out).write_text(json.dumps(answer))
    except BaseException:  # told to whoever asked
        Path(job.out).write_text(json.dumps({"failed": traceback.format_exc(), "code": 1}))
    finally:
        os._exit(0)


def run(job: Job, work: Callable[[Job], dict[str, Any]] = _fresh) -> dict[str, Any]:
    """What came of a job: `end`, and what the child recorded."""
    Path(job.out).unlink(missing_ok=True)
    began = time.monotonic()
    child = os.fork()
    if child == 0:
        _child(job, work)
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
    if "end" in answer:
        return answer
    ends = {pytest.ExitCode.OK: GREEN, pytest.ExitCode.NO_TESTS_COLLECTED: NOTHING}
    stopped = answer["code"] == pytest.ExitCode.INTERRUPTED and not answer["failed"]
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


def _imported(folders: list[str]) -> dict[str, set[int]]:
    """Lines that run when the modules of folders are imported."""
    tracer, root = _tracer(folders), Path.cwd()
    tracer.start()
    for folder in folders:
        for path in sorted((root / folder).rglob("*.py")):
            if "triton" not in str(path):
                parts = path.relative_to(root).with_suffix("").parts
                import_module(".".join(parts).removesuffix(".__init__"))
    tracer.stop()
    data = tracer.get_data()
    files = {str(Path(file).relative_to(root)): file for file in data.measured_files()}
    return {name: set(data.lines(file) or ()) for name, file in files.items()}


def main(cache: str = "", folders: str = "", *files: str) -> None:
    """Answer jobs until there are no more.

    Args:
        cache: Folder of machine code of what is collected before.
        folders: Of the package, with commas between.
        *files: With the tests to collect before; none for processes that import everything.
    """
    import networkx  # noqa: F401
    import scipy.sparse.csgraph  # noqa: F401
    import torch
    import torch_geometric.nn
    import torch_geometric.utils  # noqa: F401

    torch.set_num_threads(1)
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # they warn of what is imported already
    jobs, answers = os.fdopen(os.dup(0)), os.fdopen(os.dup(1), "w")
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1):
        os.dup2(nowhere, stream)
    if not files:
        for line in jobs:
            print(json.dumps(run(Job(**json.loads(line)))), file=answers, flush=True)
        return
    sys.path.insert(0, str(Path.cwd()))
    numba.config.CACHE_DIR = cache
    server = _Collected(jobs, answers, _imported(folders.split(",")))
    _check_place()
    pytest.main([*_COMMON, *files], plugins=[server])


if __name__ == "__main__":
    main(*sys.argv[1:])
