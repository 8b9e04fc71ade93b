"""Who aggregates from whom, as one immutable object."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from types import NoneType
from typing import Any

import torch
from torch import Tensor

from graphtheory.graph.check import check_edge_vector, check_int32, check_structure
from graphtheory.graph.csr import check_edge_index, csr_from_edges, csr_transpose, row_places
from graphtheory.graph.groups import Group, edge_places, group_sets
from graphtheory.graph.sets import Sets


class Neighborhood:
    r"""Rows of senders: row :math:`i` lists :math:`T^i`, the nodes that node i aggregates from.

    Edge ``e`` in ``indptr[i] .. indptr[i+1]`` runs from node ``indices[e]`` to node ``i``. An empty
    row is allowed: aggregation gives zeros for it. Duplicate edges are kept and count twice. Do not
    change the tensors in place: the transposed structure is cached.

    Args:
        indptr: Row pointers, int64 [num_dst + 1], from 0 to num_edges, not decreasing.
        indices: Sender of each edge, int64 or int32 [num_edges], in 0..num_src-1.
        num_src: Number of nodes that may send; default num_dst (a graph; otherwise bipartite).
        weight: One number an edge, floating [num_edges], or None; `ops.aggregate` uses it,
            attention does not.
        distance: Hops between sender and receiver, uint8 [num_edges], or None.
        perm: Edge ``e`` is column ``perm[e]`` of the edge list this was built from; None is the
            identity.
        blocks: (count, dst, src) when the edges are equal complete blocks, row-major; lets dense
            kernels run.
        sets: The same for complete or causal sets of any size each; at most one of both is given.
        validate: Check all of the above, which reads the tensors once; off inside the library.

    Raises:
        TypeError: A tensor of the wrong dtype.
        ValueError: Shapes or row pointers that do not fit together.
        IndexError: A sender outside 0..num_src-1.

    Example:
        >>> path = Neighborhood.from_edge_index(torch.tensor([[0, 1], [1, 2]]), num_nodes=3)
        >>> path.indptr.tolist(), path.indices.tolist()
        ([0, 0, 1, 2], [0, 1])
    """

    def __init__(
        self,
        indptr: Tensor,
        indices: Tensor,
        num_src: int | None = None,
        *,
        weight: Tensor | None = None,
        distance: Tensor | None = None,
        perm: Tensor | None = None,
        blocks: tuple[int, int, int] | None = None,
        sets: Sets | None = None,
        validate: bool = True,
    ) -> None:
        for name, tensor in (("indptr", indptr), ("indices", indices)):
            if not isinstance(tensor, Tensor):
                raise TypeError(f"{name}: got {type(tensor).__name__}, expected an int64 tensor")
        self.indptr, self.indices = indptr, indices
        self.num_dst: int = indptr.size(0) - 1
        self.num_src: int = self.num_dst if num_src is None else num_src
        self.weight, self.distance, self.perm = weight, distance, perm
        self.blocks, self.sets = blocks, sets
        self._receivers: Tensor | None = None
        self._groups: list[Group] | None = None
        self._edge_places: list[Tensor] | None = None
        self._transpose: Neighborhood | None = None
        if validate and not torch.compiler.is_compiling():
            check_structure(self)

    @classmethod
    def from_edge_index(
        cls,
        edge_index: Tensor,
        num_nodes: int | None = None,
        *,
        num_src: int | None = None,
        num_dst: int | None = None,
        weight: Tensor | None = None,
    ) -> Neighborhood:
        """Build from PyG's edge list: row 0 sends, row 1 receives; duplicates and order are kept.

        Args:
            edge_index: int64 or int32 [2, E].
            num_nodes: Number of nodes of a graph; default the largest id + 1.
            num_src: Number of senders of a bipartite graph (then `num_dst` too).
            num_dst: Number of receivers of a bipartite graph.
            weight: Floating [E] in the order of `edge_index`; differentiable.

        Raises:
            TypeError: `edge_index` is not an integer tensor.
            ValueError: Shapes that do not fit, or both `num_nodes` and a bipartite size.
            IndexError: A node id outside its side.
        """
        check_edge_index(edge_index)
        if type(edge_index) is not Tensor:
            edge_index = edge_index.as_subclass(Tensor)
        if num_nodes is not None and (num_src is not None or num_dst is not None):
            raise ValueError("num_nodes: give either num_nodes or num_src and num_dst, not both")
        if (num_src is None) != (num_dst is None):
            missing = "num_src" if num_src is None else "num_dst"
            raise ValueError(f"{missing}: not given, expected both sides of a bipartite graph")
        if num_nodes is None and num_src is None:
            num_nodes = int(edge_index.max()) + 1 if edge_index.numel() else 0
        for name, count in (("num_nodes", num_nodes), ("num_src", num_src), ("num_dst", num_dst)):
            known = isinstance(count, (int, torch.SymInt, NoneType)) or hasattr(count, "__index__")
            if not known:
                raise TypeError(f"{name}: got {count!r}, expected a whole number or None")
        num_src = num_nodes if num_src is None else num_src
        num_dst = num_nodes if num_dst is None else num_dst
        assert num_src is not None and num_dst is not None
        if num_src < 0 or num_dst < 0:
            raise ValueError(f"num_nodes: got {min(num_src, num_dst)}, expected 0 or more")
        indptr, indices, perm = csr_from_edges(edge_index, num_src, num_dst)
        if weight is not None:
            check_edge_vector("weight", weight, edge_index.size(1))
            weight = weight[perm]
        return cls(indptr, indices, num_src, weight=weight, perm=perm, validate=False)

    @property
    def num_edges(self) -> int:
        """Number of (receiver, sender) pairs, duplicates counted."""
        return self.indices.size(0)

    @property
    def device(self) -> torch.device:
        """Where the structure lies."""
        return self.indptr.device

    def to_int32(self) -> Neighborhood:
        """The same with `indices`, `perm` and the transposed structure in 32 bits, half the bytes.

        Operations, layers and patterns take both and give the same bits. `receivers`, `edge_index`
        and what a pattern makes of new edges, such as `AddSelf`, are int64. Itself if it has them.

        Raises:
            ValueError: 2^31 nodes of a side or edges, or more.
        """
        check_int32(self)
        if all(t is None or t.dtype == torch.int32 for t in (self.indices, self.perm)):
            return self
        return Neighborhood(
            self.indptr, self.indices.int(), self.num_src, weight=self.weight,
            distance=self.distance, perm=None if self.perm is None else self.perm.int(),
            blocks=self.blocks, sets=self.sets, validate=False,
        )  # fmt: skip

    def degree(self) -> Tensor:
        """Senders of each row, int64 [num_dst]."""
        return self.indptr.diff()

    def receivers(self) -> Tensor:
        """Receiver of each edge, int64 [num_edges] (cached)."""
        if self._receivers is None:
            with _outside_inference():
                rows = torch.arange(self.num_dst, device=self.device)
                self._receivers = torch.repeat_interleave(
                    rows, self.degree(), output_size=self.num_edges
                )
        return self._receivers

    def edge_index(self) -> Tensor:
        """PyG's edge list, int64 [2, E], in the order of the rows: senders, then receivers."""
        return torch.stack([self.indices.long(), self.receivers()])

    def groups(self) -> list[Group]:
        """The `sets` as few dense groups, those without edges left out (cached)."""
        assert self.sets is not None
        if self._groups is None:
            with _outside_inference():
                self._groups = group_sets(self.sets, self.device)
        return self._groups

    def edge_places(self) -> list[Tensor]:
        """Which edge stands in each place of each of the `groups` (cached)."""
        groups = self.groups()
        if self._edge_places is None:
            with _outside_inference():
                self._edge_places = [edge_places(g, self.indptr, self.num_edges) for g in groups]
        return self._edge_places

    def transpose(self) -> Neighborhood:
        """The same edges by sender (cached); its `perm` is each edge's position in this object."""
        if self._transpose is None:
            with _outside_inference():
                self.adopt_transpose(*csr_transpose(self.indptr, self.indices, self.num_src))
            assert self._transpose is not None
            if self.blocks is not None:  # row-major again, since receivers ascend for each sender
                count, dst, src = self.blocks
                self._transpose.blocks = (count, src, dst)
            self._transpose.sets = None if self.sets is None else self.sets.transpose()
        assert self._transpose is not None
        return self._transpose

    def adopt_transpose(self, indptr: Tensor, receivers: Tensor, perm: Tensor) -> None:
        """Take a transposed structure that is known: its edge t is edge perm[t] of this object."""
        self._transpose = Neighborhood(
            indptr, receivers, self.num_dst, perm=perm,
            weight=None if self.weight is None else self.weight[perm],
            distance=None if self.distance is None else self.distance[perm],
            validate=False,
        )  # fmt: skip

    def keep(self, edges: Tensor) -> Neighborhood:
        """Narrow to some edges.

        Args:
            edges: Bool [num_edges], True for an edge that stays.
        """
        if edges.dtype != torch.bool or edges.shape != self.indices.shape:
            raise ValueError(
                f"edges: {edges.dtype} of shape {tuple(edges.shape)}, "
                f"expected bool [{self.num_edges}]"
            )
        counts = torch.zeros(self.num_edges + 1, dtype=torch.int64, device=self.device)
        counts[1:] = edges.cumsum(0)
        return self.pick(counts[self.indptr], edges.nonzero().flatten())

    def rows(self, nodes: Tensor) -> Neighborhood:
        """Some rows, in the order of `nodes`, int64 ids of receivers; the senders stay the same."""
        return self.pick(*row_places(self.indptr, nodes))

    def pick(self, indptr: Tensor, edges: Tensor) -> Neighborhood:
        """Rows made of some edges: row pointers [R + 1] into `edges`, int64 ids of edges."""
        weight, distance = (None if t is None else t[edges] for t in (self.weight, self.distance))
        return Neighborhood(
            indptr, self.indices[edges], self.num_src, weight=weight, distance=distance,
            perm=edges if self.perm is None else self.perm[edges], validate=False,
        )  # fmt: skip

    def with_(self, **changes: Any) -> Neighborhood:
        """The same structure with another `weight` or `distance` (edge order of this object)."""
        unknown = set(changes) - {"weight", "distance"}
        if unknown:
            raise TypeError(
                f"with_: unknown field {sorted(unknown)[0]!r}, expected weight or distance"
            )
        for name, value in changes.items():
            if value is not None:
                check_edge_vector(name, value, self.num_edges)
        fields = {"weight": self.weight, "distance": self.distance} | changes
        return Neighborhood(
            self.indptr, self.indices, self.num_src,
            perm=self.perm, blocks=self.blocks, sets=self.sets, validate=False, **fields,
        )  # fmt: skip

    def to(self, device: torch.device | str, *, non_blocking: bool = False) -> Neighborhood:
        """A copy on `device`; itself when it is already there."""
        if torch.device(device) == self.device:
            return self
        names = ("weight", "distance", "perm")

        def move(tensor: Tensor | None) -> Any:
            return None if tensor is None else tensor.to(device, non_blocking=non_blocking)

        moved = {name: move(getattr(self, name)) for name in names}
        return Neighborhood(
            move(self.indptr), move(self.indices), self.num_src,
            blocks=self.blocks, sets=self.sets, validate=False, **moved,
        )  # fmt: skip

    def to_dense(self) -> Tensor:
        """Matrix [num_dst, num_src]: sum of weights (or count) of the edges from column to row."""
        ones = torch.ones(self.num_edges, device=self.device)
        value = ones if self.weight is None else self.weight
        dense = value.new_zeros(self.num_dst, self.num_src)
        return dense.index_put((self.receivers(), self.indices), value, accumulate=True)

    def __repr__(self) -> str:
        facts = f"num_dst={self.num_dst}, num_src={self.num_src}, num_edges={self.num_edges}"
        names = ("weight", "distance", "blocks", "sets")
        extra = [n for n in names if getattr(self, n) is not None]
        return f"Neighborhood({', '.join([facts, *extra])})"


def _outside_inference() -> AbstractContextManager[object]:
    """What is cached must serve a later backward pass, which inference tensors cannot."""
    if torch.compiler.is_compiling() or not torch.is_inference_mode_enabled():
        return nullcontext()
    return torch.inference_mode(False)
