"""Rules saved with a model of `transformers`, loaded and exported; optimizers made too early."""

import copy
import pickle
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import nn

from graphtheory.patterns import TopK
from graphtheory.vision import nn as vision_nn
from graphtheory.vision.nn import AveragePool, Centers, Fuse, Keep, LearnedCenters, MaskPool, Merge
from graphtheory.vision.nn.reduce import Clean, Random

hf = pytest.importorskip("transformers")

from graphtheory.vision.integrations import hf_apply  # noqa: E402
from graphtheory.vision.integrations.hf_apply import apply, from_pretrained, undo  # noqa: E402
from graphtheory.vision.integrations.token_hooks import Reduce, Semantic, trace  # noqa: E402
from graphtheory.vision.integrations.token_rules import decoded, encoded  # noqa: E402
from tests.conftest import logged  # noqa: E402

if not hasattr(hf.ViTModel(hf.ViTConfig(num_hidden_layers=1)), "layers"):
    pytest.skip("an older transformers builds its layers otherwise", allow_module_level=True)

RULES = [
    Keep(0.6), {2: Fuse(0.6)}, [Merge(3), Merge(2)], Reduce({1: Merge(4)}, False, True, False),
    Keep(3, Random()), Semantic(4, base=0), Semantic(MaskPool(2, dim=32, eps=1e-5), base=1),
    TopK(0.5), TopK(3),
]  # fmt: skip


def logits(model: nn.Module, zoo: ModuleType) -> torch.Tensor:
    torch.manual_seed(0)
    with torch.no_grad():
        return zoo.Read(model)(zoo.images())


@pytest.mark.parametrize("what", RULES, ids=str)
def test_rule_and_trained_tokens_come_back(what: Any, zoo: ModuleType, tmp_path: Path) -> None:
    model, config = zoo.tiny("ViT"), zoo.tiny("ViT").config.to_dict()
    apply(model, what)
    if isinstance(what, Semantic):
        nn.init.normal_(model.vit.semantic.global_centers)
    before = logits(model, zoo)
    model.save_pretrained(tmp_path)
    assert "graphtheory" not in model.config.to_dict()
    for kind in (hf.ViTForImageClassification, hf.AutoModelForImageClassification):
        again = from_pretrained(kind, tmp_path)
        assert type(again) is hf.ViTForImageClassification and not again.training
        assert torch.equal(logits(again, zoo), before)
        assert again.state_dict().keys() == model.state_dict().keys()
    other = pickle.loads(pickle.dumps(copy.deepcopy(again)))
    other.save_pretrained(tmp_path / "second")
    second = from_pretrained(hf.ViTForImageClassification, tmp_path / "second")
    assert torch.equal(logits(second, zoo), before)
    undo(again)
    assert not torch.allclose(logits(again, zoo), before, atol=1e-5)
    assert again.config.to_dict().keys() - {"dtype", "architectures"} <= config.keys()


@pytest.mark.parametrize("make", [str, Path])
def test_a_folder_that_is_not_there_is_named(make: Any, tmp_path: Path) -> None:
    told = re.escape(f"folder: '{tmp_path / 'gone'}': no such folder")
    with pytest.raises(FileNotFoundError, match=told):
        from_pretrained(hf.ViTForImageClassification, make(tmp_path / "gone"))
    (tmp_path / "config.json").write_text("[")
    with pytest.raises(OSError, match=r"config\.json"):  # of transformers, as it is there
        from_pretrained(hf.ViTForImageClassification, make(tmp_path))


def test_both_kinds_of_rules_at_once_and_nothing_after_undo(zoo: ModuleType, tmp_path) -> None:
    model = zoo.tiny("ViT")
    apply(model, TopK(0.5))
    apply(model, Merge(2))
    model.save_pretrained(tmp_path)
    again = from_pretrained(hf.ViTForImageClassification, tmp_path)
    assert torch.equal(logits(again, zoo), logits(model, zoo))
    undo(model)
    assert "save_pretrained" not in vars(model)
    model.save_pretrained(tmp_path / "plain")
    with pytest.raises(ValueError, match=r"folder: the config in .* names no rule"):
        from_pretrained(hf.ViTForImageClassification, tmp_path / "plain")


