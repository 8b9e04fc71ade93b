"""Which nodes each node aggregates from, as one immutable object."""

from __future__ import annotations

from collections.abc import Hashable
from functools import partial
from typing import Any, NoReturn

import torch
from torch import Tensor

from graphtheory.graph import csr
from graphtheory.graph.check import check_edge_vector, check_int32, check_structure, node_counts
from graphtheory.graph.content import (
    PLAIN,
    is_plain,
    is_tracing,
    leave_inference_mode,
    savable,
    state_of,
)
from graphtheory.graph.memory import require_memory
from graphtheory.graph.sets import Group, Sets, edge_places, group_sets

_OF_EDGES = ("weight", "distance")  # what `replace` takes


class Neighborhood:
    r"""Rows of sources: row :math:`i` lists :math:`T^i`, the nodes that node i aggregates from.

    Edge ``e`` in ``indptr[i] .. indptr[i+1]`` runs from the source node ``indices[e]`` to the
    target node ``i``. An empty row is allowed: aggregation gives zeros for it. Duplicate edges are
    kept and count twice.

    The object is immutable: attributes cannot be assigned, `replace` makes a changed copy. It has
    ids of its own, so that a later change of `indptr` and `indices` as they were given does not
    matter. One whose own ids are changed in place is refused where something that was computed of
    them is used again, as in every call with gradients. Between a forward and its backward pass,
    changes through numpy or `.data` are noticed only where ids leave their range.

    Args:
        indptr: Row pointers, int64 [num_dst + 1], from 0 to num_edges, not decreasing.
        indices: Source of each edge, int64 or int32 [num_edges], in 0..num_src-1.
        num_src: Number of nodes that may send; default num_dst (a graph; otherwise bipartite).
        weight: One value per edge, floating [num_edges], or None; `ops.aggregate` uses it,
            attention does not.
        distance: Hops between source and target, uint8 [num_edges], or None.
        perm: Edge ``e`` is column ``perm[e]`` of the edge list this was built from, which is longer
            than `indices` where `keep` or `rows` left edges out; None is the identity.
        sets: The consecutive sets of nodes that the edges make complete or causal, row-major; lets
            dense kernels run. None where the edges are not those of sets.
        validate: Check all of the above, which reads the tensors once; off inside the library.

    Raises:
        TypeError: If a tensor has the wrong dtype.
        ValueError: If shapes or row pointers do not fit together.
        IndexError: If a source lies outside 0..num_src-1, or an entry of `perm` is negative.

    Example:
        >>> path = Neighborhood.from_edge_index(torch.tensor([[0, 1], [1, 2]]), num_nodes=3)
        >>> path.indptr.tolist(), path.indices.tolist()
        ([0, 0, 1, 2], [0, 1])
    """

    indptr: Tensor
    indices: Tensor
    num_dst: int
    num_src: int
    weight: Tensor | None
    distance: Tensor | None
    perm: Tensor | None
    sets: Sets | None
    plans: dict[Any, Any]  # kinds of calls on these edges, see `ops.call`
    _first_state: Hashable | None = None
    _sealed: bool = False  # nobody else holds the ids, which then stay what they are
    _targets: tuple[Tensor, Hashable] | None = None  # and what they hold
    _groups: list[Group] | None = None
    _edge_places: list[Tensor] | None = None
    _transpose: Neighborhood | None = None
    _perm_state: Hashable | None = None  # of the transpose, when it was handed out
    _weighted_transpose: tuple[Hashable, Neighborhood] | None = None  # and what the weights were

    def __init__(
        self, indptr: Tensor, indices: Tensor, num_src: int | None = None, *,
        weight: Tensor | None = None, distance: Tensor | None = None, perm: Tensor | None = None,
        sets: Sets | None = None, validate: bool = True,
    ) -> None:  # fmt: skip
        for name, tensor in (("indptr", indptr), ("indices", indices)):
            if not isinstance(tensor, Tensor):
                raise TypeError(f"{name}: got {type(tensor).__name__}, expected an int64 tensor")
        num_dst = indptr.size(0) - 1
        if validate:
            indptr, indices = indptr.clone(), indices.clone()
            perm = perm.clone() if isinstance(perm, Tensor) else perm
        fields: dict[str, Any] = {"indptr": indptr, "indices": indices, "weight": weight}
        fields |= {"distance": distance, "perm": perm}
        for name, tensor in () if torch.compiler.is_compiling() else fields.items():
            if isinstance(tensor, Tensor) and tensor.is_inference():
                fields[name] = savable(tensor)
        num_src = num_dst if num_src is None else num_src
        self._store(**fields, num_dst=num_dst, num_src=num_src, sets=sets, plans={})
        if torch.compiler.is_compiling():
            return
        if validate:
            check_structure(self)
        if sets is not None:  # of which some backends read no ids
            self.check_unchanged()

    def _store(self, **fields: object) -> None:
        """Set attributes: in the constructor, and of what is computed once."""
        vars(self).update(fields)

    def __setattr__(self, name: str, value: object) -> NoReturn:
        copy = f"replace({name}=...) makes a changed copy"
        hint = copy if name in _OF_EDGES else "make a new one"
        raise AttributeError(f"{name}: a Neighborhood cannot be changed; {hint}")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"{name}: a Neighborhood cannot be changed; make a new one")

    def __getstate__(self) -> dict[str, Any]:
        if self._first_state is not None:
            self.check_unchanged()  # a copy has these transposed edges, but no plans or states
        return vars(self) | dict(plans={}, _first_state=None, _perm_state=None, _sealed=False)

    def check_unchanged(self) -> Hashable | None:
        """What the ids hold, which is what they held when this was called first.

        None where something traces the call.

        Raises:
            ValueError: If `indptr` or `indices` were changed in place since.
        """
        if self._sealed:
            return True
        state = state_of(self.indptr, self.indices)
        if state is None:
            return None
        if self._first_state is None:
            self._store(_first_state=state)
        elif state != self._first_state:
            raise ValueError(
                "neighborhood: its indptr or indices were changed in place after its first use; "
                "expected the same ids for its whole life: make a new one"
            )
        return state

    def _seal(self, like: Neighborhood | None = None) -> Neighborhood:
        """Itself, sealed if `like` is: nobody else has or gets its ids, which then stay."""
        if like is not None and not like._sealed:
            return self
        plain_ids = type(self.indptr) in PLAIN and type(self.indices) in PLAIN
        if plain_ids and not self.indices.is_meta and not is_tracing():
            for one in (self, self._transpose):
                if one is not None:
                    one._store(_sealed=True)
        return self

    @classmethod
    def from_edge_index(
        cls, edge_index: Tensor, num_nodes: int | None = None, *, num_src: int | None = None,
        num_dst: int | None = None, weight: Tensor | None = None,
    ) -> Neighborhood:  # fmt: skip
        """Build from PyG's edge list: row 0 sends, row 1 receives; duplicates and order are kept.

        Args:
            edge_index: int64 or int32 [2, E].
            num_nodes: Number of nodes of a graph; default the largest id + 1.
            num_src: Number of sources of a bipartite graph (then `num_dst` too).
            num_dst: Number of targets of a bipartite graph.
            weight: Floating [E] in the order of `edge_index`; differentiable.

        Raises:
            TypeError: If `edge_index` is not an integer tensor.
            ValueError: If shapes do not fit, or both `num_nodes` and a bipartite size are given.
            IndexError: If a node id lies outside its side.
        """
        csr.check_edge_index(edge_index)
        edge_index = csr.plain(edge_index)
        num_src, num_dst = node_counts(edge_index, num_nodes, num_src, num_dst)
        if weight is not None:
            check_edge_vector("weight", weight, edge_index.size(1))
        grad = torch.is_grad_enabled()  # a backward pass may follow
        (indptr, indices, perm), turned, _ = csr.rows_of_edges(edge_index, num_src, num_dst, grad)
        weight = None if weight is None else weight[perm]
        made = cls(indptr, indices, num_src, weight=weight, perm=perm, validate=False)
        if turned:
            made._adopt_transpose(*turned)
        return made

    @property
    def num_edges(self) -> int:
        """Number of (target, source) pairs, duplicates counted."""
        return self.indices.size(0)

    @property
    def blocks(self) -> tuple[int, int, int] | None:
        """(count, dst, src) where all `sets` are complete and of equal size; None elsewhere."""
        return None if self.sets is None else self.sets.blocks

    @property
    def device(self) -> torch.device:
        """The device on which the tensors lie."""
        return self.indptr.device

    def to_int32(self) -> Neighborhood:
        """The same with `indices`, `perm` and the transposed structure in 32 bits, half the bytes.

        Operations, layers and patterns take both and give the same bits. `targets`, `edge_index`
        and the result of patterns that add edges, such as `AddSelf`, are int64.

        Raises:
            ValueError: If one side has 2^31 nodes or more, or if there are as many edges.
        """
        check_int32(self)
        if all(t is None or t.dtype == torch.int32 for t in (self.indices, self.perm)):
            return self
        perm = None if self.perm is None else self.perm.int()
        return self._changed(indices=self.indices.int(), perm=perm)

    def degree(self) -> Tensor:
        """Sources of each row, int64 [num_dst]."""
        return self.indptr.diff()

    def targets(self) -> Tensor:
        """Target of each edge, int64 [num_edges] (cached)."""
        self.check_unchanged()
        found, state = self._targets or (None, None)
        if found is None or not (self._sealed or state == state_of(found)):
            with leave_inference_mode():
                found = csr.csr_targets(self.indptr, self.num_edges)
                self._store(_targets=(found, state_of(found)))
        return found

    def edge_index(self) -> Tensor:
        """PyG's edge list, int64 [2, E], in the order of the rows: sources, then targets."""
        return torch.stack([self.indices.long(), self.targets()])

    def groups(self) -> list[Group]:
        """The `sets` as a few dense groups, without sets that have no edges (cached)."""
        assert self.sets is not None
        self.check_unchanged()
        if (found := self._groups) is None:
            with leave_inference_mode():
                self._store(_groups=(found := group_sets(self.sets, self.device)))
        return found

    def edge_places(self) -> list[Tensor]:
        """The edge at each position of each of the `groups` (cached)."""
        groups, found = self.groups(), self._edge_places
        if found is None:
            with leave_inference_mode():
                found = [edge_places(g, self.indptr, self.num_edges) for g in groups]
                self._store(_edge_places=found)
        return found

    def transpose(self) -> Neighborhood:
        """The same edges by source (cached); its `perm` is the position of each edge here."""
        self.check_unchanged()
        turned = self._turned()
        if not self._sealed:
            turned.check_unchanged()  # from here on others can change it
            if self._perm_state is None and turned.perm is not None:
                self._store(_perm_state=state_of(turned.perm))
        of_edges = {n: t for n in _OF_EDGES if (t := getattr(self, n)) is not None}
        if not of_edges:
            return turned
        learned = any(t.requires_grad for t in of_edges.values())  # each backward pass ends a graph
        state = None if learned else state_of(*of_edges.values())
        known = self._weighted_transpose
        if known is None or state is None or known[0] != state:
            by_source = {name: value[turned.perm] for name, value in of_edges.items()}
            known = state, turned._changed(**by_source)
            self._store(_weighted_transpose=known)
        return known[1]

    def _turned(self) -> Neighborhood:
        """`transpose` without `weight` and `distance`, of ids that were found unchanged."""
        if self._transpose is None:
            with leave_inference_mode():
                self._adopt_transpose(*csr.by_source(self.indptr, self.indices, self.num_src))
        turned = self._transpose
        assert turned is not None
        if turned._first_state is None or self._sealed:
            return turned
        if turned.check_unchanged() is not None:
            assert turned.perm is not None
            if self._perm_state is not None and self._perm_state != state_of(turned.perm):
                raise ValueError(
                    "transpose: its perm was changed in place, expected the same for its whole life"
                )
        return turned

    def _adopt_transpose(self, indptr: Tensor, targets: Tensor, perm: Tensor) -> None:
        """Keep a transposed structure that is known: its edge t is edge perm[t] of this object."""
        sets = None if self.sets is None else self.sets.transpose()  # row-major, as targets ascend
        turned = Neighborhood(indptr, targets, self.num_dst, perm=perm, sets=sets, validate=False)
        self._store(_transpose=turned._seal(self))

    def keep(self, edges: Tensor) -> Neighborhood:
        """Narrow to the edges where `edges`, bool [num_edges], is True."""
        if edges.dtype != torch.bool or edges.shape != self.indices.shape:
            found = f"{edges.dtype} of shape {tuple(edges.shape)}"
            raise ValueError(f"edges: {found}, expected bool [{self.num_edges}]")
        counts = torch.zeros(self.num_edges + 1, dtype=torch.int64, device=self.device)
        counts[1:] = edges.cumsum(0)
        return self._pick(counts[self.indptr], edges.nonzero().flatten())

    def rows(self, nodes: Tensor) -> Neighborhood:
        """Some rows, in the order of `nodes`, int64 ids of targets; the sources stay the same.

        Raises:
            IndexError: If a node lies outside 0..num_dst-1.
        """
        if not torch.compiler.is_compiling():
            csr.check_index("nodes", nodes, self.num_dst)
        return self._pick(*csr.row_places(self.indptr, nodes))

    def pick(self, indptr: Tensor, edges: Tensor) -> Neighborhood:
        """Rows that consist of some edges: row pointers [R + 1] into `edges`, int64 edge ids.

        Raises:
            ValueError: If the row pointers do not run from 0 to the number of `edges`.
            IndexError: If an edge lies outside 0..num_edges-1.
        """
        if not torch.compiler.is_compiling():
            csr.check_pointers(indptr, edges.size(0))
            csr.check_index("edges", edges, self.num_edges, "edge")
        return self._pick(indptr, edges)

    def _pick(self, indptr: Tensor, edges: Tensor) -> Neighborhood:
        of_edges = self.weight, self.distance, self.perm
        pick = partial(torch.index_select, dim=0, index=edges)  # `t[edges]` takes twice as long
        weight, distance, perm = (None if t is None else pick(t) for t in of_edges)
        return Neighborhood(
            indptr, pick(self.indices), self.num_src, weight=weight, distance=distance,
            perm=edges if perm is None else perm, validate=False,
        )  # fmt: skip

    def replace(self, **changes: Any) -> Neighborhood:
        """The same structure with another `weight` or `distance` (edge order of this object).

        Raises:
            TypeError: If another field is named, or a tensor has the wrong dtype.
            ValueError: If there is not one value per edge.
        """
        for name, value in changes.items():
            if name not in _OF_EDGES:
                raise TypeError(f"replace: unknown field {name!r}, expected weight or distance")
            if value is not None:
                check_edge_vector(name, value, self.num_edges)
        return self._changed(**changes)

    def to(self, device: torch.device | str, *, non_blocking: bool = False) -> Neighborhood:
        """A copy on `device`, its transpose too where that is known; itself when it is there."""
        device = torch.empty(0, device=device).device  # "cuda" is the current one of them
        if device == self.device:
            return self
        names, t = ("indptr", "indices", *_OF_EDGES, "perm"), self._transpose and self._turned()
        made = self._changed(**{n: csr.sent(getattr(self, n), device, non_blocking) for n in names})
        if t is not None:
            parts = (csr.sent(p, device, non_blocking) for p in (t.indptr, t.indices, t.perm))
            made._adopt_transpose(*parts)  # type: ignore[arg-type]
        own = self.indptr.is_cpu and is_plain(self.indptr) and not is_tracing()
        if own and device.type == "cuda":
            csr.extent.tell(made.indptr, csr.extent(self.indptr))
            if torch.is_grad_enabled():  # a backward pass may follow; nothing waits for this sort
                most = torch.bincount(self.indices, minlength=max(self.num_src, 1)).max()
                csr.extent.tell(made._turned().indptr, [self.num_edges, int(most)])
        return made

    def _changed(self, **changes: Any) -> Neighborhood:
        names = ("indptr", "indices", "num_src", *_OF_EDGES, "perm", "sets")
        made = Neighborhood(**{n: getattr(self, n) for n in names} | changes, validate=False)
        if self._first_state is not None and not {"indptr", "indices"} & changes.keys():
            made._store(_first_state=self._first_state)  # and not what they may hold by now
        if not {"indptr", "indices", "perm"} & changes.keys():
            made._seal(self)
        return made

    def to_dense(self) -> Tensor:
        """Matrix [num_dst, num_src]: sum of weights (or count) of the edges from column to row.

        Raises:
            MemoryError: If it does not fit into the available memory.
        """
        given = torch.ones(self.num_edges, device=self.device)
        given = given if self.weight is None else self.weight
        wide = given.to(torch.promote_types(given.dtype, torch.float32))
        if self.device.type == "cpu":
            needed = self.num_dst * self.num_src * wide.element_size()
            require_memory(f"to_dense: {self.num_dst} x {self.num_src}", needed, "keep the edges")
        dense, places = wide.new_zeros(self.num_dst, self.num_src), (self.targets(), self.indices)
        return dense.index_put(places, wide, accumulate=True).to(given.dtype)

    def __repr__(self) -> str:
        facts = f"num_dst={self.num_dst}, num_src={self.num_src}, num_edges={self.num_edges}"
        names = ("weight", "distance", "sets" if self.blocks is None else "blocks")
        extra = [n for n in names if getattr(self, n) is not None]
        return f"Neighborhood({', '.join([facts, *extra])})"
