import socket
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

needs_rdkit = pytest.mark.skipif(find_spec("rdkit") is None, reason="needs the extra [molecules]")


@pytest.fixture(autouse=True)
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any attempt to reach another machine fails the test that makes it."""

    def refuse(*args: object, **kwargs: object) -> None:
        pytest.fail(f"reached for the network: {args}")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One cache for all tests, so that a set is read from its raw files once."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(autouse=True)
def own_cache(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test touches the user's cache."""
    monkeypatch.setenv("GRAPHTHEORY_CACHE", str(cache))


@pytest.fixture
def any_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sets of other sizes than the published ones."""
    monkeypatch.setattr("graphtheory.lab.datasets.files.verify_counts", lambda info, found: None)


@pytest.fixture
def untouched(data_root: Path) -> Iterator[None]:
    """The folder with the raw files is the same after the test as before."""
    before = _listing(data_root)
    yield
    assert _listing(data_root) == before


def _listing(root: Path) -> list[tuple[str, int, int]]:
    return sorted(
        (str(path), (status := path.stat()).st_size, status.st_mtime_ns) for path in root.rglob("*")
    )
