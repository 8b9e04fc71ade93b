"""Downloads by PyG's and ogb's classes, from a server of our own on this machine."""

import dataclasses
import hashlib
import io
import shutil
import socket
import zipfile
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib import import_module
from pathlib import Path
from threading import Thread
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from rich.console import Console
from torch_geometric import datasets as pyg

from graphtheory.lab.cli import options, show
from graphtheory.lab.cli.show import RefusedError, Screen
from graphtheory.lab.datasets import catalogue, graphs
from graphtheory.lab.datasets.files import DamagedFileError
from tests.lab.datasets import ogbn_folder

NAME, FILE = "minesweeper", "HeterophilousGraphDataset/minesweeper/raw/minesweeper.npz"


@pytest.fixture(autouse=True)
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """In place of the folder's own: only this machine is reached."""
    connect = socket.socket.connect

    def local(self: socket.socket, address: Any) -> None:
        assert not isinstance(address, tuple) or address[0] in ("127.0.0.1", "::1"), address
        connect(self, address)

    monkeypatch.setattr(socket.socket, "connect", local)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[SimpleNamespace]:
    """A folder on the loopback device, its address, and what was asked of it."""
    folder, asked = tmp_path / "served", list[str]()
    folder.mkdir()

    class Handler(SimpleHTTPRequestHandler):
        def log_message(self, *args: Any) -> None:
            asked.append(self.path)

    http = ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(folder)))
    thread = Thread(target=http.serve_forever, daemon=True)
    thread.start()
    yield SimpleNamespace(folder=folder, asked=asked, url=f"http://127.0.0.1:{http.server_port}")
    http.shutdown()
    http.server_close()
    thread.join()


def archive() -> bytes:
    """A small graph as the heterophilous sets have it."""
    draw, masks = np.random.default_rng(0), np.tile(np.arange(12) % 3, (10, 1))
    parts = {f"{n}_masks": masks == i for i, n in enumerate(("train", "val", "test"))}
    buffer = io.BytesIO()
    np.savez(
        buffer, node_features=draw.normal(size=(12, 3)).astype(np.float32),
        node_labels=np.arange(12) % 2, edges=draw.integers(0, 12, (30, 2)), **parts,
    )  # fmt: skip
    return buffer.getvalue()


