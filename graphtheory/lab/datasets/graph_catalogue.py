"""The sets of graphs: where their raw files lie, what carries a label, how they are scored."""

from __future__ import annotations

import csv
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from graphtheory.lab.datasets.dataset_info import DatasetInfo, Kind

_OGB_FEATURES = "ogb's 9 atom features and 3 bond features, categorical"
_THREE = ("train", "val", "test")
_TU_PARTS = ("node_labels", "node_attributes", "edge_labels", "edge_attributes")
_TU_GRAPHS = {
    "ENZYMES": (("graphs", 600), ("nodes", 19_580), ("edges", 74_564), ("classes", 6)),
    "PROTEINS": (("graphs", 1113), ("classes", 2)),
    "PROTEINS_full": (("graphs", 1113), ("classes", 2)),
    "MUTAG": (("graphs", 188), ("classes", 2)),
    "NCI1": (("graphs", 4110), ("classes", 2)),
    "NCI109": (("graphs", 4127), ("classes", 2)),
    "DD": (("graphs", 1178), ("classes", 2)),
    "IMDB-BINARY": (("graphs", 1000), ("classes", 2)),
    "IMDB-MULTI": (("graphs", 1500), ("classes", 3)),
    "COLLAB": (("graphs", 5000), ("classes", 3)),
    "REDDIT-BINARY": (("graphs", 2000), ("classes", 2)),
}


def tudataset(name: str, *, labels: str = "graph_labels") -> DatasetInfo:
    """Any set in the layout of TUDataset, in the catalogue or not.

    Args:
        name: Name of its folder, which its files begin with.
        labels: "graph_labels" for classes, "graph_attributes" for real values.
    """
    classes = labels == "graph_labels"
    return DatasetInfo(
        name,
        "tudataset",
        folder=f"TUDataset/{name}/raw",
        files=tuple(f"{name}_{part}.txt" for part in ("A", "graph_indicator", labels)),
        optional_files=tuple(f"{name}_{part}.txt" for part in _TU_PARTS),
        splits=("random-80-10-10", "folds-10") if classes else ("random-80-10-10",),
        metric="accuracy" if classes else "mae",
        task="graph",
        source="https://chrsmrrs.github.io/datasets, the unpacked archive",
        citation="Morris et al., TUDataset, 2020",
        counts=_TU_GRAPHS.get(name, ()),
        kind="multiclass" if classes else "regression",
        features="attributes, then one-hot labels; without either x is log(1 + degree)",
    )


def tudataset_below(root: Path, wanted: str) -> DatasetInfo | None:
    """The set whose folder TUDataset/<name>/raw lies below `root`; None where there is none.

    Args:
        root: Folder with the raw files.
        wanted: The name as `catalogue.key` gives it.
    """
    for folder in sorted((root / "TUDataset").glob("*/raw")):
        name = folder.parent.name
        if name.lower().replace("_", "-") == wanted:
            real = (
                not (folder / f"{name}_graph_labels.txt").is_file()
                and (folder / f"{name}_graph_attributes.txt").is_file()
            )
            return tudataset(name, labels="graph_attributes" if real else "graph_labels")
    return None


@cache
def ogb_master() -> dict[str, dict[str, str]]:
    """The table that ogb has of its sets of graphs, read without importing ogb."""
    package = find_spec("ogb")
    places = package.submodule_search_locations if package is not None else None
    if not places:
        raise ModuleNotFoundError("ogb: its table of data sets is not installed", name="ogb")
    table = Path(places[0]) / "graphproppred" / "master.csv"
    with table.open(encoding="utf-8", newline="") as file:
        header, *rows = csv.reader(file)
    return {name: {row[0]: row[i] for row in rows} for i, name in enumerate(header) if i}


_OGBG_GRAPHS = {
    "molbace": 1513, "molbbbp": 2039, "molclintox": 1477, "molmuv": 93_087, "molpcba": 437_929,
    "molsider": 1427, "moltox21": 7831, "moltoxcast": 8576, "molhiv": 41_127, "molesol": 1128,
    "molfreesolv": 642, "mollipo": 4200,
}  # fmt: skip


