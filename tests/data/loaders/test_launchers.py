"""The script of examples/ for three launchers: the same numbers, also after a rank was killed."""

import importlib.util
import os
import re
import runpy
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from battery.forked import printed

ROOT = Path(__file__).parents[3]
SCRIPT, EPOCHS = str(ROOT / "examples" / "13_launchers.py"), "6"
TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
ENV, SECONDS = {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}, 120

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="finds processes in /proc"),
    pytest.mark.timeout(3 * SECONDS),  # each process imports all, on a busy machine for a minute
]


def command(name: str, folder: Path) -> dict[str, Any]:
    """The arguments of `subprocess.run`."""
    words = [sys.executable, *(TORCHRUN if name == "torchrun" else ()), SCRIPT, name, EPOCHS]
    env = os.environ | ENV | {"RAY_TRAIN_V2_ENABLED": "1"}
    said = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    return {"args": words, "cwd": folder, "env": env, "start_new_session": True, **said}


def by_lightning(folder: Path) -> None:
    """As Python runs the script, less its imports; Lightning starts the second process by name."""
    os.chdir(folder)
    os.environ |= ENV
    torch.set_num_threads(1)
    sys.argv = [SCRIPT, "lightning", EPOCHS]
    runpy.run_path(SCRIPT, run_name="__main__")


def losses(name: str, folder: Path, seconds: int = SECONDS) -> list[float]:
    """What the processes leave, and say, when all went well."""
    if name == "lightning":
        said, code = printed(by_lightning, folder)
    else:
        done = subprocess.run(**command(name, folder), timeout=seconds)
        said, code = done.stdout, done.returncode
    assert code == 0, said[-3000:]
    found = torch.load(folder / "launchers.pt")["losses"]
    if name != "ray":  # which leaves out lines that are alike
        assert re.findall(r"loss (\S+) after", said)[-1] == repr(found[-1])
    return found


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> list[float]:
    return losses("lightning", tmp_path_factory.mktemp("lightning"))


def processes_in(folder: Path) -> dict[int, bytes]:
    """The processes that run in a folder, by id, and the environment of each."""
    found = {}
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if (process / "cwd").resolve() == folder:
                found[int(process.name)] = (process / "environ").read_bytes()
        except OSError:  # it has ended
            continue
    return found


@pytest.fixture(scope="module")
def interrupted(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int | None, set[int]]:
    """Where a run was ended by SIGTERM to one rank; its exit status, and who ran 10 s later."""
    folder = tmp_path_factory.mktemp("torchrun").resolve()
    process = subprocess.Popen(**command("torchrun", folder))
    deadline = time.monotonic() + SECONDS
    while not (folder / "launchers.pt").exists():
        assert time.monotonic() < deadline and process.poll() is None
        time.sleep(0.01)
    ranks = [i for i, told in processes_in(folder).items() if b"\0RANK=1\0" in told]
    os.kill(ranks[0], signal.SIGTERM)
    process.communicate(timeout=10)
    return folder, process.returncode, {*processes_in(folder)}


def test_one_rank_that_ends_ends_all(interrupted: tuple[Path, int | None, set[int]]) -> None:
    folder, status, left = interrupted
    assert status not in (0, None) and not left
    begun = torch.load(folder / "launchers.pt")
    assert begun["loader"]["step"] in (0, 3) and len(begun["losses"]) >= 3


def test_the_run_goes_on_to_the_numbers_of_another_launcher(interrupted, uninterrupted) -> None:
    begun = torch.load(interrupted[0] / "launchers.pt")["losses"]
    assert begun == uninterrupted[: len(begun)] and len(begun) < len(uninterrupted)
    assert losses("torchrun", interrupted[0]) == uninterrupted


@pytest.mark.skipif(not importlib.util.find_spec("ray"), reason="needs ray: pip install ray[train]")
def test_ray_train_finds_the_same_numbers(uninterrupted: list[float], tmp_path: Path) -> None:
    assert losses("ray", tmp_path, 2 * SECONDS) == uninterrupted  # its services start and end, too
