"""What holds of the arguments of an operator whose compiled loops look nothing up themselves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from graphtheory.graph.content import ascends, fit, fit_both_ways, is_plain, within
from graphtheory.graph.csr import plain

_IDS = frozenset(("parts", "relu_parts", "indptr", "indices", "order"))
_PER_EDGE = frozenset(("bucket", "row"))
_OF_QUERIES = ("::attention_backward", "::edge_attention_backward")
_LOOPLESS = frozenset(("torch_csr", "reference"))  # backends by torch's own operators
_LETTERS = {"bucket": "E", "row": "E", "saved": "EH"}


class Layout:
    """The sizes and the ids of an operator's arguments, named in its declaration.

    A declaration has a word for each argument. A word in capitals is a shape, a letter a size that
    is the same wherever it stands: N targets, M sources, E edges, H heads. ``parts`` are [indptr,
    indices], and for a backward pass [t_indptr, targets, perm] behind them; ``relu_parts`` are
    [indptr, indices, order], and [t_indptr, edges]; ``order`` is empty, or for each edge a row of
    what has F rows; ``bucket`` and ``row`` have an entry for each edge; ``blocks`` are the counts
    of sets, of their targets and of their sources; ``saved`` is what an attention left for its
    backward pass. A dot is checked by the operator itself, or needs no check.

    Args:
        name: Of the operator.
        words: The declaration.
    """

    def __init__(self, name: str, words: str) -> None:
        self.name, self._words = name, tuple(words.split())
        self._ids = [(k, word) for k, word in enumerate(self._words) if word in _IDS]
        self._parts, self._order = (
            self._words.index(word) if word in self._words else None for word in ("parts", "order")
        )
        self._rows = [*self._ids, *((k, w) for k, w in enumerate(self._words) if w == "blocks")]
        self._by_source = name.endswith(("_backward", "_by_source"))  # reads rows of sources
        self._shapes = [
            (k, _LETTERS.get(word, word))
            for k, word in enumerate(self._words)
            if word.isupper() or word in _LETTERS
        ]
        self._sized = {
            letter: next((k for k, w in enumerate(self._words) if w.startswith(letter)), None)
            for letter in "MEF"
        }

    def check_ids(self, args: Sequence[Any]) -> None:
        """Raise unless every id that a loop on a CPU reads lies within what it looks up.

        Raises:
            ValueError: If row pointers are not such.
            IndexError: If an id is out of range.
        """
        if self._fits(args):
            return
        given = {word: args[k] for k, word in self._ids}
        parts = given.get("parts") or given.get("relu_parts")
        parts = [plain(part) for part in parts or ()]  # ids of a subclass are ids all the same
        first = parts[0] if parts else given.get("indptr")
        first = None if first is None else plain(first)
        if first is None or not first.is_cpu or not is_plain(first):
            return
        indices = parts[1] if parts else given.get("indices")
        edges = self._size("E", args) if indices is None else indices.size(0)
        self._check_pointers("indptr", first, edges)
        if indices is not None:
            self._check_rows(args, given, parts or [first, indices])

    def _fits(self, args: Sequence[Any]) -> bool:
        """Whether all is right, in the fewest steps; False also where that was not asked."""
        if self._parts is None:
            return False
        parts = args[self._parts]
        if len(parts) < 2 or not is_plain(parts[0]) or not parts[0].is_cpu:
            return False
        edges, sources = parts[1].size(0), self._size("M", args)
        backward = self._by_source and len(parts) == 5 and parts[2].numel() > 0
        if self._lacks_sources(args, parts):
            return False
        if sources is None:
            sources = parts[2].size(0) - 1 if backward else 0
        if not (fit_both_ways(parts, sources) if backward else fit(parts[0], parts[1], sources)):
            return False
        order = None if self._order is None else args[self._order]
        if order is None:
            return True
        if order.dim() != 1 or not order.numel():
            return order.dim() == 1
        return order.numel() == edges and within(order, self._size("F", args) or 0)

    def _lacks_sources(self, args: Sequence[Any], parts: Sequence[Tensor]) -> bool:
        """Whether the edges by source are absent where a loop reads them.

        Gradients of attention's queries alone do without, and so do backends without loops.
        """
        if not self._by_source or len(parts) != 5 or parts[2].numel():
            return False
        return not self.name.endswith(_OF_QUERIES) and args[-1] not in _LOOPLESS

    def _check_rows(self, args: Sequence[Any], given: dict[str, Any], parts: list[Tensor]) -> None:
        sources = self._size("M", args)
        if sources is None and len(parts) > 2:
            sources = parts[2].size(0) - 1
        if sources is not None:
            self._check("indices", parts[1], sources)
        edges, order = parts[1].size(0), given.get("order")
        if "relu_parts" in given:
            order = parts[2]
            if len(parts) > 3:
                self._check_pointers("t_indptr", parts[3], edges, self._size("M", args))
                self._check("edges", parts[4], self._size("F", args), edges)
        elif self._lacks_sources(args, parts):
            raise ValueError(f"t_indptr: empty, expected the edges by source ({self.name})")
        elif self._by_source and len(parts) > 2 and parts[2].numel():
            self._check_pointers("t_indptr", parts[2], edges, sources)
            self._check("targets", parts[3], parts[0].size(0) - 1, edges)
            self._check("perm", parts[4], edges, edges)
        if order is not None and (order.numel() or order.dim() != 1):
            self._check("order", order, self._size("F", args), edges)

    def _size(self, letter: str, args: Sequence[Any]) -> int | None:
        place = self._sized[letter]
        return None if place is None else args[place].size(0)

    def _check_pointers(self, name: str, given: Tensor, end: int | None, rows: Any = None) -> None:
        rows = given.size(0) - 1 if rows is None else rows
        if given.dim() != 1 or given.size(0) != rows + 1 or not ascends(given, end or 0):
            raise ValueError(
                f"{name}: expected {rows + 1} row pointers from 0 to {end} that never fall "
                f"({self.name}); the neighborhood was changed in place, or never checked"
            )

    def _check(self, name: str, ids: Tensor, limit: int | None, count: int | None = None) -> None:
        if ids.dim() != 1 or count not in (None, ids.numel()):
            wanted = "ids" if count is None else f"{count} ids"
            raise ValueError(f"{name}: shape {list(ids.shape)}, expected {wanted} ({self.name})")
        if limit is not None and not within(ids, limit):
            raise IndexError(
                f"{name}: entries {int(ids.min())} to {int(ids.max())}, expected 0..{limit - 1} "
                f"({self.name}); the neighborhood was changed in place, or never checked"
            )

    def check_shapes(self, args: Sequence[Any]) -> None:
        """Raise unless all sizes fit together, as the functions of `ops` have checked already.

        Raises:
            ValueError: If a shape does not fit.
        """
        sizes = self._known(args)
        if len(args) == len(self._words) and self._agree(args, dict(sizes)):
            return
        for k, (word, given) in enumerate(zip(self._words, args, strict=True)):
            if given is None or word == "." or word in _IDS or word == "blocks":
                continue
            found = tuple(given.shape)
            wanted = self._wanted(word, sizes, found)
            if found != wanted:
                raise ValueError(
                    f"{self.name}: argument {k} has the shape {list(found)}, expected "
                    f"{list(wanted)}"
                )

    def sizes(self, args: Sequence[Any]) -> dict[str, int]:
        """The size that each letter stands for."""
        sizes = self._known(args)
        for k, word in self._shapes:
            if args[k] is not None:
                sizes |= zip(word, args[k].shape, strict=False)
        return sizes

    def _agree(self, args: Sequence[Any], sizes: dict[str, int]) -> bool:
        """Whether all shapes fit, in the fewest steps; False also of facts, which have others."""
        for k, word in self._shapes:
            if args[k] is not None:
                shape = args[k].shape
                if len(shape) != len(word):
                    return False
                for letter, size in zip(word, shape, strict=True):
                    if sizes.setdefault(letter, size) != size:
                        return False
        return "W" not in sizes

    def _known(self, args: Sequence[Any]) -> dict[str, int]:
        """The sizes that the rows of the neighborhood decide."""
        sizes, order = dict[str, int](), None
        for k, word in self._rows:
            given = args[k]
            if word in ("order", "relu_parts"):
                order = given if word == "order" else given[2]
            if word in ("parts", "relu_parts"):
                sizes |= {"N": given[0].size(0) - 1, "E": given[1].size(0)}
                if word == "parts" and len(given) > 2 and given[2].numel():
                    sizes["M"] = given[2].size(0) - 1
            elif word == "indptr":
                sizes["N"] = given.size(0) - 1
            elif word == "indices":
                sizes["E"] = given.size(0)
            elif word == "blocks":
                count, dst, src = given
                sizes |= {"N": count * dst, "M": count * src, "E": count * dst * src}
        if order is not None and not order.numel():
            sizes["F"] = sizes["E"]  # edge e has row e
        return sizes

    def _wanted(self, word: str, sizes: dict[str, int], found: tuple[int, ...]) -> tuple[int, ...]:
        if word in _PER_EDGE:
            return (sizes["E"],)
        if word == "saved":  # weights, or facts of each row
            heads, wide = sizes["H"], 2 + sizes.get("D", 0)  # and of a narrow type its output
            known = found[1:] in ((2, heads), (heads, 2), (wide, heads))
            facts = found[1:] if known else (2, heads)
            return (sizes["N"], *facts) if len(found) == 3 else (sizes["E"], sizes["H"])
        if len(found) == len(word):
            for letter, size in zip(word, found, strict=True):
                sizes.setdefault(letter, size)
        if {"W", "H", "C"} <= sizes.keys():
            sizes["W"] = sizes["H"] * sizes["C"]
        return tuple(sizes.get(letter, -1) for letter in word)
