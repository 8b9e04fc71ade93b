"""The options of commands that learn from a data set."""

from __future__ import annotations

from dataclasses import dataclass

from graphtheory.cli.fitting import kinds
from graphtheory.cli.options import Count, File, Folder, Name
from graphtheory.cli.show import Command, at_least, data_root, file_there


@dataclass(frozen=True)
class OnData(Command):
    """Base of a command that learns from a data set or from the user's own data."""

    needs = ("graphtheory.report",)

    dataset: str = "digits"
    """Name of a graph, a set of graphs or, not to tune, an image set; `graphtheory datasets` lists
    them. Or a folder of images, in train/CLASS/ and test/CLASS/, or in CLASS/ alone."""
    data: File = None
    """Your own data instead of a named set: what torch.save(data, FILE) wrote of one PyG Data (a
    class for each node) or of a list of Data (a class, labels or values for each graph)."""
    split: Name = None
    """Kind of split; without it the data set's own. `graphtheory datasets` lists them."""
    root: Folder = None
    """Folder with the raw files; without it that of $GRAPHTHEORY_DATA. Not for embedded sets."""
    threads: Count = None
    """How many threads compute; without it 1 on a graph of at most 5,000 nodes, where more would
    wait for each other, and one a core on a larger one."""

    def check(self) -> None:
        """The options alone."""
        at_least(1, threads=self.threads)
        file_there("--data", self.data)
        data_root(self.root)

    def check_names(self) -> None:
        """The data set."""
        if self.data is None:
            kinds(self.dataset, data_root(self.root))
