import csv
import json
import math
from pathlib import Path

import pytest
import torch

from graphtheory.lab.bench.rows import FIELDS, Environment, Row, finite, write_csv


def test_a_row_holds_the_spread_of_its_repeats() -> None:
    row = Row.of("time", [1.0, 2.0, 3.0, 4.0, 10.0], "s", model="gt")
    assert (row.value, row.median, row.repeats) == (4.0, 3.0, 5)
    assert (row.q20, row.q80) == (pytest.approx(1.8), pytest.approx(5.2))
    assert row.std == pytest.approx(12.5**0.5)
    assert row.parameters == {"model": "gt"}
    one = Row.of("nodes", 34, "1")
    assert {one.value, one.median, one.q20, one.q80} == {34.0}
    assert (one.repeats, one.std) == (1, None)
    assert Row.of("peak memory", [1.0, math.nan], "MB").std is None
    with pytest.raises(ValueError, match="values: none for 'time'"):
        Row.of("time", [], "s")


def test_the_file_has_a_line_a_row_with_the_environment(tmp_path: Path) -> None:
    here = Environment("cpu, 2 threads", {"torch": "2.13", "numpy": "2.4"}, "abc")
    path = tmp_path / "rows.csv"
    rows = [Row.of("time", [0.1, 0.3], "s", model="a,b", seed=1), Row.of("nodes", 34, "1")]
    write_csv(path, rows, here)
    with path.open(newline="", encoding="utf-8") as file:
        line, alone = csv.DictReader(file)
    assert tuple(line) == FIELDS
    assert line["parameters"] == "model=a,b; seed=1"
    assert line["versions"] == "torch=2.13; numpy=2.4"
    assert (line["device"], line["commit"]) == ("cpu, 2 threads", "abc")
    assert float(line["value"]) == pytest.approx(0.2)
    assert float(line["std"]) == pytest.approx(0.2 / 2**0.5)
    assert alone["std"] == ""
    here = Environment.here()
    assert here.versions["torch"] == torch.__version__
    assert here.device and "python" in here.versions
    assert bool(here.commit) == (Path(__file__).parents[3] / ".git").exists()


def test_json_gets_null_for_what_is_not_finite() -> None:
    value = {"a": [1.0, math.nan, {"b": math.inf}], "c": (2, "x"), "d": None}
    text = json.dumps(finite(value), allow_nan=False)
    assert json.loads(text) == {"a": [1.0, None, {"b": None}], "c": [2, "x"], "d": None}
