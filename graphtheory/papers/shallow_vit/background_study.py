"""Figure 2.6: the share of label-relevant tokens of a vision transformer on pasted images."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from os import PathLike

from graphtheory.data.image_sets import Images
from graphtheory.papers.shallow_vit import backgrounds as scenes
from graphtheory.papers.shallow_vit.backgrounds import Pictures, Scene
from graphtheory.papers.shallow_vit.scored_vit import ScoredViT
from graphtheory.papers.study import Row, Step, Study

DRAWN, EIGHT = "drawn weights", "pre-trained on the other classes"
_TESTED = 2000  # images at most
_PRETRAINED = 500  # images of each of the other classes
AGREEING, CONFLICTING = "agreeing", "conflicting"


@dataclass(frozen=True)
class BackgroundStudy(Study):
    """Accuracy over the tokens that stay and the number of training images: figures 2.6a and 2.6b.

    The images of a seed are the same for all tokens, and among those of a larger number.

    Attributes:
        scene: Images and network.
        kept: Patches that stay, in training and test.
        labels: N.
        target: Accuracy that counts as learned in figure 2.6b.
        root: Folder with the raw files.
        seeds: Networks, each on images of its own.
    """

    scene: Scene
    kept: tuple[int, ...]
    labels: tuple[int, ...]
    target: float = 0.0
    root: str | PathLike[str] | None = None
    seeds: int = 3

    def steps(self) -> list[Step]:
        """Rows: kept, alpha_star, labels, seed, accuracy."""
        return [
            self._step(kept, labels, seed)
            for kept in self.kept
            for labels in self.labels
            for seed in range(self.seeds)
        ]

    def _step(self, kept: int, labels: int, seed: int) -> Step:
        settings = {"scene": asdict(self.scene), "kept": kept, "labels": labels, "seed": seed,
                    "of": max(self.labels)}  # fmt: skip
        name = f"{kept} tokens, {labels} images, seed {seed}"
        return Step(name, settings, lambda: self._rows(kept, labels, seed))

    def _rows(self, kept: int, labels: int, seed: int) -> list[Row]:
        scene = self.scene
        train, test = scenes.images(scene, self.root)
        generator = scenes.drawn(seed, 0)
        held = scenes.held_out(train)
        own = scenes.shuffled(train, max(self.labels), generator)
        if len(own.y) < held + max(self.labels):
            raise ValueError(
                f"labels: got {max(self.labels)}, expected at most {len(own.y) - held} images"
            )
        pictures = scenes.pasted(scene, own, generator)
        classes = int(train.y.max()) + 1
        model = scenes.network(scene, own.pixels.size(1), classes, kept, seed)
        task = scenes.learn(
            scene, model, pictures.rows(slice(held, held + labels)), pictures.rows(slice(held)),
            classes, seed,
        )  # fmt: skip
        few = Images(test.pixels[:_TESTED], test.y[:_TESTED])
        found = scenes.score(task, scenes.pasted(scene, few, scenes.drawn(seed, 1)))
        return [
            {"kept": kept, "alpha_star": scene.canvas.alpha_star(kept), "labels": labels,
             "seed": seed, "accuracy": found}
        ]  # fmt: skip


@dataclass(frozen=True)
class SpuriousStudy(Study):
    """Two classes whose backgrounds give them away in training, not in the test: figure 2.6c.

    Of the first class a share `agree` of the training images lies on a texture, of the second 1 -
    `agree`, the others on black. Every test image is scored on both.

    Attributes:
        scene: Images and network.
        kept: Patches that stay, in training and test.
        labels: N, at most.
        starts: "drawn weights", or "pre-trained on the other classes", which it shares with all
            networks of its seed.
        agree: The share.
        root: Folder with the raw files.
        seeds: Networks, each on images of its own.
    """

    scene: Scene
    kept: tuple[int, ...]
    labels: int
    starts: tuple[str, ...] = (DRAWN, EIGHT)
    agree: float = 0.9
    root: str | PathLike[str] | None = None
    seeds: int = 3

    def steps(self) -> list[Step]:
        """Rows: start, kept, alpha_star, seed, accuracy, and that of either kind of test images.

        "agreeing" images have the background of most of their class in training.
        """
        return [self._step(start, seed) for start in self.starts for seed in range(self.seeds)]

    def _step(self, start: str, seed: int) -> Step:
        settings = {
            "scene": asdict(self.scene), "kept": list(self.kept), "labels": self.labels,
            "agree": self.agree, "start": start, "seed": seed,
        }  # fmt: skip
        return Step(f"{start}, seed {seed}", settings, lambda: self._rows(start, seed))

    def _rows(self, start: str, seed: int) -> list[Row]:
        scene, generator = self.scene, scenes.drawn(seed, 2)
        train, test = scenes.images(scene, self.root)
        pair = scenes.of_classes(train, scene.pair)
        own, held = scenes.shuffled(pair, self.labels, generator), scenes.held_out(pair)
        textured = scenes.backgrounds(own.y, self.agree, generator)
        pictures = scenes.pasted(scene, own, generator, textured)
        tests = self._tests(scenes.of_classes(test, scene.pair), seed)
        other = self._begun(train, seed) if start == EIGHT else None
        rows: list[Row] = []
        for kept in self.kept:
            model = scenes.network(scene, train.pixels.size(1), 2, kept, seed)
            if other is not None:
                scenes.begun_from(model, other)
            task = scenes.learn(
                scene, model, pictures.rows(slice(held, None)), pictures.rows(slice(held)), 2, seed
            )
            found = {name: scenes.score(task, of) for name, of in tests.items()}
            rows.append(
                {"start": start, "kept": kept, "alpha_star": scene.canvas.alpha_star(kept),
                 "seed": seed, "accuracy": sum(found.values()) / 2, **found}
            )  # fmt: skip
        return rows

    def _tests(self, given: Images, seed: int) -> dict[str, Pictures]:
        """Every image once on the background of most of its class, and once on the other."""
        agree = given.y == 0
        return {
            name: scenes.pasted(self.scene, given, scenes.drawn(seed, 3), textured)
            for name, textured in ((AGREEING, agree), (CONFLICTING, ~agree))
        }

    def _begun(self, train: Images, seed: int) -> ScoredViT:
        """A network that tells the other classes apart, on textures, with all of its tokens."""
        scene, generator = self.scene, scenes.drawn(seed, 4)
        others = tuple(c for c in range(int(train.y.max()) + 1) if c not in scene.pair)
        given = scenes.of_classes(train, others)
        own = scenes.shuffled(given, _PRETRAINED * len(others), generator)
        pictures, held = scenes.pasted(scene, own, generator), scenes.held_out(given)
        model = scenes.network(scene, train.pixels.size(1), len(others), scene.canvas.tokens, seed)
        task = scenes.learn(
            scene, model, pictures.rows(slice(held, None)), pictures.rows(slice(held)),
            len(others), seed,
        )  # fmt: skip
        assert isinstance(task.scored, ScoredViT)
        return task.scored


_KEPT = (25, 21, 18, 16)  # of 25 patches, 16 of the image: alpha_* 0.64 to 1
_TARGET = {"digits": 0.6, "cifar10": 0.4, "cifar10-jpeg": 0.4}
_LABELS = {"digits": (100, 300, 900)}
_NATURAL = (500, 1500, 4500)


def study(
    figure: str, dataset: str, root: str | PathLike[str] | None = None
) -> BackgroundStudy | SpuriousStudy:
    """The study of figure "fig-2-6a", "fig-2-6b" or "fig-2-6c" on one of `backgrounds.SCENES`."""
    scene, labels = scenes.SCENES[dataset], _LABELS.get(dataset, _NATURAL)
    if figure == "fig-2-6c":
        return SpuriousStudy(scene, _KEPT, labels[1], root=root)
    if figure == "fig-2-6a":
        return BackgroundStudy(scene, _KEPT, labels[1:], root=root)
    return BackgroundStudy(scene, (25, 20, 16), labels, _TARGET[dataset], root=root)


def quick(given: BackgroundStudy | SpuriousStudy) -> BackgroundStudy | SpuriousStudy:
    """The same with few updates, tokens, numbers and seeds, for a first look."""
    scene = replace(given.scene, updates=48)
    ends = given.kept[:: len(given.kept) - 1]
    if isinstance(given, SpuriousStudy):
        return replace(given, scene=scene, kept=ends, starts=given.starts[:1], seeds=2)
    return replace(given, scene=scene, kept=ends, labels=given.labels[:: len(given.labels) - 1],
                   seeds=2)  # fmt: skip
