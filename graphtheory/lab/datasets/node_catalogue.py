"""The single graphs with labeled nodes: where their raw files lie, their splits, their counts."""

from __future__ import annotations

from typing import Any

from graphtheory.lab.datasets.dataset_info import DatasetInfo


def _counts(nodes: int, edges: int, features: int, classes: int) -> tuple[tuple[str, int], ...]:
    return (("nodes", nodes), ("edges", edges), ("features", features), ("classes", classes))


def _embedded(name: str, citation: str, *counts: int) -> DatasetInfo:
    return DatasetInfo(name, "embedded", citation=citation, counts=_counts(*counts))


def _planetoid(name: str, *counts: int) -> DatasetInfo:
    parts = ("x", "tx", "allx", "y", "ty", "ally", "graph", "test.index")
    return DatasetInfo(
        name,
        "planetoid",
        folder=f"Planetoid/{name}/raw",
        files=tuple(f"ind.{name.lower()}.{part}" for part in parts),
        splits=("public", "random-20", "random-60-20-20"),
        source="https://github.com/kimiyoung/planetoid, data/",
        citation="Yang, Cohen and Salakhutdinov, ICML 2016",
        counts=_counts(*counts),
    )


def _geom_gcn(name: str, prefix: str, folder: str, *counts: int) -> DatasetInfo:
    files = ("out1_node_feature_label.txt", "out1_graph_edges.txt")
    return DatasetInfo(
        name,
        "actor" if prefix == "film" else "webkb",
        folder=folder,
        files=files + tuple(f"{prefix}_split_0.6_0.2_{i}.npz" for i in range(10)),
        splits=("published", "random-60-20-20"),
        source=f"https://github.com/graphdml-uiuc-jlu/geom-gcn, new_data/{prefix}/ and splits/",
        citation="Pei, Wei, Chang, Lei and Yang, ICLR 2020",
        counts=_counts(*counts),
    )


def _heterophilous(name: str, metric: str, *counts: int) -> DatasetInfo:
    stem = name.replace("-", "_")
    return DatasetInfo(
        name,
        "heterophilous",
        folder=f"HeterophilousGraphDataset/{stem}/raw",
        files=(f"{stem}.npz",),
        splits=("published", "random-60-20-20"),
        metric=metric,
        source="https://github.com/yandex-research/heterophilous-graphs, data/",
        citation="Platonov, Kuznedelev, Diskin, Babenko and Prokhorenkova, ICLR 2023",
        counts=_counts(*counts),
    )


def _linkx(name: str, *counts: int, metric: str = "accuracy") -> DatasetInfo:
    return DatasetInfo(
        name,
        "linkx",
        folder=f"LINKXDataset/{name}/raw",
        files=("data.mat",),
        splits=("random-50-25-25",),
        metric=metric,
        source="https://github.com/CUAI/Non-Homophily-Large-Scale, data/, renamed to data.mat",
        citation="Lim et al., NeurIPS 2021",
        counts=_counts(*counts) if counts else (),
    )


def _gnn_benchmark(folder: str, name: str, file: str, *counts: int) -> DatasetInfo:
    return DatasetInfo(
        name,
        "amazon" if folder == "Amazon" else "coauthor",
        folder=f"{folder}/{name}/raw",
        files=(file,),
        splits=("random-60-20-20", "random-20"),
        source="https://github.com/shchur/gnn-benchmark, data/npz/",
        citation="Shchur, Mumme, Bojchevski and Günnemann, 2018",
        counts=_counts(*counts),
    )


def _ogbn(name: str, split: str, raw: tuple[str, ...], *counts: int, **other: Any) -> DatasetInfo:
    parts = ("edge", *raw, "node-label", "num-node-list", "num-edge-list")
    return DatasetInfo(
        f"ogbn-{name}",
        "ogbn",
        folder=f"ogbn_{name}",
        files=(
            "RELEASE_v1.txt",
            *(f"raw/{part}.csv.gz" for part in parts),
            *(f"split/{split}/{part}.csv.gz" for part in ("train", "valid", "test")),
        ),
        splits=("published",),
        source=f"https://ogb.stanford.edu, {name}.zip unpacked and its folder renamed",
        citation="Hu et al., NeurIPS 2020",
        counts=_counts(*counts),
        evaluator=f"ogbn-{name}",
        **other,
    )


