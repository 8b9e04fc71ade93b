"""Tools on layers of several kinds of edges after `accelerate`; rows of docs/tools.md."""

import pytest
import torch
import torch_geometric.nn as pyg
from torch import nn
from torch_geometric.explain import CaptumExplainer, Explainer
from torch_geometric.nn import summary
from torch_geometric.profile import count_parameters, get_model_size

from graphtheory.integrations.pyg import accelerate
from tests.nn.conv.typed_graphs import typed_graph

KINDS = [("a", "to", "a"), ("a", "on", "b"), ("b", "by", "a")]
NODES, WIDTHS = {"a": 7, "b": 4}, {"a": 6, "b": 5}
BY_RELATION = ["RGCNConv", "FastRGCNConv"]
BY_KIND = ["HGTConv", "HANConv"]


class Net(nn.Module):
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


def make(name: str):
    """A model of PyG before and after `accelerate`, and what it is called with."""
    torch.manual_seed(0)
    before, after = Net(name).eval(), Net(name).eval()
    after.load_state_dict(before.state_dict())
    assert [swap.name for swap in accelerate(after).swapped] == ["conv"]
    if name in BY_RELATION:
        edges = torch.randint(9, (2, 30))
        return before, after, (torch.randn(9, 6), edges, torch.randint(2, (30,)))
    x, edges = typed_graph(NODES, WIDTHS, KINDS)
    return before, after, ({kind: features.float() for kind, features in x.items()}, edges)


@pytest.mark.parametrize("name", BY_RELATION + BY_KIND)
def test_summary_and_profile(name) -> None:
    before, after, given = make(name)
    table = summary(after, *given)
    assert table == summary(before, *given)
    assert name in table
    assert count_parameters(after) == count_parameters(before)
    assert get_model_size(after) == pytest.approx(get_model_size(before), rel=0.05)


def attribution(model: nn.Module, given) -> list[torch.Tensor]:
    """Integrated gradients of the features of each kind of nodes."""
    config = {"mode": "multiclass_classification", "task_level": "node", "return_type": "raw"}
    explainer = Explainer(
        model, CaptumExplainer("IntegratedGradients", n_steps=3), explanation_type="model",
        node_mask_type="attributes", edge_mask_type=None, model_config=config,
    )  # fmt: skip
    more = {"edge_type": given[2]} if len(given) > 2 else {}
    found = explainer(*given[:2], index=2, **more)
    return [found.node_mask] if more else [found[kind].node_mask for kind in NODES]


@pytest.mark.filterwarnings("ignore")  # Captum's own
@pytest.mark.parametrize("name", BY_RELATION + BY_KIND)
def test_captum(name) -> None:
    """Of nodes: of these layers PyG itself weighs no edges."""
    pytest.importorskip("captum")
    before, after, given = make(name)
    wanted = attribution(before, given)
    torch.testing.assert_close(attribution(after, given), wanted, rtol=1e-3, atol=1e-4)
    assert wanted[0].abs().sum() > 0
