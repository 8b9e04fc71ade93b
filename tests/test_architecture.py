"""The rules of the house, read off the syntax tree: who imports whom, and what no module does.

    papers -> lab -> vision -> core
    core:  integrations, models, data -> nn -> patterns -> structure -> ops -> graph
    lab:   cli -> report -> bench -> {train, zoo, datasets, metrics, plot}

Chapters of `papers` do not import each other, and the lab finds papers by name.

Every import counts, those inside functions and under TYPE_CHECKING too.
"""

import ast
import re
import sys
from collections.abc import Iterator
from fnmatch import fnmatch
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import pytest
from scipy.sparse.csgraph import connected_components

ROOT = Path(__file__).parent.parent
PACKAGE = "graphtheory"
MAX_LINES = 400

_STRUCTURE = {"ops", "graph", "lazy"}
_PATTERNS = {"structure"} | _STRUCTURE
_LAYERS = {"modes", "patterns", "recording"} | _PATTERNS
_MODELS = {"nn"} | _LAYERS
CORE = {"disk", "data", "models", "integrations"} | _MODELS
_LAB = {"vision"} | CORE
_BENCH = {"lab.progress", "lab.signals"} | {
    f"lab.{room}" for room in ("train", "zoo", "datasets", "metrics", "plot")
}
_REPORT = {"lab.bench"} | _BENCH
# Room -> the other rooms it may import. A room is a module or a folder directly in the package, of
# the lab one directly in the lab.
MAY_IMPORT: dict[str, set[str]] = {
    "disk": set(),
    "lazy": set(),
    "modes": set(),
    "recording": set(),
    "graph": set(),
    "ops": {"graph"},
    "structure": _STRUCTURE,
    "patterns": _PATTERNS,
    "nn": _LAYERS,
    "models": _MODELS,
    "data": {"disk"} | _MODELS,
    "integrations": {"models"} | _MODELS,
    "vision": CORE,
    "lab.by_name": set(),
    "lab.progress": set(),
    "lab.signals": set(),
    "lab.train": {"disk", "lab.progress", "lab.signals"} | _LAYERS,
    "lab.zoo": _LAB,
    "lab.datasets": _LAB,
    "lab.metrics": _LAB,
    "lab.plot": _LAB,
    "lab.bench": _BENCH | _LAB,
    "lab.report": _REPORT | _LAB,
    "lab.cli": {"lab.by_name", "lab.report"} | _REPORT | _LAB,
    "papers": {"lab.by_name", "lab.cli", "lab.report"} | _REPORT | _LAB,
}
FINDS_BY_NAME = {"lab/by_name.py"}  # the one place of the lab that may name `papers`

