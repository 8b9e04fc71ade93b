"""Files that forge memory, name functions or lead out of a folder are refused in words."""

import io
import json
import pickle
import re
import resource
import warnings
import zipfile
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.sparse import csr_matrix
from torch_geometric.data import Data

from battery.files import Forged
from battery.forked import printed
from graphtheory.data.loaders import GraphFolder
from graphtheory.data.loaders.folder import _digest_of
from graphtheory.disk import _check_depth, load_tensors
from graphtheory.lab.datasets import safe_pickle
from graphtheory.lab.datasets.own_graphs import graph_set, read_graph_file
from graphtheory.lab.train import read_checkpoint
from graphtheory.lab.train.checkpoint import _sealed

KNOWN = {**safe_pickle.ARRAYS, **safe_pickle.MATRICES, **safe_pickle.TENSORS}
MAKE = np.empty(0).__reduce__()[0]
DENIES = Forged(np.dtype, ("O8", 0, 1), (3, "|", None, None, None, -1, -1, 0))


def array(*state: object) -> Forged:
    return Forged(MAKE, (np.ndarray, (0,), b"b"), state)


def tensor(offset: int, size: tuple[int, ...], stride: tuple[int, ...]) -> Forged:
    storage = torch.ones(6).untyped_storage()
    typed = torch.storage.TypedStorage(wrap_storage=storage, dtype=torch.float32, _internal=True)
    return Forged(torch._utils._rebuild_tensor_v2, (typed, offset, size, stride, False, {}))


@pytest.mark.parametrize(("content", "told"), [
    (array(1, (4,), np.dtype("f8"), False, b"A" * 31), "another length"),
    (array(1, (-4,), np.dtype("f8"), False, b"A" * 32), "a shape"),
    (array(1, (4,), "f8", False, b"A" * 32), "another type"),
    (np.array(["a", 1], dtype=object), "a type 'O8'"),
    (np.zeros(2, dtype="i4,f8"), "a type 'V12'"),
    (np.array(["2020-01-01"], dtype="M8[D]"), "a type 'M8'"),
    (tensor(0, (7,), (1,)), "beyond its storage"),
    (tensor(2**40, (1,), (1,)), "beyond its storage"),
    (tensor(2**40, (0,), (1,)), "beyond its storage"),
    (tensor(0, (2**40,), (0,)), "beyond its storage"),
    (tensor(0, (2,), (-1,)), "a stride"),
    (Forged(dict, ()), "__builtin__.dict is not part of such a file"),
])  # fmt: skip
def test_parts_that_do_not_fit_together_are_refused(tmp_path, content, told):
    path = tmp_path / "file.pickle"
    path.write_bytes(pickle.dumps([content], 2))
    encode = safe_pickle._Maker(lambda text, code: text.encode(code))
    known = KNOWN | {("_codecs", "encode"): encode}
    with pytest.raises(pickle.UnpicklingError, match=told.replace("(", r"\(")):
        safe_pickle.read(path, known)


def codes(head: bytes, times: int, body: bytes, tail: bytes) -> bytes:
    return b"\x80\x02" + head + times * body + tail + b"."


def saved(content: object, **how: object) -> bytes:
    buffer = io.BytesIO()
    torch.save(content, buffer, _use_new_zipfile_serialization=False, **how)
    return buffer.getvalue()


