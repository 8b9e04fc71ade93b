"""Which data set goes with which network."""

from __future__ import annotations

from graphtheory.cli.show import RefusedError, known, refusing


def of_images(option: str, dataset: str, models: tuple[str, ...]) -> bool:
    """Whether networks for images are asked for, on an image set; otherwise for graphs, on a graph.

    "digits" is both a graph and an image set: there the networks decide.

    Args:
        option: That named the networks, for the message.
        dataset: Name of a data set.
        models: Names of networks, at least one.

    Raises:
        RefusedError: An unknown name, or networks that do not fit the data set or each other.
    """
    from graphtheory.models import image_zoo, zoo

    graph, images = kinds(dataset)
    for model in models:
        known(option, model, zoo.NAMES + image_zoo.NAMES)
    seeing = [model for model in models if model in image_zoo.NAMES]
    if seeing and images and len(seeing) == len(models):
        return True
    if not seeing and graph:
        return False
    if not graph:
        reads, holds, others = _first(models, zoo.NAMES), "holds images", image_zoo.NAMES
        kind, wanted = "graphs", "images"
    else:
        reads, others = _first(models, image_zoo.NAMES), zoo.NAMES
        holds = "is a graph" if not images else "is trained on by one kind of network at a time"
        kind, wanted = "images", "graphs"
    raise RefusedError(
        f"{option}: {reads} reads {kind} and {dataset} {holds}; for {wanted} there are "
        f"{', '.join(others)}"
    )


def _first(models: tuple[str, ...], names: tuple[str, ...]) -> str:
    return next(model for model in models if model in names)


def only_images(dataset: str) -> bool:
    """Whether the name is known, and of an image set alone."""
    return kinds(dataset) == (False, True)


def kinds(dataset: str) -> tuple[bool, bool]:
    """Whether there is a graph of that name, and whether there is an image set."""
    from graphtheory.data import catalogue, image_catalogue

    graphs = {catalogue.key(name): catalogue.describe(name) for name in catalogue.names()}
    images = {
        catalogue.key(name): image_catalogue.describe(name) for name in image_catalogue.names()
    }
    with refusing():
        catalogue.lookup(dataset, {**graphs, **images})
    name = catalogue.key(dataset)
    return name in graphs, name in images
