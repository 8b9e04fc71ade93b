"""The files that a run on images leaves, of `graphtheory train` and of `bench`."""

from __future__ import annotations

import csv
import io
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphtheory.disk import replace_file
from graphtheory.lab.cli.show import write_json

if TYPE_CHECKING:
    from graphtheory.lab.bench.image_task import ImageRunConfig, ImageRunResult
    from graphtheory.lab.datasets.image_sets import ImageSet


@dataclass(frozen=True)
class FinishedImageRun:
    """A finished run on images, which writes its files.

    Attributes:
        config: How it was trained.
        images: The images that it was trained on.
        result: How well it did, with the trained task.
        seed: Of the run.
    """

    config: ImageRunConfig
    images: ImageSet
    result: ImageRunResult
    seed: int

    def line(self) -> str:
        """The scores as the line that commands print."""
        fit = self.result.fit
        return (
            f"test {100 * (fit.test or 0.0):.2f} %, validation {100 * fit.val:.2f} %, best epoch "
            f"{fit.best_epoch} of {fit.epochs}; data {files_of(self.images)}"
        )

    def kept(self, command: str) -> dict[str, Any]:
        """The content of result.json as plain values."""
        from graphtheory.lab.bench.rows import Environment

        listing, result = self.images.listing, self.result
        numbers = {"gmacs": result.gmacs, "parameters": result.parameters}
        return {
            "command": command, "data": files_of(self.images),
            "classes": listing and listing.classes, "options": self.config.as_dict(),
            "result": asdict(result.fit) | numbers, "environment": asdict(Environment.here()),
        }  # fmt: skip

    def write(self, out: Path, command: str) -> list[str]:
        """Write report.html, result.json, predictions.csv and pictures; return their names."""
        from graphtheory.lab.bench.image_pictures import pictures
        from graphtheory.lab.plot import save
        from graphtheory.lab.report.run import image_run_page

        write_json(out / "result.json", self.kept(command))
        table = io.StringIO()
        csv.writer(table, lineterminator="\n").writerows(self.result.rows(self.images))
        replace_file(out / "predictions.csv", table.getvalue().encode())
        drawn = pictures(self.result.model, self.images.test().pixels[0])
        title = f"{self.images.info.name} ({files_of(self.images)})"
        page = image_run_page(title, self.config, self.result, drawn, self.seed, command)
        page.save(out / "report.html")
        if drawn:
            (out / "pictures").mkdir(exist_ok=True)
        for name, figure in drawn.items():
            save(figure, out / "pictures" / f"{name}.png")
        return list(drawn)


def files_of(images: ImageSet) -> str:
    """Name the files of a set: of CIFAR-10 there are several that cannot be compared."""
    info = images.info
    if info.embedded:
        return "scikit-learn's digits"
    if not info.files:
        counts = dict(info.counts)
        return (
            f"{info.folder}, {counts['images']:,} + {counts['test images']:,} images of "
            f"{counts['classes']} classes"
        )
    more = f" and {len(info.files) - 1} more" if len(info.files) > 1 else ""
    return f"{info.folder}/{info.files[0]}{more}"
