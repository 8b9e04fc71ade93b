"""What the host does in a step on a GPU: it calls, launches and waits no more than it did."""

import json
from types import ModuleType

import pytest

from tests.benchmarks.conftest import run

# Python functions that a step calls, launches of our kernels, and waits for the device, with
# Python 3.11, torch 2.13 and Triton 3.9. Fewer are better; more need a reason.
MOST = {
    "ops.attention": (58, 3, 0),
    "k-nearest attention in blocks of 16": (68, 3, 0),
    "TransformerConv": (75, 3, 0),
    "TransformerConv, new edges": (314, 4, 1),
    "GATConv": (69, 4, 0),
    "GATConv, new edges": (342, 5, 1),
    "GATv2Conv": (79, 6, 0),
    "GATv2Conv, new edges": (431, 7, 1),
    "GCNConv": (59, 2, 0),
    "GCNConv, new edges": (60, 0, 1),
    "SAGEConv": (84, 1, 0),
    "SAGEConv, new edges": (59, 0, 0),
    "GINConv": (64, 1, 0),
    "GINConv, new edges": (50, 0, 0),
    "GINEConv": (91, 2, 0),
    "GINEConv, new edges": (63, 0, 0),
    "TransformerConv, features of edges": (93, 11, 0),
    "TransformerConv, features of edges, new edges": (147, 0, 0),
    "GATv2Conv, features of edges": (90, 7, 0),
    "GATv2Conv, features of edges, new edges": (126, 0, 2),
    "SPDTransformerConv": (79, 4, 0),
    "SPDTransformerConv, new edges": (367, 5, 1),
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


def test_a_run_measures_both_sides_and_every_step_is_held(counted: dict[str, list[int]]) -> None:
    assert counted.keys() == MOST.keys()
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