NODE_SETS = (
    _embedded("digits", "scikit-learn; Alpaydin and Kaynak, 1998", 1797, 19_858, 64, 10),
    _embedded("karate", "Zachary, 1977", 34, 156, 34, 2),
    DatasetInfo("core-neighborhood", "embedded", citation="Li, thesis, 2024, section 3.5.1"),
    _embedded("core-distance", "drawn on digits, labels by two hops", 1797, 19_858, 6, 6),
    _embedded("power-law", "drawn; the sizes of ogbn-arxiv", 169_343, 2_332_486, 128, 40),
    _planetoid("Cora", 2708, 10_556, 1433, 7),
    _planetoid("CiteSeer", 3327, 9104, 3703, 6),
    _planetoid("PubMed", 19_717, 88_648, 500, 3),
    _geom_gcn("Actor", "film", "Actor/raw", 7600, 30_019, 932, 5),
    _geom_gcn("Cornell", "cornell", "WebKB/cornell/raw", 183, 298, 1703, 5),
    _geom_gcn("Texas", "texas", "WebKB/texas/raw", 183, 325, 1703, 5),
    _geom_gcn("Wisconsin", "wisconsin", "WebKB/wisconsin/raw", 251, 515, 1703, 5),
    _heterophilous("chameleon-filtered", "accuracy", 890, 17_708, 2325, 5),
    _heterophilous("squirrel-filtered", "accuracy", 2223, 93_996, 2089, 5),
    _heterophilous("roman-empire", "accuracy", 22_662, 65_854, 300, 18),
    _heterophilous("amazon-ratings", "accuracy", 24_492, 186_100, 300, 5),
    _heterophilous("minesweeper", "rocauc", 10_000, 78_804, 7, 2),
    _heterophilous("tolokers", "rocauc", 11_758, 1_038_000, 10, 2),
    _heterophilous("questions", "rocauc", 48_921, 307_080, 301, 2),
    _linkx("reed98", 962, 37_624, 745, 2),
    _linkx("amherst41", 2235, 181_908, 1193, 2),
    _linkx("johnshopkins55", 5180, 373_172, 2406, 2),
    _linkx("cornell5", 18_660, 1_581_554, 4735, 2),
    _linkx("penn94"),
    _linkx("genius", metric="rocauc"),
    _gnn_benchmark("Amazon", "Photo", "amazon_electronics_photo.npz", 7650, 238_162, 745, 8),
    _gnn_benchmark(
        "Amazon", "Computers", "amazon_electronics_computers.npz", 13_752, 491_722, 767, 10
    ),
    _gnn_benchmark("Coauthor", "CS", "ms_academic_cs.npz", 18_333, 163_788, 6805, 15),
    _gnn_benchmark("Coauthor", "Physics", "ms_academic_phy.npz", 34_493, 495_924, 8415, 5),
    DatasetInfo(
        "facebook",
        "musae",
        folder="MUSAE_Facebook",
        files=("facebook_pagepage.npz",),
        splits=("random-60-20-20", "random-20"),
        source="https://github.com/benedekrozemberczki/MUSAE, input/, repacked as one npz",
        citation="Rozemberczki, Allen and Sarkar, Journal of Complex Networks, 2021",
        counts=_counts(22_470, 341_825, 4714, 4),
    ),
    DatasetInfo(
        "PascalVOC-SP-1G",
        "superpixels",
        folder="LRGB/pascalvoc-sp/raw",
        files=("train.pickle",),
        source="PyG's LRGBDataset: the second training graph of PascalVOC-SP",
        citation="Dwivedi et al., NeurIPS 2022; Li, thesis, 2024, section B.1.3",
    ),
    _ogbn(
        "arxiv", "time", ("node-feat", "node_year"), 169_343, 1_166_243, 128, 40, both_ways=True
    ),
    _ogbn("products", "sales_ranking", ("node-feat",), 2_449_029, 123_718_280, 100, 47),
    _ogbn(
        "proteins", "species", ("edge-feat", "node_species"), 132_534, 79_122_504, 8, 112,
        metric="rocauc", kind="multilabel",
    ),
)  # fmt: skip
"""Every graph with labeled nodes, the embedded ones first."""