@pytest.mark.parametrize("what", [Keep(0.5), Semantic(4, base=0), TopK(0.5)], ids=str)
def test_hugging_face_alone_reports_what_it_leaves_out(what: Any, zoo, tmp_path) -> None:
    model = zoo.tiny("ViT")
    apply(model, what)
    model.save_pretrained(tmp_path)
    with logged("transformers") as said:
        from_pretrained(hf.ViTForImageClassification, tmp_path)
        assert "UNEXPECTED" not in said.getvalue()
        _, report = hf.ViTForImageClassification.from_pretrained(tmp_path, output_loading_info=True)
    name = "load_with_graphtheory.vision.integrations.transformers.from_pretrained"
    assert name in report["unexpected_keys"]
    plain = hf.ViTForImageClassification.from_pretrained(tmp_path)
    for size in ("50GB", "10KB"):  # one file, and several with an index
        plain.save_pretrained(tmp_path / size, max_shard_size=size)
        with pytest.raises(ValueError, match="saved by a model without the rule"):
            from_pretrained(hf.ViTForImageClassification, tmp_path / size)
    assert name in said.getvalue() and "UNEXPECTED" in said.getvalue()


THREE = {"id2label": {0: "a", 1: "b", 2: "c"}, "label2id": {"a": 0, "b": 1, "c": 2}}
KEYWORDS: list[dict[str, Any]] = [
    {"num_labels": 3, "ignore_mismatched_sizes": True}, {"num_labels": 3},
    THREE | {"ignore_mismatched_sizes": True}, {"output_loading_info": True},
    {"output_loading_info": True, "num_labels": 3, "ignore_mismatched_sizes": True},
    {"hidden_dropout_prob": 0.3}, {"output_attentions": True}, {"attn_implementation": "eager"},
    {"dtype": torch.bfloat16}, {"dtype": "auto"}, {"torch_dtype": torch.float16},
    {"config": "folder"}, {"config": "object"}, {"config": "plain"},
    {"config": "folder", "num_labels": 3, "ignore_mismatched_sizes": True},
    {"revision": "main"}, {"local_files_only": True}, {"force_download": False}, {"token": None},
    {"subfolder": ""}, {"use_safetensors": True}, {"low_cpu_mem_usage": True},
    {"device_map": None}, {"trust_remote_code": False}, {"state_dict": {}}, {"key_mapping": {}},
    {"nonsense": 3},
]  # fmt: skip


def loaded(load: Any, options: dict[str, Any], folder: Path) -> list[Any]:
    """What a way to load gives, or the kind of its error."""
    config = hf.AutoConfig.from_pretrained(folder)
    given = {"folder": str(folder), "object": config, "plain": hf.ViTConfig(**config.to_dict())}
    options = options | ({"config": given[options["config"]]} if "config" in options else {})
    torch.manual_seed(0)
    try:
        out = load(folder, **options)
    except Exception as error:
        return [type(error)]
    model, *info = out if isinstance(out, tuple) else (out,)
    kept = {k: v for k, v in model.config.to_dict().items() if k != "graphtheory"}
    told = [{n: str(v) for n, v in i.items() if n != "unexpected_keys"} for i in info]
    shapes = {n: t.shape for n, t in model.state_dict().items()}
    attention = model.config._attn_implementation
    return [type(out), type(model), model.dtype, attention, kept, told, shapes]


@pytest.mark.parametrize("auto", [False, True])
@pytest.mark.parametrize("options", KEYWORDS, ids=str)
def test_every_keyword_of_hugging_face_is_taken_as_theirs(options, auto, zoo, tmp_path) -> None:
    model = zoo.tiny("ViT")
    apply(model, Merge(2))
    model.save_pretrained(tmp_path)
    kind = hf.AutoModelForImageClassification if auto else hf.ViTForImageClassification
    found = loaded(lambda *a, **o: from_pretrained(kind, *a, **o), options, tmp_path)
    assert found == loaded(kind.from_pretrained, options, tmp_path)
    if len(found) > 1:
        rest = {k: v for k, v in options.items() if k != "config"}
        again = from_pretrained(kind, tmp_path, **rest)
        rules = hf_apply._applied(again[0] if isinstance(again, tuple) else again)
        assert rules == [Reduce(Merge(2))]


@pytest.mark.parametrize(
    "head", ["DeiTForImageClassification", "DeiTForImageClassificationWithTeacher"]
)
def test_an_auto_class_takes_the_class_that_was_saved(head: str, zoo: ModuleType, tmp_path) -> None:
    torch.manual_seed(0)
    model = getattr(hf, head)(hf.DeiTConfig(**zoo._SIZES)).eval()
    apply(model, Merge(2))
    model.save_pretrained(tmp_path)
    again = from_pretrained(hf.AutoModelForImageClassification, tmp_path)
    assert type(again) is type(model) and torch.equal(logits(again, zoo), logits(model, zoo))


