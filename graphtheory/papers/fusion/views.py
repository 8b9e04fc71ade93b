"""What a contrastive step sees: batches without labels, and two augmented views of each."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader
from torch_geometric.utils import dropout_edge, mask_feature

from graphtheory.graph import Neighborhood
from graphtheory.graph.grid import check_floating
from graphtheory.lab.train.contract import Source, digest, shuffled
from graphtheory.lab.train.images import require_kornia


@dataclass(frozen=True)
class Strengths:
    """How strong the augmentations of SimCLR are.

    What kornia offers does not take a generator: views are drawn from torch's global random state.

    Source: Chen et al. (2020), appendix A; rotation by Li and Pimentel-Alarcon (2024). The
        strengths are ours: the paper states none.
    """

    scale: float = 0.5  #: Least share of the area that a crop keeps, in (0, 1].
    degrees: float = 15.0  #: Rotation by at most so much, of half of the images; 0 is none.
    #: Whether half of the images are mirrored; a mirrored digit is another sign.
    flip: bool = False
    #: Strength of brightness and contrast, of color images also of saturation and hue.
    jitter: float = 0.4
    gray: float = 0.2  #: Probability with which a color image becomes gray.
    blur: float = 0.2  #: Probability of a Gaussian blur over 3 x 3 pixels.

    def build(self, channels: int, side: int) -> nn.Module:
        """Make the augmentations of float images [N, channels, side, side] with values 0..1.

        Raises:
            ImportError: kornia is not installed.
        """
        kornia = require_kornia()
        jitter, size = self.jitter, (side, side)
        parts: list[Any] = [
            kornia.RandomResizedCrop(size, (self.scale, 1.0), cropping_mode="resample")
        ]
        if self.degrees:
            parts.append(kornia.RandomRotation(self.degrees, p=0.5))
        if self.flip:
            parts.append(kornia.RandomHorizontalFlip())
        if channels == 3:
            parts.append(kornia.ColorJitter(jitter, jitter, jitter, jitter / 4, p=0.8))
            parts.append(kornia.RandomGrayscale(p=self.gray))
        else:
            span = (1 - jitter, 1 + jitter)
            parts += [kornia.RandomBrightness(span, p=0.8), kornia.RandomContrast(span, p=0.8)]
        parts.append(kornia.RandomGaussianBlur((3, 3), (0.1, 2.0), p=self.blur))
        return nn.Sequential(*parts)


class ImageViews(nn.Module):
    """Features of two augmented views of each image.

    Args:
        backbone: Images [B, C, H, W] to features [B, F].
        augment: What makes a view of images; it is called once on both copies side by side.

    Shapes:
        images [N, C, H, W], uint8 or floating 0..1 -> [2 N, F], the first views, then the
        second ones.
    """

    def __init__(self, backbone: nn.Module, augment: nn.Module) -> None:
        super().__init__()
        self.backbone, self.augment = backbone, augment

    def forward(self, images: Tensor) -> Tensor:
        with torch.no_grad():
            views = self.augment(pixels(images).repeat(2, 1, 1, 1))
        return self.backbone(views)


def pixels(images: Tensor) -> Tensor:
    """Convert bytes to numbers 0..1; floating numbers stay, which are 0..1 already.

    Raises:
        TypeError: Images of another dtype.
    """
    if isinstance(images, Tensor) and images.dtype == torch.uint8:
        return images.float() / 255
    check_floating(images)
    return images


class GraphViews(nn.Module):
    """Features of some nodes in two augmented views of their graph.

    A view drops edges (PyG's `dropout_edge`) and whole features (`mask_feature` by column).

    Args:
        encoder: `encoder(x, neighborhood)` to features [N, F].
        x: Features of all nodes [N, D], dense or sparse CSR.
        edge_index: Edges [2, E], sources first.
        drop_edge: Probability that an edge is left out.
        drop_feature: Probability that a feature is 0 at all nodes.

    Shapes:
        nodes int64 [B] -> [2 B, F], the first views, then the second ones.

    Source: Zhu et al. (2020), Deep graph contrastive representation learning (GRACE), section 3.2.
    """

    x: Tensor
    edge_index: Tensor

    def __init__(
        self,
        encoder: nn.Module,
        x: Tensor,
        edge_index: Tensor,
        drop_edge: float = 0.3,
        drop_feature: float = 0.3,
    ) -> None:
        super().__init__()
        self.backbone, self.drop_edge, self.drop_feature = encoder, drop_edge, drop_feature
        self.register_buffer("x", x, persistent=False)
        self.register_buffer("edge_index", edge_index, persistent=False)

    def extra_repr(self) -> str:
        return f"drop_edge={self.drop_edge}, drop_feature={self.drop_feature}"

    def forward(self, nodes: Tensor) -> Tensor:
        return torch.cat([self.backbone(*self.view())[nodes] for _ in range(2)])

    def view(self) -> tuple[Tensor, Neighborhood]:
        """Draw one view: its features, and who aggregates from whom."""
        edges, _ = dropout_edge(self.edge_index, self.drop_edge)
        kept, _ = mask_feature(self.x.new_ones(1, self.x.size(1), layout=torch.strided),
                               self.drop_feature, mode="col")  # fmt: skip
        graph = Neighborhood.from_edge_index(edges, self.x.size(0))
        return columns_times(self.x, kept[0]), graph


def columns_times(x: Tensor, factor: Tensor) -> Tensor:
    """Multiply column j by factor[j], dense or sparse CSR."""
    if x.layout != torch.sparse_csr:
        return x * factor
    values = x.values() * factor[x.col_indices()]
    places = x.crow_indices(), x.col_indices()
    return torch.sparse_csr_tensor(*places, values, x.shape, check_invariants=False)


class _WithoutLabels(Source):
    """A number of batches, `count`, that no epoch is scored on."""

    count: int
    val_dataloader = test_dataloader = None  # type: ignore[assignment]

    def num_batches(self) -> int:
        return self.count

    def evaluation_batch(self) -> None:
        pass

    def check_classes(self, num_classes: int) -> None:
        raise ValueError(
            f"datamodule: samples without labels, expected labels in 0..{num_classes - 1}, or a "
            "task that learns without them"
        )


class Unlabeled(_WithoutLabels):
    """Samples in a new order each epoch, in batches of one size; an incomplete batch is left out.

    The order is a function of (seed, epoch).

    Args:
        samples: A tensor whose first axis counts the samples.
        batch_size: Samples of a batch; all of them where there are fewer.
        seed: Of the order, 0 or more.
        limit: At most this many batches an epoch; None is all.

    Raises:
        TypeError: Samples that are no tensor.
        ValueError: A number out of its range.

    Example:
        >>> data = Unlabeled(torch.arange(10), batch_size=4, seed=0)
        >>> [len(batch) for batch in data.train_batches(epoch=0)]
        [4, 4]
    """

    def __init__(
        self, samples: Tensor, batch_size: int, seed: int, limit: int | None = None
    ) -> None:
        super().__init__()
        if not isinstance(samples, Tensor):
            raise TypeError(
                f"samples: got {type(samples).__name__}, expected a tensor; "
                "lab.datasets.image_sets.as_pixels makes one of PIL images and of arrays"
            )
        if batch_size < 1 or seed < 0 or (limit is not None and limit < 1):
            raise ValueError(
                f"batch_size, seed, limit: got {batch_size}, {seed}, {limit}, expected 1, 0, 1 or "
                "more"
            )
        self.samples, self.seed = samples, seed
        self.batch_size = min(batch_size, len(samples))
        count = len(samples) // self.batch_size
        self.count = count if limit is None else min(limit, count)

    def train_batches(self, epoch: int) -> Iterator[Tensor]:
        order = shuffled(torch.arange(len(self.samples)), self.seed, epoch)
        batches = self.share(order.split(self.batch_size)[: self.count])
        return (self.samples[chosen] for chosen in batches)

    def describe(self) -> dict[str, Any]:
        return {
            "shape": list(self.samples.shape), "sha256": digest([self.samples]),
            "batch": self.batch_size, "batches": self.count, "seed": self.seed,
        }  # fmt: skip


class Loaded(_WithoutLabels):
    """Batches of a `torch.utils.data.DataLoader`, whose labels are left out.

    A batch is a tensor of samples, or a tuple or list that begins with one. With
    `DataLoader(shuffle=True)` and no generator of its own the order of an epoch is a function of
    the seed of `fit` and of the epoch, so that a resumed run goes on bit by bit; with another order
    or random changes in its data set that is up to them.

    Args:
        loader: With a length, such as that of a data set with a length.

    Raises:
        TypeError: If it is no DataLoader or has no length; later, if a batch has no samples first.
    """

    def __init__(self, loader: DataLoader[Any]) -> None:
        super().__init__()
        if not isinstance(loader, DataLoader):
            raise TypeError(f"loader: got {type(loader).__name__}, expected a DataLoader")
        self.loader, self.count = loader, len(loader)
        self.batch_size = loader.batch_size

    def train_batches(self, epoch: int) -> Iterator[Tensor]:
        for batch in self.loader:
            samples = batch[0] if isinstance(batch, (tuple, list)) and batch else batch
            if not isinstance(samples, Tensor):
                raise TypeError(
                    f"loader: a batch of {type(samples).__name__}, expected a tensor of samples, "
                    "or a tuple that begins with one"
                )
            yield samples

    def describe(self) -> dict[str, Any]:
        samples = len(self.loader.dataset)  # type: ignore[arg-type]
        return {"samples": samples, "batch": self.batch_size, "batches": self.count}
