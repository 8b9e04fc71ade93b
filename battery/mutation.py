"""Mutation testing: how many single changes of ops, graph and structure some test notices.

Mutants are drawn at random and put into a copy of the tree, one at a time. Tests run until one
fails or `_SECONDS` of processor time are over: those that run the changed line, of the module's own
test file and the fastest before the others, then those that run its function, then all their cases.
Of what numba compiles no line is traced: there the tests are those that run Python callers, the
nearest first, and machine code of every module above the changed one is made anew.
"""

from __future__ import annotations

import ast
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any
from zlib import crc32

from battery.line import Line, timed
from battery.mutants import ROOMS, Mutant, digest, first_line, modules, mutants, sample
from battery.mutation_record import ROOT, RUNS, Found, read, verdict_of
from battery.mutation_tests import GREEN, NOT_HERE, NOTHING, OUT_OF_TIME, RED, Job

PYTHON_MUTANTS, COMPILED_MUTANTS = 300, 60
LEAST_KILLED = 0.9
_FIRST, _SECONDS = 4.0, 30.0  # of tests: those that are tried first, and all
_CONTROLS = 10  # mutants for each control
TESTS = (
    "tests/graph", "tests/structure", "tests/ops", "tests/conformance", "tests/patterns", *ROOMS,
)  # fmt: skip
TRACED = (*ROOMS, "graphtheory/patterns")  # where callers of compiled code lie