def test_saving_takes_the_arguments_of_hugging_face(zoo: ModuleType, tmp_path: Path) -> None:
    model = zoo.tiny("ViT")
    apply(model, Merge(2))
    model.save_pretrained(save_directory=tmp_path / "named")
    model.save_pretrained(tmp_path / "by place", True, model.state_dict())
    for folder in tmp_path.iterdir():
        again = from_pretrained(hf.ViTForImageClassification, folder)
        assert torch.equal(logits(again, zoo), logits(model, zoo))


def test_what_another_library_put_around_saving_stays(zoo: ModuleType, tmp_path: Path) -> None:
    model = zoo.tiny("ViT")
    apply(model, Merge(2))
    inner, calls = model.save_pretrained, []

    def around(folder: Path, **options: Any) -> None:
        calls.append(folder)
        inner(folder, **options)

    model.save_pretrained = around
    apply(model, TopK(0.5))  # puts its own around both
    model.save_pretrained(save_directory=tmp_path / "two")
    assert "graphtheory" not in model.config.to_dict()
    again = from_pretrained(hf.ViTForImageClassification, tmp_path / "two")
    assert torch.equal(logits(again, zoo), logits(model, zoo))
    undo(model)
    model.save_pretrained(tmp_path / "none")
    assert calls == [tmp_path / "two", tmp_path / "none"] and model.save_pretrained is around
    load = hf.ViTForImageClassification.from_pretrained
    plain, told = load(tmp_path / "none", output_loading_info=True)
    assert not told["unexpected_keys"] and "graphtheory" not in plain.config.to_dict()


@pytest.mark.parametrize(
    "centers",
    [AveragePool(2), vision_nn.MaxPool(3), MaskPool(2, 8, eps=0.1), LearnedCenters(3, 8),
     vision_nn.MultiScale([AveragePool(1), MaskPool(2, 8)])],
    ids=lambda centers: type(centers).__name__,
)  # fmt: skip
def test_centers_are_made_again_from_the_config(centers: Centers) -> None:
    again = decoded(encoded(Semantic(centers, base=1))).tokens
    assert type(again) is type(centers) and str(again) == str(centers)
    assert again.tokens == centers.tokens
    again.load_state_dict(centers.state_dict())


def test_rules_that_a_config_cannot_hold_are_refused_before_writing(zoo, tmp_path) -> None:
    class Own(Centers):
        pass

    model = zoo.tiny("ViT")
    for what, name in ((Keep(3, Clean(torch.ones(2, 32))), "Clean"), (Semantic(Own(4)), "Own")):
        with pytest.raises(ValueError, match=f"what: a {name} cannot be saved in a config"):
            encoded(what)
    apply(model, Keep(3, Clean(torch.ones(2, 32))))
    with pytest.raises(ValueError, match="what: a Clean cannot be saved"):
        model.save_pretrained(tmp_path / "new")
    assert not (tmp_path / "new").exists()
    with pytest.raises(ValueError, match=r"config\.graphtheory: names 'Swap', expected TopK, Re"):
        decoded({"kind": "Swap"})


@pytest.mark.parametrize(
    ("name", "what"),
    [("ViT", Semantic(MaskPool(2, dim=32), base=0)), ("DINOv3 ViT", {1: Fuse(0.6), 2: Merge(3)})],
    ids=["tokens", "merge"],
)
def test_export_for_any_number_of_images(name: str, what: Any, zoo: ModuleType) -> None:
    model = zoo.tiny(name)
    apply(model, what)
    shapes = ({0: torch.export.Dim("images", min=1, max=64)},)
    program = torch.export.export(zoo.Read(model), (zoo.images(),), dynamic_shapes=shapes)
    if not isinstance(what, Semantic):
        with pytest.raises(ValueError, match="no reduction has run"):  # no tensors of the trace
            trace(model)
    for count in (2, 5):
        with torch.no_grad():
            wanted = zoo.Read(model)(zoo.images(count))
        torch.testing.assert_close(program.module()(zoo.images(count)), wanted)


def test_optimizers_made_before_semantic_tokens_are_named(zoo: ModuleType) -> None:
    model, other = zoo.tiny("ViT"), zoo.tiny("ViT")
    early = torch.optim.AdamW(model.parameters())
    apply(other, Semantic(4, base=0))
    apply(model, Merge(2))
    with pytest.warns(UserWarning, match=r"this AdamW was made before .*global_centers") as told:
        apply(model, Semantic(4, base=0))
    assert told[0].filename == __file__
    del early
    undo(model)
    apply(model, Semantic(4, base=0, with_global=False))