def _ogbg(name: str, about: dict[str, str]) -> DatasetInfo:
    raw = ("edge", "node-feat", "edge-feat", "graph-label", "num-node-list", "num-edge-list")
    split = about["split"]
    graphs = _OGBG_GRAPHS.get(name.removeprefix("ogbg-"))
    return DatasetInfo(
        name,
        "ogbg",
        folder=f"OGB/{name.replace('-', '_')}",
        files=(
            f"RELEASE_v{about['version']}.txt",
            *(f"raw/{part}.csv.gz" for part in raw),
            *(f"split/{split}/{part}.csv.gz" for part in ("train", "valid", "test")),
        ),
        optional_files=("mapping/mol.csv.gz",),
        splits=(split,),
        metric=about["eval metric"],
        task="graph",
        source=f"{about['url']}, unpacked and its folder renamed",
        citation="Hu et al., NeurIPS 2020",
        counts=(("graphs", graphs),) if graphs else (),
        kind="regression" if about["task type"] == "regression" else "multilabel",
        evaluator=name,
        features=_OGB_FEATURES,
    )


def _moleculenet(
    name: str, file: str, kind: Kind, metric: str, graphs: int, *aliases: str
) -> DatasetInfo:
    return DatasetInfo(
        name,
        "moleculenet",
        folder=f"MoleculeNet/{name.lower()}/raw",
        files=(f"{file}.csv",),
        splits=("scaffold", "random-80-10-10"),
        metric=metric,
        task="graph",
        source="https://deepchemdata.s3-us-west-1.amazonaws.com/datasets, unpacked",
        citation="Wu et al., MoleculeNet, Chemical Science, 2018",
        counts=(("graphs", graphs),),
        kind=kind,
        features=f"{_OGB_FEATURES}, from SMILES by ogb (extra [molecules])",
        aliases=aliases,
    )


def _peptides(name: str, folder: str, file: str, kind: Kind, metric: str) -> DatasetInfo:
    return DatasetInfo(
        name,
        "peptides",
        folder=f"LRGB/{folder}",
        files=(f"raw/{file}", *(f"split/{part}.csv" for part in _THREE)),
        splits=("published",),
        metric=metric,
        task="graph",
        source="https://github.com/vijaydwivedi75/lrgb, the table of SMILES; the three lists of "
        "row numbers of its split, one a line",
        citation="Dwivedi et al., Long Range Graph Benchmark, NeurIPS 2022",
        counts=(("graphs", 15_535),),
        kind=kind,
        features=f"{_OGB_FEATURES}, from SMILES by ogb (extra [molecules])",
    )


def _generated(
    name: str, level: Literal["graph", "node"], graphs: int, features: str, citation: str
) -> DatasetInfo:
    return DatasetInfo(
        name,
        "embedded",
        splits=("random-80-10-10", "folds-5") if level == "graph" else ("random-80-10-10",),
        task="graph",
        level=level,
        metric="accuracy",
        counts=(("graphs", graphs),),
        features=features,
        citation=citation,
    )


def _graphsat(name: str) -> DatasetInfo:
    return DatasetInfo(
        name.lower(),
        "graphsat",
        folder="expressiveness",
        files=(f"{name}_GRAPHSAT.txt",),
        splits=("random-80-10-10", "folds-10"),
        task="graph",
        source="https://github.com/ralphabb/GNN-RNI, Data/",
        citation="Abboud, Ceylan, Grohe and Lukasiewicz, IJCAI 2021",
        counts=(("graphs", 1200), ("classes", 2)),
        features="x is a category of two: literal or disjunction",
    )


def _pairs(name: str, folder: str, file: str, source: str, citation: str) -> DatasetInfo:
    return DatasetInfo(
        name,
        "graph6",
        folder=folder,
        files=(file,),
        splits=("all",),
        task="pairs",
        source=source,
        citation=citation,
        features="x is 1",
    )


