"""Folders of images: which folder is a part, which file an image, and how it is read."""

import io
import os
import re
from pathlib import Path

import numpy as np
import pytest
from PIL import EpsImagePlugin, Image, PngImagePlugin

from graphtheory.lab.datasets import image_folders, image_sets
from graphtheory.lab.datasets.files import DamagedFileError


def draw(path: Path, color: object = (9, 9, 9), mode: str = "RGB", **more: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, (8, 8), color).save(path, **more)


def fill(root: Path, *layout: str) -> str:
    """Six images in each of these folders."""
    for place in layout:
        for number in range(6):
            draw(root / place / f"{number}.png")
    return str(root)


def parts(train: str, val: str = "", test: str = "", *more: str) -> tuple[str, ...]:
    """Both classes in each of the parts."""
    named = [f"{part}/{name}" for part in (train, val, test) if part for name in ("cat", "dog")]
    return (*named, *more)


LAYOUTS = {  # folders with images -> images to train on, to validate with, to test on
    "classes": (("cat", "dog"), (10, 0, 2)),
    "train alone": (parts("train"), (10, 0, 2)),
    "train, test": (parts("train", "", "test"), (12, 0, 12)),
    "train, val": (parts("train", "val"), (12, 0, 12)),
    "Train, Test": (parts("Train", "", "Test"), (12, 0, 12)),
    "train, Test": (parts("train", "", "Test"), (12, 0, 12)),
    "TRAIN, VAL, TEST": (parts("TRAIN", "VAL", "TEST"), (12, 12, 12)),
    "training_set, test_set": (parts("training_set", "", "test_set"), (12, 0, 12)),
    "seg_train, seg_test": (parts("seg_train", "", "seg_test"), (12, 0, 12)),
    "train2017, val2017": (parts("train2017", "val2017"), (12, 0, 12)),
    "TrainSet, Validation": (parts("TrainSet", "Validation", "testing"), (12, 12, 12)),
    "trainset, valid, testset": (parts("trainset", "valid", "testset"), (12, 12, 12)),
    "tr, te": (parts("tr", "", "te"), (12, 0, 12)),
    "TRN, DEV, TST": (parts("TRN", "DEV", "TST"), (12, 12, 12)),
    "letters_tr, letters_te": (parts("letters_tr", "", "letters_te"), (12, 0, 12)),
    "a class te": (("en", "te"), (10, 0, 2)),
    "train images, dev images": (parts("train images", "dev images"), (12, 0, 12)),
    "seg_train, Test": (parts("train", "", "Test"), (12, 0, 12)),
    "a class train": (("train", "car"), (10, 0, 2)),
    "classes with such words": (("valid", "invalid"), (10, 0, 2)),
    "classes of two words": (("test tube/1", "bullet train/a", "freight train/b"), (15, 0, 3)),
    "deeper files": (("cat/1/a", "dog/2"), (10, 0, 2)),
    "train, empty test": ((*parts("train"), "test"), None),  # emptied below
}
REFUSED = {
    "train, training": (parts("train", "", "training"), "training as train, with train beside"),
    "val, dev": (parts("train", "val", "dev"), "val as val, train as train, with dev beside"),
    "no train": (parts("", "val", "test"), "with none to train on beside; expected train, perhaps"),
    "images without a class": (("train", "test"), "no part, with test, train beside"),
    "test without a class": ((*parts("train"), "test"), "train as train, with test beside"),
    "tr, te without classes": (("tr", "te"), "no part, with te, tr beside"),
    "tr, te in a class": (("cat/tr", "cat/te", "dog/tr"), "cat: parts test, train below"),
    "CycleGAN": (("trainA", "trainB", "testA", "testB"), "no part, with testA, testB, trainA"),
    "a class train with folders": (("train/a", "train/b", "car"), "train as train, with car"),
    "seg_pred": (parts("seg_train", "", "seg_test", "seg_pred"), "with seg_pred beside"),
    "two sets": (parts("a_train", "", "a_test") + parts("b_train", "", "b_test"), "beside"),
    "parts in a class": (("cat/train", "cat/test", "dog/train"), "cat: parts test, train below"),
    "one class": (("cat",), "1 folders of classes, expected two or more"),
    "another class": (parts("train", "", "", "test/cow/1"), "cow: a class that is not trained"),
    "Cat and cat": (parts("train", "", "", "test/Cat"), "Cat: a class that is not trained on"),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_every_usual_layout_is_read_as_it_is_meant(tmp_path: Path, name: str) -> None:
    layout, sizes = LAYOUTS[name]
    root = fill(tmp_path, *layout)
    if sizes is None:
        for path in (tmp_path / "test").iterdir():
            path.unlink()
    found = image_sets.load(root).listing
    assert found is not None
    assert tuple(map(len, (found.train, found.val, found.test))) == (sizes or (10, 0, 2))
    told = {path.parent.name for path, _ in found.train} & set(found.classes)
    assert told == set(found.classes) or "/" in layout[0].removeprefix("t")


@pytest.mark.parametrize("name", REFUSED)
def test_what_may_mean_two_things_is_refused(tmp_path: Path, name: str) -> None:
    layout, told = REFUSED[name]
    with pytest.raises(ValueError, match=re.escape(told)):
        image_sets.load(fill(tmp_path, *layout))


def test_the_table_sees_a_reader_that_knows_three_names(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(image_folders, "_part_of", lambda name: (
        (name, ()) if name in ("train", "val", "test") else None))  # fmt: skip
    root = fill(tmp_path, *LAYOUTS["Train, Test"][0])
    listing = image_sets.load(root).listing
    assert listing is not None and listing.classes == ("Test", "Train")


@pytest.mark.parametrize("place", [
    "cat/.ipynb_checkpoints/1.png", "cat/._1.png", "cat/.hidden/1.png", "__MACOSX/cat/1.png",
    "cat/@eaDir/1.png/thumb.jpg", ".git/1.png", "cat/Thumbs.db", "cat/notes.txt", ".cover.png",
])  # fmt: skip
def test_files_that_nobody_meant_are_left_out(tmp_path: Path, place: str) -> None:
    before = image_sets.load(fill(tmp_path, "cat", "dog")).listing.sha256
    (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / place).write_bytes((tmp_path / "cat/1.png").read_bytes())
    assert image_sets.load(str(tmp_path)).listing.sha256 == before


@pytest.mark.parametrize(("layout", "places", "told"), [
    (("cat", "dog"), ("cat/1.gif",), r"1 images are left out, such as cat/1\.gif; expected \.jpg"),
    (("cat", "dog"), ("cover.png", "dog/a/b.HEIC"), r"2 .* such as cover\.png, dog/a/b\.HEIC;"),
    (parts("train", "", "test"), ("train/loose.png",), r"1 .* such as train/loose\.png;"),
    (parts("train", "", "test"), ("test/cat/x.svg", "test/y.jpg"), r"2 .* test/y.jpg, test/cat"),
    (("cat", "dog"), [f"cat/{n}.avif" for n in range(6)], r"6 .* cat/3\.avif; expected \.jpg"),
])  # fmt: skip
def test_images_that_are_not_read_are_counted_and_named(tmp_path, layout, places, told) -> None:
    root = fill(tmp_path, *layout)
    before = image_sets.load(root).listing.sha256
    for place in places:
        (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
        draw(tmp_path / place, format="PNG")
    with pytest.warns(UserWarning, match=told) as caught:
        assert image_sets.load(root).listing.sha256 == before
    assert len(caught) == 1 and caught[0].filename == __file__


def test_every_extension_that_is_listed_is_read(tmp_path: Path) -> None:
    root = fill(tmp_path, "cat", "dog")
    for extension in image_folders._EXTENSIONS.split():
        kind = Image.registered_extensions()[extension]
        assert kind in image_folders._FORMATS
        draw(tmp_path / f"cat/a{extension}", format=kind)
    found = image_sets.load(root)
    assert len(found.training().y) + len(found.test().y) == 12 + 12


EPS = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n%%EndComments\nshowpage\n%%EOF\n"


def packed_text() -> bytes:
    """A PNG of few bytes with a text of many."""
    text, buffer = PngImagePlugin.PngInfo(), io.BytesIO()
    text.add_text("note", "a" * 2**21, zip=True)
    Image.new("RGB", (8, 8)).save(buffer, "PNG", pnginfo=text)
    return buffer.getvalue()


HOSTILE = {
    "program": (EPS, "UnidentifiedImageError"),
    "pixels": (b"P6\n70000 70000\n255\n", "DecompressionBombError, Image size"),
    "text": (packed_text(), "ValueError, Decompressed data too large"),
    "other format": (b"GIF89a" + bytes(20), "UnidentifiedImageError"),
    "nothing": (b"", "UnidentifiedImageError"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_image_is_refused_by_name_and_runs_nothing(tmp_path, monkeypatch, name) -> None:
    called: list[object] = []
    monkeypatch.setattr(EpsImagePlugin, "Ghostscript", lambda *args: called.append(args))
    content, told = HOSTILE[name]
    root = fill(tmp_path, "cat", "dog")
    (tmp_path / "cat/9.png").write_bytes(content)
    told = rf"cat/9\.png: {told}.*; expected a whole JPEG or PNG"
    with pytest.raises(DamagedFileError, match=told):
        image_sets.load(root).training()
    assert not called


@pytest.mark.parametrize("place", [b"cat/\xe9.png", b"cat/\xe9/1.png", b"\xe9/1.png"])
def test_names_that_no_table_can_hold_are_refused(tmp_path: Path, place: bytes) -> None:
    root = fill(tmp_path, "cat", "dog")
    path = Path(os.fsdecode(os.fsencode(root) + b"/" + place))
    path.parent.mkdir(exist_ok=True)
    path.write_bytes((tmp_path / "cat/1.png").read_bytes())
    with pytest.raises(ValueError, match=r"images: the name '.*udce9.*' is not UTF-8"):
        image_sets.load(root)


def test_links_are_followed_and_loops_refused(tmp_path: Path) -> None:
    fill(tmp_path / "far", "cat", "cow", "more")
    (tmp_path / "own").mkdir()
    for name in ("cat", "cow"):
        (tmp_path / "own" / name).symlink_to(tmp_path / "far" / name)
    (tmp_path / "far/cat/more").symlink_to(tmp_path / "far/more")
    (tmp_path / "far/cow/7.png").symlink_to(tmp_path / "far/more/1.png")
    assert dict(image_sets.load(str(tmp_path / "own")).info.counts)["images"] == 10 + 6
    (tmp_path / "far/cat/up").symlink_to(tmp_path / "far")
    with pytest.raises(ValueError, match="cat/up: a link to a folder above it"):
        image_sets.load(str(tmp_path / "own"))
    (tmp_path / "far/cat/up").unlink()
    (tmp_path / "far/cow/8.png").symlink_to(tmp_path / "none.png")
    with pytest.raises(ValueError, match=r"cow/8.png: .*No such file"):
        image_sets.load(str(tmp_path / "own")).training()


def test_folders_that_link_to_each_other_are_a_loop(tmp_path: Path) -> None:
    root = fill(tmp_path, "cat/a", "dog")
    (tmp_path / "cat/a/to").symlink_to(tmp_path / "dog")
    assert dict(image_sets.load(root).info.counts)["images"] == 10 + 5
    (tmp_path / "dog/back").symlink_to("../cat")
    told = "cat/a/to/back: a link to a folder above it, expected none"
    with pytest.raises(ValueError, match=told):
        image_sets.load(root)
    (tmp_path / "dog/back").unlink()
    (tmp_path / "cat/a/to").unlink()
    (tmp_path / "dog/7.png").symlink_to("7.png")
    with pytest.raises(DamagedFileError, match=r"dog/7\.png: .*Too many levels of symbolic links"):
        image_sets.load(root).training()


@pytest.mark.parametrize(("one", "other", "channels"), [
    ("L", "L", 1), ("L", "1", 1), ("L", "LA", 1), ("L", "RGB", 3), ("RGB", "L", 3),
    ("1", "RGBA", 3), ("L", "P", 3), ("RGB", "CMYK", 3), ("RGBA", "RGB", 3),
])  # fmt: skip
def test_one_mode_for_all_parts(tmp_path: Path, one: str, other: str, channels: int) -> None:
    root = fill(tmp_path, *parts("train", "val", "test"))
    for part, mode in (("train", one), ("val", one), ("test", one), ("test/cat/1.", other)):
        for path in tmp_path.glob(f"{part}*" if "/" in part else f"{part}/*/*"):
            image = Image.new("RGBA", (8, 8), (9, 9, 9, 255)).convert(mode)
            image.save(path, "TIFF" if mode == "CMYK" else "PNG")
    found = image_sets.load(root)
    assert {part().pixels.size(1) for part in (found.training, found.test)} == {channels}


def test_an_image_is_turned_as_its_camera_was_and_transparent_ones_are_named(tmp_path) -> None:
    root = fill(tmp_path, "cat", "dog")
    upright = np.zeros((8, 8, 3), np.uint8)
    upright[:2] = 200  # bright on top
    for path in tmp_path.glob("*/*"):
        turned = Image.fromarray(np.rot90(upright, 1).copy())  # as a camera held upright stores it
        exif = Image.Exif()
        exif[0x0112] = 6
        turned.save(path, "PNG", exif=exif)
        seen = image_sets.as_pixels([Image.open(path)])[0]
        assert (seen[:, :2] == 200).all() and (seen[:, 2:] == 0).all()
    found = image_sets.load(root)
    assert (found.test().pixels[:, :, :2] == 200).all()
    draw(tmp_path / "cat/3.png", (9, 9, 9, 128), "RGBA")
    with pytest.raises(ValueError, match=r"cat/3.png: transparent pixels, expected none"):
        found.training(), found.test()
    with pytest.raises(ValueError, match="images: transparent pixels"):
        image_sets.as_pixels([Image.new("LA", (8, 8), (9, 0))])


@pytest.mark.parametrize("kind", ["PNG", "TIFF", "WEBP", "GIF"])
def test_a_file_of_several_pictures_is_refused_by_name(tmp_path: Path, kind: str) -> None:
    first, second = (Image.new("RGB", (8, 8), (color, 9, 9)) for color in (9, 200))
    root = fill(tmp_path, "cat", "dog")
    found = image_sets.load(root)
    first.save(tmp_path / "cat/3.png", kind, save_all=True, append_images=[second])
    told = rf"cat/3\.png: 2 pictures in one {kind}, expected one: image\.copy\(\) of that one"
    if kind != "GIF":  # which folders leave out
        with pytest.raises(ValueError, match=told):
            found.training(), found.test()
    with Image.open(tmp_path / "cat/3.png") as several:
        with pytest.raises(ValueError, match=told):
            image_sets.as_pixels([several])
        several.seek(1)
        assert int(image_sets.as_pixels([several.copy()])[0, 0, 0, 0]) > 190
    if kind == "GIF":
        with Image.open(tmp_path / "cat/3.png") as several:
            several.load()
        with pytest.raises(ValueError, match=r"3\.png: a closed GIF whose pictures cannot be"):
            image_sets.as_pixels([several])


def test_a_photograph_with_a_second_picture_is_the_photograph(tmp_path: Path) -> None:
    first, second = (Image.new("RGB", (8, 8), (color, 9, 9)) for color in (9, 200))
    first.save(tmp_path / "1.jpg", "MPO", save_all=True, append_images=[second])
    with Image.open(tmp_path / "1.jpg") as opened:
        assert int(image_sets.as_pixels([opened])[0, 0, 0, 0]) < 20


@pytest.mark.parametrize("number", [1, 2, 3, 7])
def test_too_few_images_of_a_class_are_said(tmp_path: Path, number: int) -> None:
    for place in ("cat", "dog"):
        for image in range(number):
            draw(tmp_path / place / f"{image}.png")
    if number < 3:
        with pytest.raises(ValueError, match=r"1 or 2 images of each class.*expected 3 or more"):
            image_sets.load(str(tmp_path))
        return
    found = image_sets.load(str(tmp_path))
    y = found.training().y
    if number == 3:
        told = r"at most 2 of a class, of which .*expected 6 or more"
        with pytest.raises(ValueError, match=told):
            found.split(y, 0)
    else:
        assert [len(part) for part in found.split(y, 0)] == [10, 2]
