"""Draws howto-PAGE.png for pages of docs/howto, from committed rows and fixed seeds."""

from __future__ import annotations

import csv
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import networkx as nx
import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from graphtheory.data.loaders import edge_cut, fennel
from graphtheory.lab.datasets import graphs, image_sets
from graphtheory.lab.plot.style import COLORS, LIGHT, look, panels, styled
from graphtheory.lab.train import FullGraph, NodeTask, fit, predict
from graphtheory.models import GraphTransformer
from graphtheory.papers.icl import in_context as icl
from graphtheory.papers.icl.prompts import Linear
from graphtheory.vision.images import Beside, InWindow, Nearest, patch_graphs
from graphtheory.vision.models import gpt

ROWS = Path(__file__).parents[2] / "benchmarks" / "results" / "cpu-edge-features.csv"
KARATE = graphs.load("karate")
SOURCE = FullGraph(KARATE)
CLUB = nx.karate_club_graph()
PLACE = np.stack(list(nx.kamada_kawai_layout(CLUB).values()))


def trained(**options: Any) -> tuple[NodeTask, Any]:
    torch.manual_seed(0)
    task = NodeTask(GraphTransformer(34, 16, 2, num_layers=1, heads=2), num_classes=2)
    return task, fit(task, SOURCE, progress=False, **options)


def network(axes: Axes, place: Any, edges: Any, color: Any, **options: Any) -> Any:
    for edge in edges:
        axes.plot(*place[list(edge)].T, color=LIGHT, linewidth=0.9, zorder=1)
    axes.set_axis_off()
    return axes.scatter(*place.T, c=color, zorder=3, linewidths=0, **({"s": 55} | options))


def data(figure: Figure, axes: Axes) -> None:
    color = predict(trained(epochs=5)[0], SOURCE)[:, 1].numpy()
    drawn = network(axes, PLACE, CLUB.edges, color, cmap="RdBu", vmin=0, vmax=1)
    figure.colorbar(drawn, ax=axes, label="probability of class 1")


def edge_features(figure: Figure, axes: Axes) -> None:
    name = "extra memory needed with edge features, "
    with ROWS.open(newline="", encoding="utf-8") as lines:
        rows = [row for row in csv.DictReader(lines) if "nodes=20000" in row["parameters"]]
    found = {row["name"]: float(row["median"]) for row in rows}
    kinds = ("graphtheory TransformerConv, recompute", "graphtheory TransformerConv", "PyG")
    bars = axes.barh(kinds, [found[name + kind] for kind in kinds], color=COLORS[0], alpha=0.8)
    axes.bar_label(bars, fmt="{:,.0f}", padding=3)
    axes.set(xlabel="MiB of a training step, 400,000 edges", xlim=(0, 1600))


def graph_prediction(figure: Figure, *every: Axes) -> None:
    ring = nx.cycle_graph(12)
    place = np.stack(list(nx.circular_layout(ring).values()))
    seen = {n for n in ring if nx.shortest_path_length(ring, 0, n) <= 3}
    for axes, marked, label in zip(every, (1, 6), ("1: side by side", "0: far apart"), strict=True):
        color = [COLORS[n in (0, marked)] if n in (*seen, marked) else LIGHT for n in ring]
        network(axes, place, ring.edges, color, s=130)
        axes.set(title=f"class {label}", xlim=(-1.2, 1.2), ylim=(-1.2, 1.2), aspect="equal")
    figure.supxlabel("orange: marked; blue: others within 3 hops of the right one", fontsize=9)


