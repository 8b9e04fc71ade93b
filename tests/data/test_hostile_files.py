"""Files that forge memory, name functions or lead out of a folder are refused in words."""

import json
import pickle
import subprocess
import sys

import numpy as np
import pytest
import torch
from scipy.sparse import csr_matrix
from torch_geometric.data import Data

from battery.files import Forged
from graphtheory.data import safe_pickle
from graphtheory.data.loaders import GraphFolder
from graphtheory.data.loaders.folder import _digest_of

KNOWN = {**safe_pickle.ARRAYS, **safe_pickle.MATRICES, **safe_pickle.TENSORS}
MAKE = np.empty(0).__reduce__()[0]
DENIES = Forged(np.dtype, ("O8", 0, 1), (3, "|", None, None, None, -1, -1, 0))


def array(*state: object) -> Forged:
    return Forged(MAKE, (np.ndarray, (0,), b"b"), state)


def tensor(offset: int, size: tuple[int, ...], stride: tuple[int, ...]) -> Forged:
    storage = torch.ones(6).untyped_storage()
    typed = torch.storage.TypedStorage(wrap_storage=storage, dtype=torch.float32, _internal=True)
    return Forged(torch._utils._rebuild_tensor_v2, (typed, offset, size, stride, False, {}))


def test_an_object_array_that_denies_its_objects_is_refused_in_a_process_of_its_own(tmp_path):
    forged = pickle.dumps(array(1, (4,), DENIES, False, b"A" * 32), 4)
    (tmp_path / "forged.pickle").write_bytes(forged)
    code = (
        "import sys, pickle, pathlib\nfrom graphtheory.data import safe_pickle as s\n"
        "try: s.read(pathlib.Path(sys.argv[1]), s.ARRAYS)[0]\n"
        "except pickle.UnpicklingError as error: print(error)"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "forged.pickle")]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    assert found.returncode == 0 and "a type 'O8'" in found.stdout, found.stderr


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (array(1, (4,), np.dtype("f8"), False, b"A" * 31), "another length"),
        (array(1, (-4,), np.dtype("f8"), False, b"A" * 32), "a shape"),
        (array(1, (4,), "f8", False, b"A" * 32), "another type"),
        (np.array(["a", 1], dtype=object), "a type 'O8'"),
        (np.zeros(2, dtype="i4,f8"), "a type 'V12'"),
        (np.array(["2020-01-01"], dtype="M8[D]"), "a type 'M8'"),
        (tensor(0, (7,), (1,)), "beyond its storage"),
        (tensor(2**40, (1,), (1,)), "beyond its storage"),
        (tensor(0, (2,), (-1,)), "a stride"),
        (Forged(dict, ()), "__builtin__.dict is not part of such a file"),
    ],
)
def test_parts_that_do_not_fit_together_are_refused(tmp_path, content, told):
    path = tmp_path / "file.pickle"
    path.write_bytes(pickle.dumps([content], 2))
    known = KNOWN | {
        ("_codecs", "encode"): safe_pickle._Maker(lambda text, code: text.encode(code))
    }
    with pytest.raises(pickle.UnpicklingError, match=told.replace("(", r"\(")):
        safe_pickle.read(path, known)


def test_a_matrix_with_columns_out_of_range_is_refused(tmp_path):
    matrix = csr_matrix(np.eye(3))
    matrix.indices[1] = 10**8
    state = {"_shape": (3, 3)} | {
        name: getattr(matrix, name) for name in ("data", "indices", "indptr")
    }
    stream = pickle.dumps(state, 4)
    made = b"\x80\x04cscipy.sparse.csr\ncsr_matrix\n)\x81" + stream[2:-1] + b"b."
    (tmp_path / "file").write_bytes(made)
    with pytest.raises(pickle.UnpicklingError, match="ValueError"):
        safe_pickle.read(tmp_path / "file", KNOWN)


@pytest.fixture
def path(tmp_path):
    data = Data(x=torch.eye(3), edge_index=torch.tensor([[0, 1, 2], [1, 2, 0]]))
    GraphFolder.write(data, tmp_path / "graph")
    return tmp_path / "graph"


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("edges.indices", [0, 1, 7], r"edges.indices.npy: entries 0 to 7, expected 0..2"),
        ("edges.indices", [0, -1, 1], r"entries -1 to 1, expected 0..2"),
        ("edges.indices", [0.0, 1.0, 2.0], r"float64 \[3\], expected int64 \[3\]"),
        ("edges.indptr", [0, 2, 1, 3], "row pointers that fall"),
        ("edges.indptr", [1, 1, 2, 3], "from 1 to 3, expected 0 to 3"),
        ("edges.indptr", [0, 1, 2], r"int64 \[3\], expected numbers in 4 rows"),
        ("original_id", [0, 1, 3], "entries 0 to 3, expected 0..2"),
        ("part", [0, -1, 0], "entries -1 to 0"),
    ],
)
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


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"attributes": ["/../../outside"]}, "got the name '/../../outside'"),
        ({"attributes": [".."]}, "got the name '..'"),
        ({"attributes": [3]}, "got the name 3"),
        ({"sha256": {"../outside.npy": "0"}}, "got the name '../outside.npy'"),
        ({"nodes": -1}, "nodes: -1, expected int"),
        ({"edges": "3"}, "edges: '3', expected int"),
        ({"weighted": 1}, "weighted: 1, expected bool"),
        ({"whole": []}, r"whole: \[\], expected dict"),
    ],
)
def test_a_manifest_is_read_with_care(path, change, told):
    words = json.loads((path / "graph.json").read_text()) | change
    words.pop("digest")
    words["digest"] = _digest_of(words)
    (path / "graph.json").write_text(json.dumps(words))
    with pytest.raises(ValueError, match=told):
        GraphFolder(path)


def test_a_manifest_that_is_none(path):
    for text in ("[1]", "{", ""):
        (path / "graph.json").write_text(text)
        with pytest.raises(ValueError, match="write the folder again"):
            GraphFolder(path)


def test_an_attribute_whose_name_leads_out_is_not_written(tmp_path):
    data = Data(x=torch.eye(3), edge_index=torch.tensor([[0], [1]]))
    data["a/b"] = torch.zeros(3)
    with pytest.raises(ValueError, match="got the name 'a/b'"):
        GraphFolder.write(data, tmp_path / "graph")
