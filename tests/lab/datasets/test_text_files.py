"""Files of text: no line is lost whatever it ends with, and what is wrong is named by its line."""

import csv
import gzip
import io
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from graphtheory.lab.datasets import graph_readers
from graphtheory.lab.datasets.files import DamagedFileError
from graphtheory.lab.datasets.graphs import load_graphs
from tests.lab.datasets.conftest import needs_rdkit

ENDS: dict[str, Callable[[str], str]] = {
    "no last end": lambda text: text.removesuffix("\n"),
    "CRLF": lambda text: text.replace("\n", "\r\n"),
    "CRLF, no last end": lambda text: text.replace("\n", "\r\n").removesuffix("\r\n"),
    "spaces at the end": lambda text: text.replace("\n", "  \n"),
    "empty last lines": lambda text: text + "\n \n\n",
    "byte order mark": lambda text: "\ufeff" + text,
}
SIZES = (3, 2, 4, 3)
GRAPH = [number for number, size in enumerate(SIZES, 1) for _ in range(size)]
PAIRS = [(1, 2), (2, 1), (2, 3), (3, 2), (4, 5), (5, 4), (6, 9), (9, 6), (10, 12), (12, 10)]
TU = {
    "A": [f"{a}, {b}" for a, b in PAIRS],
    "graph_indicator": GRAPH,
    "graph_labels": (1, -1, 1, -1),
    "node_labels": [node % 3 for node in range(12)],
    "node_attributes": [f"{node}.5, -{node}e-1" for node in range(12)],
    "edge_labels": [edge % 2 for edge in range(10)],
    "edge_attributes": [edge / 4 for edge in range(10)],
    "graph_attributes": [f"{graph}.25" for graph in range(4)],
}
SETS = {"labels": set(TU) - {"graph_attributes"}, "values": set(TU) - {"graph_labels"}}


def read_tu(root: Path, parts: set[str], change: dict[str, str]) -> dict[str, torch.Tensor]:
    folder = root / "TUDataset/own/raw"
    folder.mkdir(parents=True)
    for part in parts:
        text = "".join(f"{line}\n" for line in TU[part])
        (folder / f"own_{part}.txt").write_bytes(change.get(part, text).encode())
    return dict(load_graphs("own", root)._data.to_dict())


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("name", SETS)
def test_no_line_of_a_tudataset_is_lost(tmp_path: Path, name: str, end: str) -> None:
    parts = SETS[name]
    wanted = read_tu(tmp_path / "whole", parts, {})
    assert wanted["edge_index"].shape == (2, 10) and wanted["x"].shape == (12, 5)
    for part in parts:
        text = ENDS[end]("".join(f"{line}\n" for line in TU[part]))
        found = read_tu(tmp_path / part, parts, {part: text})
        assert found.keys() == wanted.keys(), part
        assert all(torch.equal(found[name], wanted[name]) for name in wanted), part


