"""Draws near.png: the nodes that a node attends to under three patterns.

python docs/pictures/near.py
"""

from __future__ import annotations

import sys
from pathlib import Path

import networkx as nx
import numpy as np
import torch

from graphtheory import Neighborhood
from graphtheory.lab.datasets import graphs
from graphtheory.lab.plot.style import COLORS, LIGHT, panels, styled
from graphtheory.patterns import AddSelf, Compose, KHop, Sample

MEMBER = 2
PATTERNS = {
    "Compose(KHop(1), AddSelf())": Compose(KHop(1), AddSelf()),
    "Compose(KHop(2), AddSelf())": Compose(KHop(2), AddSelf()),
    "Compose(KHop(2), Sample(6), AddSelf())": Compose(KHop(2), Sample(6), AddSelf()),
}


@styled
def main(path: Path) -> None:
    data = graphs.load("karate")
    graph = Neighborhood.from_edge_index(data.edge_index, num_nodes=data.num_nodes)
    drawn = nx.karate_club_graph()
    place = np.stack(list(nx.kamada_kawai_layout(drawn).values()))
    figure, every = panels(3, width=7.5, height=2.9)
    figure.set_facecolor("white")
    for axes, (name, pattern) in zip(every, PATTERNS.items(), strict=True):
        near = pattern(graph, generator=torch.Generator().manual_seed(0))
        begin, end = near.indptr[MEMBER : MEMBER + 2].tolist()
        members, hops = near.indices[begin:end].long().numpy(), near.distance[begin:end].numpy()
        for edge in drawn.edges:
            axes.plot(*place[list(edge)].T, color=LIGHT, linewidth=0.8, zorder=1)
        axes.scatter(*place.T, s=12, color=LIGHT, linewidths=0, zorder=2)
        for distance, color in enumerate((COLORS[1], COLORS[0], COLORS[5])):
            size = {"s": (110, 60, 40)[distance], "marker": "os^"[distance]}
            label = ("itself", "1 hop", "2 hops")[distance]
            at = members[hops == distance]
            axes.scatter(*place[at].T, color=color, zorder=3, linewidths=0, label=label, **size)
        axes.set_title(name, fontsize=8, fontweight="normal")
        axes.set_axis_off()
    figure.legend(*every[1].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    figure.savefig(path, dpi=120)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).with_name("near.png"))
