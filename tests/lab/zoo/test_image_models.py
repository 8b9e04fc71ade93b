import pytest
import torch

from graphtheory.lab.metrics import count_macs
from graphtheory.lab.zoo import image_models as image_zoo
from graphtheory.lab.zoo.image_models import ImageKind

MNIST, CIFAR, DIGITS = ImageKind(28, 1, 10), ImageKind(32, 3, 10, 0.1), ImageKind(8, 1, 10)


@pytest.mark.parametrize("kind", [MNIST, CIFAR, DIGITS])
@pytest.mark.parametrize("name", image_zoo.NAMES)
def test_every_model_takes_every_kind_of_image(name: str, kind: ImageKind) -> None:
    model = image_zoo.build(name, kind)
    logits = model(torch.randn(2, kind.channels, kind.size, kind.size))
    assert logits.shape == (2, 10)
    logits.sum().backward()
    grads = [p.grad for p in model.parameters() if p.numel()]
    assert all(grad is not None and grad.isfinite().all() for grad in grads)


@pytest.mark.parametrize("kind", [MNIST, CIFAR])
def test_reduced_tokens_cost_about_half(kind: ImageKind) -> None:
    image = torch.zeros(1, kind.channels, kind.size, kind.size)
    cost = {n: count_macs(image_zoo.build(n, kind), image).total for n in image_zoo.NAMES}
    assert 0.4 < cost["stvit"] / cost["vit"] < 0.55
    for name in ("evit", "tome", "random-drop"):
        assert 0.4 < cost[name] / cost["vit"] < 0.6, name
    assert cost["kvt"] == cost["vit"]
    assert 0.5 < cost["cnn"] / cost["vit"] < 1.5 and 0.5 < cost["swin"] / cost["vit"] < 1.5


def test_wrong_names_and_sizes() -> None:
    with pytest.raises(ValueError, match="model: got 'vti', expected one of vit, kvt"):
        image_zoo.build("vti", MNIST)
    with pytest.raises(ValueError, match="size: got 30 pixels, expected a multiple of 4"):
        image_zoo.build("vit", ImageKind(30, 1, 10))
    with pytest.raises(ValueError, match=r"k: got 0\.3, expected 1 or more neighbors"):
        image_zoo.build("vig", ImageKind(28, 1, 10, network=image_zoo.ImageNetwork(k=0.3)))


def test_positions_begin_apart_and_the_class_token_as_it_was() -> None:
    torch.manual_seed(0)
    model = image_zoo.build("kvt", MNIST)
    table = model.embed.position.table  # type: ignore[union-attr]
    assert torch.pdist(table[1:].detach()).min() > 0.5 and table[0].norm() < 0.5
    assert table.requires_grad