def test_the_table_sees_pygs_own_reader(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(graph_readers, "_check_tables", lambda folder, name: None)
    monkeypatch.setenv("GRAPHTHEORY_CACHE", str(tmp_path / "cache"))
    wanted = read_tu(tmp_path / "whole", SETS["labels"], {})
    text = "\n".join(TU["A"])
    with pytest.raises(DamagedFileError):  # attributes of an edge that is lost
        read_tu(tmp_path / "1", SETS["labels"], {"A": text})
    bare = {"A", "graph_indicator", "graph_labels"}
    assert read_tu(tmp_path / "2", bare, {"A": text})["edge_index"].size(1) == 9
    assert wanted["edge_index"].size(1) == 10


def changed(part: str, line: int, to: object) -> dict[str, str]:
    lines = [str(one) for one in TU[part]]
    lines[line : line + 1] = [] if to is None else [str(to)]
    return {part: "".join(f"{one}\n" for one in lines)}


@pytest.mark.parametrize(("change", "told"), [
    (changed("A", 3, "3 2"), "own_A.txt: row 4, '3 2': ValueError, invalid literal for int()"),
    (changed("A", 3, ""), "own_A.txt: row 4, '': ValueError, invalid literal"),
    (changed("A", 0, "1, x"), "own_A.txt: row 1, '1, x': ValueError, invalid literal"),
    (changed("A", 2, "2, 3, 4"), "own_A.txt: row 3, '2, 3, 4': ValueError, 3 values"),
    (changed("A", 1, "0, 1"), "own_A.txt: 10 lines, 2 columns, 0 to 12, expected 2 or"),
    (changed("A", 1, "2, 13"), "own_A.txt: 10 lines, 2 columns, 1 to 13, expected 2 o"),
    ({"A": ""}, "own_A.txt: row 1, '': ValueError"),
    ({"A": "1\n2\n"}, "own_A.txt: 2 lines, 1 columns, 1 to 2, expected 2 or more pairs"),
    ({"A": "1, 2\n"}, "own_A.txt: 1 lines, 2 columns, 1 to 2, expected 2 or more pairs"),
    (changed("graph_indicator", 5, 1), "own_graph_indicator.txt: line 6 is [1], expected"),
    (changed("graph_indicator", 0, 0), "own_graph_indicator.txt: line 1 is [0], expected"),
    (changed("graph_indicator", 0, "1.0"), "own_graph_indicator.txt: row 1, '1.0': ValueError"),
    (changed("graph_labels", 3, None), "own_graph_labels.txt: 3 lines, expected 4, one"),
    (changed("graph_labels", 2, "a"), "own_graph_labels.txt: row 3, 'a': ValueError"),
    ({"graph_labels": "0, 1\n" * 4}, "own_graph_labels.txt: 2 columns, expected one class"),
    ({"graph_labels": "3\n" * 4}, "y: got 1 class in all graphs, expected at least 2"),
    (changed("node_labels", 3, 10**9), "own_node_labels.txt: labels 0 to 1000000000, each"),
    (changed("node_labels", 11, None), "own_node_labels.txt: 11 lines, expected 12, one for"),
    (changed("node_attributes", 4, "1.5"), "own_node_attributes.txt: row 5, '1.5': V"),
    (changed("node_attributes", 4, "1,nan"), "graph 1: x holds nan, expected finite numbers"),
    (changed("edge_labels", 0, "0\n0"), "own_edge_labels.txt: 11 lines, expected 10, one for"),
    (changed("edge_attributes", 9, "1;2"), "own_edge_attributes.txt: row 10, '1;2': V"),
], ids=str)  # fmt: skip
def test_what_is_wrong_in_a_tudataset_is_named(tmp_path: Path, change, told: str) -> None:
    with pytest.raises(DamagedFileError, match=re.escape(told)):
        read_tu(tmp_path, SETS["labels"], change)


SAT = "2\n2 1\n0 1 1\n1 1 0\n3 0\n0 1 1\n1 2 0 2\n0 1 1\n"


@pytest.mark.parametrize("end", [end for end in ENDS if end != "byte order mark"])
def test_no_line_of_exp_is_lost(tmp_path: Path, end: str) -> None:
    (tmp_path / "EXP.txt").write_bytes(ENDS[end](SAT).encode())
    found = graph_readers.graphsat(tmp_path / "EXP.txt")
    assert [graph.num_edges for graph in found] == [2, 4] and found[1].y.tolist() == [0]


@pytest.mark.parametrize(("text", "told"), [
    (SAT.replace("1 2 0 2", "1 2 0 x"), "EXP.txt: row 7, '1 2 0 x': ValueError"),
    (SAT.replace("1 2 0 2", ""), "EXP.txt: line 5: a graph of 3 nodes does not"),
    (SAT.replace("1 2 0 2", "1 2 0"), "EXP.txt: line 5: a graph of 3 nodes does not fit"),
    (SAT.replace("1 2 0 2", "1"), "EXP.txt: line 5: a graph of 3 nodes does not fit"),
    (SAT.replace("2\n2", "3\n2"), "EXP.txt: line 9: a graph of 0 nodes does not fit the lines"),
    (SAT.replace("2\n2", "1\n2"), "EXP.txt: 4 lines behind the last of 1"),
    ("", "EXP.txt: 0 lines behind the last of 0"),
])  # fmt: skip
def test_what_is_wrong_in_exp_is_named(tmp_path: Path, text: str, told: str) -> None:
    (tmp_path / "EXP.txt").write_text(text)
    with pytest.raises(ValueError, match=re.escape(told)):
        graph_readers.graphsat(tmp_path / "EXP.txt")


def table(*rows: object) -> str:
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="\n").writerows(rows)
    return buffer.getvalue()


