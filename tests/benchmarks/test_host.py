"""What the host does in a step on a GPU: it calls, launches and waits no more than it did."""

import json
from types import ModuleType

import pytest

from tests.benchmarks.conftest import run

# Python functions that a step calls, launches of our kernels, and waits for the device, with
# Python 3.11, torch 2.13 and Triton 3.9. Fewer are better; more need a reason.
MOST = {
    "ops.attention": (239, 3, 0),
    "k-nearest attention in blocks of 16": (231, 3, 0),
    "TransformerConv": (323, 3, 0),
    "TransformerConv, new edges": (453, 3, 11),
    "GATConv": (295, 3, 0),
    "GATConv, new edges": (451, 3, 12),
    "GATv2Conv": (621, 8, 0),
    "GATv2Conv, new edges": (810, 8, 12),
    "GCNConv": (209, 2, 0),
    "GCNConv, new edges": (490, 3, 12),
    "SAGEConv": (205, 1, 0),
    "SAGEConv, new edges": (300, 1, 8),
    "GINConv": (131, 1, 0),
    "GINConv, new edges": (205, 1, 7),
    "GINEConv": (288, 3, 0),
    "GINEConv, new edges": (392, 3, 11),
    "TransformerConv, features of edges": (677, 11, 0),
    "TransformerConv, features of edges, new edges": (815, 11, 11),
    "GATv2Conv, features of edges": (687, 9, 0),
    "GATv2Conv, features of edges, new edges": (884, 9, 12),
    "SPDTransformerConv": (418, 4, 0),
    "SPDTransformerConv, new edges": (569, 4, 13),
}


@pytest.fixture(scope="module")
def counted() -> dict[str, list[int]]:
    pytest.importorskip("triton", reason="triton is not installed")
    told = run("host", "--count")
    if told.returncode == 2:
        pytest.skip(told.stderr)
    assert told.returncode == 0, told.stderr
    return json.loads(told.stdout)


@pytest.mark.timeout(400)  # the first time, kernels are compiled
@pytest.mark.parametrize("step", MOST)
def test_a_step_calls_launches_and_waits_no_more(counted: dict[str, list[int]], step: str) -> None:
    frames, launches, waits = counted[step]
    assert (launches, waits) == MOST[step][1:]
    assert frames <= MOST[step][0]


def test_every_step_is_held(counted: dict[str, list[int]]) -> None:
    assert counted.keys() == MOST.keys()


def test_a_run_measures_both_sides(counted: dict[str, list[int]]) -> None:
    told = run("host", "--quick", "--names", "GINConv")
    for what in ("GINConv, PyG over graphtheory", "graphtheory: Python frames", "new edges, PyG"):
        assert what in told.stdout, told.stderr


@pytest.mark.parametrize("missing", ["triton", "compiler"])
def test_without_triton_or_a_compiler_the_code_is_2(
    module: ModuleType, missing: str, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    stub = __import__("_stub")
    monkeypatch.setattr(stub, "find_spec", lambda name: None if missing == "triton" else name)
    monkeypatch.setattr(stub, "_compiler", lambda: None)
    with pytest.raises(SystemExit) as ended:
        module.main()
    assert ended.value.code == 2 and missing in capsys.readouterr().err
