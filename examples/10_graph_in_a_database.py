"""Export a graph from DuckDB to Parquet, convert it outside of memory, and train on its pages."""

from tempfile import mkdtemp

import duckdb
import numpy as np
import torch

from graphtheory.data.loaders import GraphFolder, NodeSetLoader
from graphtheory.lab.datasets import graphs
from graphtheory.models import SampledGCN
from graphtheory.patterns import AddSelf, Compose, MeanNormalize, Sample

data, folder = graphs.load("digits"), mkdtemp()
nodes = {f"x{k}": x.numpy() for k, x in enumerate(data.x.t())}
nodes |= {"id": np.arange(len(data.y)), "y": data.y.numpy(), "train": data.train_mask.numpy()}
edges = dict(zip(("src", "dst"), data.edge_index.numpy(), strict=True))
with duckdb.connect(f"{folder}/graph.duckdb") as db:
    for table in ("nodes", "edges"):
        db.execute(f"CREATE TABLE {table} AS FROM {table}")
        db.execute(f"COPY {table} TO '{folder}/{table}.parquet'")

kept = GraphFolder.from_parquet(
    f"{folder}/edges.parquet", f"{folder}/nodes.parquet", f"{folder}/graph",
    source="src", target="dst", x=[f"x{k}" for k in range(data.num_features)],
)  # fmt: skip
pattern = Compose(Sample(5), AddSelf(), MeanNormalize())
model = SampledGCN(data.num_features, 64, 10)
optimizer, seeds = torch.optim.Adam(model.parameters(), 0.01), kept.node["train"]
for batch in NodeSetLoader(kept, pattern, 3, input_nodes=seeds, batch_size=64):
    logits = model(batch.x, batch.neighborhoods)
    loss = torch.nn.functional.cross_entropy(logits, batch.y[: batch.batch_size])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"loss {loss:.3f} on {batch.num_nodes} of {data.num_nodes} nodes")
