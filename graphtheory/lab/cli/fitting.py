"""Which data set goes with which network."""

from __future__ import annotations

from pathlib import Path

from graphtheory.lab.cli.show import RefusedError, known, refusing

GRAPH, GRAPHS, IMAGES = "a graph", "a set of graphs", "images"


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
        if all(model in networks[kind] for model in models):
            return kind
    if len(found) > 1:
        holds = "is trained on by one kind of network at a time"
    else:
        holds = "holds images" if found == (IMAGES,) else f"is {found[0]}"
    wrong = next((m for m in models if m not in networks[found[0]]), models[0])
    if len(found) > 1:
        wrong = next(m for m in models if m in networks[IMAGES])
    reads = next(kind for kind, names in networks.items() if wrong in names)
    wanted = IMAGES if found == (IMAGES,) else _PLURAL[found[0]]
    listed = networks[found[0]]
    raise RefusedError(
        f"{option}: {wrong} reads {_PLURAL[reads]} and {dataset} {holds}; for {wanted} there are "
        f"{', '.join(listed)}"
    )


_PLURAL = {GRAPH: "graphs", GRAPHS: "sets of graphs", IMAGES: "images"}


def _networks() -> dict[str, tuple[str, ...]]:
    """Names of the networks that read each kind of data."""
    from graphtheory.lab.bench.fingerprints import NAME
    from graphtheory.lab.zoo import graph_models as graph_zoo
    from graphtheory.lab.zoo import image_models as image_zoo
    from graphtheory.lab.zoo import node_models as zoo

    return {GRAPH: zoo.NAMES, GRAPHS: (*graph_zoo.NAMES, NAME), IMAGES: image_zoo.NAMES}


def compared(
    dataset: str, models: tuple[str, ...], plain: tuple[str, ...], root: Path | None = None
) -> tuple[str, ...]:
    """Those asked for, each once; where they are the default `plain`, those that fit the data."""
    found = kinds(dataset, root)
    if models == plain and len(found) == 1:
        from graphtheory.lab.zoo import graph_models as graph_zoo
        from graphtheory.lab.zoo import image_models as image_zoo

        others = {GRAPHS: graph_zoo.COMPARED, IMAGES: image_zoo.NAMES}
        return others.get(found[0], models)
    return tuple(dict.fromkeys(models))


def kinds(dataset: str, root: Path | None = None) -> tuple[str, ...]:
    """What there is of that name: a graph or a set of graphs first, then images."""
    from graphtheory.lab.datasets import catalogue

    images = {
        catalogue.key(name): catalogue.describe(name, task="image")
        for name in catalogue.names("image")
    }
    found = [IMAGES] if catalogue.key(dataset) in images else []
    if not found and Path(dataset).is_dir() and not _is_graph(dataset, root):
        return (IMAGES,)
    try:
        task = catalogue.describe(dataset, root).task
    except ValueError:
        if not found:
            listed = {n: catalogue.describe(n) for n in catalogue.names()}
            graphs = {catalogue.key(name): info for name, info in listed.items()}
            with refusing():
                catalogue.lookup(dataset, {**graphs, **images})
        return tuple(found)
    return (GRAPHS if task == "graph" else GRAPH, *found)


def _is_graph(name: str, root: Path | None) -> bool:
    """Whether a graph or a set of graphs has that name."""
    from graphtheory.lab.datasets import catalogue

    try:
        return bool(catalogue.describe(name, root))
    except ValueError:
        return False
