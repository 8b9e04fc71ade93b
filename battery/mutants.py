"""Single changes of the source that a test should notice, as cosmic-ray's operators make them."""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.plugins import get_operator, operator_names

ROOMS = ("graphtheory/ops", "graphtheory/graph", "graphtheory/structure")
LEFT_OUT = (
    "Triton kernels and their launchers (no CPU runs them)",
    "type annotations, type aliases and `TYPE_CHECKING` blocks",
    "decorators of types (`overload`)",
    "`__all__`",
    "what an error says (the arguments of `raise`)",
    "the bare `*` and `/` of signatures",
    "what Python does not compile, or compiles to the same syntax tree",
)
_TYPE_DECORATORS = {"overload", "override", "final"}


@dataclass(frozen=True)
class Mutant:
    """One change at one place.

    Attributes:
        file: Relative to the root.
        operator: Name in cosmic-ray.
        occurrence: Which of the places in the file that the operator can change.
        line: First line of the change.
        column: And its column.
        compiled: Whether numba compiles what is changed.
    """

    file: str
    operator: str
    occurrence: int
    line: int
    column: int
    compiled: bool

    def source(self, text: str) -> str | None:
        """The file as changed; None if that is no Python, or no other Python."""
        made = mutate_code(text, get_operator(self.operator)(), self.occurrence)
        if made is None or not _differs(text, made):
            return None
        return str(made)

    def diff(self, text: str) -> tuple[str, str]:
        """The lines before and after."""
        before, after = text.splitlines(), (self.source(text) or "").splitlines()
        first = _alike(before, after)
        last = _alike(before[:first:-1], after[:first:-1])
        sides = before[first : len(before) - last], after[first : len(after) - last]
        old, new = (" ".join(map(str.strip, side)) for side in sides)
        return old, new


def _alike(one: list[str], other: list[str]) -> int:
    """How many lines at the beginning are equal."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(one), len(other)))


def _differs(text: str, made: str) -> bool:
    try:
        return ast.dump(ast.parse(text)) != ast.dump(ast.parse(made))
    except (SyntaxError, ValueError):
        return False


def modules(root: Path) -> list[str]:
    """Files of the three rooms, without those for GPUs."""
    found = (str(p.relative_to(root)) for room in ROOMS for p in (root / room).rglob("*.py"))
    return sorted(name for name in found if "triton" not in name)


def digest(paths: list[Path]) -> str:
    """Of the content of files."""
    whole = hashlib.sha256()
    for path in paths:
        whole.update(path.read_bytes())
    return whole.hexdigest()[:16]


class Places:
    """What of a file is left out, and what is compiled."""

    def __init__(self, text: str) -> None:
        self.tree = ast.parse(text)
        self.out: list[tuple[tuple[int, int], tuple[int, int]]] = []
        self.signatures: list[tuple[tuple[int, int], tuple[int, int]]] = []
        self.bodies: list[tuple[int, int, bool]] = []
        kernels = "numba" in text or "backends.cpu" in text
        self.writes_code = "intrinsic" in text or "llvmlite" in text
        for node in ast.walk(self.tree):
            self._leave_out(node)
            if isinstance(node, ast.FunctionDef):
                self.bodies.append(
                    (first_line(node), node.end_lineno or 0, kernels and _plain(node))
                )
        self.has_kernels = any(compiled for *_, compiled in self.bodies)

    def _leave_out(self, node: ast.AST) -> None:
        match node:
            case ast.FunctionDef():
                args = node.args
                every = [*args.posonlyargs, *args.args, *args.kwonlyargs, args.vararg, args.kwarg]
                self._add(node.returns, *(a.annotation for a in every if a is not None))
                types = [d for d in node.decorator_list if _name(d) in _TYPE_DECORATORS]
                self.out += [((d.lineno, 0), (d.lineno + 1, 0)) for d in types]
                self.signatures.append(((node.lineno, 0), _start(node.body[0])))
            case ast.AnnAssign():
                self._add(node.annotation)
            case ast.Assign() if _name(node.targets[0]) == "__all__" or _is_alias(node.value):
                self._add(node)
            case ast.Raise():
                self._add(*getattr(node.exc, "args", ()), *getattr(node.exc, "keywords", ()))
            case ast.If() if _name(node.test) == "TYPE_CHECKING":
                self._add(node)

    def _add(self, *nodes: Any) -> None:
        self.out += [(_start(n), (n.end_lineno, n.end_col_offset)) for n in nodes if n is not None]

    def left_out(self, start: tuple[int, int], value: str) -> bool:
        """Whether a change at a place is none of the code."""
        if any(low <= start < high for low, high in self.out):
            return True
        if value not in ("*", "/", "**"):
            return False
        return any(low <= start < high for low, high in self.signatures)

    def compiled(self, line: int) -> bool:
        """Whether numba compiles it: kernels, constants beside them, what writes their code."""
        if self.writes_code:
            return True
        inner = max((body for body in self.bodies if body[0] <= line <= body[1]), default=None)
        return self.has_kernels if inner is None else inner[2]


def first_line(node: Any) -> int:
    """Of a statement, decorators included."""
    return min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", ()))])


def _start(node: Any) -> tuple[int, int]:
    return node.lineno, node.col_offset


def _name(node: ast.AST) -> str:
    return getattr(node, "id", getattr(node, "attr", ""))


def _is_alias(node: ast.AST) -> bool:
    """Whether a value is a type: `A | None`, `Sequence[A]`."""
    match node:
        case ast.BinOp(op=ast.BitOr()):
            return _is_alias(node.left) or _is_alias(node.right)
        case ast.Subscript():
            return _name(node.value)[:1].isupper() or _name(node.value) in ("tuple", "list", "dict")
        case ast.Constant():
            return node.value is None
        case _:
            return False


def _plain(node: ast.FunctionDef) -> bool:
    """Whether a function has parameters and no annotation: what numba is given."""
    args = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
    return bool(args) and node.returns is None and not any(a.annotation for a in args)


def mutants(root: Path, file: str) -> Iterator[Mutant]:
    """Those of a file, also such as do not compile."""
    text = (root / file).read_text()
    places, nodes = Places(text), list(ast_nodes(get_ast(text)))
    for name in operator_names():
        operator = get_operator(name)
        if operator.arguments():  # of variables: no such arguments are given
            continue
        found = ((n, start) for n in nodes for start, _ in operator().mutation_positions(n))
        for occurrence, (node, start) in enumerate(found):
            if not places.left_out(start, getattr(node, "value", "")):
                yield Mutant(file, name, occurrence, *start, places.compiled(start[0]))


def sample(root: Path, every: list[Mutant], count: int, seed: int) -> list[Mutant]:
    """The first of a random order that compile to something else.

    The order is that of hashes, so that a change of one file leaves the draws of others.
    """
    chosen: list[Mutant] = []
    for one in sorted(every, key=lambda one: _hash(one, seed)):
        if len(chosen) == count:
            break
        if one.source((root / one.file).read_text()) is not None:
            chosen.append(one)
    return chosen


def _hash(one: Mutant, seed: int) -> bytes:
    name = f"{seed} {one.file} {one.operator} {one.occurrence}"
    return hashlib.sha256(name.encode()).digest()
