"""Completion in a shell, as the shell asks for it."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[..., tuple[int, str, str]]


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        (("tr",), {"train"}),
        (("train", "--da"), {"--dataset", "--data"}),
        (("bench", "--dataset", "Cora", "--se"), {"--seeds", "--set", "--search-log"}),
        (("diagnose", "--q"), {"--quiet"}),
    ],
)
def test_bash_completes(run: Run, tmp_path, typed: tuple[str, ...], expected: set[str]) -> None:
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("needs bash")
    script = tmp_path / "graphtheory.bash"
    script.write_text(run("completion", "bash")[1])
    asked = (
        f"source {script}; COMP_WORDS=(graphtheory {' '.join(typed)}); COMP_CWORD={len(typed)}; "
        'for name in $(complete -p graphtheory); do [[ $name == _* ]] && "$name"; done; '
        'printf "%s\\n" "${COMPREPLY[@]}"'
    )
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    said = subprocess.run(
        [bash, "-c", asked], capture_output=True, text=True, check=True, env={"PATH": path}
    )
    assert set(said.stdout.split("\n")) - {""} == expected


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_script_is_one_that_its_shell_reads(run: Run, tmp_path: Path, shell: str) -> None:
    code, out, err = run("completion", shell)
    assert (code, err) == (0, "") and "graphtheory" in out and "--explorer" in out
    if shutil.which(shell) is None:
        pytest.skip(f"needs {shell} to read it")
    script = tmp_path / "script"
    script.write_text(out)
    subprocess.run([shell, "-n", str(script)], check=True, capture_output=True)