class Tree:
    """A copy of the tree, and processes that run its tests."""

    def __init__(self, home: Path) -> None:
        self.tree, self.home = home / "tree", home
        shutil.rmtree(self.tree, ignore_errors=True)
        command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
        names = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
        for name in names.stdout.splitlines():
            if (ROOT / name).is_file() and not (ROOT / name).is_symlink():
                (self.tree / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, self.tree / name)
        self.machine_code = home / "machine-code"
        self.machine_code.mkdir(parents=True, exist_ok=True)
        self.processes: dict[bool, subprocess.Popen[str]] = {}

    def _process(self, collected: bool) -> subprocess.Popen[str]:
        """Started when it is asked for first."""
        if collected not in self.processes:
            threads = {"OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "2"}
            files = [str(self.machine_code), ",".join(ROOMS), *test_files()] if collected else []
            self.processes[collected] = subprocess.Popen(
                [sys.executable, "-m", "battery.mutation_tests", *files], cwd=self.tree,
                env={**os.environ, **threads, "PYTHONPATH": str(self.tree)},
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            )  # fmt: skip
        return self.processes[collected]

    def run(self, job: Job, *, collected: bool) -> Found:
        """What came of a job."""
        process = self._process(collected)
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(json.dumps(asdict(job)) + "\n")
        process.stdin.flush()
        answer: Found = json.loads(process.stdout.readline())
        return answer

    def job(self, **what: Any) -> Job:
        """A job of this tree, which only lacks what is told."""
        nothing = {
            "files": [], "tests": None, "cases": [], "cache": str(self.machine_code),
            "traced": [], "change": [], "out": str(self.home / "answer.json"),
        }  # fmt: skip
        return Job(**{**nothing, "limit": 5000, **what})

    def close(self) -> None:
        """End the processes and remove the tree."""
        for process in self.processes.values():
            assert process.stdin is not None
            process.stdin.close()
            process.wait()
        shutil.rmtree(self.tree, ignore_errors=True)


class Known:
    """Which tests run which lines, and how long they take."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.lines: dict[str, dict[int, set[str]]] = defaultdict(lambda: defaultdict(set))
        self.red: list[str] = []

    def add(self, found: dict[str, Any]) -> None:
        """What a test file was found to run."""
        names = list(found["seconds"])
        self.seconds |= found["seconds"]
        self.red += found["failed"]
        for file, lines in found["lines"].items():
            for line, tests in lines.items():
                self.lines[file][int(line)] |= {names[at] for at in tests} - {*found["failed"]}

    def of_lines(self, file: str, first: int, last: int) -> set[str]:
        """Tests that run any of the lines."""
        lines = self.lines.get(file, {})
        return {t for line, tests in lines.items() if first <= line <= last for t in tests}

    def of_file(self, file: str) -> set[str]:
        """Tests that run any line inside a function of the file."""
        return self.of_lines(file, 1, 10**9)

    def in_order(self, tests: set[str]) -> list[str]:
        """The fastest case of each test, then the second of each, and so on."""
        cases: dict[str, list[str]] = defaultdict(list)
        for name in sorted(tests, key=lambda name: (self.seconds[name], name)):
            cases[name.partition("[")[0]].append(name)
        turns = [(turn, self.seconds[n], n) for c in cases.values() for turn, n in enumerate(c)]
        return [name for _, _, name in sorted(turns)]


def test_files() -> list[str]:
    """With tests that may run the three rooms, and modules with examples."""
    found = {str(p.relative_to(ROOT)) for one in TESTS for p in (ROOT / one).rglob("*.py")}
    tests = [f for f in found if Path(f).name.startswith("test_")]
    examples = [f for f in modules(ROOT) if ">>>" in (ROOT / f).read_text()]
    tests = [f for f in tests if "triton" not in f]  # interpreted, of what is left out here
    return sorted(tests, key=lambda f: (_place(f), f)) + examples


def _place(file: str) -> int:
    return next(at for at, folder in enumerate(TESTS) if file.startswith(folder))


def look(tree: Tree) -> Known:
    """Run every test once; what is known from an earlier run of the same files is read."""
    known, files = Known(), test_files()
    looks = tree.tree / "battery" / "mutation_tests.py"
    source = str(TRACED) + digest([looks, *(tree.tree / name for name in modules(tree.tree))])
    for at, name in enumerate(files):
        helpers = sorted((tree.tree / name).parent.glob("*.py")) if "tests/" in name else []
        helpers = [p for p in helpers if not p.name.startswith("test_")]
        kept = RUNS / "lines" / f"{name.replace('/', '.')}.json"
        key = digest([tree.tree / name, *helpers]) + source
        found = json.loads(kept.read_text()) if kept.exists() else {}
        if found.get("key") != key:
            job = tree.job(files=[name], seconds=1000.0, traced=[*TRACED])
            found = tree.run(job, collected=True)
            if "lines" not in found:
                raise RuntimeError(f"{name}: {found}")
            kept.parent.mkdir(parents=True, exist_ok=True)
            kept.write_text(json.dumps(found | {"key": key}))
            _tell(f"{at + 1} of {len(files)}: {name}, {len(found['seconds'])} tests")
        known.add(found)
    return known


@cache
def importers(root: Path) -> dict[str, set[str]]:
    """Modules that import a module of the package, imports inside functions included."""
    above: dict[str, set[str]] = defaultdict(set)
    for path in (root / "graphtheory").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            for name in _imported(node):
                for end in (".py", "/__init__.py"):
                    above[name.replace(".", "/") + end].add(str(path.relative_to(root)))
    return above


def _imported(node: ast.AST) -> list[str]:
    match node:
        case ast.Import():
            return [a.name for a in node.names]
        case ast.ImportFrom() if node.module:
            return [node.module, *(f"{node.module}.{a.name}" for a in node.names)]
    return []


def levels_above(root: Path, file: str) -> list[set[str]]:
    """Importers, their importers, and so on, each once."""
    seen, out = {file}, [{file}]
    while out[-1]:
        nearest = {up for one in out[-1] for up in importers(root).get(one, ())} - seen
        seen |= nearest
        out.append(nearest)
    return out[1:-1]


def tests_of(root: Path, mutant: Mutant, known: Known) -> list[str]:
    """Those that can notice a mutant as they are tried: of the module's own test file first."""
    own = f"test_{Path(mutant.file).stem.strip('_')}.py"
    return sorted(
        _tests_of(root, mutant, known),
        key=lambda name: Path(name.partition("::")[0]).name not in (own, Path(mutant.file).name),
    )


def _tests_of(root: Path, mutant: Mutant, known: Known) -> list[str]:
    out: list[str] = []
    if mutant.compiled:
        for level in [{mutant.file}, *levels_above(root, mutant.file)]:
            out += known.in_order({t for file in level for t in known.of_file(file)} - {*out})
        return out
    for first, last in _places(root, mutant):
        out += known.in_order(known.of_lines(mutant.file, first, last) - {*out})
    return out or known.in_order(known.of_file(mutant.file))


def _places(root: Path, mutant: Mutant) -> list[tuple[int, int]]:
    """Lines of the change, of its statement, of its function."""
    inside = [
        node
        for node in ast.walk(ast.parse((root / mutant.file).read_text()))
        if isinstance(node, ast.stmt) and first_line(node) <= mutant.line <= (node.end_lineno or 0)
    ]
    simple = [n for n in inside if not hasattr(n, "body")]
    functions = [n for n in inside if isinstance(n, ast.FunctionDef)]
    inner = [max(nodes, key=first_line) for nodes in (simple, functions) if nodes]
    header = any(mutant.line < n.body[0].lineno for n in functions[-1:])
    if header and not simple:  # a default or a decorator, which runs when the module is imported
        return [(first_line(functions[-1]), functions[-1].end_lineno or 0)]
    return [(mutant.line, mutant.line), *((first_line(n), n.end_lineno or 0) for n in inner)]


class Trial:
    """Mutants in the copy of the tree, one at a time."""

    def __init__(self, tree: Tree) -> None:
        self.tree = tree

    def of(self, file: str, made: str, tests: list[str], known: Known, anew: bool) -> Found:
        """Tests on a changed file until one fails: the outcome, and what told it.

        Functions are changed in place where that is all, else everything is imported anew.

        Args:
            file: Relative to the root.
            made: Its changed text.
            tests: In order.
            known: Their times.
            anew: Whether machine code of modules above is made anew.
        """
        path = self.tree.tree / file
        text, stamp = path.read_text(), path.stat()
        beside = _beside(self.tree.tree, file, known)
        if not anew:
            found = self._run(tests, beside, known, change=[file, text, made])
            if found["outcome"] != NOT_HERE:
                return found
        path.write_text(made)
        later = stamp.st_mtime_ns + 10**10  # no bytecode or machine code of the old text is read
        os.utime(path, ns=(later, later))
        try:
            if not anew:
                return self._run(tests, beside, known)
            return self._run(tests, beside, known, machine_code=self._without(file))
        finally:
            path.write_text(text)
            os.utime(path, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))

    def _run(
        self, tests: list[str], beside: list[str], known: Known, change: Sequence[str] = (),
        machine_code: Path | None = None,
    ) -> Found:  # fmt: skip
        used, ran = 0.0, 0
        for some, cases, seconds in _stages(tests, beside, known, machine_code is not None):
            files = list(dict.fromkeys(name.partition("::")[0] for name in [*some, *cases]))
            usual = min(seconds, sum(known.seconds[name] for name in some))
            limit = int(5 * usual + (0 if not cases else seconds)) + (30 if change else 200)
            job = self.tree.job(
                files=files, tests=some, cases=cases, seconds=seconds, change=[*change],
                cache=str(machine_code or self.tree.machine_code), limit=limit,
            )  # fmt: skip
            found = self.tree.run(job, collected=bool(change))
            used, ran = used + found["cpu"], ran + found.get("ran", 0)
            if found["end"] not in (GREEN, NOTHING):
                outcome = {RED: "killed"}.get(found["end"], found["end"])
                told = found.get("failed", "")[-300:]
                return {"outcome": outcome, "by": told, "ran": ran, "cpu": round(used, 1)}
        return {"outcome": "survived", "by": "", "ran": ran, "cpu": round(used, 1)}

    def _without(self, file: str) -> Path:
        """The machine code at hand, without that of a file and of what imports it."""
        stems = {Path(one).stem for level in levels_above(self.tree.tree, file) for one in level}
        stems.add(Path(file).stem)
        code = self.tree.home / "machine-code-of-mutant"
        shutil.rmtree(code, ignore_errors=True)
        code.mkdir()
        for path in self.tree.machine_code.rglob("*.nb?"):
            if path.name.partition(".")[0] not in stems:
                (code / path.parent.name).mkdir(exist_ok=True)
                os.link(path, code / path.parent.name / path.name)
        return code


