"""`import graphtheory` is light: quick, silent, no network, no heavy package."""

import re
import resource
import subprocess
import sys
from pathlib import Path

import pytest

import graphtheory

LAB = {
    "lightning", "matplotlib", "networkx", "ogb", "optuna", "rich", "sklearn", "torchmetrics",
    "tyro",
}  # fmt: skip
LOADED_WHEN_USED = LAB - {"networkx"} | {"pandas", "torch_geometric", "transformers"}
MOST = 1.4  # times the processor time of importing torch and numba alone
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


def test_import_is_quick_and_silent_opens_no_connection_and_loads_no_heavy_package() -> None:
    code = (
        NO_NETWORK
        + f"""
import graphtheory, sys, threading
assert threading.active_count() == 1
assert {LOADED_WHEN_USED}.isdisjoint(sys.modules) and "graphtheory.graph" in sys.modules
"""
    )
    # whichever way the speed of a shared machine changes meanwhile
    assert any(
        processor_seconds(code) < MOST * processor_seconds("import torch, numba") for _ in range(3)
    )


def modules_of_core() -> list[str]:
    """Every module but those of vision, lab and papers, and kernels for GPUs, which need triton."""
    root = Path(graphtheory.__file__).parent
    paths = (path.relative_to(root).with_suffix("") for path in root.rglob("*.py"))
    others = {"vision", "lab", "papers", "__main__"}
    names = (".".join(p.parts) for p in paths if p.parts[0] not in others)
    kept = (n for n in names if not n.startswith("ops.backends.triton."))
    return sorted(f"graphtheory.{name}".removesuffix(".__init__") for name in kept)


def test_no_module_of_the_core_takes_a_package_of_the_lab() -> None:
    code = """
import builtins, importlib

usual = builtins.__import__

def refusing(name, globals=None, *rest, **options):
    by = (globals or {}).get("__name__", "")
    if by.startswith("graphtheory") and name.partition(".")[0] in {LAB}:
        raise AssertionError(f"{by} imports {name}")
    return usual(name, globals, *rest, **options)

builtins.__import__ = refusing
import graphtheory
for name in {CORE}:
    importlib.import_module(name)
"""
    code = code.replace("{LAB}", repr(LAB)).replace("{CORE}", repr(modules_of_core()))
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert found.returncode == 0, found.stderr


def test_without_the_lab_the_command_says_what_to_install() -> None:
    code = """
import importlib.util, sys
found = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name == "tyro" else found(name, *rest)
from graphtheory.lab import script
for words in (["doctor"], ["bench", "--dataset", "Cora"]):
    sys.argv = ["graphtheory", *words]
    try:
        script()
    except SystemExit as ended:
        print(ended)
"""
    told = run(code)
    assert (told.returncode, told.stderr) == (0, "")
    needs = r"the command graphtheory needs (.*, )?tyro, which the extra 'lab' installs: "
    said = re.compile(rf"{needs}pip install 'pyg-graphtheory\[lab\]'")
    assert [bool(said.fullmatch(line)) for line in told.stdout.splitlines()] == [True, True]


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
