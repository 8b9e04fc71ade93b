"""Files that a grammar writes: none is obeyed, none crashes its reader, none leads out of a folder.

A child process reads many files, one after the other, and touches what it got; one that dies names
the file that it was reading.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import pickle
import random
import resource
import shutil
import signal
import struct
import tempfile
import time
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.sparse import csr_matrix, issparse
from torch_geometric.data import Data

from battery.forked import printed
from battery.line import Line
from graphtheory import ops
from graphtheory.data.loaders import GraphFolder
from graphtheory.data.loaders.folder import _digest_of
from graphtheory.lab.datasets import safe_pickle
from graphtheory.lab.datasets.files import read_arrays
from graphtheory.lab.datasets.own_graphs import read_graph_file

FILES, BATCH, MEMORY = 5_000, 500, 12 * 2**30  # of a format; of a child; bytes that a child gets
SECONDS = 20  # that a file may take
OUTSIDE = 1234.5
_KNOWN = {**safe_pickle.MATRICES, **safe_pickle.TENSORS}
_HOSTILE = [("os", "system"), ("builtins", "exec"), ("builtins", "getattr"), ("posix", "system")]
_NAMES = [*_KNOWN, *_HOSTILE, ("numpy", "ndarray.__setstate__"), ("torch", "Tensor")]
_NUMBERS = [0, 1, 2, 3, 7, -1, 255, 2**31, 2**62, -(2**63), True, False, None, 1.5]
_TYPES = ["i8", "f4", "<f8", "O", "O8", "V8", "M8[ns]", "S4", "i4,f8", "u1", "b1", ">i4", "(2,)i4"]


class Forged:
    """An object that a pickle makes by a call of `name`, and gives a state."""

    def __init__(self, name: Any, args: Any, state: Any = None) -> None:
        self.parts = (name, tuple(args)) if state is None else (name, tuple(args), state)

    def __reduce__(self) -> tuple[Any, ...]:
        return self.parts


def _numbers(rng: random.Random, most: int = 4) -> tuple[Any, ...]:
    return tuple(rng.choice(_NUMBERS) for _ in range(rng.randrange(most)))


def _forged_array(rng: random.Random) -> Any:
    state = (3, rng.choice("<>|=O"), None, None, None, rng.choice([-1, 8]), -1, rng.choice([0, 63]))
    kind = Forged(np.dtype, (rng.choice(_TYPES), *rng.choice([(0, 1), (), (1, 1)])), state)
    shape = rng.choice([(4,), (2, 2), (0,), (2**40,), _numbers(rng)])
    content = rng.choice([b"A" * 32, b"A" * 16, b"", [1, 2], "A" * 32])
    made = np.empty(0).__reduce__()[0]
    return Forged(made, (np.ndarray, (0,), b"b"), (1, shape, kind, rng.choice([0, 1]), content))


def _forged_tensor(rng: random.Random) -> Any:
    make, (storage, *_) = torch.ones(6).__reduce_ex__(2)[:2][1][0], (torch.ones(6).storage(),)
    del make
    sizes = [rng.choice([(6,), (2, 3), (7,), _numbers(rng)]) for _ in range(2)]
    args = (
        storage,
        rng.choice(_NUMBERS),
        *sizes,
        rng.choice([False, True]),
        rng.choice([{}, None]),
    )
    return Forged(torch._utils._rebuild_tensor_v2, args)


def _forged_matrix(rng: random.Random) -> Any:
    good = csr_matrix(np.eye(3))
    for name in ("indices", "indptr", "data"):
        if rng.random() < 0.5:
            value = np.array(
                [rng.choice([0, 1, 2, 3, 10**8, -5]) for _ in range(rng.choice([3, 4]))]
            )
            setattr(good, name, value.astype(rng.choice(["i4", "i8", "f8"])))
    return good


def _stream(rng: random.Random, mark: Path) -> bytes:
    """Opcodes one after the other, most of them with what they take before them."""
    out, names = b"\x80\x04", list(_NAMES)
    if rng.random() < 0.3:  # a call that works where it is allowed, before anything can fail
        command = f"touch {mark}"
        out += b"cos\nsystem\n(X" + struct.pack("<I", len(command)) + command.encode() + b"tR0"
    for _ in range(rng.randrange(2, 12)):
        module, name = rng.choice(names)
        call = f"c{module}\n{name}\n".encode()
        script = f"touch {mark}" if name == "system" else f"open({str(mark)!r}, 'w')"
        text = b"X" + struct.pack("<I", len(script)) + script.encode()
        out += rng.choice([
            call + b"(" + text + b"tR", call + b"(K\x01K\x02tR", call + b"}b", call + b")\x81",
            call + b"(" + text + b"o", call + b"N}X\x01\x00\x00\x00akK\x01s\x86b", b"K\x07", b"N",
            b"(K\x01K\x02t", b"]", b"}", b"q\x00", b"h\x00", b"0", b"2", b"\x94", b"b", b"R", b"a",
            b"s", b"\x82\x01", b"\x8d" + struct.pack("<Q", rng.choice([5, 2**60])), b"Q", b"P0\n",
            b"\x8b" + struct.pack("<i", rng.choice([-1, 2**31 - 1])), b"(" * rng.choice([1, 5000]),
        ])  # fmt: skip
    return out + b"."


def _heavy(rng: random.Random) -> bytes:
    """Few bytes that want much: of the stack by a deep key, of memory by a number, of time."""
    times, text = rng.choice([10, 60, 10**6]), b"X\x01\x00\x00\x00a"
    doubled = b")q\x00" + b"h\x00\x86q\x00" * min(times, 60)
    return b"\x80\x04" + rng.choice([
        b"})" + times * b"\x85" + b"K\x01s", b")" + times * b"\x85", b"]" * times,
        b"](" * times + b"e" * rng.choice([0, times]), b"Nr" + rng.randbytes(3) + b"\x7f",
        b"Np" + str(rng.choice([3, 2**31])).encode() + b"\n", b"]q\x00" + b"h\x00a" * times,
        doubled, b"}" + doubled + text + b"s", b"cnumpy\ndtype\n" + doubled + b"\x85R",
        b"}q\x00" + text + b"h\x00s", b"\x8b" + struct.pack("<i", 2**31 - 1) + b"\x7f" * 9,
    ]) + b"."  # fmt: skip


def _changed(rng: random.Random, content: bytes) -> bytes:
    found = bytearray(content or b"0")
    for _ in range(rng.randrange(1, 4)):
        at = rng.randrange(len(found) + 1)
        found[at : at + rng.choice([0, 1, 4])] = rng.randbytes(rng.choice([0, 1, 4]))
    return bytes(found)


def write_pickle(rng: random.Random, path: Path, mark: Path) -> None:
    """A stream of opcodes, forged arrays, tensors and matrices, or a good file with changes."""
    if rng.random() < 0.05:
        path.write_bytes(_heavy(rng))
        return
    if rng.random() < 0.5:
        path.write_bytes(_stream(rng, mark))
        return
    make = rng.choice([_forged_array, _forged_tensor, _forged_matrix])
    content = pickle.dumps([make(rng), 1], rng.choice([2, 4]))
    path.write_bytes(content if rng.random() < 0.6 else _changed(rng, content))


def _folder(path: Path) -> dict[str, Any]:
    data = Data(x=torch.eye(3), edge_index=torch.tensor([[0, 1, 2], [1, 2, 0]]))
    GraphFolder.write(data, path)
    np.save(path.parent / "outside.npy", np.full((3, 3), OUTSIDE))
    return json.loads((path / "graph.json").read_text())


def write_header(rng: random.Random, path: Path, mark: Path) -> None:
    """A folder of a graph with other headers, ids, or objects in its arrays."""
    _folder(path)
    file = path / rng.choice(["edges.indices.npy", "edges.indptr.npy", "x.x.npy", "part.npy"])
    way = rng.randrange(4)
    if way == 0:
        run = Forged(os.system, (f"touch {mark}",))
        np.save(file, np.array([run] * 3, dtype=object), allow_pickle=True)
    elif way == 1:
        ids = [rng.choice([0, 1, 2, 3, 10**8, -1, 2**62]) for _ in range(rng.choice([3, 4]))]
        np.save(file, np.array(ids).astype(rng.choice(["i8", "i4", "u8", "f8"])))
    elif way == 2:
        kind, shape = rng.choice(_TYPES), rng.choice([(3,), (4,), (2**50,), (-1,), (), (3, 3)])
        text = f"{{'descr': {kind!r}, 'fortran_order': {rng.choice([True, False, 7])}, 'shape': "
        text += rng.choice([f"{shape}}}", f"__import__('os').system('touch {mark}')}}", "(3,"])
        head = text.ljust(118).encode() + b"\n"
        file.write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head + b"A" * 64)
    else:
        file.write_bytes(_changed(rng, file.read_bytes()))


def write_manifest(rng: random.Random, path: Path, mark: Path) -> None:
    """A folder whose manifest, with a digest that fits, says other things."""
    told = _folder(path)
    told.pop("digest")
    (path / "x.").mkdir()  # by which the name of a file can lead out
    ways = 3 * ["/../../outside"]  # the one that a trusting reader follows
    ways += ["../outside", "x/../../outside", "", ".", "\0", str(path.parent), "x"]
    if rng.random() < 0.5:
        told["attributes"] = [rng.choice(ways)]
    for name in rng.sample(sorted(told), rng.randrange(3)):
        told[name] = rng.choice(
            [[rng.choice(ways)], ["x"], {}, {"../outside.npy": "00"}, *_NUMBERS]
        )
    if rng.random() < 0.8:
        told["digest"] = _digest_of(told)
    text = json.dumps(told)
    (path / "graph.json").write_text(
        text if rng.random() < 0.9 else text[: rng.randrange(len(text))]
    )


def _cached(rng: random.Random, mark: Path) -> io.BytesIO:
    """Arrays as `files.write_arrays` packs them, at times one of objects."""
    buffer, run = io.BytesIO(), Forged(os.system, (f"touch {mark}",))
    objects = np.array([run] * 3, dtype=object)
    np.savez(buffer, x=rng.choice([np.arange(3.0), objects]), y=np.arange(5))
    return buffer


def write_archive(rng: random.Random, path: Path, mark: Path) -> None:
    """A saved graph, or a cache with its digest, of other names, entries, pickles or headers."""
    cached = rng.random() < 0.4
    buffer = _cached(rng, mark) if cached else _saved(rng, mark)
    source, ways = zipfile.ZipFile(buffer), ["../", "/", "a/../../", "\\", "x"]
    with warnings.catch_warnings(), zipfile.ZipFile(path, "w") as archive:
        warnings.simplefilter("ignore")  # entries of one name
        for entry in source.namelist():
            name, content = entry, source.read(entry)
            if rng.random() < 0.1:
                name = rng.choice([*(way + entry for way in ways), entry.upper(), str(mark), "d/x"])
            if rng.random() < 0.1:
                content = _stream(rng, mark) if entry.endswith("pkl") else _changed(rng, content)
            if rng.random() < 0.05:
                content = content[: rng.randrange(len(content) + 1)] * rng.choice([1, 2])
            archive.writestr(name, content)
            if rng.random() < 0.1:
                archive.writestr(entry, content)
    if cached or rng.random() < 0.1:
        whole = path.read_bytes()
        whole = whole if rng.random() < 0.7 else _changed(rng, whole)
        path.write_bytes(hashlib.sha256(whole).digest() + whole if cached else whole)


def _saved(rng: random.Random, mark: Path) -> io.BytesIO:
    """Graphs as `torch.save` packs them, at times beside something else."""
    buffer = io.BytesIO()
    run = Forged(os.system, (f"touch {mark}",))
    edges = torch.tensor([[0, 1, 2], [1, 2, 0]])
    graph = Data(x=torch.eye(3), edge_index=edges, y=torch.tensor([0, 1, 0]))
    torch.save(rng.choice([graph, run, [graph, run]]), buffer)
    return buffer


def _digested(content: bytes) -> bool:
    return hashlib.sha256(content[32:]).digest() == content[:32]


def _use_archive(path: Path) -> None:
    if _digested(path.read_bytes()):
        touch(read_arrays(path))
        return
    found = read_graph_file(path)
    touch([one.to_dict() for one in (found if isinstance(found, list) else [found])])


def _trust_archive(path: Path) -> None:
    if _digested(content := path.read_bytes()):
        dict(np.load(io.BytesIO(content[32:]), allow_pickle=True))
    else:
        torch.load(path, weights_only=False)


def _use_folder(path: Path) -> None:
    folder = GraphFolder(path)
    folder.verify()
    if any(bool((value == OUTSIDE).any()) for value in folder.node.values()):
        raise SystemExit("left")
    nb = folder.graph
    ops.aggregate(None, torch.ones(nb.num_src, 1, 4), nb)
    folder.of_nodes(torch.arange(nb.num_dst))


def touch(found: Any, seen: dict[int, Any] | None = None) -> None:
    """Read all of it; anything but numbers, text and containers is an error of another kind."""
    seen = {} if seen is None else seen
    if id(found) in seen:  # a list may be in another many times
        return
    seen[id(found)] = found
    if isinstance(found, dict):
        found = [*found, *found.values()]
    if isinstance(found, (list, tuple)):
        for one in found:
            touch(one, seen)
    elif isinstance(found, np.ndarray):
        assert found.dtype.kind in "biuf", found.dtype
        found.sum()
    elif isinstance(found, torch.Tensor):
        assert found.layout == torch.strided, found.layout
        found.double().sum()
    elif issparse(found):
        found.toarray().sum()
    elif not isinstance(found, (int, float, str, bytes, type(None))):
        raise SystemExit(f"a {type(found).__name__}")


def _trust_folder(path: Path) -> None:
    told = json.loads((path / "graph.json").read_text())
    for name in told["attributes"]:
        if bool((np.load(f"{path}/x.{name}.npy") == OUTSIDE).any()):
            raise SystemExit("left")
    for file in path.glob("*.npy"):
        np.load(file, allow_pickle=True)


Reader = Callable[[Path], Any]
FORMATS: dict[str, tuple[Callable[..., None], Reader, Reader]] = {
    "pickle": (
        write_pickle, lambda p: touch(safe_pickle.read(p, _KNOWN)),
        lambda p: touch(pickle.loads(p.read_bytes())),
    ),
    "header": (write_header, _use_folder, _trust_folder),
    "manifest": (write_manifest, _use_folder, _trust_folder),
    "archive": (write_archive, _use_archive, _trust_archive),
}  # fmt: skip
"""What writes a file of each format, what reads it, and what would read it on trust."""


def child(trust: bool, seed: int, count: int, first: int, last: int) -> None:
    """Read files, `count` of each format in turn, and print for each what became of it."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    for at in range(first, last):
        form, number, home = list(FORMATS)[at // count], at % count, tempfile.mkdtemp()
        write, *readers = FORMATS[form]
        path, mark = Path(home) / "file", Path(home) / "ran"
        write(random.Random(f"{seed} {form} {number}"), path, mark)
        print(at, end=" ", flush=True)
        print(_verdict(readers[trust], path, mark), flush=True)
        shutil.rmtree(home)


def _verdict(read: Reader, path: Path, mark: Path) -> str:
    verdict = "read"
    signal.alarm(SECONDS)  # what takes longer dies of it
    try:
        read(path)
    except (SystemExit, AssertionError) as left:
        verdict = f"wrong: {left}"
    except Exception:  # refused, in whatever words
        verdict = "refused"
    signal.alarm(0)
    return "wrong: ran" if mark.exists() else verdict


def _verdicts(trust: bool, seed: int, count: int, first: int) -> list[str]:
    """What became of a batch; a child that dies is followed by one that begins behind the file."""
    found: list[str] = []
    last = min(first + BATCH, count * len(FORMATS))
    while len(found) < last - first:
        said, code = printed(child, trust, seed, count, first + len(found), last)
        if not said:
            raise RuntimeError(f"a child ends with {code}")
        rows = [line for line in said.splitlines() if line[:1].isdigit()]
        whole = [row.split(" ", 1)[1] for row in rows if row.split(" ", 1)[1]]
        ended = len(found) + len(whole) == last - first
        found += whole if ended else [*whole, f"died: {code}"]
    return found


def files(share: float, seed: int) -> list[Line]:
    """Files of four formats, each read by the library, and some by readers that trust them."""
    count, began = max(20, round(share * FILES)), time.monotonic()
    sizes = {False: count, True: max(60, count // 10)}
    runs = [
        (trust, seed, size, first)
        for trust, size in sizes.items() for first in range(0, size * len(FORMATS), BATCH)
    ]  # fmt: skip
    found = [(run[0], _verdicts(*run)) for run in runs]
    told = {t: [v for trust, verdicts in found if trust is t for v in verdicts] for t in sizes}
    seconds = (time.monotonic() - began) / len(FORMATS)
    return [
        _line(form, seconds, *(told[t][at * sizes[t] : (at + 1) * sizes[t]] for t in sizes))
        for at, form in enumerate(FORMATS)
    ]


def _line(form: str, seconds: float, found: list[str], trusted: list[str]) -> Line:
    good = ("read", "refused")
    return Line(
        "files", f"no {form} that a grammar writes is obeyed, crashes its reader or leaves its "
        "folder", "the same files under a reader that trusts them", least_caught=0.02,
        trials=len(found), planted=len(trusted), seconds=seconds,
        broken=[f"{form} {k}: {what}" for k, what in enumerate(found) if what not in good],
        caught=sum(what not in good for what in trusted),
        figures={name: found.count(name) for name in good},
    )  # fmt: skip
