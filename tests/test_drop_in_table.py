"""Each test that docs/pyg_tests.md names exists, and it has every file of docs/drop_in.md."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
ROW = re.compile(r"^\| (?:`(test_\w+\.py)::\w+` )?\|[^|]+\| `(\w+/test_\w+\.py)::(\w+)` \|$")
FOLDERS = {"conv": "nn/conv", "integrations": "integrations"}
LINE = re.compile(r"^\| `(test_\w+\.py)` \| \d+ \|", re.MULTILINE)


def rows_of(page: str) -> list[tuple[str, str, str]]:
    """(file of PyG or "", file of ours, test of ours) of each row; a row of another form fails."""
    lines = [line for line in page.splitlines() if line.startswith("|")][2:]
    found = [ROW.match(line) for line in lines]
    wrong = [line for line, match in zip(lines, found, strict=True) if match is None]
    assert not wrong
    return [(m[1] or "", m[2], m[3]) for m in found if m is not None]


def missing(rows: list[tuple[str, str, str]]) -> list[str]:
    """Named tests of ours that do not exist."""
    out = []
    for _, path, name in rows:
        folder, file = path.split("/")
        source = (ROOT / "tests" / FOLDERS[folder] / file).read_text(encoding="utf-8")
        if name not in {n.name for n in ast.parse(source).body if isinstance(n, ast.FunctionDef)}:
            out.append(f"{path}::{name}")
    return out


def test_equivalents_of_pygs_tests_exist() -> None:
    rows = rows_of((ROOT / "docs" / "pyg_tests.md").read_text(encoding="utf-8"))
    assert missing(rows) == []
    assert missing([("", "conv/test_gat_conv.py", "test_nothing")])  # the check can fail
    page = (ROOT / "docs" / "drop_in.md").read_text(encoding="utf-8")
    assert {file for file, _, _ in rows if file} == set(LINE.findall(page))
