"""Decides which kind of data is meant by a name, and which networks fit it."""

from __future__ import annotations

from pathlib import Path

from graphtheory.lab.cli.show import RefusedError, known, usage_errors

GRAPH, GRAPHS, IMAGES = "a graph", "a set of graphs", "images"
_PLURAL = {GRAPH: "graphs", GRAPHS: "sets of graphs", IMAGES: "images"}


def fitting(option: str, dataset: str, models: tuple[str, ...], root: Path | None = None) -> str:
    """Which kind of data is meant by a name: `GRAPH`, `GRAPHS` or `IMAGES`.

    "digits" is both a graph and an image set: there the networks decide.

    Args:
        option: That named the networks, for the message.
        dataset: Name of a data set.
        models: Names of networks, at least one.
        root: Folder with the raw files, for sets that are not in the catalogue.

    Raises:
        RefusedError: An unknown name, or networks that do not fit the data set or each other.
    """
    networks, found = _networks(), kinds(dataset, root)
    every = tuple(dict.fromkeys(name for names in networks.values() for name in names))
    for model in models:
        known(option, model, every)
    for kind in found:
        if set(models) <= set(networks[kind]):
            return kind
    if len(found) > 1:
        holds = "is trained on by one kind of network at a time"
        wrong = next(m for m in models if m in networks[IMAGES])
    else:
        holds = "holds images" if found == (IMAGES,) else f"is {found[0]}"
        wrong = next(m for m in models if m not in networks[found[0]])
    reads = next(_PLURAL[kind] for kind, names in networks.items() if wrong in names)
    raise RefusedError(
        f"{option}: {wrong} reads {reads} and {dataset} {holds}; for {_PLURAL[found[0]]} there are "
        f"{', '.join(networks[found[0]])}"
    )


def _networks() -> dict[str, tuple[str, ...]]:
    """Names of the networks that read each kind of data."""
    from graphtheory.lab.bench.fingerprints import NAME
    from graphtheory.lab.zoo import graph_models, image_models, node_models

    sets = (*graph_models.NAMES, NAME)
    return {GRAPH: node_models.NAMES, GRAPHS: sets, IMAGES: image_models.NAMES}


def compared(
    dataset: str, models: tuple[str, ...], plain: tuple[str, ...], root: Path | None = None
) -> tuple[str, ...]:
    """The models asked for, each once; for the default `plain` those that fit the data."""
    found = kinds(dataset, root)
    if models == plain and len(found) == 1:
        from graphtheory.lab.zoo import graph_models, image_models

        others = {GRAPHS: graph_models.COMPARED, IMAGES: image_models.NAMES}
        return others.get(found[0], models)
    return tuple(dict.fromkeys(models))


def kinds(dataset: str, root: Path | None = None) -> tuple[str, ...]:
    """List the kinds of data of that name: a graph or a set of graphs first, then images."""
    from graphtheory.lab.datasets import catalogue

    images = {
        catalogue.key(name): catalogue.describe(name, task="image")
        for name in catalogue.names("image")
    }
    found = (IMAGES,) if catalogue.key(dataset) in images else ()
    try:
        task = catalogue.describe(dataset, root).task
    except ValueError:
        if found or Path(dataset).is_dir():
            return (IMAGES,)
        listed = {n: catalogue.describe(n) for n in catalogue.names()}
        graphs = {catalogue.key(name): info for name, info in listed.items()}
        with usage_errors():
            catalogue.lookup(dataset, {**graphs, **images})
        return ()
    return (GRAPHS if task == "graph" else GRAPH, *found)
