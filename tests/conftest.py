"""Fixtures and settings that every test shares."""

import gc
import io
import logging
import os
import signal
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import settings

if "PYTEST_XDIST_WORKER" in os.environ:  # the workers share the cores; one thread each
    torch.set_num_threads(1)

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as a shell starts jobs in the background
    signal.signal(signal.SIGINT, signal.default_int_handler)

logging.getLogger().addHandler(logging.NullHandler())  # what is logged is none of a test's output

# The same examples on every machine and every run; compiling a kernel outlasts any deadline.
settings.register_profile("repeatable", derandomize=True, deadline=None, database=None)
settings.load_profile("repeatable")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, Any, Any]:
    """What is collected stays: the garbage collector need not go over it again and again."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """One of two processes begins with what compiles most, the other with what needs it least."""
    folder = Path(__file__).parent
    parts = [
        {folder / name for name in names} for names in (("conformance", "nn", "ops"), ("lab",))
    ]
    items.sort(key=lambda item: [part.isdisjoint(item.path.parents) for part in parts])


@pytest.fixture(autouse=True)
def _same_numbers() -> Iterator[None]:
    """What a test draws without a generator is the same in every run, and threads do not leak."""
    torch.default_generator.manual_seed(0)
    if torch.cuda.is_initialized():  # `torch.manual_seed` writes the stack down where it is not
        torch.cuda.manual_seed_all(0)
    threads = torch.get_num_threads()
    yield
    left, _ = torch.get_num_threads(), torch.set_num_threads(threads)
    assert left == threads, f"the test leaves {left} threads to the next, it began with {threads}"


@pytest.fixture(autouse=True, scope="session")
def _frozen_objects() -> Iterator[None]:
    yield
    gc.unfreeze()


@pytest.fixture(autouse=True, scope="module")
def _little_to_collect(_frozen_objects: None) -> None:
    """The garbage collector, and what asks it for all objects, passes over those of other files."""
    gc.collect()
    gc.freeze()


@contextmanager
def case(*names: object) -> Iterator[None]:
    """Names a case in what fails inside: for cases of milliseconds, of which a test has many."""
    try:
        yield
    except AssertionError as error:
        raise AssertionError(f"{', '.join(map(str, names))}: {error}") from error


@contextmanager
def logged(name: str, level: str = "WARNING") -> Iterator[io.StringIO]:
    """What a logger says: `make test` has no `caplog`, as its plugin slows down every test."""
    logger, said = logging.getLogger(name), io.StringIO()
    handler, before = logging.StreamHandler(said), logger.level
    logger.addHandler(handler)
    logger.setLevel(level)
    try:
        yield said
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)


@pytest.fixture
def generator() -> torch.Generator:
    """A fresh source of randomness, the same in every test."""
    return torch.Generator().manual_seed(0)


@pytest.fixture(scope="session")
def data_root() -> Path:
    """The folder with the real data sets, named by GRAPHTHEORY_DATA."""
    if not os.environ.get("GRAPHTHEORY_DATA"):
        pytest.skip("needs real data sets: set GRAPHTHEORY_DATA to their folder")
    root = Path(os.environ["GRAPHTHEORY_DATA"])
    if not root.is_dir():
        pytest.fail(f"GRAPHTHEORY_DATA: {root} is not a folder")
    return root


@pytest.fixture
def poisoned_memory() -> Iterator[None]:
    """Memory from `torch.empty` holds NaN or the largest integer, so that reading it shows."""
    enabled = torch.are_deterministic_algorithms_enabled()
    filled = torch.utils.deterministic.fill_uninitialized_memory
    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = True
    assert torch.empty(1).isnan().all()
    yield
    torch.use_deterministic_algorithms(enabled)
    torch.utils.deterministic.fill_uninitialized_memory = filled


@pytest.fixture
def two_threads() -> Iterator[None]:
    """Two threads for torch and the compiled kernels; `make test` gives them one otherwise."""
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(threads)
