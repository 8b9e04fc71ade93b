"""State dicts with the names and shapes of the published ViG."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from graphtheory.integrations.vig_weights import load_vig
from graphtheory.models import vig_tiny
from graphtheory.models.vig import ViG, vig

DIM, DEPTH, K = 32, 2, 3


def conv(a: int, b: int, groups: int = 1) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(a, b, 1, groups=groups), nn.BatchNorm2d(b))


class Published(nn.Module):
    """A network with the published names, whose graphs and messages are written out densely."""

    def __init__(self) -> None:
        super().__init__()
        widths, layers = [3, DIM // 8, DIM // 4, DIM // 2, DIM, DIM], list[nn.Module]()
        for i in range(5):
            stride = 2 if i < 4 else 1
            layers += [nn.Conv2d(widths[i], widths[i + 1], 3, stride, 1),
                       nn.BatchNorm2d(widths[i + 1]), nn.GELU()]  # fmt: skip
        self.stem = nn.ModuleDict({"convs": nn.Sequential(*layers[:-1])})
        self.pos_embed = nn.Parameter(torch.zeros(1, DIM, 4, 4))
        self.backbone = nn.ModuleList()
        for _ in range(DEPTH):
            message = nn.ModuleDict(
                {"gconv": nn.ModuleDict({"nn": conv(2 * DIM, 2 * DIM, groups=4)})}
            )
            grapher = {"fc1": conv(DIM, DIM), "graph_conv": message, "fc2": conv(2 * DIM, DIM)}
            mlp = {"fc1": conv(DIM, 4 * DIM), "fc2": conv(4 * DIM, DIM)}
            self.backbone.append(nn.ModuleList([nn.ModuleDict(grapher), nn.ModuleDict(mlp)]))
        self.prediction = nn.Sequential(
            *conv(DIM, 1024), nn.GELU(), nn.Dropout(0.0), nn.Conv2d(1024, 5, 1)
        )

    def forward(self, images: Tensor) -> Tensor:
        x = self.stem["convs"](images) + self.pos_embed
        for i, (grapher, mlp) in enumerate(self.backbone):  # type: ignore[misc]
            y = grapher["fc1"](x).flatten(2)  # [B, C, N]
            unit = normalize(y, dim=1)
            near = (unit.transpose(1, 2) @ unit).topk(K + K * i, dim=2).indices  # [B, N, k]
            senders = torch.stack([one[:, rows] for one, rows in zip(y, near, strict=True)])
            largest = (senders - y[..., None]).amax(3)
            both = torch.stack([y, largest], 2).flatten(1, 2)[..., None]
            both = nn.functional.gelu(grapher["graph_conv"]["gconv"]["nn"](both))
            x = x + grapher["fc2"](both.view(len(x), -1, *x.shape[2:]))
            x = x + mlp["fc2"](nn.functional.gelu(mlp["fc1"](x)))
        return self.prediction(x.mean((2, 3), keepdim=True)).flatten(1)


def published() -> Published:
    torch.manual_seed(0)
    made = Published()
    with torch.no_grad():
        for name, tensor in made.state_dict().items():
            if tensor.is_floating_point():
                drawn = torch.randn(tensor.shape)
                tensor.add_(0.1 * (drawn.abs() if name.endswith("running_var") else drawn))
    return made.eval()


def ours() -> ViG:
    return vig(DIM, DEPTH, image_size=64, patch_size=16, neighbors=K, out_channels=5).eval()


@torch.no_grad()
def test_the_published_names_give_the_published_outputs() -> None:
    theirs, model = published(), ours()
    images = torch.randn(3, 3, 64, 64, generator=torch.Generator().manual_seed(1))
    load_vig(model, theirs.state_dict())
    torch.testing.assert_close(model(images), theirs(images), rtol=1e-4, atol=1e-4)


def test_foreign_and_partial_states_are_refused_by_name() -> None:
    state, model = published().state_dict(), ours()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    partial = {name: tensor for name, tensor in state.items() if "backbone.1.1" not in name}
    with pytest.raises(ValueError, match=r"missing: stages\.0\.blocks\.1\.mlp\.0\.weight"):
        load_vig(model, partial)
    pyramid = state | {"backbone.0.0.relative_pos": torch.zeros(1, 16, 16)}
    with pytest.raises(ValueError, match=r"unexpected: backbone\.0\.0\.relative_pos"):
        load_vig(model, pyramid)
    with pytest.raises(ValueError, match=r"other shapes: position\.table"):
        load_vig(model, state | {"pos_embed": torch.zeros(1, DIM, 14, 14)})
    after = model.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_the_published_sizes_have_our_shapes() -> None:
    with torch.device("meta"):
        model = vig_tiny()
    shapes = {name: tuple(t.shape) for name, t in model.state_dict().items()}
    assert shapes["stages.0.blocks.11.grapher.message.mix.0.weight"] == (384, 96)
    assert shapes["position.table"] == (196, 192) and shapes["stem.layers.12.weight"][1] == 192
