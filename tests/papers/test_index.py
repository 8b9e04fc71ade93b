import os
import subprocess
import sys

import pytest

from graphtheory.papers import figure as index

MOST = 160  # modules of the package that a command may import before a cell runs, of more than 350
FIGURES = {
    "chain": "fig-7-3a",
    "core_neighborhood": "core-distance",
    "fusion": "deep-fusion-heads",
    "icl": "fig-6-5a",
    "mixture": "fig-4-8",
    "shallow_vit": "fig-2-6a",
    "topology": "opt-5",
    "vision": "kvt-k",
}
# Each figure in a process of its own, which begins with the command and other packages imported.
_COUNT = f"""
import os, sys
import lightning.pytorch, matplotlib.figure, networkx, numba, scipy.stats, sklearn.model_selection
import torch_geometric.nn, torchmetrics
from graphtheory.lab.cli import main
from graphtheory.papers.grid import Grid

def measure(*args, **options):
    ours = [name.split(".") for name in sys.modules if name.split(".")[0] == "graphtheory"]
    chapters = {{name[2] for name in ours if name[1:2] == ["papers"] and name[3:]}}
    print(figure, len(ours), *chapters)
    sys.stdout.flush()
    os._exit(0)

Grid.measure = measure
for figure in {[*FIGURES.values()]}:
    if os.fork():
        os.wait()
        continue
    main(["reproduce", figure, "--quick", "--quiet", "--out", sys.argv[1]])
    os._exit(1)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are forked")
def test_a_figure_imports_its_own_chapter_and_few_modules(tmp_path: object) -> None:
    command = [sys.executable, "-c", _COUNT, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found = {name: of for name, *of in map(str.split, done.stdout.splitlines())}
    assert {name: of[1:] for name, of in found.items()} == {
        figure: [chapter] for chapter, figure in FIGURES.items()
    }
    assert max(int(of[0]) for of in found.values()) <= MOST, found


def test_a_figure_alone_is_that_of_the_list_where_no_two_have_one_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    every = index.figures()
    assert all(index.figure(name) is one for name, one in every.items())
    assert index.figure("fig-3-88") is None
    twice = [path for path in index._modules() if path.parent.name == "vision"] * 2
    monkeypatch.setattr(index, "_modules", lambda: twice)
    with pytest.raises(ValueError, match="kvt-lemma-2 stands twice"):
        index.figures()
