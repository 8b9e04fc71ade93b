"""The committed rows of `ops.py`, `memory.py` and `topk.py` as tables in Markdown.

    python benchmarks/summary.py

It measures nothing: it prints what stands in a file of results, medians of paired rounds.
"""

from __future__ import annotations

import csv
from pathlib import Path

import tyro

COLUMNS = {
    "PyG": "times faster than PyG: graphtheory",
    "compiled": "times faster than PyG, compiled: graphtheory",
    "with a bias by distance": "times faster than PyG: graphtheory, bucket bias",
    "edges sorted anew": "times faster than PyG: graphtheory, neighborhood built anew",
    "GAT's attention": "times faster than PyG, attention of GAT: graphtheory, attention of GAT",
    "GATConv": "times faster than PyG GATConv: graphtheory GATConv",
    "2 threads against 1": "times faster on 2 threads than on 1",
    "the same of a copy": "times a copy is faster on 2 threads",
    "cost of the bias (%)": "extra time for a bucket bias",
}
MEMORY = {
    "share of PyG's (%)": "extra peak memory as a share of PyG's",
    "bytes an edge": "extra memory of an edge, graphtheory",
    "PyG's bytes an edge": "extra memory of an edge, PyG",
}
OURS = "topk_attention"
TOPK = {
    f"{what} of {form}": f"{what}, {form} over {OURS}"
    for what in ("forward+backward", "extra peak memory")
    for form in ("masked form", "dense attention")
}


def read(path: Path) -> list[dict[str, str]]:
    """Rows, their parameters as columns besides."""
    with path.open(newline="", encoding="utf-8") as file:
        lines = list(csv.DictReader(file))
    for line in lines:
        line |= dict(pair.split("=") for pair in line["parameters"].split("; ") if pair)
    return lines


def table(lines: list[dict[str, str]], columns: dict[str, str], of: tuple[str, ...]) -> str:
    """One line for each setting of `of` that has the first of the columns."""
    found: dict[tuple[str, ...], dict[str, str]] = {}
    for line in lines:
        key = tuple(line.get(name, "") for name in of)
        if line["name"] in columns.values():
            found.setdefault(key, {})[line["name"]] = _entry(line)
    first = next(iter(columns.values()))
    out = [["graph", *columns], ["---"] * (1 + len(columns))]
    for key, values in found.items():
        if first in values:
            out.append([_setting(of, key), *(values.get(name, "-") for name in columns.values())])
    return "\n".join(f"| {' | '.join(cells)} |" for cells in out)


def _setting(of: tuple[str, ...], key: tuple[str, ...]) -> str:
    known = dict(zip(of, key, strict=True))
    shape = f"{known.pop('heads')} x {known.pop('head_dim')}"
    rest = [v if k == "graph" else f"{k} {v}" for k, v in known.items() if v]
    return ", ".join([*rest, shape])


def _entry(line: dict[str, str]) -> str:
    """The median and the quantiles 0.2 and 0.8."""
    percent = "share" in line["name"] or "extra time" in line["name"]
    numbers = [float(line[name]) * (100 if percent else 1) for name in ("median", "q20", "q80")]
    digits = 0 if line["unit"] == "B" else 1
    median, low, high = (f"{n:.{digits}f}" for n in numbers)
    return f"{median} ({low} to {high})"


def main(file: Path = Path(__file__).parent / "results" / "cpu.csv") -> None:
    """Print the tables.

    Args:
        file: Rows, as the benchmarks write them.
    """
    lines = read(file)
    shape = ("heads", "head_dim")
    print("Times faster, forward and backward\n")
    print(table(lines, COLUMNS, ("graph", *shape)))
    print("\nExtra peak memory\n")
    print(table(lines, MEMORY, ("nodes", "edges", *shape)))
    print("\nK-nearest attention: what others need, as a multiple\n")
    print(table(lines, TOPK, ("batch", "tokens", "k", *shape)))


if __name__ == "__main__":
    tyro.cli(main)
