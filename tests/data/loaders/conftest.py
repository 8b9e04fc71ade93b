import pytest
import torch
from torch_geometric.data import Data

from graphtheory.graph import Neighborhood

forking = pytest.mark.filterwarnings(
    "ignore:This process .* is multi-threaded:DeprecationWarning",
    "ignore:This DataLoader will create:UserWarning",  # a machine with fewer cores than workers
)


@pytest.fixture(autouse=True)
def no_network():
    """Replaces the ban on sockets: worker processes hand tensors over through local ones."""


def random_data(num_nodes=40, num_edges=90, seed=0, *, weighted=True):
    draw = torch.Generator().manual_seed(seed)
    data = Data(
        x=torch.randn(num_nodes, 3, generator=draw, dtype=torch.float64),
        y=torch.randint(4, (num_nodes,), generator=draw),
        edge_index=torch.randint(num_nodes, (2, num_edges), generator=draw),
    )
    if weighted:
        data.edge_weight = torch.rand(num_edges, generator=draw, dtype=torch.float64)
    return data


@pytest.fixture
def data():
    return random_data()


def flat(value):
    """Everything in a batch as comparable pieces."""
    if isinstance(value, torch.Tensor):
        return value.dtype, tuple(value.shape), value.tolist()
    if isinstance(value, Neighborhood):
        parts = (value.indptr, value.indices, value.weight, value.distance)
        return value.num_src, [flat(part) for part in parts]
    if isinstance(value, Data):
        return {name: flat(value[name]) for name in sorted(value.keys())}
    if isinstance(value, list):
        return [flat(part) for part in value]
    return value


@pytest.fixture
def same():
    """Whether two lists of batches agree bit by bit."""
    return lambda first, second: [flat(a) for a in first] == [flat(b) for b in second]
