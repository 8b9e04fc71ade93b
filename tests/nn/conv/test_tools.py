"""Tools of PyG, torch and others on layers after `accelerate`; the table of docs/tools.md."""

import pytest
import torch
import torch_geometric.nn as pyg
from torch import nn
from torch_geometric.explain import CaptumExplainer, Explainer
from torch_geometric.nn import models, summary
from torch_geometric.profile import count_parameters, get_model_size

from graphtheory.integrations.pyg import accelerate

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


def test_profile_counts(case) -> None:
    before, after, _, _ = case
    assert count_parameters(after) == count_parameters(before)
    assert get_model_size(after) == pytest.approx(get_model_size(before), rel=0.05)


@pytest.mark.filterwarnings("ignore:The .grad attribute")  # torch, where a graph breaks
def test_compile_dynamic(case) -> None:
    torch._dynamo.reset()
    _, after, x, edges = case
    compiled = torch.compile(after, backend="aot_eager", dynamic=True)
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
