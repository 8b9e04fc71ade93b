"""State dicts with the names and shapes of the published ViG and Pyramid ViG."""

from collections.abc import Callable, Sequence
from functools import lru_cache

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import avg_pool2d, gelu, interpolate, normalize

from graphtheory.vision import models
from graphtheory.vision.integrations.weights import load_vig
from graphtheory.vision.models.vig import ViG, pyramid_vig, vig
from graphtheory.vision.nn import EdgeMessage
from tests.vision.integrations.conftest import refused, unchanged

K = 3
SIZES = {
    "vig_tiny": ((192,), (12,)), "vig_small": ((320,), (16,)), "vig_base": ((640,), (16,)),
    "pyramid_vig_tiny": ((48, 96, 240, 384), (2, 2, 6, 2)),
    "pyramid_vig_small": ((80, 160, 400, 640), (2, 2, 6, 2)),
    "pyramid_vig_medium": ((96, 192, 384, 768), (2, 2, 16, 2)),
    "pyramid_vig_base": ((128, 256, 512, 1024), (2, 2, 18, 2)),
}  # fmt: skip


def conv(a: int, b: int, size: int = 1, stride: int = 1, groups: int = 1) -> nn.Sequential:
    layer = nn.Conv2d(a, b, size, stride, size // 2, groups=groups)
    return nn.Sequential(layer, nn.BatchNorm2d(b))


@lru_cache
def places(side: int, reduce: int, dim: int) -> Tensor:
    """The table [1, N, M] of Pyramid ViG: similarities of all places, resized like an image."""
    turns = 10000 ** -(torch.arange(dim // 4, device="cpu") / (dim // 4))
    angle = torch.arange(side, device="cpu")[:, None] * turns
    axis = torch.cat([angle.sin(), angle.cos()], 1)
    columns, rows = axis.repeat(side, 1), axis.repeat_interleave(side, 0)
    code = torch.cat([columns, rows], 1)
    table = 2 / dim * code @ code.T
    return -interpolate(table[None, None], (side**2, side**2 // reduce**2), mode="bicubic")[0]


class Published(nn.Module):
    """A network with the published names, whose graphs and messages are written out densely.

    One stage is a ViG, of K to 2K neighbors; several are a Pyramid ViG, of K.
    """

    def __init__(
        self, dims: Sequence[int], depths: Sequence[int], halvings: int, side: int,
        reduce: Sequence[int] = (), classes: int = 5,
    ) -> None:  # fmt: skip
        super().__init__()
        self.reduce, self.depth = reduce, sum(depths)
        widths = [3, *(dims[0] >> (halvings - 1 - i) for i in range(halvings)), dims[0]]
        layers = list[nn.Module]()
        for i in range(halvings + 1):
            layers += [*conv(widths[i], widths[i + 1], 3, 2 if i < halvings else 1), nn.GELU()]
        self.stem = nn.ModuleDict({"convs": nn.Sequential(*layers[:-1])})
        self.pos_embed = nn.Parameter(torch.zeros(1, dims[0], side, side))
        self.backbone = nn.ModuleList()
        for s, (dim, depth) in enumerate(zip(dims, depths, strict=True)):
            if s:
                self.backbone.append(nn.ModuleDict({"conv": conv(dims[s - 1], dim, 3, 2)}))
                side = -(-side // 2)
            self.backbone.extend(self.block(dim, side, s) for _ in range(depth))
        head = (nn.GELU(), nn.Dropout(0.0), nn.Conv2d(1024, classes, 1))
        self.prediction = nn.Sequential(*conv(dims[-1], 1024), *head)

    def block(self, dim: int, side: int, stage: int) -> nn.Module:
        mixed = nn.ModuleDict({"nn": conv(2 * dim, 2 * dim, groups=4)})
        message = nn.ModuleDict({"gconv": mixed})
        maps = {"fc1": conv(dim, dim), "graph_conv": message, "fc2": conv(2 * dim, dim)}
        grapher = nn.ModuleDict(maps)
        if self.reduce:
            table = places(side, self.reduce[stage], dim)
            grapher.relative_pos = nn.Parameter(table, requires_grad=False)
        mlp = {"fc1": conv(dim, 4 * dim), "fc2": conv(4 * dim, dim)}
        return nn.ModuleList([grapher, nn.ModuleDict(mlp)])

    def near(self, y: Tensor, sources: Tensor, grapher: nn.Module, done: int) -> Tensor:
        """The sources [B, C, N, k] of the nodes y [B, C, N]."""
        distance = -2 * normalize(y, dim=1).transpose(1, 2) @ normalize(sources, dim=1)
        grown, step = (1, done // 4 + 1) if self.reduce else (1 + done / (self.depth - 1), 1)
        if self.reduce:
            distance = distance + grapher.relative_pos
        k = int(K * grown)
        chosen = distance.topk(k * step, dim=2, largest=False).indices[..., ::step]
        return torch.stack([one[:, rows] for one, rows in zip(sources, chosen, strict=True)])

    def forward(self, images: Tensor) -> Tensor:
        x, done, stage = self.stem["convs"](images) + self.pos_embed, 0, 0
        for part in self.backbone:
            if isinstance(part, nn.ModuleDict):
                x, stage = part["conv"](x), stage + 1
                continue
            grapher, mlp = part  # type: ignore[misc]
            y = grapher["fc1"](x)
            pooled = avg_pool2d(y, self.reduce[stage]) if self.reduce else y
            y, pooled = y.flatten(2), pooled.flatten(2)
            largest = (self.near(y, pooled, grapher, done) - y[..., None]).amax(3)
            both = torch.stack([y, largest], 2).flatten(1, 2)[..., None]
            both = gelu(grapher["graph_conv"]["gconv"]["nn"](both))
            x = x + grapher["fc2"](both.view(len(x), -1, *x.shape[2:]))
            x, done = x + mlp["fc2"](gelu(mlp["fc1"](x))), done + 1
        return self.prediction(x.mean((2, 3), keepdim=True)).flatten(1)


def drawn(made: Published) -> Published:
    torch.manual_seed(0)
    with torch.no_grad():
        for name, tensor in made.state_dict().items():
            if tensor.is_floating_point() and "relative_pos" not in name:
                noise = torch.randn(tensor.shape)
                tensor.add_(0.1 * (noise.abs() if name.endswith("running_var") else noise))
    return made.eval()


def flat() -> tuple[Published, ViG]:
    ours = vig(32, 2, image_size=64, patch_size=16, neighbors=K, out_channels=5)
    return drawn(Published((32,), (2,), 4, 4)), ours.eval()


def steep() -> tuple[Published, ViG]:
    ours = pyramid_vig((8, 16), (1, 4), reduce=(2, 1), image_size=32, neighbors=K, out_channels=5)
    return drawn(Published((8, 16), (1, 4), 2, 8, (2, 1))), ours.eval()


def images(size: int) -> Tensor:
    return torch.randn(3, 3, size, size, generator=torch.Generator().manual_seed(1))


@torch.no_grad()
@pytest.mark.parametrize(("make", "size"), [(flat, 64), (steep, 32)])
def test_the_published_names_give_the_published_outputs(make: Callable, size: int) -> None:
    theirs, model = make()
    load_vig(model, theirs.state_dict())
    torch.testing.assert_close(model(images(size)), theirs(images(size)), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", SIZES)
def test_every_published_size_has_our_shapes(name: str) -> None:
    of_kind = (2, 56, (4, 2, 1, 1)) if "pyramid" in name else (4, 14)
    with torch.device("meta"):
        theirs = Published(*SIZES[name], *of_kind, classes=1000)
        model = getattr(models, name)()
    load_vig(model, theirs.state_dict())


def test_foreign_states_and_pyramids_are_refused_by_name() -> None:
    theirs, model = flat()
    state = theirs.state_dict()
    partial = {name: None for name in state if "backbone.1.1" in name}
    table = torch.zeros(1, 16, 16)
    refused(
        load_vig, model, state,
        (partial, r"missing: stages\.0\.blocks\.1\.mlp\.0\.weight"),
        ({"backbone.0.0.relative_pos": table}, r"unexpected: backbone\.0\.0\.relative_pos"),
        ({"pos_embed": torch.zeros(1, 32, 14, 14)}, r"other shapes: position\.table"),
    )  # fmt: skip
    with unchanged(model), pytest.raises(TypeError, match=r"a state dict.* under 'state_dict'"):
        load_vig(model, {"state_dict": state})
    theirs, model = steep()
    state = theirs.state_dict()
    refused(
        load_vig, model, state,
        ({"backbone.1.conv.0.bias": None}, r"missing: stages\.1\.coarser\.layers\.0\.bias"),
        ({"backbone.2.conv.0.bias": torch.zeros(16)}, r"unexpected: backbone\.2\.conv\.0\.bias"),
        ({"backbone.1.0.relative_pos": torch.zeros(1)}, r"unexpected: backbone\.1\.0\.relative"),
        ({"backbone.0.0.fc1.0.weight": torch.zeros(9, 9, 1, 1)}, r"other shapes: .*\(9, 9\)"),
        ({"backbone.3.0.relative_pos": torch.zeros(1, 16, 4)}, r"places .* backbone\.3\.0\.rel"),
        ({"backbone.0.0.relative_pos": 0.9 * places(8, 2, 8)}, r"places .* backbone\.0\.0\.rel"),
    )  # fmt: skip
    with pytest.raises(ValueError, match=r"unexpected: .*backbone\.1\.conv\.0\.weight"):
        load_vig(vig(8, 6, image_size=32, patch_size=4, neighbors=K, out_channels=5), state)
    theirs, _ = flat()
    other = vig(32, 2, image_size=64, neighbors=K, out_channels=5, message=EdgeMessage)
    with pytest.raises(ValueError, match="model: its messages are EdgeMessage, expected MaxRel"):
        load_vig(other, theirs.state_dict())