_PYG_PLACES = (
    "graph/interop.py", "nn/conv/*", "data/*", "integrations/*", "vision/images.py",
    "lab/zoo/*", "lab/datasets/*", "lab/train/*", "papers/*/*",
)  # fmt: skip
_KERNEL_PLACES = ("ops/backends/cpu/*", "structure/_*.py", "graph/co[mn]*.py")
FRONT_DOORS = {("__init__",), ("__main__",), ("lab", "__init__")}
CHAPTERS = {p.parent.name for p in (ROOT / PACKAGE / "papers").glob("*/__init__.py")}
# Third-party package -> the files that may import it.
PLACES: dict[str, tuple[str, ...]] = {
    "torch_geometric": _PYG_PLACES,
    "torch_scatter": _PYG_PLACES,
    "torch_sparse": _PYG_PLACES,
    "triton": ("ops/backends/triton/*",),
    "numba": _KERNEL_PLACES,
    "llvmlite": _KERNEL_PLACES,
    "matplotlib": ("lab/plot/*", "papers/*"),
    "ogb": ("lab/datasets/*",),
    "kornia": ("lab/train/images.py",),
    "optuna": ("lab/bench/search.py",),
    "lightning": ("lab/train/*", "lab/cli/*", "lab/bench/*", "papers/*"),
    "pytorch_lightning": (),  # the same classes under another name
    "pickle": ("lab/datasets/safe_pickle.py",),  # for an Unpickler that knows a few harmless names
    "cloudpickle": (),
    "dill": (),
    "joblib": (),
    "marshal": (),
    "shelve": (),
}
# Imported name -> the requirement that brings it, where the names differ.
BROUGHT_BY = {
    "sklearn": "scikit-learn", "llvmlite": "numba",
    "PIL": "matplotlib", "jinja2": "torch", "filelock": "torch",
}  # fmt: skip
PRINTING = {"lab.cli", "lab.report", "lab.bench", "lab.progress", "papers"}
PRINTS_IF_ASKED = {"integrations/pyg.py"}  # accelerate(report=)
WRITES_CODE = {"ops/backends/triton/replay.py"}  # of shapes and places alone, as dataclasses do
CODE_FROM_DATA = {
    "eval",
    "exec",
    "pickle.load",
    "pickle.loads",
    "pickle.Unpickler",
    "yaml.load",
    "yaml.load_all",
    "yaml.full_load",
    "yaml.unsafe_load",
    "torch_geometric.io.fs.torch_load",
}
UNSAFE_OPTIONS = {("weights_only", False), ("allow_pickle", True)}


def room_of(path: str) -> str:
    """Room of a file: of `nn/conv/gcn.py` nn, of `lab/cli/main.py` lab.cli, of a front door ''."""
    parts = PurePosixPath(path).with_suffix("").parts
    if parts in FRONT_DOORS:
        return ""
    return ".".join(parts[: 2 if parts[0] == "lab" else 1])


def _room_of_name(name: str) -> str:
    """Room of a dotted name: of `graphtheory.lab.bench.rows.Row` lab.bench."""
    parts = name.split(".")[1:]
    return ".".join(parts[: 2 if parts[:1] == ["lab"] else 1])


def chapter_of(name: str) -> str:
    """The chapter of a dotted name: of `graphtheory.papers.icl.data` icl; '' outside chapters."""
    parts = name.split(".")
    inside = parts[1:2] == ["papers"] and len(parts) > 2 and parts[2] in CHAPTERS
    return parts[2] if inside else ""


def imports(tree: ast.AST, path: str) -> Iterator[tuple[int, str]]:
    """(line, dotted name) of everything imported, relative names resolved, at any depth."""
    here = (PACKAGE, *PurePosixPath(path).parent.parts)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = here[: len(here) - node.level + 1] if node.level else ()
            module = ".".join((*above, *filter(None, [node.module])))
            yield from ((node.lineno, f"{module}.{alias.name}") for alias in node.names)
        elif isinstance(node, ast.Call) and _dotted(node.func).endswith(
            ("import_module", "__import__")
        ):
            yield node.lineno, _named_by_string(node, here)


@cache
def imports_of(source: str, path: str) -> list[tuple[int, str]]:
    """Those of a file, read once for all checks."""
    return list(imports(ast.parse(source), path))


def _named_by_string(call: ast.Call, here: tuple[str, ...]) -> str:
    """The module that `import_module("...")` names; of a computed name what is known, else ''."""
    argument = call.args[0] if call.args else None
    if isinstance(argument, ast.JoinedStr):
        argument = argument.values[0]
    name = argument.value if isinstance(argument, ast.Constant) else ""
    if not isinstance(name, str):
        return ""
    level = len(name) - len(name.lstrip("."))
    above = here[: len(here) - level + 1] if level else ()
    return ".".join((*above, *filter(None, [name.lstrip(".")])))


