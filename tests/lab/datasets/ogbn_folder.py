"""Small graphs in the raw format of OGB's node data sets."""

import gzip
from pathlib import Path
from typing import Any

import numpy as np

NODES, EDGES = 30, 80
_SPLITS = {"arxiv": "time", "products": "sales_ranking", "proteins": "species"}


def write_ogbn(root: Path, name: str, seed: int = 0, **given: Any) -> dict[str, np.ndarray]:
    """A random graph in the layout of the archive of ogbn-NAME; its rows by file."""
    draw, folder = np.random.default_rng(seed), root / f"ogbn_{name}"
    rows: dict[str, np.ndarray] = {
        "edge": draw.integers(NODES, size=(EDGES, 2)),
        "num-node-list": np.array([NODES]),
        "num-edge-list": np.array([EDGES]),
    }
    if name == "proteins":
        rows |= {"edge-feat": draw.random((EDGES, 8)), "node_species": np.full((NODES, 1), 3702)}
        rows |= {"node-label": draw.integers(2, size=(NODES, 112))}
    else:
        rows |= {"node-feat": draw.normal(size=(NODES, 4))}
        rows |= {"node-label": draw.integers(3, size=(NODES, 1))}
    if name == "arxiv":
        rows["node_year"] = np.full((NODES, 1), 2015)
    rows |= given
    for part, values in rows.items():
        _csv(folder / f"raw/{part}.csv.gz", values)
    order = draw.permutation(NODES)
    for part, ids in zip(("train", "valid", "test"), np.split(order, [18, 24]), strict=True):
        _csv(folder / f"split/{_SPLITS[name]}/{part}.csv.gz", ids)
    (folder / "RELEASE_v1.txt").write_text("")
    return rows


def _csv(path: Path, rows: np.ndarray) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    text = "\n".join(",".join(map(str, np.atleast_1d(row))) for row in rows)
    path.write_bytes(gzip.compress(text.encode()))