FREESOLV = [["iupac", "smiles", "expt", "calc"], *([f"a, {n}", "C" * n, n / 2, 0] for n in range(1, 9))]  # fmt: skip # noqa: E501
PEPTIDES = [["", "smiles", "labels"], *([n, "C" * (n + 1), f"[{n % 2}, 1]"] for n in range(6))]


def read_free(root: Path, text: str) -> Any:
    folder = root / "MoleculeNet/freesolv/raw"
    folder.mkdir(parents=True)
    (folder / "SAMPL.csv").write_bytes(text.encode())
    return load_graphs("freesolv", root)


def read_peptides(root: Path, text: str, train: str = "0\n2\n5\n") -> Any:
    folder = root / "LRGB/peptides-functional"
    for part in ("raw", "split"):
        (folder / part).mkdir(parents=True)
    packed = gzip.compress(text.encode())
    (folder / "raw/peptide_multi_class_dataset.csv.gz").write_bytes(packed)
    for part, listed in (("train", train), ("val", "1\n3"), ("test", "4")):
        (folder / f"split/{part}.csv").write_bytes(listed.encode())
    return load_graphs("peptides-func", root)


@needs_rdkit
@pytest.mark.usefixtures("any_counts")
@pytest.mark.parametrize("end", ENDS)
def test_no_row_of_molecules_is_lost(tmp_path: Path, end: str) -> None:
    for number, (read, rows) in enumerate(((read_free, FREESOLV), (read_peptides, PEPTIDES))):
        made = read(tmp_path / f"{number}", ENDS[end](table(*rows)))
        assert len(made) == len(rows) - 1
    found = read_peptides(tmp_path / "split", table(*PEPTIDES), ENDS[end]("0\n2\n5\n"))
    assert found.train_index.tolist() == [0, 2, 5]


@needs_rdkit
@pytest.mark.usefixtures("any_counts")
@pytest.mark.parametrize(("read", "rows", "told"), [
    (read_free, [*FREESOLV, ["a", "C", "high", 0]], "SAMPL.csv: row 8: ValueError"),
    (read_free, [*FREESOLV, ["a"]], "SAMPL.csv: row 8: IndexError"),
    (read_free, [*FREESOLV, ["a", "C"]], "SAMPL.csv: row 8: ValueError, 0 values, expected 1"),
    (read_peptides, [["", "text", "labels"], [0, "C", "[1]"]], "row 0: KeyError, 'smiles'"),
    (read_peptides, [*PEPTIDES, [6, "C", "[1"]], "csv.gz: row 6: JSONDecodeError"),
    (read_peptides, [*PEPTIDES, [6, "C", "[1]"]], "gz: row 6: ValueError, 1 values, exp"),
    (read_peptides, [*PEPTIDES, [6, "C"]], "gz: row 6: TypeError"),
])  # fmt: skip
def test_what_is_wrong_in_a_table_of_molecules_is_named(tmp_path, read, rows, told: str) -> None:
    with pytest.raises(DamagedFileError, match=re.escape(told)):
        read(tmp_path, table(*rows))


@needs_rdkit
@pytest.mark.usefixtures("any_counts")
@pytest.mark.parametrize(
    ("line", "told"), [("-1", "-1 is not in"), ("6", "6 is not in"), ("x", "")]
)
def test_a_row_that_is_not_there_is_named(tmp_path: Path, line: str, told: str) -> None:
    told = rf"train.csv: row 1, '{line}': ValueError, .*{told}"
    with pytest.raises(DamagedFileError, match=told):
        read_peptides(tmp_path, table(*PEPTIDES), f"0\n{line}\n")
