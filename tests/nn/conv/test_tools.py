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
from tests.nn.conv.conftest import typed_graph

LAYERS = {
    "GATConv": lambda: models.GAT(6, 8, 1, 3, heads=2),
    "GATv2Conv": lambda: models.GAT(6, 8, 1, 3, v2=True),
    "GCNConv": lambda: models.GCN(6, 8, 2, 3),
    "GINConv": lambda: models.GIN(6, 8, 1, 3),
    "SAGEConv": lambda: models.GraphSAGE(6, 8, 1, 3),
    "TransformerConv": lambda: pyg.Sequential(
        "x, edge_index", [(pyg.TransformerConv(6, 3), "x, edge_index -> x")]
    ),
    "PNAConv": lambda: models.PNA(
        6, 8, 1, 3, aggregators=["mean", "max"], scalers=["identity"], deg=torch.tensor([1, 2, 3])
    ),
}


KINDS = [("a", "to", "a"), ("a", "on", "b"), ("b", "by", "a")]
NODES, WIDTHS = {"a": 7, "b": 4}, {"a": 6, "b": 5}
BY_RELATION, BY_KIND = ["RGCNConv", "FastRGCNConv"], ["HGTConv", "HANConv"]


class Typed(nn.Module):
    """A layer and a linear map of its result, of node type "a" where there are types."""

    def __init__(self, name: str) -> None:
        super().__init__()
        layer = getattr(pyg, name)
        if name in BY_RELATION:
            self.conv = layer(6, 8, num_relations=2)
        else:
            self.conv = layer(WIDTHS, 8, (list(NODES), KINDS), heads=2)
        self.out = nn.Linear(8, 3)

    def forward(self, x, edges, edge_type=None):
        if edge_type is None:
            return self.out(self.conv(x, edges)["a"].relu())
        return self.out(self.conv(x, edges, edge_type).relu())


def made(name: str):
    """A model of PyG before and after `accelerate`, and what it is called with."""
    torch.manual_seed(0)
    before, after = (LAYERS[name]() if name in LAYERS else Typed(name) for _ in range(2))
    after.load_state_dict(before.state_dict())
    assert accelerate(after.eval()).swapped
    if name in BY_KIND:
        x, edges = typed_graph(NODES, WIDTHS, KINDS)
        return before.eval(), after, ({t: features.float() for t, features in x.items()}, edges)
    edges = torch.randint(9, (2, 30))
    given = torch.randn(9, 6), edges[:, edges[0] != edges[1]] if name in LAYERS else edges
    given += (torch.randint(2, (30,)),) if name in BY_RELATION else ()
    return before.eval(), after, given


@pytest.mark.parametrize("name", [*LAYERS, *BY_RELATION, *BY_KIND])
def test_summary_and_profile(name) -> None:
    pytest.importorskip("tabulate")
    before, after, given = made(name)
    table = summary(after, *given)
    assert table == summary(before, *given) and name in table
    assert count_parameters(after) == count_parameters(before)
    assert get_model_size(after) == pytest.approx(get_model_size(before), rel=0.05)


def test_summary_of_gps() -> None:
    pytest.importorskip("tabulate")
    layer, edges = pyg.GPSConv(8, pyg.GCNConv(8, 8), heads=2), torch.tensor([[0, 1], [1, 0]])
    before = summary(layer, torch.randn(2, 8), edges)
    accelerate(layer)
    assert summary(layer, torch.randn(2, 8), edges) == before


@pytest.mark.filterwarnings("ignore:The .grad attribute")  # torch, where a graph breaks
@pytest.mark.parametrize("name", LAYERS)
def test_compile_dynamic(name) -> None:
    torch._dynamo.reset()
    _, after, (x, edges) = made(name)
    compiled = torch.compile(after, backend="eager", dynamic=True)
    for n in (9, 5):
        part = edges[:, (edges < n).all(0)]
        torch.testing.assert_close(compiled(x[:n], part), after(x[:n], part))


@pytest.mark.filterwarnings("ignore")  # Captum's own
@pytest.mark.parametrize("name", [*LAYERS, *BY_RELATION, *BY_KIND])
def test_captum(name) -> None:
    """Of typed layers only nodes: PyG itself weighs no edges of these."""
    pytest.importorskip("captum")
    before, after, (x, edges, *types) = made(name)
    config = {"mode": "multiclass_classification", "task_level": "node", "return_type": "raw"}

    def attribution(model: nn.Module):
        explainer = Explainer(
            model, CaptumExplainer("IntegratedGradients", n_steps=3), explanation_type="model",
            node_mask_type="attributes", edge_mask_type="object" if name in LAYERS else None,
            model_config=config,
        )  # fmt: skip
        found = explainer(x, edges, index=2, **({"edge_type": types[0]} if types else {}))
        if name in BY_KIND:
            return [found[kind].node_mask for kind in NODES]
        return [found.node_mask, found.edge_mask] if name in LAYERS else [found.node_mask]

    wanted = attribution(before)
    torch.testing.assert_close(attribution(after), wanted, rtol=1e-3, atol=1e-4)
    assert wanted[0].abs().sum() > 0


