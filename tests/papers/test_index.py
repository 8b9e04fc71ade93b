import subprocess
import sys

import pytest

from graphtheory.papers import index

MOST = 160  # modules of the package that a command may import, of more than 350

_COUNT = """
import sys
from graphtheory.lab.cli import main
code = main([{words}])
ours = [name.split(".") for name in sys.modules if name.split(".")[0] == "graphtheory"]
print(code, len(ours), *{{name[2] for name in ours if name[1:2] == ["papers"] and name[3:]}})
"""


def test_a_figure_imports_its_own_chapter_and_few_modules(tmp_path: object) -> None:
    words = repr(["reproduce", "fig-7-3a", "--quick", "--quiet", "--out", f"{tmp_path}"])[1:-1]
    code = _COUNT.format(words=words)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    returned, count, *chapters = done.stdout.splitlines()[-1].split()
    assert returned == "0" and chapters == ["chain"]
    assert int(count) <= MOST


def test_a_figure_alone_is_that_of_the_list() -> None:
    every = index.figures()
    assert all(index.figure(name) is one for name, one in every.items())
    assert index.figure("fig-3-88") is None


def test_two_figures_of_one_name_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    twice = [path for path in index._modules() if path.parent.name == "vision"] * 2
    monkeypatch.setattr(index, "_modules", lambda: twice)
    with pytest.raises(ValueError, match="kvt-k stands twice"):
        index.figures()
