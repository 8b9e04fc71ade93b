"""Draws draws.png: the matrix of the karate club, one draw of FastGCN, and the means of 500 draws.

python docs/pictures/draws.py
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch

from graphtheory import Neighborhood
from graphtheory.lab.datasets import graphs
from graphtheory.lab.plot.style import panels, styled
from graphtheory.patterns import FastGCN, SymmetricNormalize


def dense(one: Neighborhood) -> torch.Tensor:
    out = torch.zeros(one.num_dst, one.num_src)
    source, target = one.edge_index()
    return out.index_put_((target, source), one.weight, accumulate=True)


@styled
def main(path: Path) -> None:
    data = graphs.load("karate")
    graph = Neighborhood.from_edge_index(data.edge_index, num_nodes=data.num_nodes)
    graph, generator = SymmetricNormalize()(graph), torch.Generator().manual_seed(0)
    draws = torch.stack([dense(FastGCN(10)(graph, generator=generator)) for _ in range(500)])
    shown = {"the graph A": dense(graph), "one draw": draws[0], "mean of 500 draws": draws.mean(0)}
    figure, every = panels(3, width=7.5, height=2.6)
    figure.set_facecolor("white")
    for axes, (title, matrix) in zip(every, shown.items(), strict=True):
        image = axes.imshow(matrix.numpy(), cmap="Blues", vmin=0, vmax=0.5)
        axes.set_title(title)
        axes.set(xlabel="source node", xticks=[0, 10, 20, 30], yticks=[0, 10, 20, 30])
        axes.grid(False)
    every[0].set_ylabel("target node")
    figure.colorbar(image, ax=every, label="weight, above 0.5 the darkest", shrink=0.9)
    figure.savefig(path, dpi=120)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).with_name("draws.png"))