def _beside(root: Path, file: str, known: Known) -> list[str]:
    """Tests of the folder that mirrors a module's: cases that were not traced may meet it."""
    folder = Path("tests", *Path(file).parent.parts[1:])
    while not list((root / folder).glob("test_*.py")):
        folder = folder.parent
    return known.in_order({n for n in known.seconds if Path(n.partition("::")[0]).parent == folder})


def _stages(
    tests: list[str], beside: list[str], known: Known, compiled: bool
) -> list[tuple[list[str], list[str], float]]:
    """(tests, tests of which all cases follow, seconds): a few fast ones by themselves first.

    Most mutants need no more, and fewer files are read.
    """
    few, seconds = 0, 0.0
    while few < min(len(tests), 25) and seconds < _FIRST:
        seconds += known.seconds[tests[few]]
        few += 1
    if few == 0:
        return []
    cases = list(dict.fromkeys(name.partition("[")[0] for name in [*tests, *beside]))
    return [(tests[:few], [], 60.0), (tests[few:], cases, _SECONDS * (4 if compiled else 1))]


def _with_an_error(root: Path, mutant: Mutant) -> str | None:
    """The file with an error in place of the statement that a mutant changes."""
    lines = (root / mutant.file).read_text().splitlines(keepends=True)
    tree = ast.parse("".join(lines))
    simple = [
        n
        for n in ast.walk(tree)
        if isinstance(n, ast.Return | ast.Assign | ast.Expr | ast.AugAssign)
        and n.lineno <= mutant.line <= (n.end_lineno or 0)
        and n.col_offset
    ]
    if not simple:
        return None
    at = simple[-1].lineno - 1
    indent = lines[at][: simple[-1].col_offset]
    if indent.strip():
        return None
    return "".join([*lines[:at], f'{indent}raise RuntimeError("planted")\n', *lines[at:]])