AUTO = torch.export.Dim.DYNAMIC
ONNX = {
    "GATConv": pyg.GATConv(6, 3, heads=2, add_self_loops=False),
    "GATv2Conv": pyg.GATv2Conv(6, 3, heads=2),
    "GCNConv": pyg.GCNConv(6, 3),
    "GINConv": pyg.GINConv(nn.Linear(6, 3)),
    "SAGEConv": pyg.SAGEConv(6, 3, aggr="max"),
    "TransformerConv": pyg.TransformerConv(6, 3, heads=2),
    "all pairs": GPSConv(6, pyg.GCNConv(6, 6), heads=2),
}
# PyG has no such layer, so its messages are those of its definition.
SPD = [
    ({"num_buckets": 300}, ()),
    ({"own_token": True, "concat": False}, ("distance",)),
    ({"num_buckets": None, "scale": 1.0, "root_weight": False}, ("attn_bias",)),
    ({"edge_dim": 4, "value_encoding": True}, ("distance", "edge_attr", "attn_bias")),
]


class Exported(nn.Module):
    """Every layer that can be exported, beside each other: one export of all."""

    def __init__(self) -> None:
        super().__init__()
        self.plain = nn.ModuleDict(ONNX)
        self.pairs = GPSConv(6, pyg.GCNConv(6, 6), heads=2)
        self.spd = nn.ModuleList(SPDTransformerConv(6, 3, heads=2, **options) for options, _ in SPD)

    def forward(self, x, edge_index, batch, distance, edge_attr, attn_bias):
        more = {"distance": distance, "edge_attr": edge_attr, "attn_bias": attn_bias}
        found = [layer(x, edge_index) for layer in self.plain.values()]
        found.append(self.pairs(x, edge_index, batch=batch))
        for layer, (_, names) in zip(self.spd, SPD, strict=True):
            found.append(layer(x, edge_index, **{name: more[name] for name in names}))
        return tuple(found)


def to_onnx(layer: nn.Module, given: dict[str, torch.Tensor]):
    shapes = {name: {1 if name == "edge_index" else 0: AUTO} for name in given}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's own
        return torch.onnx.export(
            layer, kwargs=given, dynamo=True, verbose=False, dynamic_shapes=shapes, optimize=False
        )


def nodes_and_edges(nodes: int, count: int) -> dict[str, torch.Tensor]:
    return {"x": torch.randn(nodes, 6), "edge_index": torch.randint(nodes, (2, count))}


def test_onnx_has_standard_operators_for_graphs_of_any_size(tmp_path) -> None:
    """ONNX Runtime gives what the layers do, for the size of the export and others."""
    pytest.importorskip("onnxscript")
    runtime = pytest.importorskip("onnxruntime")
    model = Exported().eval()
    assert len(accelerate(model).swapped) == 8
    with torch.no_grad():
        for parameter in model.spd.parameters():
            parameter.normal_()

    def make(nodes: int, count: int) -> dict[str, torch.Tensor]:
        more = {"batch": torch.arange(nodes) // 4, "distance": torch.randint(9, (count,))}
        more |= {"edge_attr": torch.randn(count, 4), "attn_bias": torch.randn(count, 2)}
        return nodes_and_edges(nodes, count) | more

    program = to_onnx(model, make(9, 30))
    assert {node.domain for node in program.model.graph} == {""}
    program.save(tmp_path / "layers.onnx")
    session = runtime.InferenceSession(tmp_path / "layers.onnx")
    for nodes, count in ((9, 30), (5, 12), (17, 3)):
        given = make(nodes, count)
        found = session.run(None, {i.name: given[i.name].numpy() for i in session.get_inputs()})
        wanted = [out.detach().numpy() for out in model(**given)]
        torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["GATConv", "RGCNConv"])
def test_onnx_refuses_what_it_refuses_of_pyg(name) -> None:
    """Self-loops that are appended, and relations."""
    pytest.importorskip("onnxscript")
    given, options = nodes_and_edges(9, 30), {}
    if name == "RGCNConv":
        given["edge_type"], options = torch.randint(2, (30,)), {"num_relations": 2}
    layer = getattr(pyg, name)(6, 3, **options).eval()
    for swap in (False, True):
        assert not swap or accelerate(layer).swapped
        with pytest.raises(torch.onnx.errors.OnnxExporterError):
            to_onnx(layer, given)


@pytest.mark.slow  # half a minute of a C++ compiler
@pytest.mark.filterwarnings("ignore")  # of the compiler
@pytest.mark.skipif(shutil.which("g++") is None, reason="AOTInductor needs a C++ compiler")
def test_aot_inductor(tmp_path) -> None:
    layer = pyg.GCNConv(6, 3).eval()
    assert accelerate(layer).swapped
    given = torch.randn(9, 6), torch.randint(9, (2, 30))
    with torch.no_grad():
        shapes = {"x": {0: AUTO}, "edge_index": {1: AUTO}}
        program = torch.export.export(layer, given, dynamic_shapes=shapes)
        path = torch._inductor.aoti_compile_and_package(
            program, package_path=str(tmp_path / "l.pt2"),
            inductor_configs={"aot_inductor.debug_compile": True},  # which takes less time
        )  # fmt: skip
        loaded = torch._inductor.aoti_load_package(path)
        for nodes, count in ((9, 30), (5, 12)):
            x, edges = torch.randn(nodes, 6), torch.randint(nodes, (2, count))
            torch.testing.assert_close(loaded(x, edges), layer(x, edges))