def _dotted(node: ast.expr) -> str:
    """`a.b.c` for a name or an attribute chain, '' for any other expression."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and (owner := _dotted(node.value)):
        return f"{owner}.{node.attr}"
    return ""


def _aliases(tree: ast.AST) -> dict[str, str]:
    """Local name -> what it stands for, from every import statement."""
    known = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            known |= {alias.asname: alias.name for alias in node.names if alias.asname}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            known |= {a.asname or a.name: f"{node.module}.{a.name}" for a in node.names}
    return known


def direction_faults(source: str, path: str) -> Iterator[str]:
    """Imports between rooms that MAY_IMPORT does not list, and rooms that it does not know."""
    room = room_of(path)
    if not room:
        return  # the front door shows every room
    if room not in MAY_IMPORT:
        yield f"{path}: no rule says what the room {room!r} may import"
        return
    here = ".".join((PACKAGE, *PurePosixPath(path).with_suffix("").parts))
    for line, name in imports_of(source, path):
        if name.partition(".")[0] != PACKAGE:
            continue
        target = _room_of_name(name)
        if target == "papers" and path in FINDS_BY_NAME:
            continue
        if target not in MAY_IMPORT:
            yield f"{path}:{line}: imports {name} through the front door, name its room instead"
        elif target != room and target not in MAY_IMPORT[room]:
            yield f"{path}:{line}: {room} may not import {name}"
        elif room == target == "papers" and chapter_of(name) not in ("", chapter_of(here)):
            yield f"{path}:{line}: a chapter is imported only by itself, not {name}"


def place_faults(source: str, path: str) -> Iterator[str]:
    """Third-party imports outside the files that PLACES lists."""
    for line, name in imports_of(source, path):
        package = name.partition(".")[0]
        allowed = PLACES.get(package)
        if allowed is not None and not any(fnmatch(path, place) for place in allowed):
            yield f"{path}:{line}: {package} may be imported only by {', '.join(allowed) or 'none'}"


def call_faults(source: str, path: str) -> Iterator[str]:
    """Calls that turn data into code, and printing outside the rooms that talk to people."""
    tree = ast.parse(source)
    known = _aliases(tree)
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        head, dot, tail = _dotted(node.func).partition(".")
        name = known.get(head, head) + dot + tail
        if name in CODE_FROM_DATA and not (name == "exec" and path in WRITES_CODE):
            yield f"{path}:{node.lineno}: {name} can run code that comes with the data"
        for word in node.keywords:
            value = word.value.value if isinstance(word.value, ast.Constant) else None
            if (word.arg, value) in UNSAFE_OPTIONS:
                yield f"{path}:{node.lineno}: {word.arg}={value} can run code that comes with data"
        if name == "print" and room_of(path) not in PRINTING and path not in PRINTS_IF_ASKED:
            yield f"{path}:{node.lineno}: prints; the library returns, raises or warns"


def length_faults(source: str, path: str) -> Iterator[str]:
    """Modules that have grown past one thing."""
    if (lines := len(source.splitlines())) > MAX_LINES:
        yield f"{path}: {lines} lines, at most {MAX_LINES}"


ASKED = set(re.findall(r'"([\w-]+)>=', (ROOT / "pyproject.toml").read_text(encoding="utf-8")))


def requirement_faults(source: str, path: str) -> Iterator[str]:
    """Imports of what the package does not ask for, by name, in its requirements or extras."""
    for line, name in imports_of(source, path):
        package = name.partition(".")[0]
        if package in {PACKAGE, ""} or package in sys.stdlib_module_names:
            continue
        if BROUGHT_BY.get(package, package.replace("_", "-")) not in ASKED:
            yield f"{path}:{line}: {package} is not a requirement of {PACKAGE}"


CHECKS = (direction_faults, place_faults, requirement_faults, call_faults, length_faults)
MODULES = sorted(p.relative_to(ROOT / PACKAGE).as_posix() for p in (ROOT / PACKAGE).rglob("*.py"))


def test_modules_keep_the_rules() -> None:
    found = []
    for path in MODULES:
        source = (ROOT / PACKAGE / path).read_text(encoding="utf-8")
        found += [fault for check in CHECKS for fault in check(source, path)]
    assert found == []


def test_every_module_is_read() -> None:
    assert {"__init__.py", "graph/neighborhood.py"} <= set(MODULES)


def test_no_room_reaches_itself_through_others() -> None:
    def reach(room: str, seen: frozenset[str]) -> set[str]:
        assert room not in seen, f"{room} imports itself through {sorted(seen)}"
        below = MAY_IMPORT[room]
        return below.union(*(reach(other, seen | {room}) for other in below))

    for room in MAY_IMPORT:
        assert reach(room, frozenset()) == MAY_IMPORT[room]  # closed: what is below stays usable


def module_imports(sources: dict[str, str]) -> dict[str, set[str]]:
    """Module -> the modules that it imports at any depth, but for those under TYPE_CHECKING."""
    names = {
        ".".join((PACKAGE, *PurePosixPath(path).with_suffix("").parts)).removesuffix(".__init__")
        for path in sources
    }

    def module_of(name: str) -> str:
        while name and name not in names:
            name = name.rpartition(".")[0]
        return name

    found: dict[str, set[str]] = {}
    for path, source in sources.items():
        here = module_of(".".join((PACKAGE, *PurePosixPath(path).with_suffix("").parts)))
        tree = _WithoutTypes().visit(ast.parse(source))
        reached = {module_of(name) for _, name in imports(tree, path)}
        found[here] = reached - {"", PACKAGE, here}
    return found


class _WithoutTypes(ast.NodeTransformer):
    """Drops what `if TYPE_CHECKING:` holds."""

    def visit_If(self, node: ast.If) -> Any:
        if _dotted(node.test).endswith("TYPE_CHECKING"):
            return [self.visit(child) for child in node.orelse] or ast.Pass()
        return self.generic_visit(node)


def circles(graph: dict[str, set[str]]) -> list[set[str]]:
    """Sets of modules each of which reaches all others."""
    matrix = np.array([[other in graph[one] for other in graph] for one in graph])
    number, components = connected_components(matrix, connection="strong")
    sets = [
        {name for name, of in zip(graph, components, strict=True) if of == one}
        for one in range(number)
    ]
    return [one for one in sets if len(one) > 1]


def test_no_two_modules_reach_each_other_and_a_planted_circle_is_found() -> None:
    sources = {path: (ROOT / PACKAGE / path).read_text(encoding="utf-8") for path in MODULES}
    assert circles(module_imports(sources)) == []
    lazy = "def f():\n    from graphtheory.ops import b"
    typed = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import graphtheory.ops.a"
    sources = {"ops/a.py": lazy, "ops/b.py": "import graphtheory.ops.a", "ops/c.py": typed}
    assert circles(module_imports(sources)) == [{f"{PACKAGE}.ops.a", f"{PACKAGE}.ops.b"}]


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("graph/build.py", "import graphtheory.ops"),
        ("graph/build.py", "def f():\n    from graphtheory.nn.conv import GCNConv"),
        ("graph/build.py", "from ..ops import attention"),
        ("graph/build.py", "from .. import ops"),
        ("graph/build.py", "import importlib\nimportlib.import_module('graphtheory.nn')"),
        ("ops/edge.py", "from importlib import import_module\nimport_module('..nn', __package__)"),
        ("nn/conv/gcn.py", "from ...models import GraphTransformer"),
        ("nn/init.py", "import typing\nif typing.TYPE_CHECKING:\n    import graphtheory.lab.cli"),
        ("structure/core.py", "from graphtheory import patterns"),
        ("data/loaders/seeds.py", "from graphtheory.lab.datasets import graphs"),
        ("vision/models/vit.py", "from graphtheory.lab.train import fit"),
        ("lab/train/module.py", "from graphtheory.lab.datasets import graphs"),
        ("lab/train/module.py", "from graphtheory.models import GAT"),
        ("lab/datasets/graphs.py", "from graphtheory.lab.plot import curve"),
        ("lab/plot/style.py", "import graphtheory.lab.metrics.mass as mass"),
        ("models/gat.py", "from graphtheory.lab.train import fit"),
        ("lab/bench/search.py", "from graphtheory.lab.report import page"),
        ("lab/report/page.py", "from graphtheory.papers.chain import study"),
        ("papers/chain/study.py", "from graphtheory.papers.icl.data import PromptSource"),
        ("papers/chain/study.py", "from graphtheory.papers import icl"),
        ("papers/figure.py", "from graphtheory.papers.icl.data import PromptSource"),
        ("lab/cli/main.py", "from graphtheory.papers import index"),
        ("ops/edge.py", "from graphtheory import Neighborhood"),
        ("attic/old.py", ""),
    ],
)
def test_planted_import_is_found(path: str, source: str) -> None:
    assert len(list(direction_faults(source, path))) == 1


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("models/gat.py", "from torch_geometric.nn import GATConv"),
        ("nn/attention.py", "def f():\n    import torch_geometric as pyg"),
        ("graph/build.py", "from torch_sparse import SparseTensor"),
        ("ops/backends/torch_csr.py", "import numba"),
        ("ops/edge.py", "import triton.language as tl"),
        ("lab/report/page.py", "import matplotlib.pyplot as plt"),
        ("models/gat.py", "__import__('ogb')"),
        ("lab/datasets/graphs.py", "from lightning import LightningDataModule"),
        ("lab/train/module.py", "import pytorch_lightning"),
        ("lab/datasets/graphs.py", "import pickle"),
        ("lab/train/checkpoint.py", "from joblib import load"),
        ("lab/bench/comparison.py", "def f():\n    import optuna"),
    ],
)
def test_planted_third_party_import_is_found(path: str, source: str) -> None:
    assert len(list(place_faults(source, path))) == 1


@pytest.mark.parametrize(
    "source",
    [
        "eval('1')",
        "exec(text)",
        "import pickle\npickle.load(file)",
        "import pickle as p\np.loads(text)",
        "from pickle import load as read\nread(file)",
        "import pickle\npickle.Unpickler(file).load()",
        "import yaml\nyaml.load(file, Loader=loader)",
        "torch.load(file, weights_only=False)",
        "np.load(file, allow_pickle=True)",
        "from torch_geometric.io import fs\nfs.torch_load(file)",
        "print('done')",
    ],
)
def test_planted_call_is_found(source: str) -> None:
    assert len(list(call_faults(source, "lab/datasets/planetoid.py"))) == 1


def test_planted_undeclared_import_and_planted_length_are_found() -> None:
    assert (
        len(list(requirement_faults("import os, torch, sklearn, pandas", "lab/datasets/graphs.py")))
        == 1
    )
    assert list(length_faults("x = 1\n" * (MAX_LINES + 1), "ops/edge.py"))


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("__init__.py", "from graphtheory.models import GraphTransformer"),
        ("patterns/hops.py", "from ..structure.distance import shortest_path_distance"),
        ("patterns/hops.py", "from .base import Pattern"),
        ("nn/conv/__init__.py", "from .gcn import GCNConv"),
        ("nn/conv/gcn.py", "from torch_geometric.nn import GCNConv\nfrom ...ops import aggregate"),
        ("papers/fig_3_8.py", "from graphtheory import data, models\nprint('row')"),
        (
            "lab/datasets/safe_pickle.py",
            "import pickle\nclass Six(pickle.Unpickler): ...\nSix(file).load()",
        ),
        ("lab/train/module.py", "model.eval()\ntorch.load(file, weights_only=True)"),
    ],
)
def test_what_the_rules_allow_passes(path: str, source: str) -> None:
    assert [fault for check in CHECKS for fault in check(source, path)] == []