@pytest.fixture
def content(server: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> bytes:
    """What the server has of the set, and what its pin says."""
    made = archive()
    (server.folder / "minesweeper.npz").write_bytes(made)
    pin = {"minesweeper.npz": (len(made), hashlib.sha256(made).hexdigest())}
    info = dataclasses.replace(graphs.describe(NAME), sha256=pin, counts=())
    monkeypatch.setitem(catalogue._GRAPHS, NAME, info)
    monkeypatch.setattr(pyg.HeterophilousGraphDataset, "url", server.url)
    return made


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "data"


def files_in(root: Path) -> list[str]:
    return sorted(p.relative_to(root).as_posix() for p in root.rglob("*") if p.is_file())


def test_a_set_is_downloaded_once_and_only_if_that_is_asked_for(
    server: SimpleNamespace, content: bytes, root: Path
) -> None:
    with pytest.raises(FileNotFoundError, match=r"get them by --download \(0.0 MB, .*into"):
        graphs.load(NAME, root)
    assert not server.asked
    graphs.download(NAME, root)
    data = graphs.load(NAME, root)
    assert data.num_nodes == 12 and files_in(root) == [FILE]
    assert (root / FILE).read_bytes() == content and server.asked == ["/minesweeper.npz"]
    graphs.download(NAME, root)
    assert len(server.asked) == 1


@pytest.mark.parametrize("pinned", [True, False])
def test_what_differs_is_refused_and_deleted(
    server: SimpleNamespace,
    content: bytes,
    root: Path,
    pinned: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    served = server.folder / "minesweeper.npz"
    served.write_bytes(b"" if not pinned else content[: len(content) // 2])
    expected = f"expected {len(content):,} bytes.*found.*what came was deleted"
    if not pinned:
        info = dataclasses.replace(graphs.describe(NAME), sha256={})
        monkeypatch.setitem(catalogue._GRAPHS, NAME, info)
        expected = "cannot be read, one is truncated.*what came was deleted"
    with pytest.raises(DamagedFileError, match=expected):
        graphs.download(NAME, root)
    assert list(root.iterdir()) == []
    served.write_bytes(content)
    graphs.download(NAME, root)
    assert graphs.load(NAME, root).num_nodes == 12


def test_an_interruption_leaves_nothing_and_the_next_call_starts_again(
    content: bytes, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def half(url: str, folder: str) -> None:
        (Path(folder) / "minesweeper.npz").write_bytes(content[:99])
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        module = import_module("torch_geometric.datasets.heterophilous_graph_dataset")
        patch.setattr(module, "download_url", half)
        with pytest.raises(KeyboardInterrupt):
            graphs.download(NAME, root)
    assert list(root.iterdir()) == []
    (root / f".download-{NAME}-killed/made").mkdir(parents=True)  # of a process that was killed
    graphs.download(NAME, root)
    assert files_in(root) == [FILE] and len(list(root.iterdir())) == 1


def test_no_network_is_named(content: bytes, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{closed.getsockname()[1]}"
        monkeypatch.setattr(pyg.HeterophilousGraphDataset, "url", url)
        with pytest.raises(OSError, match=r"minesweeper: could not be downloaded .*URLError.*by "):
            graphs.download(NAME, root)
    assert list(root.iterdir()) == []


def zipped(folder: Path, to: Path) -> None:
    with zipfile.ZipFile(to, "w") as file:
        for path in folder.rglob("*"):
            file.write(path, path.relative_to(folder.parent))


def test_an_archive_of_a_tudataset_is_unpacked(
    server: SimpleNamespace, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    raw = tmp_path / "MUTAG"
    raw.mkdir()
    tables = {
        "A": "".join(f"{g - 1}, {g}\n{g}, {g - 1}\n" for g in range(2, 41, 2)),
        "graph_indicator": "".join(f"{g}\n{g}\n" for g in range(1, 21)),
        "graph_labels": "1\n-1\n" * 10,
    }
    for name, text in tables.items():
        (raw / f"MUTAG_{name}.txt").write_text(text)
    zipped(raw, server.folder / "MUTAG.zip")
    info = dataclasses.replace(graphs.describe("MUTAG"), counts=())
    monkeypatch.setitem(catalogue._GRAPHS, "mutag", info)
    monkeypatch.setattr(pyg.TUDataset, "url", server.url)
    graphs.download("MUTAG", root)
    found = graphs.load_graphs("MUTAG", root)
    assert len(found) == 20 and {p.name for p in root.iterdir()} == {"TUDataset"}


def test_ogbs_archive_is_unpacked_and_ogb_asks_nothing(
    server: SimpleNamespace, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = tmp_path / "made"
    ogbn_folder.write_ogbn(made, "arxiv")
    info = dataclasses.replace(graphs.describe("ogbn-arxiv"), counts=())
    monkeypatch.setitem(catalogue._GRAPHS, "ogbn-arxiv", info)
    shutil.move(made / "ogbn_arxiv", made / "arxiv")
    zipped(made / "arxiv", server.folder / "arxiv.zip")
    module = import_module("ogb.nodeproppred.dataset_pyg")
    real = module.download_url

    def here(url: str, folder: str) -> Any:
        return real(f"{server.url}/{url.rpartition('/')[2]}", folder)

    monkeypatch.setattr(module, "download_url", here)
    monkeypatch.setattr("builtins.input", lambda *_: pytest.fail("ogb asks"))
    graphs.download("ogbn-arxiv", root)
    data = graphs.load("ogbn-arxiv", root)
    assert data.num_nodes and {p.name for p in root.iterdir()} == {"ogbn_arxiv"}


@pytest.mark.parametrize("folder", ["minesweeper/raw", "HeterophilousGraphDataset/minesweeper/raw"])
def test_a_folder_as_pyg_lays_it_out_is_taken(content: bytes, root: Path, folder: str) -> None:
    (root / folder).mkdir(parents=True)
    (root / folder / "minesweeper.npz").write_bytes(content)
    assert graphs.load(NAME, root).num_nodes == 12


def test_every_set_says_how_it_is_got_and_names_a_class_that_there_is() -> None:
    for info in catalogue._GRAPHS.values():
        if info.embedded:
            continue
        how = "by --download (" if info.fetched_by else "by hand from "
        assert info.how.startswith(how), info
        if info.fetched_by:
            package, _, name = info.fetched_by.rpartition(".")
            assert callable(getattr(import_module(package), name).download), info


@pytest.mark.parametrize(("name", "root", "message"), [
    ("facebook", "here", "download: no class fetches facebook; get the files by hand from"),
    ("Cora", None, "root: got None, expected the folder to download Cora into"),
])  # fmt: skip
def test_refuses(name: str, root: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=message):
        graphs.download(name, root and tmp_path)


@pytest.mark.parametrize(
    ("asked", "terminal", "answer", "there"),
    [(True, False, False, True), (False, True, True, True), (False, True, False, False),
     (False, False, True, False)],
)  # fmt: skip
def test_the_command_downloads_if_asked_to_or_if_the_user_agrees(
    content: bytes, root: Path, monkeypatch: pytest.MonkeyPatch, asked: bool, terminal: bool,
    answer: bool, there: bool,
) -> None:  # fmt: skip
    root.mkdir()
    said = io.StringIO()
    stream = Console(file=said, force_terminal=terminal, width=200)
    monkeypatch.setattr(options.sys.stdin, "isatty", lambda: terminal, raising=False)
    monkeypatch.setattr(options.Confirm, "ask", lambda *_, **__: answer)
    options.fetch_missing(Screen(stream, stream, ""), NAME, root, asked)
    assert (root / FILE).is_file() == there
    assert ("its files come by --download (" in said.getvalue()) == (asked or terminal)


def test_images_are_got_by_hand(root: Path) -> None:
    screen = Screen(show.console(), show.console(stderr=True), "")
    with pytest.raises(RefusedError, match="--download: no class of PyG or ogb fetches images"):
        options.fetch_missing(screen, "mnist", root, True)
