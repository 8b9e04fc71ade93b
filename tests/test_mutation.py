"""Mutation testing of a package of three files, without running a test."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType

import pytest

pytest.importorskip("cosmic_ray", reason="needs the extra dev")

from battery import mutation, mutation_record
from battery.mutants import Mutant, Places, mutants, sample
from battery.mutation import Known, levels_above
from battery.mutation_patch import Functions, differences

SOURCE = '''"""A module."""

from __future__ import annotations

from typing import TYPE_CHECKING, overload

if TYPE_CHECKING:
    from elsewhere import A, B

__all__ = ["total" + ""]
Maybe = int | None


@overload
def total(x: int | float, *, more: bool = True) -> int | float:
    """Sum."""
    if x > 3:
        raise ValueError("x: got " + str(x))
    return x + 1


def loop(x, y):
    return x * y
'''


@pytest.fixture
def root(tmp_path: Path) -> Path:
    file = tmp_path / "graphtheory" / "ops" / "one.py"
    file.parent.mkdir(parents=True)
    file.write_text(SOURCE)
    (file.parent / "two.py").write_text("from graphtheory.ops.one import total\n")
    (file.parent / "three.py").write_text("def f():\n    from graphtheory.ops import two\n")
    return tmp_path


def test_what_is_no_code_is_left_out(root: Path) -> None:
    file = "graphtheory/ops/one.py"
    found = sample(root, list(mutants(root, file)), 10**6, seed=0)
    changed = {tuple(" ".join(t.split()) for t in m.diff(SOURCE)) for m in found}
    assert ("return x + 1", "return x - 1") in changed
    assert ("return x + 1", "return x + 2") in changed
    assert ("if x > 3:", "if x >= 3:") in changed
    assert any("more: bool = False" in after for _, after in changed)
    places = {m.line for m in found}
    assert places == {15, 17, 19, 23}, sorted(changed)


def test_a_mutant_compiles_to_something_else(root: Path) -> None:
    for one in sample(root, list(mutants(root, "graphtheory/ops/one.py")), 10**6, seed=0):
        made = one.source(SOURCE)
        assert made is not None and made != SOURCE
        compile(made, one.file, "exec")
    again = [sample(root, list(mutants(root, "graphtheory/ops/one.py")), 5, s) for s in (1, 1, 2)]
    assert again[0] == again[1] != again[2] and len(set(again[0])) == 5


def test_loops_beside_numba_are_compiled() -> None:
    assert not Places(SOURCE).compiled(23)
    places = Places(SOURCE.replace("import annotations", "import annotations  # numba"))
    assert places.compiled(23) and places.compiled(11) and not places.compiled(19)
    assert Places("import llvmlite\n\n\ndef f(x: int) -> int:\n    return x\n").compiled(5)


def test_importers_level_by_level(root: Path) -> None:
    names = [f"graphtheory/ops/{name}.py" for name in ("one", "two", "three")]
    assert levels_above(root, names[0]) == [{names[1]}, {names[2]}]


def known_of(lines: dict[str, list[int]]) -> Known:
    known, seconds = Known(), {"t.py::a": 2.0, "t.py::b[1]": 0.1, "t.py::b[2]": 0.2}
    known.add({"seconds": seconds, "failed": [], "lines": {"graphtheory/ops/one.py": lines}})
    return known


def test_the_tests_of_the_line_then_of_the_function(root: Path) -> None:
    file = "graphtheory/ops/one.py"
    at = {line: Mutant(file, "any", 0, line, 4, False) for line in (11, 15, 17, 19)}
    known = known_of({"17": [0, 1, 2], "19": [0]})
    assert mutation.tests_of(root, at[17], known) == ["t.py::b[1]", "t.py::a", "t.py::b[2]"]
    assert mutation.tests_of(root, at[19], known) == ["t.py::a", "t.py::b[1]", "t.py::b[2]"]
    for line in (15, 11):  # a default, a constant: whoever runs the function, the file
        assert mutation.tests_of(root, at[line], known) == mutation.tests_of(root, at[17], known)
    assert mutation.tests_of(root, at[17], known_of({})) == []


def test_survivors_keep_their_judgment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mutation_record, "FILE", tmp_path / "mutation.json")
    monkeypatch.setattr(mutation_record, "RUNS", tmp_path)
    base = {
        "file": "a.py", "line": 3, "operator": "core/X", "compiled": False, "before": "a",
        "covering": 4, "ran": 4, "cpu": 1.0,
    }  # fmt: skip
    outcomes = ["killed"] * 8 + ["out of time", "survived", "survived"]
    found = [
        base | {"key": [at], "occurrence": at, "after": str(at), "outcome": outcome}
        for at, outcome in enumerate(outcomes)
    ]
    lines = "\n".join(map(json.dumps, found))
    (tmp_path / "seed-3.jsonl").write_text(lines + '\n{"key": [1')  # cut off
    mutation_record.write()
    assert "| seed 3 | Python | 11 | 9 | 1 | 2 | 0 | 0 | 0 | 81.8 % | 81.8 % | 81.8 % |" in (
        mutation_record.table()
    )
    kept = json.loads(mutation_record.FILE.read_text())
    kept["survivors"][1] |= {"verdict": "equivalent", "reason": "x is 1 there"}
    mutation_record.FILE.write_text(json.dumps(kept))
    mutation_record.write()
    assert mutation_record.table().endswith("| 1 | 0 | 0 | 81.8 % | 90.0 % | 90.0 % |")
    line = mutation._line("Python", "mutants")
    mutation._count(line, mutation_record.read(tmp_path / "seed-3.jsonl"))
    assert line.broken == ["a.py:3: 9"] and line.trials == 11


MODULE = """
LIMIT = 3
def f(x, y=2):
    def g(z):
        return z + x
    return g(y) + LIMIT
class A:
    n = 1
    def h(self):
        return self.n + 1
"""


@pytest.mark.parametrize(
    ("old", "new", "names"),
    [
        ("z + x", "z - x", ["f"]), ("+ LIMIT", "- LIMIT", ["f"]), ("self.n + 1", "2", ["h"]),
        ("n + 1", "n + True", ["h"]), ("LIMIT = 3", "LIMIT = 4", None), ("y=2", "y=3", None),
        ("n = 1", "n = 2", None), ("def h(", "@property\n    def h(", None),
    ],
)  # fmt: skip
def test_what_of_a_change_is_within_functions(old: str, new: str, names: list[str] | None) -> None:
    codes = (compile(t, "m.py", "exec") for t in (MODULE, MODULE.replace(old, new, 1)))
    found = differences(*codes)
    assert (None if found is None else [one.co_name for one, _ in found]) == names


def test_functions_that_exist_are_changed_in_place() -> None:
    module, file = ModuleType("m"), "/nowhere/m.py"
    exec(compile(MODULE, file, "exec"), module.__dict__)
    functions, kept = Functions("/nowhere"), module.f
    assert kept(10) == 15 and module.A().h() == 2
    assert not functions.change(file, MODULE, MODULE.replace("y=2", "y=5"), set())
    assert not functions.change(file, MODULE, MODULE.replace("z + x", "z - x"), {6})
    assert kept(10) == 15
    assert functions.change(file, MODULE, MODULE, set()) and kept(10) == 15
    assert functions.change(file, MODULE, MODULE.replace("z + x", "z - x"), {2, 3})
    assert kept(10) == -5
