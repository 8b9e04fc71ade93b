"""A drop-in beside PyG's layer: equal outputs and gradients for equal parameters and inputs."""

import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest
import torch
from hypothesis import strategies as st
from torch import Tensor, nn

from battery import caches

TOLERANCE = {torch.float64: 1e-10, torch.float32: 1e-5}


class Graph(NamedTuple):
    """Random edges with everything that may go wrong: isolated nodes, duplicates, self-loops."""

    edge_index: Tensor
    num_src: int
    num_dst: int
    generator: torch.Generator

    def features(self, *shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
        return torch.randn(*shape, generator=self.generator, dtype=dtype)

    def weights(self, dtype: torch.dtype = torch.float64) -> Tensor:
        size = self.edge_index.size(1)
        return 0.1 + torch.rand(size, generator=self.generator, dtype=dtype)

    def simple(self) -> Tensor:
        """The edges without duplicates, in random order."""
        edges = self.edge_index.unique(dim=1)
        return edges[:, torch.randperm(edges.size(1), generator=self.generator)].contiguous()


def _graph(seed: int, num_src: int, num_dst: int, num_edges: int) -> Graph:
    generator = torch.Generator().manual_seed(seed)
    ends = [torch.randint(n, (num_edges,), generator=generator) for n in (num_src, num_dst)]
    return Graph(torch.stack(ends), num_src, num_dst, generator)


@pytest.fixture(scope="session")
def make_graph() -> Callable[..., Graph]:
    """seed, num_src, num_dst, num_edges -> Graph."""
    return _graph


@pytest.fixture(scope="session")
def draw_graph() -> Callable[..., Graph]:
    """A graph from hypothesis' `data`; one set of nodes unless `bipartite`."""

    def draw(data: st.DataObject, *, bipartite: bool = False) -> Graph:
        num_src = data.draw(st.integers(1, 9), "num_src")
        num_dst = data.draw(st.integers(1, 9), "num_dst") if bipartite else num_src
        num_edges = data.draw(st.integers(0, 40), "num_edges")
        return _graph(data.draw(st.integers(0, 2**31), "seed"), num_src, num_dst, num_edges)

    return draw


@pytest.fixture(scope="module")
def short_collections() -> Iterator[None]:
    """Garbage is looked for only among what the tests of a module make."""
    with caches.short_collections():
        yield


def _leaves(value: Any) -> Any:
    """Copies that collect gradients, through tuples."""
    if isinstance(value, tuple):
        return tuple(_leaves(v) for v in value)
    if isinstance(value, Tensor) and value.is_floating_point() and value.layout == torch.strided:
        return value.detach().clone().requires_grad_()
    return value


def _flat(value: Any) -> Iterator[Tensor]:
    if isinstance(value, tuple | list):
        for v in value:
            yield from _flat(v)
    elif isinstance(value, Tensor) and value.requires_grad:
        yield value


def _run(layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Tensor]:
    """The output and the gradients of all inputs and parameters, under a fixed random cotangent."""
    args = _leaves(args)
    kwargs = {name: _leaves(value) for name, value in kwargs.items()}
    out = layer(*args, **kwargs)
    cotangent = torch.Generator().manual_seed(7)
    (out * torch.randn(out.shape, generator=cotangent, dtype=out.dtype)).sum().backward()
    leaves = [*_flat(args), *_flat(tuple(kwargs.values())), *layer.parameters()]
    return [out, *(torch.zeros_like(t) if t.grad is None else t.grad for t in leaves)]


@pytest.fixture(scope="session")
def assert_same() -> Callable[..., None]:
    """(ours, theirs) compared on (*args, **kwargs), after each has loaded the other's state."""

    def check(ours: nn.Module, theirs: nn.Module, *args: Any, **kwargs: Any) -> None:
        generator = torch.Generator().manual_seed(3)
        with torch.no_grad():  # a bias starts at zero, which would hide it
            for parameter in theirs.parameters():
                parameter.normal_(0, 0.5, generator=generator)
        ours.load_state_dict(theirs.state_dict(), strict=True)
        theirs.load_state_dict(ours.state_dict(), strict=True)
        dtype = next(theirs.parameters()).dtype
        others = _run(theirs, args, kwargs)
        # One scale for all: a difference of large terms has their rounding error.
        scale = max(1.0, *(float(t.detach().abs().max()) for t in others if t.numel()))
        torch.testing.assert_close(
            _run(ours, args, kwargs), others, rtol=0, atol=TOLERANCE[dtype] * scale
        )

    return check


@pytest.fixture(scope="session")
def sparse_forms() -> Callable[..., dict[str, Any]]:
    """edge_index without duplicates, sizes -> the same graph in every form that PyG takes."""

    def forms(
        edge_index: Tensor, num_src: int, num_dst: int, weight: Tensor | None = None
    ) -> dict[str, Any]:
        from torch_geometric import EdgeIndex
        from torch_geometric.typing import WITH_TORCH_SPARSE, SparseTensor
        from torch_geometric.utils import to_torch_coo_tensor, to_torch_csc_tensor

        size = (num_src, num_dst)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch says once that sparse tensors are young
            out = {
                "edge_index": edge_index,
                "int32": edge_index.int(),
                "EdgeIndex": EdgeIndex(edge_index, sparse_size=size),
                "csr": to_torch_csc_tensor(edge_index, weight, size).t(),
                "coo": to_torch_coo_tensor(edge_index.flip(0), weight, size[::-1]),
                "csc": to_torch_csc_tensor(edge_index.flip(0), weight, size[::-1]),
            }
        if WITH_TORCH_SPARSE:
            adj = SparseTensor.from_edge_index(edge_index, weight, size)
            out["SparseTensor"] = adj.t()
        return out

    return forms


Kind = tuple[str, str, str]


def typed_graph(
    nodes: dict[str, int], widths: dict[str, int], kinds: list[Kind]
) -> tuple[dict[str, Tensor], dict[Kind, Tensor]]:
    """Normal features in float64 of each kind of node, and 15 random edges of each kind."""
    generator = torch.Generator().manual_seed(0)
    x = {
        t: torch.randn(n, widths[t], generator=generator, dtype=torch.float64)
        for t, n in nodes.items()
    }
    edges = {
        kind: torch.stack(
            [torch.randint(nodes[t], (15,), generator=generator) for t in (kind[0], kind[2])]
        )
        for kind in kinds
    }
    return x, edges