def _tell(what: str) -> None:
    print(f"mutation: {what}", file=sys.stderr, flush=True)


def _drawn(share: float, seed: int) -> list[Mutant]:
    """Kept, for to find all mutants takes a quarter of a minute."""
    tools = Path(__file__).parent / "mutants.py"
    key = digest([tools, *(ROOT / name for name in modules(ROOT))])
    kept = RUNS / f"drawn-{seed}-{share:g}-{key}.json"
    if not kept.exists():
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.write_text(json.dumps([asdict(m) for m in _draw(share, seed)]))
    return [Mutant(**one) for one in json.loads(kept.read_text())]


def _draw(share: float, seed: int) -> list[Mutant]:
    every = [m for name in modules(ROOT) for m in mutants(ROOT, name)]
    python, compiled = ([m for m in every if m.compiled is kind] for kind in (False, True))
    counts = (max(1, round(share * n)) for n in (PYTHON_MUTANTS, COMPILED_MUTANTS))
    chosen = zip((python, compiled), counts, strict=True)
    return [m for some, count in chosen for m in sample(ROOT, some, count, seed)]


def _key(mutant: Mutant) -> list[Any]:
    place = [mutant.file, mutant.operator, mutant.occurrence]
    return [*place, digest([ROOT / mutant.file])]


