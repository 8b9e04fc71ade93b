"""Planetoid's pickled raw files, read without giving them the power to run anything.

Every file is checked against its pinned SHA-256 before it comes here; the unpickler knows
the few names that the published files use and refuses every other.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.datasets import Planetoid
from torch_geometric.utils import coalesce, index_to_mask, remove_self_loops

from graphtheory.lab.datasets import safe_pickle
from graphtheory.lab.datasets.silent import Silent

_NUM_VAL = 500


_KNOWN = {**safe_pickle.ARRAYS, **safe_pickle.MATRICES}


def read(path: Path) -> Any:
    """The array, sparse matrix or adjacency dictionary in one raw file.

    Args:
        path: A file whose SHA-256 was checked.

    Raises:
        pickle.UnpicklingError: The file names anything but the known classes and functions.
    """
    return safe_pickle.read(path, _KNOWN)


def _part(folder: Path, name: str, part: str) -> Any:
    return read(folder / f"ind.{name.lower()}.{part}")


def _test_index(folder: Path, name: str) -> Tensor:
    return torch.from_numpy(np.loadtxt(folder / f"ind.{name.lower()}.test.index", dtype=np.int64))


def _assemble(known: Tensor, tested: Tensor, test_index: Tensor) -> Tensor:
    """Rows in node order: the known ones first, row i of `tested` at node test_index[i].

    Nodes that are in neither keep zeros: isolated ones in CiteSeer.
    """
    num_nodes = max(len(known), int(test_index.max()) + 1)
    rows = known.new_zeros(num_nodes, known.size(1))
    rows[: len(known)] = known
    rows[test_index] = tested
    return rows


def topology(folder: Path, name: str) -> Data:
    """Edges, labels and the public split, from the five files that hold them.

    Nodes without a label (15 isolated ones in CiteSeer) get class 0, as in PyG.

    Args:
        folder: Where ind.<name>.{y, ally, ty, graph, test.index} lie.
        name: "Cora", "CiteSeer" or "PubMed".
    """
    test_index = _test_index(folder, name)
    known, tested = (torch.from_numpy(_part(folder, name, part)) for part in ("ally", "ty"))
    y = _assemble(known, tested, test_index).argmax(dim=1)
    links = _part(folder, name, "graph")
    pairs = [(node, other) for node, others in links.items() for other in others]
    edge_index, _ = remove_self_loops(torch.tensor(pairs).t())
    num_train = len(_part(folder, name, "y"))
    val_index = torch.arange(num_train, num_train + _NUM_VAL)
    return Data(
        edge_index=coalesce(edge_index, num_nodes=len(y), sort_by_row=False),
        y=y,
        train_mask=index_to_mask(torch.arange(num_train), size=len(y)),
        val_mask=index_to_mask(val_index, size=len(y)),
        test_mask=index_to_mask(test_index, size=len(y)),
    )


def known_nodes(folder: Path, name: str) -> Data:
    """Features and labels of the training nodes and the test nodes, without ind.<name>.allx.

    Args:
        folder: Where ind.<name>.{x, tx} lie beside the five files that `topology` reads.
        name: "Cora", "CiteSeer" or "PubMed".
    """
    parts = (torch.from_numpy(_part(folder, name, part).toarray()) for part in ("x", "tx"))
    train, test = (part.float() for part in parts)
    nodes = torch.cat([torch.arange(len(train)), _test_index(folder, name)])
    return Data(x=torch.cat([train, test]), y=topology(folder, name).y[nodes])


class PinnedPlanetoid(Silent, Planetoid):
    """PyG's `Planetoid` with the restricted reader in the place of `pickle.load`."""

    def process(self) -> None:
        """Write the one graph that the raw files describe, as PyG does."""
        folder = Path(self.raw_dir)
        data = topology(folder, self.name)
        known, tested = (
            torch.from_numpy(_part(folder, self.name, part).toarray()).float()
            for part in ("allx", "tx")
        )
        data.x = _assemble(known, tested, _test_index(folder, self.name))
        self.save([data], self.processed_paths[0])
