"""Train on a graph in DuckDB (pip install duckdb): features by id, edges by pages into a file."""

from tempfile import mkdtemp

import duckdb
import numpy as np
import torch
from torch_geometric.data import EdgeAttr, FeatureStore, GraphStore, TensorAttr

from graphtheory.data.loaders import NodeSetLoader
from graphtheory.lab.datasets import graphs
from graphtheory.models import SampledGCN
from graphtheory.patterns import AddSelf, Compose, MeanNormalize, Sample

data, folder, page = graphs.load("digits"), mkdtemp(), 4096
num_nodes, width = data.x.shape
nodes = {"id": np.arange(num_nodes)} | {f"x{k}": x.numpy() for k, x in enumerate(data.x.t())}
edges = dict(zip(("src", "dst"), data.edge_index.numpy(), strict=True))
db = duckdb.connect(f"{folder}/graph.duckdb")
db.execute("CREATE TABLE nodes AS FROM nodes; CREATE TABLE edges AS FROM edges")


class Nodes(FeatureStore):
    def _get_tensor(self, attr: TensorAttr) -> torch.Tensor:
        asked = {"id": attr.index.numpy(), "place": np.arange(len(attr.index))}  # noqa: F841
        rows = db.execute("FROM asked JOIN nodes USING (id) ORDER BY place").fetchnumpy()
        return torch.from_numpy(np.stack([rows[f"x{k}"] for k in range(width)], 1))

    _get_tensor_size = lambda self, attr: (num_nodes, width)  # noqa: E731
    get_all_tensor_attrs = lambda self: [TensorAttr(None, "x")]  # noqa: E731
    _put_tensor = _remove_tensor = NotImplemented


class Edges(GraphStore):
    def _get_edge_index(self, attr: EdgeAttr) -> tuple[torch.Tensor, torch.Tensor]:
        found = db.execute("SELECT src, dst FROM edges ORDER BY dst, src")
        degree = np.zeros(num_nodes)
        source = np.memmap(f"{folder}/sources", np.int64, "w+", shape=data.num_edges)
        for first in range(0, data.num_edges, page):
            source[first : first + page], dst = np.array(found.fetchmany(page)).T
            degree += np.bincount(dst, minlength=num_nodes)
        indptr = np.append(0, degree.cumsum()).astype(np.int64)
        return torch.from_numpy(source), torch.from_numpy(indptr)

    get_all_edge_attrs = lambda self: [EdgeAttr(None, "csc", size=(num_nodes,) * 2)]  # noqa: E731
    _put_edge_index = _remove_edge_index = NotImplemented


pattern, model = Compose(Sample(5), AddSelf(), MeanNormalize()), SampledGCN(width, 64, 10)
optimizer, seeds = torch.optim.Adam(model.parameters(), 0.01), data.train_mask
for batch in NodeSetLoader((Nodes(), Edges()), pattern, 3, input_nodes=seeds, batch_size=64):
    logits, y = model(batch.x, batch.neighborhoods), data.y[batch.n_id[: batch.batch_size]]
    loss = torch.nn.functional.cross_entropy(logits, y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"loss {loss:.3f} on {batch.num_nodes} of {num_nodes} nodes")
