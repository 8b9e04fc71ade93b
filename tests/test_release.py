"""What is given away: one version everywhere, a wheel of the same bytes twice, that runs alone."""

import hashlib
import json
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import graphtheory

ROOT = Path(__file__).parent.parent


def test_the_version_is_the_same_everywhere() -> None:
    built = re.findall(r'^version = "(.+)"$', (ROOT / "pyproject.toml").read_text("utf-8"), re.M)
    cited = re.findall(r"^version: (.+)$", (ROOT / "CITATION.cff").read_text("utf-8"), re.M)
    assert built == cited == [graphtheory.__version__]
    headings = re.findall(r"^## \[(.+?)\]", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.M)
    assert headings[0] == "Unreleased" or headings[0] == graphtheory.__version__
    assert all(name == "Unreleased" or re.fullmatch(r"\d+\.\d+\.\d+", name) for name in headings)


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    pytest.importorskip("flit_core", reason="needs flit_core, which is not installed")
    build = "import sys; from flit_core import buildapi; print(buildapi.build_wheel(sys.argv[1]))"
    built = []
    for name in ("first", "second"):
        folder = tmp_path_factory.mktemp(name)
        made = subprocess.run(
            [sys.executable, "-c", build, str(folder)], cwd=ROOT, text=True, check=True,
            capture_output=True, env=os.environ | {"SOURCE_DATE_EPOCH": "1700000000"},
        )  # fmt: skip
        built.append(folder / made.stdout.split()[-1])
    return built


def test_the_wheel_is_the_same_twice_and_holds_the_package_and_nothing_else(
    wheels: list[Path],
) -> None:
    first, second = (hashlib.sha256(wheel.read_bytes()).hexdigest() for wheel in wheels)
    assert first == second
    with zipfile.ZipFile(wheels[0]) as archive:
        names = archive.namelist()
    inside = {name.partition("/")[0] for name in names}
    assert inside == {"graphtheory", f"pyg_graphtheory-{graphtheory.__version__}.dist-info"}
    assert {"graphtheory/py.typed", "graphtheory/lab/bench/tuned.json"} <= set(names)
    assert not [name for name in names if name.endswith((".pyc", ".nbi", ".nbc"))]


def test_the_wheel_runs_outside_the_checkout(wheels: list[Path], tmp_path: Path) -> None:
    with zipfile.ZipFile(wheels[0]) as archive:
        archive.extractall(tmp_path / "site")
    code = (
        "import runpy, sys, graphtheory\nprint(graphtheory.__file__, file=sys.stderr)\n"
        "sys.argv[1:] = 'doctor', '--json'\nrunpy.run_module('graphtheory', run_name='__main__')"
    )
    told = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, text=True, capture_output=True,
        env=os.environ | {"PYTHONPATH": str(tmp_path / "site")}, timeout=110,
    )  # fmt: skip
    assert told.returncode == 0, told.stderr
    assert json.loads(told.stdout)
    assert Path(told.stderr.splitlines()[0]).is_relative_to(tmp_path)
