"""How much memory is left, and refusing before it runs out."""

import pytest
import torch

from graphtheory import cliques
from graphtheory.graph import memory, sets


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """A machine with 8 MiB available, and a container on it that a test may describe."""
    (tmp_path / "meminfo").write_text("MemTotal: 16384 kB\nMemAvailable:    8192 kB\n")
    monkeypatch.setattr(memory, "_MEMINFO", tmp_path / "meminfo")
    monkeypatch.setattr(memory, "_CGROUP", tmp_path)
    return tmp_path


def put_container(machine, limit, usage, reclaimable):
    (machine / "memory.max").write_text(f"{limit}\n")
    (machine / "memory.current").write_text(f"{usage}\n")
    (machine / "memory.stat").write_text(f"anon 5\ninactive_file {reclaimable}\n")


def test_the_host_decides_without_a_container(machine):
    assert memory.available_bytes() == 8192 * 1024
    put_container(machine, "max", 10, 0)
    assert memory.available_bytes() == 8192 * 1024


@pytest.mark.parametrize(("limit", "usage", "reclaimable", "left"), [
    (5000, 1000, 0, 4000), (5000, 4000, 3000, 4000), (5000, 6000, 0, 0), (10**9, 0, 0, 2**23),
])  # fmt: skip
def test_the_smaller_of_host_and_container_counts(machine, limit, usage, reclaimable, left):
    put_container(machine, limit, usage, reclaimable)
    assert memory.available_bytes() == left


def test_a_refusal_names_need_supply_and_advice_where_these_are_known(machine):
    memory.require_memory("a table", 2**23, "ask for less")
    with pytest.raises(MemoryError, match=r"a table needs .*8388609 bytes.*; ask for less"):
        memory.require_memory("a table", 2**23 + 1, "ask for less")
    (machine / "meminfo").unlink()
    assert memory.available_bytes() is None
    memory.require_memory("anything", 10**18, "no advice")


def test_a_dense_matrix_is_counted_by_the_bytes_of_its_weights(monkeypatch):
    graph = cliques([10])
    monkeypatch.setattr(memory, "available_bytes", lambda: 4 * 10 * 10)
    assert graph.replace(weight=torch.ones(100)).to_dense().shape == (10, 10)
    with pytest.raises(MemoryError, match=r"to_dense: 10 x 10 needs .*800 bytes.*; keep the edges"):
        graph.replace(weight=torch.ones(100, dtype=torch.float64)).to_dense()


def test_complete_sets_are_counted_where_they_are_many(monkeypatch):
    monkeypatch.setattr(sets, "_LARGE", 99)
    monkeypatch.setattr(memory, "available_bytes", lambda: 24 * 100)
    assert cliques([10]).num_edges == 100
    monkeypatch.setattr(memory, "available_bytes", lambda: 24 * 100 - 1)
    with pytest.raises(MemoryError, match=r"edges of all pairs needs .*2400 bytes"):
        cliques([10])
    for most in (100, 101):
        monkeypatch.setattr(sets, "_LARGE", most)
        assert cliques([10]).num_edges == 100
