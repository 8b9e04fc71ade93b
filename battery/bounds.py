"""Ids, row pointers and shapes that do not fit: each is refused before a loop reads by them."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from battery.bounds_builds import check_every_place, placed, source_of_loops
from battery.bounds_calls import CALLS, EQUAL, PLAIN, Call, Drawn, blocks, case_of, square
from battery.bounds_spoil import spoil_argument, spoil_id, spoil_pointers, spoil_shape, words_of
from battery.forked import printed
from battery.line import Line, timed
from graphtheory import Neighborhood, structure
from graphtheory.ops.bounds import Layout

TRIALS, BATCH, PLANTED = 5_000, 250, 0.1
CHECKED_BUILD_FROM = 0.1  # share of the trials; machine code with checks takes minutes to make
# of a trial, in which loops may be compiled for new types beside other work; of address space
MOST_SECONDS, MOST_BYTES = 120, 24 * 2**30
REFUSALS = (IndexError, ValueError, RuntimeError, TypeError)
_CHILD = "import json, sys; from battery.bounds import child; child(*json.loads(sys.argv[1]))"


def _ids_of(call: Call) -> dict[str, tuple[Tensor, int | None]]:
    """Every tensor of ids by name, with the rows it looks up in; None for row pointers."""
    nb, turned = call.neighborhood, call.neighborhood._transpose
    found: dict[str, tuple[Tensor, int | None]] = {"indptr": (nb.indptr, None)}
    found["indices"] = (nb.indices, nb.num_src)
    if turned is not None and turned.perm is not None:
        found |= {"t_indptr": (turned.indptr, None), "targets": (turned.indices, nb.num_dst)}
        found["perm"] = (turned.perm, nb.num_edges)
    return found | dict(call.ids)


def _spoiled(tensor: Tensor, limit: int | None, rng: np.random.Generator) -> bool:
    return spoil_pointers(tensor, rng) if limit is None else spoil_id(tensor, limit, rng)


Trial = tuple[str, bool | None, Callable[[], Any]]
"""What it is, whether it must be refused (None: it need not, but may not crash), and the call."""


def _draw(number: int, seed: int, build: str) -> tuple[Call, np.random.Generator]:
    rng = np.random.default_rng([seed, number])
    maker = CALLS[int(rng.integers(len(CALLS)))]
    kinds = EQUAL if maker is blocks else PLAIN
    torch.manual_seed(number)
    return maker(Drawn(number, build, kinds, rng)), rng


def valid(number: int, seed: int, build: str) -> Trial:
    """Forward and backward of a call that is fine."""
    call, _ = _draw(number, seed, build)
    return call.name, False, lambda: call.value().backward()


def changed_before(number: int, seed: int, build: str) -> Trial | None:
    """Ids of a neighborhood, buckets or rows changed before the call."""
    call, rng = _draw(number, seed, build)
    found = _ids_of(call)
    names = [n for n in found if n in (*call.kept, "indptr", "bucket", "row", "order")]
    name = names[int(rng.integers(len(names)))]
    if call.neighborhood.sets is not None and name not in call.ids:
        return None  # no loop reads ids of sets
    if not _spoiled(*found[name], rng):
        return None
    return f"{call.name}, {name} before the call", True, lambda: call.value().backward()


def changed_between(number: int, seed: int, build: str) -> Trial | None:
    """Ids, or the shape of what was saved, changed between forward and backward."""
    call, rng = _draw(number, seed, build)
    found = _ids_of(call)
    names = [n for n in found if n in (*call.kept, "bucket", "row", "order")]
    if call.name.startswith("topk") or call.name == "relu_sum":
        names = [n for n in names if n not in ("bucket", "order")]  # read in the forward pass only
    if not names or (not call.neighborhood.num_edges and rng.random() < 0.5):
        return None
    total, name = call.value(), names[int(rng.integers(len(names)))]
    if call.name == "aggregate, mean" or not _spoiled(*found[name], rng):
        return None
    return f"{call.name}, {name} before the backward pass", True, total.backward


def swapped_between(number: int, seed: int, build: str) -> Trial | None:
    """Another shape by `.data` between forward and backward."""
    call, rng = _draw(number, seed, build)
    total = call.value()
    name = list(call.tensors)[int(rng.integers(len(call.tensors)))]
    leaf, way = call.tensors[name], ("rows", "heads", "dim", "nothing")[int(rng.integers(4))]
    other = spoil_shape(leaf.detach(), way)
    if other is None:
        return None
    leaf.data = placed(other, build, rng)
    return f"{call.name}, {way} of {name} by .data", None, total.backward


_FUNCTIONS: dict[str, Callable[[Neighborhood], Any]] = {
    "shortest_path_distance": structure.shortest_path_distance,
    "of pairs": lambda nb: structure.shortest_path_distance(nb, pairs=torch.zeros(2, 3).long()),
    "hop_ball": lambda nb: structure.hop_ball(nb, 2),
    "count_by_distance": lambda nb: structure.count_by_distance(
        nb, torch.arange(nb.num_dst) % 2, 2
    ),
    "shortest_path_edges": structure.shortest_path_edges,
    "centroid_distance": structure.centroid_distance,
    "resistance_distance": structure.resistance_distance,
    "targets": lambda nb: nb.targets(),
    "transpose": lambda nb: nb.transpose(),
    "degree_encoding": structure.degree_encoding,
}  # fmt: skip


def in_structure(number: int, seed: int, build: str) -> Trial | None:
    """Functions on a graph whose ids were changed before or after its first use."""
    rng = np.random.default_rng([seed, number])
    drawn = square(case_of(number, PLAIN, rng))
    graph = Neighborhood(*placed([drawn.indptr, drawn.indices], build, rng), validate=False)
    if drawn.num_dst == 0:
        return None
    name = list(_FUNCTIONS)[int(rng.integers(len(_FUNCTIONS)))]
    used = name == "targets" or rng.random() < 0.5
    if used:
        _FUNCTIONS[name](graph)
    which, limit = (graph.indptr, None) if rng.random() < 0.5 else (graph.indices, graph.num_src)
    if not _spoiled(which, limit, rng):
        return None
    when = "after its first use" if used else "before its first use"
    must = None if name == "degree_encoding" and limit is not None else True  # it reads no ids
    return f"{name} of ids changed {when}", must, lambda: _FUNCTIONS[name](graph)


class _Recorded(TorchDispatchMode):
    """The operators of the library that are called, with their arguments."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[Any, tuple[Any, ...]]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.namespace == "graphtheory" and not func.name().startswith("graphtheory::csr"):
            self.calls.append((func, args))
        return func(*args, **(kwargs or {}))


