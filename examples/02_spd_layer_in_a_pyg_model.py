"""The graph transformer layer inside an ordinary PyG model: images of digits, linked when alike."""

import torch
from torch.nn.functional import cross_entropy
from torch_geometric.nn import Sequential

from graphtheory import Neighborhood
from graphtheory.lab.datasets import graphs
from graphtheory.nn import SPDTransformerConv
from graphtheory.patterns import AddSelf, Compose, KHop

torch.manual_seed(0)
data = graphs.load("digits")
print(data)

# What a node attends to: itself and everything within two hops. It knows its distances.
pattern = Compose(KHop(2), AddSelf())
neighborhood = pattern(Neighborhood.from_edge_index(data.edge_index, data.num_nodes))
print(neighborhood)

# Where PyG's layers take an edge_index, this one also takes a Neighborhood.
model = Sequential(
    "x, neighborhood",
    [
        (SPDTransformerConv(64, 16, heads=2, num_buckets=3), "x, neighborhood -> x"),
        torch.nn.ELU(),
        torch.nn.Dropout(0.5),
        (SPDTransformerConv(32, 10, num_buckets=3), "x, neighborhood -> x"),
    ],
)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)

for epoch in range(1, 31):
    model.train()
    optimizer.zero_grad()
    logits = model(data.x, neighborhood)
    loss = cross_entropy(logits[data.train_mask], data.y[data.train_mask])
    loss.backward()
    optimizer.step()
    if epoch % 10 == 0:
        model.eval()
        with torch.no_grad():
            right = model(data.x, neighborhood).argmax(1) == data.y
        accuracy = right[data.val_mask].float().mean()
        print(f"epoch {epoch}  loss {loss:.3f}  validation accuracy {accuracy:.3f}")

# The layer learned how much a node of 0, 1 and 2 hops counts; all started at 0.
for head, values in enumerate(model[0].bucket_bias.table.t().tolist()):
    print(f"first layer, head {head}: bias by hops", [round(v, 3) for v in values])

# Without a pattern the plain edge_index works, too: distance 1, and 0 for loops.
print(SPDTransformerConv(64, 16, heads=2)(data.x, data.edge_index).shape)
