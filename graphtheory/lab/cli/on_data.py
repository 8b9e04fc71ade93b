"""The options of commands that learn from a data set."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from graphtheory.lab.cli.fitting import kinds
from graphtheory.lab.cli.options import Count, File, Folder, Name
from graphtheory.lab.cli.show import Command, RefusedError, at_least, data_root, file_there

if TYPE_CHECKING:
    from graphtheory.lab.bench.problem import Problem


@dataclass(frozen=True)
class OnData(Command):
    """Base of a command that learns from a data set or from the user's own data."""

    needs = ("graphtheory.lab.report",)

    dataset: str = "digits"
    """Name of a graph, a set of graphs or, not to tune, an image set; `graphtheory datasets` lists
    them. Or a folder of images, in train/CLASS/ and test/CLASS/, or in CLASS/ alone."""
    data: File = None
    """Your own data instead of a named set: what torch.save(data, FILE) wrote of one PyG Data (a
    class for each node) or of a list of Data (a class, labels or values for each graph)."""
    kind: Name = None
    """Of your own graphs: multiclass, multilabel or regression; without it what y says, in which
    whole numbers are classes."""
    metric: Name = None
    """Score of your own data: of classes accuracy, f1 or rocauc, of labels rocauc or ap, of values
    rmse or mae; without it the first. Of the nodes of one graph accuracy or rocauc."""
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
        for option, value in (("--kind", self.kind), ("--metric", self.metric)):
            if value is not None and self.data is None:
                raise RefusedError(f"{option}: got {value}, expected none without --data")
        data_root(self.root)

    def problem(self, root: Path | None) -> Problem:
        """What is learned.

        Raises:
            RefusedError: A split beside a file.
            ValueError, TypeError, OSError: What is wrong with the name, the file or its graphs.
        """
        from graphtheory.lab.bench.graph_problem import named_problem
        from graphtheory.lab.bench.own import as_problem
        from graphtheory.lab.datasets.own_graphs import read_graph_file

        if self.data is None:
            return named_problem(self.dataset, self.split, root)
        if self.split is not None:
            raise RefusedError(f"--split: got {self.split}, expected none with --data")
        own = read_graph_file(self.data)
        return as_problem(own, task=self.kind, metric=self.metric, name=self.data.stem)

    def check_names(self) -> None:
        """The data set."""
        if self.data is None:
            kinds(self.dataset, data_root(self.root))
