import math
import os
import runpy
import socket
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from battery.forked import start
from graphtheory import Neighborhood
from graphtheory.papers.fusion.contrastive import Infomax, SGDOptions, _shuffled, nt_xent


def definition(first: Tensor, second: Tensor, tau: float) -> float:
    z = normalize(torch.cat([first, second]), dim=1).tolist()
    count, total = len(z) // 2, 0.0
    for i in range(2 * count):
        similar = [math.exp(sum(a * b for a, b in zip(z[i], z[k], strict=True)) / tau)
                   for k in range(2 * count)]  # fmt: skip
        total -= math.log(similar[(i + count) % (2 * count)] / (sum(similar) - similar[i]))
    return total / (2 * count)


def test_the_loss_is_its_definition() -> None:
    first, second = torch.randn(2, 5, 4).double()
    loss = nt_xent(first, second, 0.3)
    assert loss.item() == pytest.approx(definition(first, second, 0.3))


def test_one_sample_has_no_loss_and_bad_input_is_named() -> None:
    assert nt_xent(torch.ones(1, 2), torch.ones(1, 2)) == 0
    with pytest.raises(ValueError, match="temperature: got 0"):
        nt_xent(torch.ones(2, 2), torch.ones(2, 2), temperature=0.0)
    with pytest.raises(ValueError, match=r"second: shape \(3, 2\)"):
        nt_xent(torch.ones(2, 2), torch.ones(3, 2))
    with pytest.raises(ValueError, match="lr, momentum, weight_decay: got 0"):
        SGDOptions(lr=0.0)


SCRIPT = str(Path(__file__).with_name("contrast_of_a_process.py"))


@pytest.mark.skipif(os.name != "posix", reason="forks processes")
def test_two_processes_take_the_step_of_one(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    processes = []
    for rank, world in ((0, 1), (0, 2), (1, 2)):
        given = {"options": {"rank": rank, "world": world, "port": port, "folder": str(tmp_path)}}
        processes.append(start(runpy.run_path, SCRIPT, given, "__main__"))
    for process in processes:
        process.join(timeout=60)
        assert process.exitcode == 0
    one, *others = (torch.load(tmp_path / f"{name}.pt") for name in ("1-0", "2-0", "2-1"))
    for other in others:
        for name, tensor in one["after"].items():
            torch.testing.assert_close(other["after"][name], tensor)
            assert not torch.allclose(tensor, one["before"][name])


def test_infomax_shuffles_rows_of_any_kind_and_learns() -> None:
    x, nb = torch.randn(5, 3).relu(), Neighborhood.from_edge_index(torch.tensor([[0], [1]]), 5)
    torch.manual_seed(3)
    dense, _ = _shuffled(x, nb)
    torch.manual_seed(3)
    sparse, _ = _shuffled(x.to_sparse_csr(), nb)
    assert torch.equal(sparse.to_dense(), dense) and not torch.equal(dense, x)
    x, nb = torch.randn(40, 3), Neighborhood.from_edge_index(torch.tensor([[0], [1]]), 40)
    task = Infomax(Encoder(3, 4), 4, x, nb)
    loss = task.training_step(None, 0)
    loss.backward()
    assert loss.isfinite() and all(p.grad is not None for p in task.parameters())


class Encoder(nn.Linear):
    def forward(self, x: Tensor, neighborhood: Neighborhood) -> Tensor:
        return super().forward(x)
