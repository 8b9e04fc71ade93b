"""Files that want to run something: none is obeyed."""

from __future__ import annotations

import io
import pickle
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch_geometric.data import Data

from battery.line import Line, timed
from graphtheory.data.loaders import GraphFolder
from graphtheory.lab.datasets import safe_pickle
from graphtheory.lab.datasets.files import read_arrays
from graphtheory.lab.datasets.own_graphs import read_graph_file
from graphtheory.lab.train import read_checkpoint
from graphtheory.lab.train.checkpoint import _sealed

Reader = Callable[[Path], Any]


class _Call:
    """Unpickling it calls a function."""

    def __init__(self, function: Callable[..., Any], *args: Any) -> None:
        self.function, self.args = function, args

    def __reduce__(self) -> tuple[Any, ...]:
        return self.function, self.args


def payloads(mark: Path) -> dict[str, Any]:
    """Objects whose unpickling leaves the file `mark`, each by another way."""
    import importlib
    import os
    import runpy
    import shutil
    import subprocess

    script = mark.with_name("script.py")
    script.write_text(f"open({str(mark)!r}, 'w').close()\n")
    touch = f"open({str(mark)!r}, 'w').close()"
    return {
        "os.system": _Call(os.system, f"touch {mark}"),
        "subprocess": _Call(subprocess.call, ["touch", str(mark)]),
        "exec": _Call(exec, touch),
        "eval": _Call(eval, touch),
        "open": _Call(open, str(mark), "w"),
        "runpy": _Call(runpy.run_path, str(script)),
        "shutil": _Call(shutil.copy, str(script), str(mark)),
        "import": _Call(importlib.import_module("posix").open, str(mark), os.O_CREAT),
    }


def _torch(content: Any, path: Path) -> None:
    torch.save(content, path)


def _sealed_checkpoint(content: Any, path: Path) -> None:
    """With the digest that the reader expects: whoever writes a file can write that, too."""
    buffer = io.BytesIO()
    torch.save({"state_dict": {}, "epoch": 1, "more": content}, buffer)
    path.write_bytes(_sealed(bytearray(buffer.getbuffer())))


def _legacy(content: Any, path: Path) -> None:
    torch.save(content, path, _use_new_zipfile_serialization=False)


def _beside_a_graph(content: Any, path: Path) -> None:
    torch.save([Data(x=torch.ones(2, 1), y=torch.ones(1)), content], path)


def _plain(content: Any, path: Path) -> None:
    path.write_bytes(pickle.dumps(content))


def _in_an_array(content: Any, path: Path) -> None:
    path.write_bytes(pickle.dumps(np.array([content], dtype=object)))


def _cached(content: Any, path: Path) -> None:
    import hashlib

    buffer = io.BytesIO()
    np.savez(buffer, x=np.array([content], dtype=object))
    whole = buffer.getvalue()
    path.write_bytes(hashlib.sha256(whole).digest() + whole)


def _in_a_folder(content: Any, path: Path) -> None:
    data = Data(x=torch.eye(3), edge_index=torch.tensor([[0, 1], [1, 2]]))
    GraphFolder.write(data, path)
    np.save(path / "x.x.npy", np.array([content] * 3, dtype=object))


def _unpickle(path: Path) -> Any:
    return safe_pickle.read(path, safe_pickle.TENSORS)


PLACES: dict[str, tuple[Callable[[Any, Path], None], Reader]] = {
    "checkpoint": (_sealed_checkpoint, read_checkpoint),
    "user's file": (_torch, read_graph_file),
    "user's file, old format": (_legacy, read_graph_file),
    "user's list of graphs": (_beside_a_graph, read_graph_file),
    "raw pickle of a data set": (_plain, _unpickle),
    "array in a raw pickle": (_in_an_array, _unpickle),
    "cache": (_cached, read_arrays),
    "graph folder": (_in_a_folder, GraphFolder),
}
"""Where a payload may lie -> how it gets there, and what reads it."""


def _read_by_pickle(path: Path) -> Any:
    """What a reader does that trusts its file."""
    if path.is_dir():
        return np.load(path / "x.x.npy", allow_pickle=True)
    content = path.read_bytes()
    for attempt in (
        lambda: torch.load(path, weights_only=False),
        lambda: pickle.loads(content),
        lambda: dict(np.load(io.BytesIO(content[32:]), allow_pickle=True)),
    ):
        try:
            return attempt()
        except Exception:  # of another format
            continue
    return None


def hostile(share: float, seed: int) -> list[Line]:
    """Every payload in every place; the share does not matter."""
    line = Line(
        "hostile", "no file runs anything, and each is refused",
        "the same files under readers that trust them", least_caught=0.95,
    )  # fmt: skip
    with timed(line), tempfile.TemporaryDirectory() as home, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for number, (what, where, content, mark) in enumerate(_files(Path(home))):
            write, read = PLACES[where]
            path = Path(home) / f"file-{number}"
            write(content, path)
            mark.unlink(missing_ok=True)
            line.trials += 1
            accepted = _accepted(read, path)
            if accepted or mark.exists():
                line.broken.append(f"{what} in a {where}: {'run' if mark.exists() else 'accepted'}")
            mark.unlink(missing_ok=True)
            line.planted += 1
            _read_by_pickle(path)
            line.caught += mark.exists()
    return [line]


def _accepted(read: Reader, path: Path) -> bool:
    try:
        return read(path) is not None
    except Exception:  # refused, in whatever words
        return False


def _files(home: Path) -> Iterator[tuple[str, str, Any, Path]]:
    mark = home / "ran"
    for where in PLACES:
        for what, content in payloads(mark).items():
            yield what, where, content, mark