def mutation(share: float, seed: int) -> list[Line]:
    """Mutants of Python, and of what numba compiles; goes on where an earlier run ended."""
    lines = [_line("Python", "mutants"), _line("compiled code", "compiled mutants")]
    drawn = _drawn(share, seed)
    home = Path(tempfile.gettempdir()) / f"graphtheory-mutation-{crc32(bytes(ROOT)):08x}-{seed}"
    tree = Tree(home)
    try:
        known = look(tree)
        trial, file = Trial(tree), RUNS / f"seed-{seed}.jsonl"
        tests = f"{digest([ROOT / name for name in test_files()])} for {_SECONDS:g} s"
        finished = {json.dumps(one["key"]): one for one in read(file)}
        began, left = time.monotonic(), [m for m in drawn if _open(finished, m, tests)]
        for at, mutant in enumerate(left):
            with timed(lines[mutant.compiled]):
                found = _try(trial, mutant, known) | {"tests": tests}
            finished[json.dumps(_key(mutant))] = found
            with file.open("a") as out:
                out.write(json.dumps(found) + "\n")
            rest = (time.monotonic() - began) / (at + 1) * (len(left) - at - 1) / 60
            _tell(f"{at + 1} of {len(left)}, {rest:.0f} minutes left: {found['outcome']} "
                  f"{mutant.file}:{mutant.line} {found['after']!r} {found['by']}")  # fmt: skip
        for kind, line in enumerate(lines):
            some = [m for m in drawn if m.compiled is bool(kind)]
            _count(line, [finished[json.dumps(_key(m))] for m in some])
            with timed(line):
                _control(line, trial, some, known)
        lines[0].broken += [f"red without a change: {name}" for name in known.red]
    finally:
        tree.close()
    return lines


def _line(of: str, what: str) -> Line:
    return Line(
        "mutation", f"{LEAST_KILLED:.0%} of the changes of {of} fail a test, and the rest is "
        "explained", f"an error in the place of {what}, and the tests without a change",
    )  # fmt: skip


def _open(finished: dict[str, Any], mutant: Mutant, tests: str) -> bool:
    """What is killed or judged to change no result stays so; others are tried with new tests."""
    one = finished.get(json.dumps(_key(mutant)))
    if one is None:
        return True
    open_still = one["outcome"] == "survived" and verdict_of(one)[0] in ("", "gap")
    return open_still and one["tests"] != tests


def _try(trial: Trial, mutant: Mutant, known: Known) -> dict[str, Any]:
    text = (ROOT / mutant.file).read_text()
    made, tests = mutant.source(text), tests_of(ROOT, mutant, known)
    before, after = mutant.diff(text)
    found = trial.of(mutant.file, made or "", tests, known, mutant.compiled)
    facts = asdict(mutant) | {"before": before, "after": after, "covering": len(tests)}
    return {"key": _key(mutant)} | facts | found


def _count(line: Line, found: list[dict[str, Any]]) -> None:
    """Trials, figures, and what has no explanation."""
    line.trials = len(found)
    survived = [one for one in found if one["outcome"] == "survived"]
    judged = [(one, *verdict_of(one)) for one in survived]
    alike = sum(verdict == "equivalent" for _, verdict, _ in judged)
    killed, told = len(found) - len(survived), len(found) - alike
    line.figures = {
        "killed": killed, "of these out of time": sum(o["outcome"] == OUT_OF_TIME for o in found),
        "equivalent": alike, "speed only": sum(v == "speed only" for _, v, _ in judged),
        "killed of those not equivalent": f"{100 * killed / max(1, told):.1f} %",
    }  # fmt: skip
    line.broken = [
        f"{one['file']}:{one['line']}: {one['after']}" for one, _, reason in judged if not reason
    ]
    if killed < LEAST_KILLED * told:
        line.broken.append(f"{killed} of {told} killed")


def _control(line: Line, trial: Trial, some: list[Mutant], known: Known) -> None:
    """Errors that have to be found, and no change, which must not fail a test."""
    for mutant in some[: max(2, _CONTROLS * len(some) // PYTHON_MUTANTS)]:
        tests, wrong = tests_of(ROOT, mutant, known), _with_an_error(ROOT, mutant)
        text = (ROOT / mutant.file).read_text()
        if not tests or wrong is None:
            continue
        line.planted += 1
        found = trial.of(mutant.file, wrong, tests, known, mutant.compiled)
        line.caught += found["outcome"] == "killed"
        found = trial.of(mutant.file, text, tests, known, mutant.compiled)
        if found["outcome"] != "survived":
            line.broken.append(f"red without a change: {found['by']}")