LOAD = torch.storage._load_from_bytes
WHOLE = saved(torch.ones(6)._typed_storage())
STREAMS = {
    "denied objects": (pickle.dumps(array(1, (4,), DENIES, False, b"A" * 32), 4), "a type 'O8'"),
    # A key of a million tuples, each in the next: its hash takes more stack than there is.
    "deep key": (codes(b"})", 1_000_000, b"\x85", b"K\x01s"), "a key that is no number or text"),
    # Room for two thousand million references: 32 GiB in the reader in C.
    "far reference": (codes(b"", 1, b"Nr\xff\xff\xff\x7f", b"K\x07"), ""),
    # 2**60 lists that are 61.
    "doubled lists": (codes(b"]q\x00", 60, b"(h\x00h\x00lq\x00", b""), "the code b'l'"),
    "doubled tuples": (codes(b")q\x00", 60, b"h\x00\x86q\x00", b""), ""),
    "doubled shape": (
        codes(b"cnumpy\ndtype\n)q\x00", 60, b"h\x00\x86q\x00", b"\x85R"), "a type of class tuple"
    ),
    "list within itself": (codes(b"]q\x00h\x00a", 1, b"", b""), "a list within itself"),
    "deep list": (codes(b"]", 5000, b"\x85", b""), "RecursionError"),
    "attributes of a function": (
        codes(b"cnumpy\ndtype\n}X\x05\x00\x00\x00valueK\x01sb", 1, b"", b""), "a state of a"
    ),
    "attributes of a class": (
        codes(b"cscipy.sparse.csr\ncsr_matrix\n}X\x01\x00\x00\x00aK\x01sb", 1, b"", b""),
        "a state of what has none",
    ),
    "state of a dictionary": (
        codes(b"ccollections\nOrderedDict\n)R}b", 1, b"", b""), "a state of what has none"
    ),
    "call of a class": (
        codes(b"cscipy.sparse.csr\ncsr_matrix\nN\x85R", 1, b"", b""), "a call of no function"
    ),
    "object of a function": (codes(b"cnumpy\ndtype\n)\x81", 1, b"", b""), "an object that is no"),
    "registered class": (codes(b"\x82\x01", 1, b"", b""), "the code b'\\\\x82'"),
    "reference to elsewhere": (codes(b"NQ", 1, b"", b""), "persistent id"),
    "long text": (b"\x80\x04\x8d" + b"\xff" * 7 + b"\x0f.", "the code b'\\\\x8d'"),
    "nothing": (b"", "EOFError"),
    "archive as storage": (pickle.dumps(Forged(LOAD, (b"PK\3\4",)), 4), "in an archive"),
    "tensor as storage": (pickle.dumps(Forged(LOAD, (saved(torch.ones(2)),)), 4), "is not part of"),
    "short storage": (pickle.dumps(Forged(LOAD, (WHOLE[:-1],)), 4), "another length"),
    "other numbers": (pickle.dumps([torch.ones(2).bool()], 4), "torch.BoolStorage is not part of"),
    "odd truth values": (pickle.dumps(np.array([True])).replace(b"C\x01\x01", b"C\x01A"), "truth"),
}  # fmt: skip


def read_all(folder: Path) -> None:
    """Print what becomes of each file."""
    kinds = {"graph": read_graph_file, "checkpoint": read_checkpoint}
    resource.setrlimit(resource.RLIMIT_AS, (16 * 2**30,) * 2)
    warnings.simplefilter("ignore")
    for path in sorted(folder.iterdir()):
        print(path.name, end=": ", flush=True)
        try:
            kinds.get(path.stem, lambda path: safe_pickle.read(path, KNOWN))(path)
            print("read", flush=True)
        except Exception as error:
            print("refused,", str(error).replace("\n", " "), flush=True)


DEEP = b"\x80\x02})" + b"\x85" * 1_000_000 + b"K\x01s."


def deep_file(legacy: bool) -> bytes:
    """A file of torch's whose pickle has a key of a million tuples, each within the next."""
    if legacy:
        whole = io.BytesIO(saved({}))
        for _ in range(3):
            pickle.load(whole)
        return whole.getvalue()[: whole.tell()] + DEEP
    buffer, found = io.BytesIO(), io.BytesIO()
    torch.save({}, buffer)
    with zipfile.ZipFile(buffer) as source, zipfile.ZipFile(found, "w") as archive:
        for name in source.namelist():
            archive.writestr(name, DEEP if name.endswith("data.pkl") else source.read(name))
    return found.getvalue()


@pytest.fixture(scope="module")
def verdicts(tmp_path_factory):
    """What a process of its own says of each file; where it dies, of no more."""
    folder = tmp_path_factory.mktemp("streams")
    archive, legacy = deep_file(legacy=False), deep_file(legacy=True)
    files = {name: content for name, (content, _) in STREAMS.items()}
    files |= {"checkpoint.0": bytes(_sealed(bytearray(archive))), "checkpoint.legacy": legacy}
    for name, content in (files | {"graph.0": archive, "graph.legacy": legacy}).items():
        (folder / name).write_bytes(content)
    return dict(line.split(": ", 1) for line in printed(read_all, folder)[0].splitlines())


DEEP_FILES = ["checkpoint.0", "checkpoint.legacy", "graph.0", "graph.legacy"]


