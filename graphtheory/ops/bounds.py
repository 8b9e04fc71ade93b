"""Shapes, types and ids of arguments: what is checked before a compiled loop reads by them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from graphtheory.graph import Neighborhood
from graphtheory.graph.content import fit, fit_both_ways, is_plain, within
from graphtheory.graph.csr import check_index, check_pointers, plain
from graphtheory.ops.backend import BACKENDS

_NAMES = {
    "N": "num_dst", "M": "num_src", "E": "num_edges", "H": "heads", "D": "head_dim",
    "K": "edge_dim", "R": "rows",
}  # fmt: skip
_PER_EDGE = {"bucket": "E", "row": "E", "saved": "EH"}
_LOOKUPS = (("bucket", "table", "bias.bucket"), ("row", "num_rows", "edges.row"))
_NO_GRADIENT_BY_SOURCE = ("::attention_backward", "::edge_attention_backward")
_MOST = 256  # sizes that a layout remembers
TYPES = {
    "parts": "Tensor[]", "tensors": "Tensor[]", "blocks": "SymInt[]", "int": "SymInt",
    "float": "float", "str": "str",
}  # fmt: skip


def check_arguments(neighborhood: Neighborhood, words: str, **tensors: object) -> dict[str, int]:
    """Raise unless floating tensors have the shapes of a call and lie where the neighborhood does.

    Args:
        neighborhood: Who aggregates from whom.
        words: The shape of each tensor, a letter an axis, as in a `Layout`; "?" marks one that may
            be None, "=" before it one that has the dtype of the first.
        **tensors: The tensors by name.

    Returns:
        The size that each letter stands for.
    """
    if not isinstance(neighborhood, Neighborhood):
        raise TypeError(
            f"neighborhood: got {type(neighborhood).__name__}, expected a Neighborhood, such as "
            "Neighborhood.from_edge_index(edge_index, num_nodes)"
        )
    edges = neighborhood.indices.size(0)
    sizes = {"N": neighborhood.num_dst, "M": neighborhood.num_src, "E": edges}
    for word, (name, tensor) in zip(words.split(), tensors.items(), strict=True):
        if tensor is None and word[-1] == "?":
            continue
        word, same = word.rstrip("=?"), "=" in word
        if not isinstance(tensor, Tensor):
            raise TypeError(f"{name}: got {type(tensor).__name__}, expected a tensor")
        if not tensor.is_floating_point():
            raise TypeError(f"{name}: dtype {tensor.dtype}, expected a floating type")
        shape, fits = tensor.shape, tensor.dim() == len(word)
        for letter, size in zip(word, shape, strict=False):
            fits = fits and sizes.setdefault(letter, size) == size
        if not fits:
            wanted = ", ".join(str(sizes.get(letter, _NAMES[letter])) for letter in word)
            names = ", ".join(_NAMES[letter] for letter in word)
            order = ", edges in the neighborhood's order" if word[0] == "E" else ""
            raise ValueError(
                f"{name}: shape {tuple(shape)}, expected [{wanted}] (which is [{names}]{order})"
            )
        if tensor.device != neighborhood.indices.device:
            check_device(name, tensor, neighborhood)
        if same:
            first, like = next(iter(tensors.items()))
            if tensor.dtype != like.dtype:  # type: ignore[attr-defined]
                wanted = like.dtype  # type: ignore[attr-defined]
                raise TypeError(f"{name}: dtype {tensor.dtype}, expected {wanted} as {first} has")
    return sizes


def check_device(name: str, tensor: Tensor, nb: Neighborhood) -> None:
    """Raise unless the tensor is where the neighborhood is."""
    if tensor.device != nb.indices.device:
        raise ValueError(
            f"{name}: on {tensor.device}, expected {nb.indices.device} as the neighborhood is"
        )


class Own(list[Tensor]):
    """Parts of a sealed neighborhood, which nobody can change."""

    num_src: int  # of the neighborhood, which they fit


class Layout:
    """The types, sizes and ids of an operator's arguments, named in its declaration.

    A declaration has ``name:word`` for each argument, with "?" where it may be None. A word in
    capitals is a shape, a letter a size that is the same wherever it stands: N targets, M sources,
    E edges, H heads. ``parts`` are [indptr, indices], and for a backward pass [t_indptr, targets,
    perm] behind them; ``order`` is empty, or for each edge a row of what has F rows; ``bucket`` and
    ``row`` name a row of a table for each edge; ``blocks`` are the counts of sets, of their targets
    and of their sources; ``saved`` is what an attention left for its backward pass, weights [E, H]
    or facts of each row. Any other word needs no check: it is one of `TYPES`, or a tensor.

    Args:
        name: Of the operator.
        declaration: What its arguments are.
    """

    def __init__(self, name: str, declaration: str) -> None:
        self.name = name
        self.names, words = zip(*(one.split(":") for one in declaration.split()), strict=True)
        self.words = [word.rstrip("?") for word in words]
        self.types = [
            TYPES.get(word, "Tensor") + ("?" if given.endswith("?") else "")
            for word, given in zip(self.words, words, strict=True)
        ]
        self._parts, self._order, self._blocks = (
            self.words.index(word) if word in self.words else None
            for word in ("parts", "order", "blocks")
        )
        self.lookups = [  # name, place of the ids and place of their table or its number of rows
            (name, self.words.index(word), self.names.index(table))
            for word, table, name in _LOOKUPS
            if word in self.words and table in self.names
        ]
        self._by_source = name.endswith(("_backward", "_by_source"))  # reads rows of sources
        self._shapes = [
            (k, _PER_EDGE.get(word, word))
            for k, word in enumerate(self.words)
            if word.isupper() or word in _PER_EDGE
        ]
        self._fitting = set[tuple[Any, ...]]()  # sizes that were found to fit
        self._sized = {
            letter: next((k for k, word in self._shapes if word[0] == letter), None)
            for letter in "MF"
        }

    def check_ids(self, args: Sequence[Any]) -> None:
        """Raise unless every id that a loop on a CPU reads lies within what it looks up.

        Raises:
            ValueError: If row pointers are not such.
            IndexError: If an id is out of range.
        """
        if self._parts is None:
            return
        parts = args[self._parts]
        own = type(parts) is Own and self._size("M", args) in (None, parts.num_src)
        if own and self._order is None:
            return
        if type(parts[0]) is not Tensor:  # ids of a subclass are ids all the same
            parts = [plain(part) for part in parts]
        if not parts[0].is_cpu or not is_plain(parts[0]):
            return
        edges, sources = parts[1].size(0), self._size("M", args)
        backward = self._by_source and len(parts) == 5
        if backward and not parts[2].numel():  # the edges by source, which some do without
            backward = False
            loops = BACKENDS[args[-1]].reads_ids if args[-1] in BACKENDS else True
            if loops and not self.name.endswith(_NO_GRADIENT_BY_SOURCE):
                raise ValueError(f"t_indptr: empty, expected the edges by source ({self.name})")
        if sources is None:
            sources = parts[2].size(0) - 1 if backward else None
        order = None if self._order is None else args[self._order]
        rows = self._size("F", args)
        if sources is not None and (order is None or _in_rows(order, rows, edges)):
            if own:
                return
            fits = fit_both_ways(parts, sources) if backward else fit(parts[0], parts[1], sources)
            if fits:
                return
        _raise_misfit(self.name, parts, sources, backward, order, rows)

    def check_shapes(self, args: Sequence[Any]) -> None:
        """Raise unless all sizes fit together, as the functions of `ops` have checked already.

        Raises:
            ValueError: If a shape does not fit.
        """
        sizes = self._known(args)
        shapes = [None if args[k] is None else args[k].shape for k, _ in self._shapes]
        given = (*sizes.items(), *shapes)
        if given in self._fitting:
            return
        for (k, word), shape in zip(self._shapes, shapes, strict=True):
            if shape is None:
                continue
            fits = len(shape) == len(word)
            for letter, size in zip(word, shape, strict=False):
                fits = fits and sizes.setdefault(letter, size) == size
            if not fits and not (self.words[k] == "saved" and _are_facts(shape, sizes)):
                wanted = [sizes.get(letter, _NAMES.get(letter, letter)) for letter in word]
                raise ValueError(
                    f"{self.name}: {self.names[k]} has the shape {list(shape)}, expected {wanted}"
                )
        if {"W", "H", "C"} <= sizes.keys() and sizes["W"] != sizes["H"] * sizes["C"]:
            raise ValueError(
                f"{self.name}: maps to {sizes['W']} features, expected {sizes['H']} heads of "
                f"{sizes['C']}"
            )
        if len(self._fitting) >= _MOST:
            self._fitting.clear()
        self._fitting.add(given)

    def sizes(self, args: Sequence[Any]) -> dict[str, int]:
        """The size that each letter stands for."""
        sizes = self._known(args)
        for k, word in self._shapes:
            if args[k] is not None:
                sizes |= zip(word, args[k].shape, strict=False)
        return sizes

    def _size(self, letter: str, args: Sequence[Any]) -> int | None:
        place = self._sized[letter]
        return None if place is None else args[place].size(0)

    def _known(self, args: Sequence[Any]) -> dict[str, int]:
        """The sizes that the rows of the neighborhood decide."""
        sizes = dict[str, int]()
        if self._parts is not None:
            parts = args[self._parts]
            sizes = {"N": parts[0].size(0) - 1, "E": parts[1].size(0)}
            if len(parts) > 2 and parts[2].numel():
                sizes["M"] = parts[2].size(0) - 1
        if self._blocks is not None:
            count, dst, src = args[self._blocks]
            sizes = {"N": count * dst, "M": count * src, "E": count * dst * src}
        if self._order is not None and not args[self._order].numel():
            sizes["F"] = sizes["E"]  # edge e has row e
        return sizes


def check_rows_of(nb: Neighborhood, operation: str) -> None:
    """Raise unless the ids of a neighborhood in main memory lie within it; reads them once."""
    if nb.indptr.is_cpu and not fit(nb.indptr, nb.indices, nb.num_src):
        _raise_misfit(operation, [nb.indptr, nb.indices], nb.num_src)


def _raise_misfit(
    name: str, parts: list[Tensor], sources: int | None, backward: bool = False,
    order: Any = None, rows: Any = None,
) -> None:  # fmt: skip
    """Raise for the first id that does not lie within what it looks up."""
    indptr, indices, *turned = parts
    edges = indices.size(0)
    try:
        check_pointers(indptr, edges)
        if sources is not None:
            _check_ids("indices", indices, sources, edges)
        if backward:
            t_indptr, targets, perm = turned
            check_pointers(t_indptr, edges, "t_indptr", sources)
            _check_ids("targets", targets, indptr.size(0) - 1, edges)
            _check_ids("perm", perm, edges, edges)
        if order is not None and (order.numel() or order.dim() != 1):
            _check_ids("order", order, rows, edges)
    except (ValueError, IndexError) as error:
        raise type(error)(
            f"{error} ({name}); the neighborhood was changed in place, or never checked"
        ) from None


def _in_rows(order: Tensor, rows: int | None, edges: int) -> bool:
    if order.dim() != 1 or not order.numel():
        return order.dim() == 1
    return order.numel() == edges and within(order, rows or 0)


def _check_ids(name: str, ids: Tensor, limit: int | None, count: int) -> None:
    if ids.dim() != 1 or ids.numel() != count:
        raise ValueError(f"{name}: shape {list(ids.shape)}, expected {count} ids")
    if limit is not None:
        check_index(name, ids, limit, {"order": "row", "perm": "edge"}.get(name, "node"))


def _are_facts(shape: Sequence[int], sizes: dict[str, int]) -> bool:
    """Whether these are facts of each row: two a head, or those and a wide output a head."""
    heads, wide = sizes["H"], 2 + sizes.get("D", 0)
    return len(shape) == 3 and shape[0] == sizes["N"] and tuple(shape[1:]) in (
        (2, heads), (heads, 2), (wide, heads),
    )  # fmt: skip
