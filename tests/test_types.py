"""What type checkers and editors know of the library, from a file as a user writes it."""

import pydoc
from pathlib import Path

import pytest

import graphtheory

ROOT = Path(__file__).parents[1]
USER = """
import torch
import graphtheory
from graphtheory import nn, patterns
from graphtheory.models import GraphTransformer

x, edge_index = torch.randn(3, 16), torch.tensor([[0, 1], [1, 2]])
near = patterns.KHop(2)(edge_index)
conv = nn.GATConv(16, 8)
reveal_type(near)
reveal_type(nn.GCNConv(16, 8)(x, edge_index))
reveal_type(nn.TransformerConv(16, 8)(x, edge_index))
reveal_type(nn.SPDTransformerConv(16, 8)(x, near))
reveal_type(nn.GPSConv(16, conv)(x, edge_index))
reveal_type(nn.Attention(16, 2)(x, near))
reveal_type(GraphTransformer(16, 8, 3)(x, edge_index))
reveal_type(conv(x, edge_index, return_attention_weights=True))
reveal_type(graphtheory.accelerate(conv, report=(x, edge_index)))
graphtheory.accelerate(conv, sparse=True)
graphtheory.bench("Cora", seeds="3")
"""
TENSOR = "torch._tensor.Tensor"
KNOWN = [
    "graphtheory.graph.neighborhood.Neighborhood",
    *[TENSOR] * 6,
    f"tuple[{TENSOR}, Any]",
    "graphtheory.integrations.pyg.Acceleration",
]


@pytest.mark.timeout(400)
def test_a_users_file_has_types(tmp_path: Path) -> None:
    api = pytest.importorskip("mypy.api", reason="needs mypy")
    (tmp_path / "user.py").write_text(USER)
    config = ("--config-file", str(ROOT / "pyproject.toml"))
    said, errors, _ = api.run([*config, str(tmp_path / "user.py")])
    lines = said.splitlines()
    assert not errors
    assert [line.split('"')[1] for line in lines if "Revealed type" in line] == KNOWN
    wrong = [line for line in lines if ": error:" in line]
    assert ['"sparse"' in wrong[0], '"seeds"' in wrong[1], len(wrong)] == [True, True, 2], said


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("bench", ["bench(", "data: 'Any'", "seeds: 'int' = 3", "-> 'Comparison'"]),
        ("accelerate", ["accelerate(", "model: 'nn.Module'", "report: 'Any' = None"]),
    ],
)
def test_help_shows_the_arguments(name: str, arguments: list[str]) -> None:
    told = pydoc.render_doc(getattr(graphtheory, name), renderer=pydoc.plaintext)
    assert [argument for argument in arguments if argument not in told] == []


def test_dir_shows_what_there_is_and_nothing_else() -> None:
    folder = Path(graphtheory.__file__).parent
    parts = {path.parent.name for path in folder.glob("*/__init__.py")}
    assert set(dir(graphtheory)) == {*graphtheory.__all__, *parts, "__version__"}
    for name in dir(graphtheory):
        assert getattr(graphtheory, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = graphtheory.nothing
