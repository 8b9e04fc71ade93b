"""Graphormer on graphs with edge features: degree, distance, paths and a graph token."""

import torch
from torch_geometric.data import Data
from torch_geometric.loader import DataLoader

from graphtheory import Neighborhood, nn
from graphtheory.graph import GraphTokens
from graphtheory.structure import shortest_path_distance, shortest_path_edges

WIDTH, HEADS, STEPS = 32, 4, 3


def ring(nodes: int, label: int) -> Data:
    """A ring with two atoms of type 1: is there a double bond on the short way between them?"""
    ends = torch.stack([atom := torch.arange(nodes), atom.roll(-1)])
    edge_index = torch.cat([ends, ends.flip(0)], 1)
    bond = torch.randint(2, (nodes, 1))
    bond[:2] = torch.eye(2, dtype=torch.int64)[:, torch.randint(2, (1,))] * label
    graph = Neighborhood.from_edge_index(edge_index, nodes)
    return Data(
        x=((atom == 0) | (atom == 2)).long()[:, None], edge_index=edge_index,
        edge_attr=torch.cat([bond, bond]), y=torch.tensor([label]),
        distance=shortest_path_distance(graph).flatten(),
        paths=shortest_path_edges(graph, STEPS).flatten(0, 1),
    )  # fmt: skip


class Graphormer(torch.nn.Module):
    def __init__(self, atoms: tuple[int, ...], bonds: tuple[int, ...], classes: int) -> None:
        super().__init__()
        self.nodes = nn.NodeEncoder(atoms, WIDTH, degree=nn.DegreeEmbedding(8, WIDTH))
        self.path = nn.PathEncoding(bonds, HEADS, STEPS)
        self.token = torch.nn.Parameter(torch.randn(WIDTH))
        hops = [nn.BucketBias(8, HEADS, own_token=True) for _ in range(3)]
        self.layers = torch.nn.ModuleList(nn.GPSConv(WIDTH, None, HEADS, bias=b) for b in hops)
        self.head = torch.nn.Linear(WIDTH, classes)

    def forward(self, data: Data) -> torch.Tensor:
        tokens = GraphTokens(data.ptr.diff())
        x = tokens.features(self.nodes(data), self.token)
        paths = tokens.bias(self.path(data.edge_attr, data.paths, data.edge_index, data.batch))
        given = {"distance": tokens.distance(data.distance), "attn_bias": paths}
        for layer in self.layers:
            x = layer(x, None, tokens.batch, **given)
        return self.head(x[tokens.tokens])


torch.manual_seed(0)
graphs = [ring(n, label) for n in range(8, 18) for label in (0, 1) for _ in range(8)]
loader = DataLoader(graphs, batch_size=32, shuffle=True)
model = Graphormer(atoms=(2,), bonds=(2,), classes=2)
adam = torch.optim.Adam(model.parameters(), lr=3e-3)
for epoch in range(30):
    for batch in loader:
        adam.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(batch), batch.y)
        loss.backward()
        adam.step()
    print(f"epoch {epoch + 1}  loss of the last batch {loss:.3f}")