def of_operator(number: int, seed: int, build: str) -> Trial | None:
    """An operator through torch's dispatcher with one part spoiled."""
    call, rng = _draw(number, seed, "plain")
    with _Recorded() as recorded:
        call.value().backward()
    if not recorded.calls:
        return None
    op, given = recorded.calls[int(rng.integers(len(recorded.calls)))]
    args, words = placed(list(given), build, rng), words_of(op.name())
    must, what = spoil_argument(op, args, words, call.neighborhood, rng, build)
    return None if what is None else (f"{op.name()}: {what}", must, lambda: op(*args))


KINDS_OF_TRIAL: tuple[Callable[[int, int, str], Trial | None], ...] = (
    valid, of_operator, changed_before, of_operator, changed_between, of_operator, swapped_between,
    of_operator, in_structure, of_operator,
)  # fmt: skip
REFUSED, SILENT, NOTHING = "refused", "silent", "nothing"


def outcome(number: int, seed: int, build: str) -> tuple[str, str, str]:
    """(what was tried, how it ended, what is wrong with that)."""
    kind = KINDS_OF_TRIAL[number % len(KINDS_OF_TRIAL)]
    try:
        trial = kind(number, seed, build)
    except Exception as error:  # what is valid until then was refused
        return f"{kind.__name__}, still valid", REFUSED, f"{type(error).__name__}: {error}"[:150]
    if trial is None:
        return "", NOTHING, ""
    what, must, call = trial
    print(json.dumps([number, what, "begun", ""]), flush=True)
    try:
        call()
    except REFUSALS as error:
        said = f"{type(error).__name__}: {str(error)[:150]}"
        return what, REFUSED, said if must is False else _unmeant(error)
    except Exception as error:  # of a class that nobody meant
        return what, REFUSED, f"{type(error).__name__}: {str(error)[:150]}"
    return what, SILENT, "accepted" if must else ""


def _unmeant(error: Exception) -> str:
    """The checks of a build that looks places up, which a check of ours has to come before."""
    return str(error) if "index is out of bounds" in str(error) else ""


def child(first: int, last: int, seed: int, build: str, plant: str) -> None:
    """Trials of these numbers in forks of a process, a line of JSON each; after a crash a new one.

    With `plant` nothing is checked, and every trial has a fork of its own.
    """
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    if build == "checked":
        check_every_place()
    with Path(os.devnull).open("w") as nowhere, mock.patch.object(sys, "stdout", nowhere):
        for number in range(first, last):  # loads what forks need
            with suppress(Exception):
                valid(number, seed, "plain")[2]()
    at = first
    while at < last:
        at = _forked(at, last if plant == "" else at + 1, seed, build, plant)


