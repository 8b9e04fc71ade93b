"""Drop-in layers: PyG's names, arguments, parameters and results, computed on this core."""

import torch
from torch import nn
from torch_geometric import nn as pyg

from graphtheory import nn as core
from graphtheory.lab.datasets import graphs


class Net(nn.Module):
    """Two GAT layers from whichever module offers them."""

    def __init__(self, layers, features: int, classes: int) -> None:
        super().__init__()
        self.first = layers.GATConv(features, 8, heads=4, dropout=0.2)
        self.second = layers.GATConv(32, classes, heads=2, concat=False)

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        return self.second(self.first(x, edge_index).relu(), edge_index)


torch.manual_seed(0)
data = graphs.load("digits")
theirs = Net(pyg, 64, 10).eval()
ours = Net(core, 64, 10).eval()

# The state dict has the same names and shapes, so trained weights move either way.
ours.load_state_dict(theirs.state_dict())
expected, found = theirs(data.x, data.edge_index), ours(data.x, data.edge_index)
print("outputs", tuple(found.shape), "largest difference", f"{(found - expected).abs().max():.1e}")

# So have the gradients.
expected.square().mean().backward()
found.square().mean().backward()
for (name, a), (_, b) in zip(theirs.named_parameters(), ours.named_parameters(), strict=True):
    print(f"  {name:22} gradient differs by {(a.grad - b.grad).abs().max():.1e}")

# Each layer by itself; what PyG's layer returns besides, this one returns, too.
for name in ("GATConv", "GATv2Conv", "TransformerConv", "GCNConv"):
    layer, twin = getattr(pyg, name)(64, 16).eval(), getattr(core, name)(64, 16).eval()
    twin.load_state_dict(layer.state_dict())
    gap = (layer(data.x, data.edge_index) - twin(data.x, data.edge_index)).abs().max()
    print(f"{twin!r:28} differs by {gap:.1e}")
_, (edges, weights) = ours.first(data.x, data.edge_index, return_attention_weights=True)
print("attention weights", tuple(weights.shape), "of edges", tuple(edges.shape))
