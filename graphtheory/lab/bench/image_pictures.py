"""What a trained network makes of one image: where tokens look, who is near, which patches stay."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from graphtheory.lab import plot
from graphtheory.lab.train import ImageTask
from graphtheory.nn import AttentionMap
from graphtheory.patterns import TopK
from graphtheory.vision.models import ReducedViT, STViT, Swin, ViG, ViT

Pictures = dict[str, Any]


@torch.no_grad()
def pictures(task: ImageTask, pixels: Tensor) -> Pictures:
    """Pictures of one image, uint8 [C, H, W], by name; none of a network that has no tokens."""
    model, image = task.evaluated, pixels.float() / 255
    kinds: tuple[tuple[type[nn.Module], Any], ...] = (
        (STViT, _semantic), (ReducedViT, _reduced), (ViT, _class), (Swin, _window),
        (ViG, _nearest),
    )  # fmt: skip
    draw = next((draw for kind, draw in kinds if isinstance(model, kind)), None)
    if draw is None:
        return {}
    was_training = task.training
    task.eval()
    given = task.normalize(image[None].to(task.device))
    try:
        return draw(model, given, image)
    finally:
        task.train(was_training)


def _semantic(model: STViT, given: Tensor, image: Tensor) -> Pictures:
    """Where each semantic token looks in the last layer that sees the patches."""
    grid = model.patches(given)[1]
    weights = model.assignment(given)[0].mean(0).view(-1, grid.height, grid.width)
    title, most = "Attention of each semantic token, heads averaged", weights.argmax(0).cpu()
    looks = "The semantic token that looks most at a patch"
    return {
        "semantic-attention": plot.token_attention(image, weights.cpu(), title=title),
        "assignment": plot.token_assignment(image, most, title=looks),
    }


def _reduced(model: ReducedViT, given: Tensor, image: Tensor) -> Pictures:
    grid, found = model.embed(given)[1], model.reduced(given)
    slot = found.slot[0, model.prefix :].view(grid.height, grid.width)
    slot = torch.where(slot < 0, slot, slot - model.prefix)
    left = found.tokens.size(1) - model.prefix
    title = f"{left} tokens of {grid.size} patches at the end"
    return {"assignment": plot.token_assignment(image, slot.cpu(), title=title)}


def _class(model: ViT, given: Tensor, image: Tensor) -> Pictures:
    """Where the class token looks in each block, and of k-NN attention whom a patch attends to."""
    grid, maps = model.embed(given)[1], model.attention_maps(given)
    prefix = len(model.embed.prefix)
    rows = [m.weights.mean(1).view(prefix + grid.size, -1)[0, prefix:] for m in maps]
    weights = torch.stack(rows).view(-1, grid.height, grid.width)
    names = [f"block {i}" for i in range(1, len(maps) + 1)]
    title = "Attention of the class token, heads averaged"
    out = {"class-attention": plot.token_attention(image, weights.cpu(), names=names, title=title)}
    layer = model.blocks[-1].attention
    if isinstance(getattr(layer, "pattern", None), TopK):
        out["k-nearest"] = _edges(
            maps[-1], image, grid.height, grid.width, prefix,
            "Whom the middle patch attends to, last block, first head",
        )  # fmt: skip
    return out


def _window(model: Swin, given: Tensor, image: Tensor) -> Pictures:
    grid, maps = model.patch(given)[1], model.attention_maps(given)
    title = "Whom the middle patch attends to, second block, first head"
    return {"window-attention": _edges(maps[1], image, grid.height, grid.width, 0, title)}


def _nearest(model: ViG, given: Tensor, image: Tensor) -> Pictures:
    first, *_, last = model.graphs(given)
    return {
        f"nearest-{name}": plot.image_graph(
            image, **found.drawing(0, image.size(1), image.size(2)),
            target=found.grid.height // 2 * found.grid.width + found.grid.width // 2,
            title=f"What the middle patch aggregates from, {name} block",
        )
        for name, found in (("first", first), ("last", last))
    }  # fmt: skip


def _edges(
    found: AttentionMap, image: Tensor, height: int, width: int, prefix: int, title: str
) -> Any:
    """What the middle patch receives, as edges between patches; tokens without a place left out."""
    edges, weight = found.neighborhood.edge_index().cpu(), found.weights[:, 0].cpu()
    kept = (weight > 0) & (edges >= prefix).all(0)
    edges = edges[:, kept] - prefix
    size = torch.tensor([image.size(2) / width, image.size(1) / height])
    nodes = torch.arange(height * width)
    pos = (torch.stack([nodes % width, nodes // width], 1) + 0.5) * size
    middle = height // 2 * width + width // 2
    return plot.image_graph(image, pos, edges, weight=weight[kept], target=middle, title=title)
