"""Seeds attend to the sampled rows of a database, with a learned bias for hop, table and time.

Batches are PyG's NeighborLoader's. Attention is fused, without a tensor of seeds times rows.
"""

import warnings

import torch
from torch import nn
from torch_geometric.data import Data, HeteroData
from torch_geometric.loader import NeighborLoader
from torch_geometric.transforms import ToUndirected

from graphtheory import Neighborhood
from graphtheory.nn import SPDTransformerConv
from graphtheory.patterns import AddSelf, Compose, KHop, on_rows

USERS, ORDERS, PRODUCTS, HOPS, AGES, WIDTH = 600, 6000, 200, 2, 4, 32
warnings.filterwarnings("ignore", message=".*without a 'pyg-lib' installation")
torch.manual_seed(0)
data, kind = HeteroData(), torch.randint(2, (PRODUCTS,))
orders, user = torch.arange(ORDERS), torch.randint(USERS, (ORDERS,))
product = torch.randint(PRODUCTS, (ORDERS,))
bought = torch.zeros(USERS).index_add(0, user, kind[product] * 2.0 - 1)
data["user"].x, data["user"].y = torch.randn(USERS, 4), (bought > 0).long()  # told two hops away
data["order"].x, data["product"].x = torch.randn(ORDERS, 3), torch.randn(PRODUCTS, 5)
data["product"].x[:, 0] += 2 * kind
for table in data.node_types:  # in which quarter an order was made; other rows have no time
    data[table].age = torch.zeros(data[table].num_nodes, dtype=torch.int64)
data["order"].age = torch.randint(AGES, (ORDERS,))
data["order", "by", "user"].edge_index = torch.stack([orders, user])
data["product", "in", "order"].edge_index = torch.stack([product, orders])
tables = (data := ToUndirected()(data)).node_types


def reached(flat: Data, seeds: int) -> Neighborhood:
    """What each of the first nodes of a batch attends to; its bucket stands for the distance."""
    graph = Neighborhood.from_edge_index(flat.edge_index, flat.num_nodes)
    near = on_rows(Compose(KHop(HOPS), AddSelf()), graph, torch.arange(seeds))
    of_source = (flat.node_type * AGES + flat.age)[near.indices]
    return near.replace(distance=near.distance * len(tables) * AGES + of_source.byte())


enter = nn.ModuleDict({name: nn.Linear(data[name].x.size(1), WIDTH) for name in tables})
attend = SPDTransformerConv(WIDTH, 8, heads=4, num_buckets=(HOPS + 1) * len(tables) * AGES)
net = nn.ModuleList([enter, attend, nn.Linear(WIDTH, 2)])
optimizer = torch.optim.Adam(net.parameters(), 0.01)
train = torch.arange(USERS) < 400
first = NeighborLoader(data, [20, 5], input_nodes=("user", train), batch_size=100, shuffle=True)
rest = NeighborLoader(data, [-1, -1], input_nodes=("user", ~train), batch_size=USERS)
for batch in [*(batch for _ in range(10) for batch in first), *rest]:
    x = torch.cat([enter[name](batch[name].x) for name in tables]).relu()
    flat, seeds = batch.to_homogeneous(), batch["user"].batch_size
    out = net[2](attend((x, x[:seeds]), reached(flat, seeds)).relu())
    loss = nn.functional.cross_entropy(out, batch["user"].y[:seeds])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
right = out.argmax(1) == batch["user"].y[:seeds]  # of the last batch, computed before its step
print(f"test accuracy {right.float().mean():.2f}")