@pytest.mark.parametrize("name", [*STREAMS, *DEEP_FILES])
def test_a_stream_of_codes_is_refused_in_words_or_harmless(verdicts, name):
    told = "." if name in DEEP_FILES else STREAMS[name][1]
    found = verdicts.get(name, "died before it")
    assert re.fullmatch(f"refused, .*{told}.*" if told else "read", found), found


def test_what_a_file_is_refused_for_does_not_stay(tmp_path):
    for name in ("attributes of a function", "attributes of a class"):
        (tmp_path / "file").write_bytes(STREAMS[name][0])
        with pytest.raises(pickle.UnpicklingError):
            safe_pickle.read(tmp_path / "file", KNOWN)
    for made in (torch.arange(6).view(2, 3).t(), torch.zeros(0, 2), torch.ones(3).double()):
        (tmp_path / "file").write_bytes(pickle.dumps([made, made]))
        found = safe_pickle.read(tmp_path / "file", KNOWN)
        assert torch.equal(found[0], made) and found[0] is found[1] and found[0].dtype == made.dtype
    array = np.asfortranarray(np.arange(6.0).reshape(2, 3))
    (tmp_path / "file").write_bytes(pickle.dumps({"a": array, 3: (array.astype(">i4"), 1.5)}))
    found = safe_pickle.read(tmp_path / "file", KNOWN)
    assert np.array_equal(found["a"], array) and np.array_equal(found[3][0], array)


def test_a_matrix_with_columns_out_of_range_is_refused(tmp_path):
    matrix = csr_matrix(np.eye(3))
    matrix.indices[1] = 10**8
    parts = {name: getattr(matrix, name) for name in ("data", "indices", "indptr")}
    stream = pickle.dumps({"_shape": (3, 3), **parts}, 4)
    made = b"\x80\x04cscipy.sparse.csr\ncsr_matrix\n)\x81" + stream[2:-1] + b"b."
    (tmp_path / "file").write_bytes(made)
    with pytest.raises(pickle.UnpicklingError, match="ValueError"):
        safe_pickle.read(tmp_path / "file", KNOWN)


@pytest.fixture
def path(tmp_path):
    data = Data(x=torch.eye(3), edge_index=torch.tensor([[0, 1, 2], [1, 2, 0]]))
    GraphFolder.write(data, tmp_path / "graph")
    return tmp_path / "graph"


@pytest.mark.parametrize(("name", "content", "told"), [
    ("edges.indices", [0, 1, 7], r"edges.indices.npy: entries 0 to 7, expected 0..2"),
    ("edges.indices", [0, -1, 1], r"entries -1 to 1, expected 0..2"),
    ("edges.indices", [0.0, 1.0, 2.0], r"float64 \[3\], expected int64 \[3\]"),
    ("edges.indptr", [0, 2, 1, 3], "row pointers that fall"),
    ("edges.indptr", [1, 1, 2, 3], "from 1 to 3, expected 0 to 3"),
    ("edges.indptr", [0, 1, 2], r"int64 \[3\], expected numbers in 4 rows"),
    ("original_id", [0, 1, 3], "entries 0 to 3, expected 0..2"),
    ("part", [0, -1, 0], "entries -1 to 0"),
])  # fmt: skip
def test_ids_of_a_folder_are_looked_at_when_it_is_opened(path, name, content, told):
    np.save(path / f"{name}.npy", np.array(content))
    with pytest.raises(ValueError, match=told):
        GraphFolder(path)


def test_a_file_that_is_a_link_is_refused(path):
    np.save(path.parent / "outside.npy", np.eye(3))
    (path / "x.x.npy").unlink()
    (path / "x.x.npy").symlink_to(path.parent / "outside.npy")
    with pytest.raises(ValueError, match="a link, expected a file"):
        GraphFolder(path)


@pytest.mark.parametrize(("change", "told"), [
    ({"attributes": ["/../../outside"]}, "got the name '/../../outside'"),
    ({"attributes": [".."]}, "got the name '..'"),
    ({"attributes": [3]}, "got the name 3"),
    ({"sha256": {"../outside.npy": "0"}}, "got the name '../outside.npy'"),
    ({"nodes": -1}, "nodes: -1, expected int"),
    ({"edges": "3"}, "edges: '3', expected int"),
    ({"weighted": 1}, "weighted: 1, expected bool"),
    ({"whole": []}, r"whole: \[\], expected dict"),
    *((text, "write the folder again") for text in ("[1]", "{", "")),
])  # fmt: skip
def test_a_manifest_is_read_with_care(path, change, told):
    if isinstance(change, dict):
        words = json.loads((path / "graph.json").read_text()) | change
        words.pop("digest")
        change = json.dumps(words | {"digest": _digest_of(words)})
    (path / "graph.json").write_text(change)
    with pytest.raises(ValueError, match=told):
        GraphFolder(path)