def images_as_graphs(figure: Figure, *every: Axes) -> None:
    pixels = image_sets.load("digits").training()[0][:1].float() / 255
    rules = {"Beside()": Beside(), "InWindow(2)": InWindow(2), "Nearest(4)": Nearest(4)}
    for axes, (name, rule) in zip(every, rules.items(), strict=True):
        one = patch_graphs(pixels, 2, rule)
        axes.imshow(pixels[0, 0].numpy(), cmap="Greys", alpha=0.5)
        place = np.array([[2 * (n % 4) + 0.5, 2 * (n // 4) + 0.5] for n in range(16)])
        axes.plot(*place[one.edge_index.numpy()].transpose(2, 0, 1), color=COLORS[0], linewidth=1.2)
        axes.plot(*place.T, "o", color=COLORS[1], markersize=5)
        axes.set_title(name)
        axes.set_axis_off()


def parquet(figure: Figure, axes: Axes) -> None:
    part = fennel(KARATE, 2)
    network(axes, PLACE, CLUB.edges, [COLORS[p] for p in part.tolist()])
    for edge in (e for e in CLUB.edges if part[e[0]] != part[e[1]]):
        axes.plot(*PLACE[list(edge)].T, color="black", linewidth=0.9, linestyle=":", zorder=2)
    axes.set_title(f"fennel, 2 parts; dotted: {edge_cut(KARATE, part):.0%} of the edges")


def save_and_resume(figure: Figure, axes: Axes) -> None:
    losses = []
    with TemporaryDirectory() as folder:
        for run, epochs in (("whole", 20), ("parts", 8), ("parts", 20)):
            again = len(losses) == 2
            _, result = trained(epochs=epochs, out_dir=f"{folder}/{run}", resume=again)
            losses.append([row["train_loss"] for row in result.history])
    axes.plot(range(1, 21), losses[0], color=LIGHT, linewidth=6, label="without interruption")
    axes.plot(range(1, 9), losses[1], color=COLORS[0], label="interrupted after 8 epochs")
    axes.plot(range(8, 21), losses[2][7:], "--", color=COLORS[1], label="resume=True")
    axes.set(xlabel="epoch", ylabel="training loss")
    axes.legend()


def several_devices(figure: Figure, axes: Axes) -> None:
    for batch in range(8):
        step, device = divmod(batch, 2)
        axes.barh(device, 0.8, left=step, height=0.6, color=COLORS[device], alpha=0.6)
        axes.text(step + 0.4, device, f"batch {batch}", ha="center", va="center")
    axes.vlines(np.arange(4) + 0.9, -0.4, 1.4, color="black", linestyle=":", linewidth=1)
    axes.set_xticks(np.arange(4) + 0.4, [f"step {step}" for step in range(4)])
    axes.set(yticks=(0, 1), yticklabels=("device 0", "device 1"), title="dotted: mean of gradients")


def in_context(figure: Figure, axes: Axes) -> None:
    draw, other = (torch.Generator().manual_seed(seed) for seed in (0, 1))
    torch.manual_seed(0)
    model = gpt(32, depth=2, heads=4, in_channels=1, out_channels=1, length=12)
    grow = icl.Curriculum(icl.Ramp(1, 1), icl.Ramp(3, 6, every=50))
    icl.train_in_context(model, Linear().prompts, grow, steps=400, lr=3e-3, generator=draw)
    test = Linear().prompts(400, 6, 1, other)
    found = {"trained in context": icl.predictions(model, test.x, test.y)}
    for method in ("least squares", "3 nearest", "averaging"):
        found[method] = icl.baseline(method, test.x, test.y)
    for index, (name, of) in enumerate(found.items()):
        axes.plot((of - test.y).square().mean(0).detach().numpy(), label=name, **look(index))
    axes.set(xlabel="examples in the prompt", ylabel="mean squared error")
    axes.legend()


PANELS = {data: 1, edge_features: 1, graph_prediction: 2, images_as_graphs: 3, in_context: 1,
          parquet: 1, save_and_resume: 1, several_devices: 1}  # fmt: skip


@styled
def main(folder: Path) -> None:
    for draw, count in PANELS.items():
        figure, every = panels(count, width=6.5, height=2.6)
        draw(figure, *every)
        page = draw.__name__.replace("_", "-")
        figure.savefig(folder / f"howto-{page}.png", dpi=100, facecolor="white")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent)
