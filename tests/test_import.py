"""`import graphtheory` is light: quick, silent, no network, no heavy package."""

import resource
import subprocess
import sys

import pytest

LOADED_WHEN_USED = {
    "lightning",
    "matplotlib",
    "ogb",
    "pandas",
    "rich",
    "sklearn",
    "torch_geometric",
    "torchmetrics",
    "transformers",
    "tyro",
}
SECONDS = 3.0
NO_NETWORK = """
import socket

def refuse(*args, **options):
    raise AssertionError(f"reached for the network: {args}")

socket.socket.connect = socket.socket.connect_ex = socket.getaddrinfo = refuse
"""


def run(code: str) -> subprocess.CompletedProcess[str]:
    """`code` in an interpreter of its own, where a warning is an error."""
    command = [sys.executable, "-W", "error", "-c", code]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def silent(result: subprocess.CompletedProcess[str]) -> bool:
    return (result.returncode, result.stdout, result.stderr) == (0, "", "")


def processor_seconds(code: str) -> float:
    """The cost of `code` in a fresh interpreter; unlike a clock it ignores a busy machine."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert silent(result := run(code)), result.stderr
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def test_import_is_silent_and_opens_no_connection() -> None:
    result = run(NO_NETWORK + "import graphtheory, threading\nassert threading.active_count() == 1")
    assert silent(result), result.stdout + result.stderr


def test_import_loads_no_heavy_package() -> None:
    result = run("import graphtheory, sys\nprint(*sys.modules)")
    assert LOADED_WHEN_USED.isdisjoint(result.stdout.split()), result.stderr
    assert "graphtheory.graph" in result.stdout.split()


def test_import_is_quick() -> None:
    assert min(processor_seconds("import graphtheory") for _ in range(2)) < SECONDS


@pytest.mark.parametrize(
    "code",
    [
        NO_NETWORK + "socket.create_connection(('127.0.0.1', 9))",
        "import warnings\nwarnings.warn('loud')",
        "print('hello')",
    ],
)
def test_planted_noise_is_found(code: str) -> None:
    assert not silent(run(code))
