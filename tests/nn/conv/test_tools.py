"""Tools of PyG, torch and others on layers after `accelerate`; the table of docs/tools.md."""

import shutil
import warnings

import pytest
import torch
import torch_geometric.nn as pyg
from torch import nn
from torch_geometric.explain import CaptumExplainer, Explainer
from torch_geometric.nn import models, summary
from torch_geometric.profile import count_parameters, get_model_size

from graphtheory.integrations.pyg import accelerate
from graphtheory.nn.conv import GPSConv, SPDTransformerConv

LAYERS = {
    "GATConv": lambda: models.GAT(6, 8, 2, 3, heads=2),
    "GATv2Conv": lambda: models.GAT(6, 8, 2, 3, v2=True),
    "GCNConv": lambda: models.GCN(6, 8, 2, 3),
    "GINConv": lambda: models.GIN(6, 8, 2, 3),
    "SAGEConv": lambda: models.GraphSAGE(6, 8, 2, 3),
    "TransformerConv": lambda: pyg.Sequential(
        "x, edge_index", [(pyg.TransformerConv(6, 3), "x, edge_index -> x")]
    ),
    "PNAConv": lambda: models.PNA(
        6, 8, 2, 3, aggregators=["mean", "max"], scalers=["identity"], deg=torch.tensor([1, 2, 3])
    ),
}


@pytest.fixture(params=LAYERS)
def case(request):
    """A model of PyG before and after `accelerate`, features and edges."""
    torch.manual_seed(0)
    before = LAYERS[request.param]().eval()
    after = LAYERS[request.param]().eval()
    after.load_state_dict(before.state_dict())
    assert accelerate(after).swapped
    edges = torch.randint(9, (2, 30))
    return before, after, torch.randn(9, 6), edges[:, edges[0] != edges[1]]


def test_summary(case) -> None:
    before, after, x, edges = case
    assert summary(after, x, edges) == summary(before, x, edges)


def test_summary_of_gps_has_no_shapes_of_its_attention() -> None:
    layer, edges = pyg.GPSConv(8, pyg.GCNConv(8, 8), heads=2), torch.tensor([[0, 1], [1, 0]])
    given = torch.randn(2, 8), edges
    before = _cells(summary(layer, *given))
    accelerate(layer)
    after = _cells(summary(layer, *given))
    assert [cells[-1] for cells in after] == [cells[-1] for cells in before]  # parameters
    changed = [new for old, new in zip(before, after, strict=True) if old != new]
    assert changed == [["├─(attn)MultiheadAttention", "--", "--", "288"]]


def _cells(table: str) -> list[list[str]]:
    rows = [line.strip("|").split("|") for line in table.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in row] for row in rows]


def test_profile_counts(case) -> None:
    before, after, _, _ = case
    assert count_parameters(after) == count_parameters(before)
    assert get_model_size(after) == pytest.approx(get_model_size(before), rel=0.05)


@pytest.mark.filterwarnings("ignore:The .grad attribute")  # torch, where a graph breaks
def test_compile_dynamic(case) -> None:
    torch._dynamo.reset()
    _, after, x, edges = case
    compiled = torch.compile(after, backend="eager", dynamic=True)
    for n in (9, 5):
        part = edges[:, (edges < n).all(0)]
        torch.testing.assert_close(compiled(x[:n], part), after(x[:n], part))


@pytest.mark.filterwarnings("ignore")  # Captum's own
def test_captum(case) -> None:
    pytest.importorskip("captum")
    before, after, x, edges = case

    def attribution(model: nn.Module):
        config = {"mode": "multiclass_classification", "task_level": "node", "return_type": "raw"}
        explainer = Explainer(
            model, CaptumExplainer("IntegratedGradients", n_steps=3), explanation_type="model",
            node_mask_type="attributes", edge_mask_type="object", model_config=config,
        )  # fmt: skip
        found = explainer(x, edges, index=2)
        return found.node_mask, found.edge_mask

    wanted = attribution(before)
    torch.testing.assert_close(attribution(after), wanted, rtol=1e-3, atol=1e-4)
    assert wanted[0].abs().sum() > 0


ONNX = {
    "GATConv": lambda: pyg.GATConv(6, 3, heads=2, add_self_loops=False),
    "GATv2Conv": lambda: pyg.GATv2Conv(6, 3, heads=2),
    "GCNConv": lambda: pyg.GCNConv(6, 3),
    "GINConv": lambda: pyg.GINConv(nn.Linear(6, 3)),
    "SAGEConv": lambda: pyg.SAGEConv(6, 3, aggr="max"),
    "TransformerConv": lambda: pyg.TransformerConv(6, 3, heads=2),
}


def to_onnx(layer: nn.Module, **given: torch.Tensor):
    """The layer for any number of nodes and edges; `given` are its arguments."""
    auto = torch.export.Dim.DYNAMIC
    shapes = {name: {1 if name == "edge_index" else 0: auto} for name in given}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's own
        return torch.onnx.export(
            layer, kwargs=given, dynamo=True, verbose=False, dynamic_shapes=shapes
        )


