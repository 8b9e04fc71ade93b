"""Damaged files of every format that the library writes: each is refused, or read as it was."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch_geometric.data import Data

from battery.line import Line, timed
from graphtheory.data.loaders import GraphFolder
from graphtheory.lab.bench.finished import Finished
from graphtheory.lab.datasets.files import read_arrays, write_arrays
from graphtheory.lab.train import checkpoint

DAMAGES = 1_500  # of a format
_BLOCK = 512


@dataclass(frozen=True)
class Format:
    """A file that the library writes.

    Attributes:
        name: In words.
        write: Makes one in an empty folder; returns the file that is damaged.
        read: What the file holds; raises, warns or returns None where that is refused.
        same: (what is read, what was written) -> whether nothing of it is wrong.
        unsafe: The same with a reader that checks nothing, for the control.
    """

    name: str
    write: Callable[[Path], Path]
    read: Callable[[Path], Any]
    same: Callable[[Any, Any], bool]
    unsafe: Callable[[Path], Any]


def _content() -> dict[str, Any]:
    generator = torch.Generator().manual_seed(0)
    return {"state_dict": {"w": torch.randn(40, 30, generator=generator)}, "epoch": 7}


def _write_checkpoint(folder: Path) -> Path:
    path = folder / "last.ckpt"
    checkpoint.write_checkpoint(path, _content())
    return path


def _same_checkpoint(found: Any, expected: Any) -> bool:
    return torch.equal(found["state_dict"]["w"], expected["state_dict"]["w"]) and (
        found["epoch"] == expected["epoch"]
    )


def _write_cache(folder: Path) -> Path:
    path = folder / "arrays.npz"
    write_arrays(path, {"x": np.arange(900.0)})
    return path


def _unsafe_cache(path: Path) -> Any:
    content = path.read_bytes()
    start = content.index(b"\x93NUMPY") + 128  # the header of an array
    return {"x": np.frombuffer(content[start : start + 8 * 900])}


def _same_arrays(found: Any, expected: Any) -> bool:
    return found.keys() == expected.keys() and all(
        np.array_equal(found[name], expected[name]) for name in expected
    )


def _write_lines(folder: Path) -> Path:
    runs: Finished[Any] = Finished(folder / "runs.jsonl")
    for seed in range(20):
        runs.add({"seed": seed, "width": 64}, [{"score": 0.5 + seed / 1000, "text": "accuracy"}])
    assert runs.path is not None
    return runs.path


def _read_lines(path: Path) -> Any:
    runs: Finished[Any] = Finished(path)
    return {seed: runs.find({"seed": seed, "width": 64}) for seed in range(20)}


def _unsafe_lines(path: Path) -> Any:
    import json

    lines = [json.loads(text) for text in path.read_text(errors="replace").splitlines()]
    return {line["settings"]["seed"]: line["rows"] for line in lines}


def _none_wrong(found: Any, expected: Any) -> bool:
    """A run that is missing is made again; one that is there has to be what was written."""
    return all(value is None or value == expected.get(seed) for seed, value in found.items())


def _write_graph(folder: Path) -> Path:
    generator = torch.Generator().manual_seed(0)
    edges = torch.randint(100, (2, 400), generator=generator)
    data = Data(x=torch.randn(100, 3, generator=generator), edge_index=edges)
    GraphFolder.write(data, folder / "graph")
    return folder / "graph" / "x.x.npy"


def _read_graph(path: Path) -> Any:
    folder = GraphFolder(path.parent)
    folder.verify()
    return {name: value.numpy().copy() for name, value in folder.node.items()}


def _unsafe_graph(path: Path) -> Any:
    return {"x": np.load(path)}


FORMATS = (
    Format(
        "checkpoint", _write_checkpoint, checkpoint.read_checkpoint, _same_checkpoint,
        lambda path: torch.load(path, weights_only=True),
    ),
    Format("cache of a data set", _write_cache, read_arrays, _same_arrays, _unsafe_cache),
    Format("record of finished runs", _write_lines, _read_lines, _none_wrong, _unsafe_lines),
    Format("graph folder, verified", _write_graph, _read_graph, _same_arrays, _unsafe_graph),
)  # fmt: skip


def damaged(content: bytes, rng: np.random.Generator) -> bytes:
    """Cut short at any byte, one bit flipped, or up to 512 bytes zeroed."""
    kind, at = rng.random(), int(rng.integers(len(content)))
    if kind < 0.2:
        return content[:at]
    changed = bytearray(content)
    if kind < 0.87:
        changed[at] ^= 1 << int(rng.integers(8))
    else:
        changed[at : at + _BLOCK] = bytes(len(changed[at : at + _BLOCK]))
    return bytes(changed)


def damage(share: float, seed: int) -> list[Line]:
    """A line for each format."""
    return [_of_format(one, round(share * DAMAGES), seed) for one in FORMATS]


def _of_format(form: Format, count: int, seed: int) -> Line:
    line = Line(
        "damage", f"{form.name}: no damaged file is read as if it were whole",
        "the same damages under a reader that checks nothing, wrong values read", least_caught=0.02,
    )  # fmt: skip
    rng = np.random.default_rng(seed)
    with timed(line), tempfile.TemporaryDirectory() as home, warnings.catch_warnings():
        warnings.simplefilter("error")
        path = form.write(Path(home))
        whole, expected = path.read_bytes(), form.read(path)
        for number in range(count):
            content = damaged(whole, rng)
            if content == whole:
                continue  # zeros over zeros
            line.trials += 1
            path.write_bytes(content)
            if _wrong(form.read, form.same, path, expected):
                line.broken.append(f"damage {number} of {form.name} is not noticed")
            path.write_bytes(content)
            line.planted += 1
            line.caught += _wrong(form.unsafe, form.same, path, expected)
    return line


def _wrong(read: Callable[[Path], Any], same: Any, path: Path, expected: Any) -> bool:
    """Whether a reader returns something that is not what was written."""
    try:
        found = read(path)
        return found is not None and not same(found, expected)
    except Exception:  # refused, in whatever words
        return False