_ZINC = DatasetInfo(
    "ZINC",
    "zinc",
    folder="ZINC/raw",
    files=tuple(f"{part}.{end}" for end in ("pickle", "index") for part in _THREE),
    splits=("published",),
    metric="mae",
    task="graph",
    source="PyG's ZINC: molecules.zip, unpacked, and benchmarking-gnns' index files",
    citation="Dwivedi et al., Benchmarking graph neural networks, JMLR 2023",
    counts=(("graphs", 12_000),),
    kind="regression",
    features="atom type of 28 and bond type of 4, categorical",
)
_VOC = DatasetInfo(
    "PascalVOC-SP",
    "superpixels",
    folder="LRGB/pascalvoc-sp/raw",
    files=tuple(f"{part}.pickle" for part in _THREE),
    splits=("published",),
    metric="f1",
    task="graph",
    source="PyG's LRGBDataset: voc_superpixels_edge_wt_region_boundary unpacked and renamed",
    citation="Dwivedi et al., Long Range Graph Benchmark, NeurIPS 2022",
    counts=(("graphs", 11_355), ("classes", 21)),
    level="node",
    features="14 of a superpixel, 2 of a boundary",
)

GRAPH_SETS = (
    _generated("infection", "node", 100, "x is infected or healthy", "Baldassarre, Azizpour, 2019"),
    _generated(
        "ring-transfer", "node", 2000, "x is the class at the source", "Di Giovanni et al., 2023"
    ),
    *(
        _generated(
            f"neighbors-match-{depth}", "node", 6000, "x is a key and a value, categorical",
            "Alon and Yahav, ICLR 2021",
        )
        for depth in (2, 3, 4, 5)
    ),
    _generated("csl", "graph", 150, "x is 1", "Murphy et al., ICML 2019"),
    *map(tudataset, _TU_GRAPHS),
    *(
        _ogbg(name, about)
        for name, about in ogb_master().items()
        if name.startswith("ogbg-mol")
    ),
    _moleculenet("ESOL", "delaney-processed", "regression", "rmse", 1128),
    _moleculenet("FreeSolv", "SAMPL", "regression", "rmse", 642),
    _moleculenet("Lipo", "Lipophilicity", "regression", "rmse", 4200, "Lipophilicity"),
    _moleculenet("BACE", "bace", "multilabel", "rocauc", 1513),
    _moleculenet("BBBP", "BBBP", "multilabel", "rocauc", 2050),
    _moleculenet("ClinTox", "clintox", "multilabel", "rocauc", 1484),
    _moleculenet("SIDER", "sider", "multilabel", "rocauc", 1427),
    _moleculenet("Tox21", "tox21", "multilabel", "rocauc", 7831),
    _moleculenet("ToxCast", "toxcast_data", "multilabel", "rocauc", 8597),
    _moleculenet("HIV", "HIV", "multilabel", "rocauc", 41_127),
    _moleculenet("MUV", "muv", "multilabel", "ap", 93_087),
    _moleculenet("PCBA", "pcba", "multilabel", "ap", 437_929),
    _peptides(
        "Peptides-func", "peptides-functional", "peptide_multi_class_dataset.csv.gz",
        "multilabel", "ap",
    ),
    _peptides(
        "Peptides-struct", "peptides-structural", "peptide_structure_dataset.csv.gz",
        "regression", "mae",
    ),
    _ZINC,
    _VOC,
    _graphsat("EXP"),
    _graphsat("CEXP"),
    _pairs(
        "brec", "BREC", "brec_v3_s4.g6",
        "https://github.com/GraphPKU/BREC, the graphs in graph6, one a line", "Wang, Zhang, 2023",
    ),
    _pairs(
        "sr25", "expressiveness", "sr251256.g6",
        "http://users.cecs.anu.edu.au/~bdm/data/graphs.html, strongly regular graphs",
        "Balcilar et al., ICML 2021",
    ),
)  # fmt: skip
"""Every set of graphs that has a name of its own; other TUDatasets are found by their folder."""