def _forked(first: int, last: int, seed: int, build: str, plant: str) -> int:
    """Run trials in a fork; the number of the next one."""
    here, there = os.pipe()
    if (pid := os.fork()) == 0:
        os.dup2(there, 1)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        os.close(here)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_AS, (MOST_BYTES, MOST_BYTES))
        sys.stdout = os.fdopen(1, "w")
        _run(first, last, seed, build, plant)
        os._exit(0)
    os.close(there)
    with os.fdopen(here) as lines:
        told = lines.read()
    print(told, end="")
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if code == 0:
        return last
    number, what, ended, _ = json.loads(told.splitlines()[-1]) if told else [first, "", "begun", ""]
    if ended != "begun":  # while the next one was made, or by what this one had written
        number, what = number + 1, f"after {what or number}"
    name = signal.Signals(-code).name if code < 0 else f"exit code {code}"
    print(json.dumps([number, what, "crash", f"ends the process with {name}"]), flush=True)
    return int(number) + 1


def _run(first: int, last: int, seed: int, build: str, plant: str) -> None:
    if plant:
        for name in ("check_ids", "check_shapes"):
            mock.patch.object(Layout, name, lambda self, args: None).start()
    for number in range(first, last):
        signal.alarm(MOST_SECONDS)
        print(json.dumps([number, *outcome(number, seed, build)]), flush=True)


def _batch(first: int, last: int, seed: int, build: str, plant: str = "") -> Iterator[list[Any]]:
    """[number, what, how it ended, what is wrong] of trials in a process of its own."""
    given = (first, last, seed, build, plant)
    said, code = _of_checked_build(given) if build == "checked" else printed(child, *given)
    for text in said.splitlines():
        if (found := json.loads(text))[2] != "begun":
            yield found
    if code:
        yield [first, "", "crash", f"a child ends with {code}"]


def _of_checked_build(given: tuple[Any, ...]) -> tuple[str, int]:
    """What `child` prints in an interpreter whose machine code looks places up, and how it ends."""
    folder = Path(tempfile.gettempdir()) / f"graphtheory-checked-build-{source_of_loops()}"
    checked = {"NUMBA_BOUNDSCHECK": "1", "NUMBA_CACHE_DIR": str(folder), "OMP_NUM_THREADS": "1"}
    words, environment = [sys.executable, "-c", _CHILD, json.dumps(given)], os.environ | checked
    done = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=False, env=environment)
    return done.stdout, done.returncode


def of_build(build: str, words: str, share: float, seed: int) -> Line:
    """The trials in one of the builds."""
    line = Line(
        "bounds", f"no loop reads or writes memory that is not its own, {words}",
        "the same calls with no check of ids and shapes in the operators", least_caught=0.15,
    )  # fmt: skip
    count, told = max(60, round(share * TRIALS / 2)), dict.fromkeys((REFUSED, SILENT, NOTHING), 0)
    with timed(line):
        for first in range(0, count, BATCH):
            for number, what, ended, wrong in _batch(first, min(count, first + BATCH), seed, build):
                line.trials += ended != NOTHING
                told[ended] = told.get(ended, 0) + 1
                if wrong:
                    line.broken.append(f"trial {number}, {what}: {wrong}")
        _plant(line, max(30, round(PLANTED * count)), seed, build)
    line.figures |= {"refused": told[REFUSED], "accepted, as they may be": told[SILENT]}
    return line


def _plant(line: Line, count: int, seed: int, build: str) -> None:
    """Trials that nothing checks: a crash, or what a checked build says, is seen."""
    for _, _, ended, wrong in _batch(0, count, seed, build, "unchecked"):
        if wrong:  # a trial that has to be refused and is not, or that ends the process
            line.planted += 1
            line.caught += ended == "crash" or "out of bounds" in wrong


def bounds(share: float, seed: int) -> list[Line]:
    """5,000 calls, half of them in each build; a small share has only the closed pages."""
    line = of_build(
        "pages", "with a page behind or before each tensor that ends the process", share, seed
    )
    if share < CHECKED_BUILD_FROM:
        line.figures["build with checks"] = f"from share {CHECKED_BUILD_FROM} on"
        return [line]
    return [line, of_build("checked", "in loops compiled to look every place up", share, seed)]