def test_an_attribute_whose_name_leads_out_is_not_written(tmp_path):
    data = Data(x=torch.eye(3), edge_index=torch.tensor([[0], [1]]))
    data["a/b"] = torch.zeros(3)
    with pytest.raises(ValueError, match="got the name 'a/b'"):
        GraphFolder.write(data, tmp_path / "graph")


@pytest.mark.parametrize("legacy", [False, True])
def test_what_torch_saves_is_read_the_same(legacy):
    content = {"a": [torch.arange(3), (1, ("b", 2.5))], ("x", "to", "y"): {1: torch.ones(2, 2)}}
    buffer = io.BytesIO()
    torch.save(content, buffer, _use_new_zipfile_serialization=not legacy)
    found = load_tensors(buffer.getvalue())
    assert found["a"][1] == (1, ("b", 2.5)) and torch.equal(found["a"][0], torch.arange(3))
    assert torch.equal(found["x", "to", "y"][1], torch.ones(2, 2))


def test_nesting_has_a_limit_of_its_own():
    for depth, refused in ((900, False), (1_100, True)):
        file = io.BytesIO(b"\x80\x02)" + b"\x85" * depth + b".")
        with pytest.raises(ValueError, match="nested tuples") if refused else nullcontext():
            _check_depth(file)


@pytest.mark.parametrize(("known", "name"), [
    (safe_pickle.MATRICES, ("torch.storage", "_load_from_bytes")),
    (safe_pickle.TENSORS, ("scipy.sparse.csr", "csr_matrix")),
])  # fmt: skip
def test_a_kind_of_file_may_name_only_what_it_needs(tmp_path, known, name):
    path = tmp_path / "file.pickle"
    path.write_bytes(b"c" + "\n".join(name).encode() + b"\n.")
    with pytest.raises(pickle.UnpicklingError, match=f"{'.'.join(name)} is not part of such a"):
        safe_pickle.read(path, known)


def own(**more: object) -> Data:
    edge, x, y = torch.tensor([[0, 1], [1, 0]]), torch.eye(2), torch.tensor([0])
    return Data(x=x, edge_index=edge, y=y, **more)


@pytest.mark.parametrize(("graphs", "told"), [
    (own(year=np.arange(10)), r"\(graph 0: year\) holds numpy"),
    ([own(year=1), own(), own(a=[1], year=np.array(["a", 1], object))], r"\(graph 2: year\) holds"),
    (own(name="x", at=Path("a")), r"\(graph 0: at\) holds pathlib"),
    (own(several=[torch.ones(1), np.float64(3)]), r"\(graph 0: several\) holds numpy"),
])  # fmt: skip
def test_the_attribute_that_is_refused_is_named(tmp_path, graphs, told):
    torch.save(graphs, tmp_path / "g.pt")
    known = set(torch.serialization.get_safe_globals())
    told = rf"^data: .*g\.pt {told}.* torch.as_tensor\(graph"
    with pytest.raises(ValueError, match=told) as error:
        read_graph_file(tmp_path / "g.pt")
    assert "take it out, or make a tensor of it: graph." in str(error.value)
    assert set(torch.serialization.get_safe_globals()) == known


@pytest.mark.parametrize("name", ["g.csv", "g.npz", "g.graphml"])
def test_a_file_of_another_format_is_told_how_it_is_converted(tmp_path, name):
    (tmp_path / name).write_bytes(b"source,target\n0,1\n")
    told = rf"{name} is not a whole file of torch.save.*Data\(x=torch.as_tensor.*from_networkx\("
    with pytest.raises(ValueError, match=told):
        read_graph_file(tmp_path / name)


def test_weights_of_edges_that_no_network_reads_are_told_once():
    graphs = [own(edge_weight=torch.ones(2)) for _ in range(20)]
    for at, graph in enumerate(graphs):
        graph.y = torch.tensor([at % 2])
    told = "^mine: edge_weight is left out; store it as edge_attr"
    with pytest.warns(UserWarning, match=told) as caught:
        graph_set(graphs, name="mine")
    assert len(caught) == 1