def assert_runs_by_onnx(layer: nn.Module, make, path, others: int = 2) -> None:
    """ONNX Runtime gives what the layer does, for the size of the export and others."""
    pytest.importorskip("onnxscript")
    runtime = pytest.importorskip("onnxruntime")
    program = to_onnx(layer, **make(9, 30))
    assert {node.domain for node in program.model.graph} == {""}
    program.save(path / "layer.onnx")
    session = runtime.InferenceSession(path / "layer.onnx")
    for nodes, count in ((9, 30), (5, 12), (17, 3))[: others + 1]:
        given = make(nodes, count)
        named = {i.name: given[i.name].numpy() for i in session.get_inputs()}
        (found,) = session.run(None, named)
        torch.testing.assert_close(torch.from_numpy(found), layer(**given), rtol=1e-4, atol=1e-5)


def nodes_and_edges(nodes: int, count: int) -> dict[str, torch.Tensor]:
    return {"x": torch.randn(nodes, 6), "edge_index": torch.randint(nodes, (2, count))}


@pytest.mark.parametrize("name", ONNX)
def test_onnx_has_standard_operators(name, tmp_path) -> None:
    layer = ONNX[name]().eval()
    assert accelerate(layer).swapped
    assert_runs_by_onnx(layer, nodes_and_edges, tmp_path)


CANNOT = {
    "GATConv": lambda: pyg.GATConv(6, 3),  # it appends self-loops
    "RGCNConv": lambda: pyg.RGCNConv(6, 3, num_relations=2),
}


@pytest.mark.parametrize("name", CANNOT)
def test_onnx_refuses_what_it_refuses_of_pyg(name) -> None:
    pytest.importorskip("onnxscript")
    given = nodes_and_edges(9, 30)
    if name == "RGCNConv":
        given["edge_type"] = torch.randint(2, (30,))
    layer = CANNOT[name]().eval()
    for swap in (False, True):
        if swap:
            assert accelerate(layer).swapped
        with pytest.raises(torch.onnx.errors.OnnxExporterError):
            to_onnx(layer, **given)


@pytest.mark.parametrize("batched", [False, True])
def test_onnx_of_attention_beside_messages(batched, tmp_path) -> None:
    """All pairs of nodes of one graph, or of each graph of a batch."""
    layer = GPSConv(6, pyg.GCNConv(6, 6), heads=2).eval()
    assert accelerate(layer).swapped

    def make(nodes: int, count: int) -> dict[str, torch.Tensor]:
        batch = {"batch": torch.arange(nodes) // 4} if batched else {}
        return nodes_and_edges(nodes, count) | batch

    assert_runs_by_onnx(layer, make, tmp_path)


SPD = [
    ({"heads": 2}, ()),
    ({"heads": 2, "own_token": True, "concat": False}, ("distance",)),
    ({"num_buckets": None, "scale": 1.0, "root_weight": False}, ("attn_bias",)),
    ({"heads": 2, "edge_dim": 4, "value_encoding": True}, ("distance", "edge_attr", "attn_bias")),
    ({"num_buckets": 300}, ("distance",)),
]


@pytest.mark.parametrize(("options", "names"), SPD, ids=str)
def test_onnx_of_the_graph_transformer(options, names, tmp_path) -> None:
    """PyG has no such layer, so its messages are those of `spd_messages`."""
    torch.manual_seed(0)
    layer = SPDTransformerConv(6, 3, **options).eval()
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.normal_()

    def make(nodes: int, count: int) -> dict[str, torch.Tensor]:
        more = {
            "distance": torch.randint(9, (count,)),
            "edge_attr": torch.randn(count, 4),
            "attn_bias": torch.randn(count, layer.heads),
        }
        return nodes_and_edges(nodes, count) | {name: more[name] for name in names}

    assert_runs_by_onnx(layer, make, tmp_path)


@pytest.mark.filterwarnings("ignore")  # of the compiler
@pytest.mark.skipif(shutil.which("g++") is None, reason="AOTInductor needs a C++ compiler")
def test_aot_inductor(tmp_path) -> None:
    layer, auto = pyg.GCNConv(6, 3).eval(), torch.export.Dim.DYNAMIC
    assert accelerate(layer).swapped
    given = torch.randn(9, 6), torch.randint(9, (2, 30))
    with torch.no_grad():
        shapes = {"x": {0: auto}, "edge_index": {1: auto}}
        program = torch.export.export(layer, given, dynamic_shapes=shapes)
        path = torch._inductor.aoti_compile_and_package(
            program, package_path=str(tmp_path / "l.pt2")
        )
        loaded = torch._inductor.aoti_load_package(path)
        for nodes, count in ((9, 30), (5, 12)):
            x, edges = torch.randn(nodes, 6), torch.randint(nodes, (2, count))
            torch.testing.assert_close(loaded(x, edges), layer(x, edges))
