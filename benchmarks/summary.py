"""The committed rows of `ops.py`, `memory.py` and `topk.py` as tables in Markdown.

    python benchmarks/summary.py

It measures nothing: it prints what stands in a file of results, medians of paired rounds.
"""

from __future__ import annotations

import csv
from pathlib import Path
from statistics import median

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
    "the same in int32 (%)": "extra peak memory in int32 as a share of PyG's",
    "bytes an edge": "extra memory of an edge, graphtheory",
    "PyG's bytes an edge": "extra memory of an edge, PyG",
}
FILE = Path(__file__).parent / "results" / "cpu.csv"
SHAPE = ("heads", "head_dim")
QUANTILES = ("median", "q20", "q80")
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
            found.setdefault(key, {}).update({line["name"]: _entry(line), "device": _device(line)})
    first = next(iter(columns.values()))
    out = [["graph", *columns, "processor"], ["---"] * (2 + len(columns))]
    for key, values in found.items():
        if first in values:
            entries = (values.get(name, "-") for name in (*columns.values(), "device"))
            out.append([_setting(of, key), *entries])
    return "\n".join(f"| {' | '.join(cells)} |" for cells in out)


def middle(lines: list[dict[str, str]]) -> str:
    """One more line: the medians of the columns of speed over graphs and shapes."""
    cells = []
    for name in COLUMNS.values():
        found = [line for line in lines if line["name"] == name]
        middles = (median(float(line[q]) for line in found) for q in QUANTILES)
        cells.append(_entry(found[0] | dict(zip(QUANTILES, map(str, middles), strict=True))))
    return f"| median of these | {' | '.join(cells)} | |"


def _setting(of: tuple[str, ...], key: tuple[str, ...]) -> str:
    known = dict(zip(of, key, strict=True))
    shape = f"{known.pop('heads')} x {known.pop('head_dim')}"
    rest = [v if k == "graph" else f"{k} {v}" for k, v in known.items() if v]
    return ", ".join([*rest, shape])


def _device(line: dict[str, str]) -> str:
    return line["device"].split(",")[0].replace("(R)", "").removesuffix(" Processor")


def _entry(line: dict[str, str]) -> str:
    """The median and the quantiles 0.2 and 0.8."""
    percent = "share" in line["name"] or "extra time" in line["name"]
    numbers = [float(line[name]) * (100 if percent else 1) for name in QUANTILES]
    digits = 0 if line["unit"] == "B" else 1
    half, low, high = (f"{n:.{digits}f}" for n in numbers)
    return f"{half} ({low} to {high})"


def speed(lines: list[dict[str, str]] | None = None) -> str:
    """Forward and backward, times faster than others."""
    lines = lines or read(FILE)
    return f"{table(lines, COLUMNS, ('graph', *SHAPE))}\n{middle(lines)}"


def memory(lines: list[dict[str, str]] | None = None) -> str:
    """Extra peak memory of a step."""
    return table(lines or read(FILE), MEMORY, ("nodes", "edges", *SHAPE))


def nearest(lines: list[dict[str, str]] | None = None) -> str:
    """K-nearest attention: what others need, as a multiple."""
    return table(lines or read(FILE), TOPK, ("batch", "tokens", "k", *SHAPE))


def main(file: Path = FILE) -> None:
    """Print the tables of the documentation.

    Args:
        file: Rows, as the benchmarks write them.
    """
    lines = read(file)
    for made in (speed, memory, nearest):
        print(f"{made.__doc__}\n\n{made(lines)}\n")


if __name__ == "__main__":
    tyro.cli(main)
