"""PyG's data sets without the lines that they print while they process raw files."""

from __future__ import annotations

from typing import Any, TypeVar

from torch_geometric.data import Dataset

_Kind = TypeVar("_Kind", bound=Dataset)


class Silent(Dataset):
    """Goes before a class of PyG, whose constructor takes no `log` to turn them off."""

    def _process(self) -> None:
        self.log = False
        super()._process()


def silent(kind: type[_Kind]) -> Any:
    """A class of PyG's data sets that prints nothing."""
    return type(kind.__name__, (Silent, kind), {})
