"""What stands on a model when a rule is applied, or is put there afterwards: kept, or refused."""

import copy
import functools
import re
import warnings
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize, prune

from graphtheory.patterns import TopK
from graphtheory.vision.integrations import timm, token_hooks, token_layers
from graphtheory.vision.integrations.timm import Semantic
from graphtheory.vision.nn import Fuse, Keep, Merge
from tests.vision.integrations.test_timm_attention import StandIn, drawn

hf = pytest.importorskip("transformers")

from graphtheory.vision.integrations import hf_apply  # noqa: E402

if not hasattr(hf.ViTModel(hf.ViTConfig(num_hidden_layers=1)), "layers"):
    pytest.skip("an older transformers builds its layers otherwise", allow_module_level=True)

MODELS = ("ViT", "BEiT", "Swin", "timm")
NOTHING = (Merge(0), TopK(1.0))  # change no output
RULES = (*NOTHING, {1: Fuse(0.6), 3: Keep(5)}, Merge(3), Semantic(4, base=0), TopK(0.5))


def made(name: str, zoo: ModuleType) -> tuple[Any, Callable[[Any], Tensor], ModuleType]:
    """A model, what reads its output, and the module that patches it."""
    images = zoo.images()
    torch.manual_seed(0)
    if name == "timm":
        images = torch.nn.functional.interpolate(images, (24, 24))
        return drawn(StandIn()), torch.no_grad()(lambda model: model(images)), timm
    read = torch.no_grad()(lambda model: zoo.Read(model)(images))
    return zoo.tiny(name), read, hf_apply


def layers_of(model: Any) -> list[Any]:
    """Its layers, in Swin the blocks of the deepest stage."""
    return [m for m in model.modules() if hasattr(m, "mlp")][-3:]


def attention_of(layer: Any) -> Any:
    return layer.attn if hasattr(layer, "attn") else layer.attention


def maps_of(model: Any) -> list[tuple[Any, str]]:
    """Linear maps of the attention and of the MLP of its layers, and where they are."""
    return [
        (part, name) for layer in layers_of(model) for part in (attention_of(layer), layer.mlp)
        for name, m in part.named_children() if isinstance(m, nn.Linear)
    ]  # fmt: skip


def around(forward: Any) -> Any:
    """A function around a forward that adds a number to what it gives."""

    @functools.wraps(forward)
    def wrapped(*args: Any, **options: Any) -> Any:
        return more(forward(*args, **options))

    return wrapped


def more(out: Any) -> Any:
    if isinstance(out, tuple):
        return (more(out[0]), *out[1:])
    return out + torch.linspace(-1, 1, out.size(-1))


# Things: each changes the model, and gives it or a copy.


def function_around(name: str, part_of: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def thing(model: Any) -> Any:
        part = part_of(layers_of(model)[1])
        part.forward = around(part.forward)
        return model

    thing.__name__ = f"function_around_{name}"
    return thing


function_around_a_layer = function_around("a_layer", lambda layer: layer)
function_around_attention = function_around("attention", attention_of)
function_around_an_mlp = function_around("an_mlp", lambda layer: layer.mlp)


def add_hook(module: Any, hook: Any) -> None:
    """As accelerate's `add_hook_to_module`."""
    if "_old_forward" not in vars(module):
        module._old_forward = module.forward
    module._hf_hook = hook

    def new_forward(module: Any, *args: Any, **options: Any) -> Any:
        args, options = module._hf_hook.pre_forward(module, *args, **options)
        return module._hf_hook.post_forward(module, module._old_forward(*args, **options))

    forward = functools.partial(new_forward, module)
    module.forward = functools.update_wrapper(forward, module._old_forward)


def sent(given: Any) -> Any:
    """As accelerate's `send_to_device`, which makes containers anew."""
    if isinstance(given, tuple) and hasattr(given, "_fields"):
        return type(given)(*map(sent, given))
    if isinstance(given, (tuple, list)):
        return type(given)(map(sent, given))
    return {k: sent(v) for k, v in given.items()} if isinstance(given, dict) else given


class Offload:
    """As accelerate's `AlignDevicesHook(offload=True)`: parameters are on meta between calls."""

    def __init__(self, module: Any) -> None:
        self.kept = dict(module._parameters)
        self.post_forward(module, None)

    def pre_forward(self, module: Any, *args: Any, **options: Any) -> Any:
        module._parameters.update(self.kept)
        return sent(args), sent(options)

    def post_forward(self, module: Any, out: Any) -> Any:
        for name, parameter in self.kept.items():
            if parameter is not None:
                module._parameters[name] = nn.Parameter(parameter.to("meta"))
        return out


class Adding(Offload):
    """A hook that changes the output."""

    def __init__(self, module: Any) -> None:
        self.kept = {}

    def post_forward(self, module: Any, out: Any) -> Any:
        return more(out)


def offloaded(model: Any) -> Any:
    for module in list(model.modules()):
        if module._parameters:
            add_hook(module, Offload(module))
    return model


def dispatched(model: Any) -> Any:
    for layer in layers_of(model):
        add_hook(layer, Adding(layer))
        add_hook(attention_of(layer), Adding(layer))
    return model


def dispatched_and_taken_off(model: Any) -> Any:
    for module in [m for m in dispatched(model).modules() if hasattr(m, "_hf_hook")]:
        module.forward = module._old_forward
        del module._hf_hook, module._old_forward
    layers_of(model)[0].mlp = nn.Sequential(layers_of(model)[0].mlp, nn.Tanh())
    return model


def quantized(model: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.ao.quantization.quantize_dynamic(model, {nn.Linear}, dtype=torch.qint8)


class LowRank(nn.Module):
    """As peft's: a linear map inside, and a second one of low rank beside it."""

    def __init__(self, base: nn.Linear) -> None:
        super().__init__()
        self.base_layer = base
        self.in_features, self.out_features = base.in_features, base.out_features
        self.first = nn.Linear(base.in_features, 2, bias=False)
        self.second = nn.Linear(2, base.out_features, bias=False)
        drawn(self.second)

    def forward(self, x: Tensor) -> Tensor:
        return self.base_layer(x) + self.second(self.first(x))


def low_rank(model: Any) -> Any:
    torch.manual_seed(0)
    for part, name in maps_of(model):
        setattr(part, name, LowRank(getattr(part, name)))
    return model


def hooked(model: Any) -> Any:
    for layer in layers_of(model):
        for module in (layer, attention_of(layer), layer.mlp):
            module.register_forward_pre_hook(lambda m, args: (more(args[0]), *args[1:]))
            module.register_forward_hook(lambda m, args, out: more(out))
    return model


def pruned(model: Any) -> Any:
    for part, name in maps_of(model):
        prune.l1_unstructured(getattr(part, name), "weight", 0.5)
    return model


class Double(nn.Module):
    def forward(self, weight: Tensor) -> Tensor:
        return 2 * weight


def parametrized(model: Any) -> Any:
    for part, name in maps_of(model):
        parametrize.register_parametrization(getattr(part, name), "weight", Double())
    for at in map(attention_of, layers_of(model)):
        at.register_parameter("extra", nn.Parameter(torch.ones(2)))
        parametrize.register_parametrization(at, "extra", Double())  # changes its class
    return model


def other_mlp(model: Any) -> Any:
    layer = layers_of(model)[1]
    layer.mlp = drawn(copy.deepcopy(layer.mlp))
    return model


def other_layer(model: Any) -> Any:
    layer = layers_of(model)[1]
    (name,) = [name for name, part in model.named_modules() if part is layer]
    model.set_submodule(name, made_of_type(layer))
    return model


def made_of_type(module: Any) -> Any:
    """A copy with other weights and the same config, on which nothing stands."""
    with_config = [m for m in module.modules() if hasattr(m, "config")]
    made = token_layers._bare(copy.deepcopy(module, {id(m.config): m.config for m in with_config}))
    return drawn(made)


def other_attention(model: Any) -> Any:
    layer = layers_of(model)[1]
    name = "attn" if hasattr(layer, "attn") else "attention"
    setattr(layer, name, made_of_type(getattr(layer, name)))
    return model


WRAPPED = r"(layers|layer|blocks)\.\d+(\.attention|\.attn)?\.forward was replaced, by <function"
LATE = r"(layers|layer|blocks)\.\d+.* was replaced after `apply`"
# Each thing, and why a rule that computes layers refuses it, before and after `apply`.
THINGS: dict[Callable[[Any], Any], tuple[str, str]] = {
    function_around_a_layer: (WRAPPED, ""), function_around_attention: (WRAPPED, ""),
    function_around_an_mlp: ("", ""), offloaded: ("", ""), dispatched: ("", ""),
    dispatched_and_taken_off: ("", ""), quantized: ("", ""), low_rank: ("", ""), hooked: ("", ""),
    pruned: ("", ""), parametrized: ("", ""), other_mlp: ("", ""), other_layer: ("", LATE),
    other_attention: ("", LATE),
}  # fmt: skip


def standing(model: nn.Module) -> dict[str, dict[str, Any]]:
    """What each module holds; of parameters the names, for offloading makes them anew."""
    found: dict[str, dict[str, Any]] = {}
    for name, module in model.named_modules():
        own = {k: v for k, v in vars(module).items() if not isinstance(v, Tensor)}
        own.pop("_packed_params", None)
        for key, value in own.items():
            if isinstance(value, dict):
                own[key] = list(value) if key in ("_parameters", "_modules") else copy.copy(value)
        found[name] = own
    return found


@functools.cache
def ruled(name: str, rule: str, zoo: ModuleType) -> Tensor | None:
    """The output of the rule without the thing; None where the model is refused."""
    model, read, library = made(name, zoo)
    try:
        library.apply(model, {str(rule): rule for rule in RULES}[rule])
    except ValueError:
        return None
    return read(model)


def broken(thing: Any, name: str, zoo: ModuleType) -> list[str]:
    """What is wrong with a thing on a model, by rule and by what came first."""
    plain, read, _ = made(name, zoo)
    alone, found = read(thing(plain)), []
    assert not torch.allclose(alone, read(made(name, zoo)[0])) or thing in (offloaded, quantized)
    for rule in RULES:
        for order in () if ruled(name, str(rule), zoo) is None else (first, later):
            try:
                told = order(thing, name, rule, alone, zoo)
            except Exception as error:
                told = f"{type(error).__name__}: {error}"
            found += [f"{rule}, {order.__name__}: {told}"] if told else []
    return found


def refused(call: Callable[..., Any], given: Any, reason: str) -> str:
    """What is wrong with a refusal."""
    try:
        call(*given)
    except ValueError as error:
        return "" if re.search(reason, str(error)) else f"refused by {error}"
    return "not refused"


def touched(thing: Any, name: str, rule: Any) -> bool:
    """Whether the rule computes what the thing stands on."""
    if isinstance(rule, TopK):  # of Hugging Face's only the attention function is another one
        return name == "timm" and "attention" in thing.__name__
    return True


def first(thing: Any, name: str, rule: Any, alone: Tensor, zoo: ModuleType) -> str:
    """The thing, then the rule, then `undo`."""
    model, read, library = made(name, zoo)
    model, reason = thing(model), THINGS[thing][0]
    if thing is offloaded and isinstance(rule, Semantic):
        reason = "its parameters are offloaded to meta, where Semantic cannot make new ones"
    out, before = read(model), standing(model)
    if reason and touched(thing, name, rule):
        told = refused(library.apply, (model, rule), reason)
        return told or ("" if standing(model) == before else "refused, but changed")
    library.apply(model, rule)
    found = read(model)
    if rule in NOTHING and not torch.allclose(found, alone, atol=1e-4):
        return f"lost: off by {(found - alone).abs().max()}"
    if torch.allclose(found, ruled(name, str(rule), zoo), atol=1e-5) and thing is not offloaded:
        return "lost under the rule"
    library.undo(model)
    if standing(model) != before:
        return "not as before after undo"
    return "" if torch.equal(read(model), out) else "another output after undo"


def later(thing: Any, name: str, rule: Any, alone: Tensor, zoo: ModuleType) -> str:
    """The rule, then the thing, then `undo`."""
    model, read, library = made(name, zoo)
    library.apply(model, rule)
    reason = THINGS[thing][1] if name == "timm" or not isinstance(rule, TopK) else ""
    model = thing(model)
    if reason:
        if told := refused(read, (model,), reason):
            return told
    else:
        found = read(model)
        if rule in NOTHING and not torch.allclose(found, alone, atol=1e-4):
            return f"lost: off by {(found - alone).abs().max()}"
        if not THINGS[thing][0] and not (thing is offloaded and isinstance(rule, Semantic)):
            other, _, _ = made(name, zoo)
            other = thing(other)
            library.apply(other, rule)
            if not torch.allclose(found, read(other), atol=1e-4):
                return "another output than the other way round"
    library.undo(model)
    return "" if torch.allclose(read(model), alone, atol=1e-6) else "another output after undo"


CELLS = [  # each thing on ViT and on another model
    pytest.param(thing, name, id=f"{thing.__name__}-{name}")
    for t, thing in enumerate(THINGS) for name in ("ViT", MODELS[1 + t % 3])
]  # fmt: skip


@pytest.mark.parametrize(("thing", "name"), CELLS)
def test_what_stands_on_a_model_is_kept_or_refused(thing: Any, name: str, zoo: ModuleType) -> None:
    assert broken(thing, name, zoo) == []


@pytest.mark.parametrize("thing", [function_around_a_layer, dispatched, dispatched_and_taken_off])
@pytest.mark.parametrize("name", ["ViT", "timm"])
def test_a_forward_that_is_overwritten_is_seen(thing: Any, name: str, zoo, monkeypatch) -> None:
    def put_on(module: Any, compute: Any) -> None:
        module.forward = functools.partial(compute, module)

    def take_off(module: Any) -> bool:
        return vars(module).pop("forward", None) is not None

    monkeypatch.setitem(globals(), "ruled", ruled.__wrapped__)
    for place in (token_hooks, token_layers, timm, hf_apply):
        for made in (put_on, take_off):
            monkeypatch.setattr(place, made.__name__, made, raising=False)
    for place in (token_hooks, timm, hf_apply):
        monkeypatch.setattr(place, "require_free", lambda *_: None)
    found = "\n".join(broken(thing, name, zoo))
    assert "first: " in found and "Merge(r=3)" in found


@pytest.mark.parametrize("rule", [Merge(3), TopK(0.5)], ids=str)
def test_layers_that_are_compiled_one_by_one(rule: Any, zoo: ModuleType) -> None:
    wanted, read, _ = made("ViT", zoo)
    hf_apply.apply(wanted, rule)
    for early in (True, False):
        model = made("ViT", zoo)[0]
        for compiled in (early, not early):
            if not compiled:
                hf_apply.apply(model, rule)
                continue
            for layer in layers_of(model):
                layer.compile(backend="eager")
            read(model)
        for _ in range(2):
            torch.testing.assert_close(read(model), read(wanted))
        hf_apply.undo(model)
        torch.testing.assert_close(read(model), read(made("ViT", zoo)[0]))


def test_configs_of_copied_layers_are_changed_and_restored_too(zoo: ModuleType) -> None:
    model, read, _ = made("ViT", zoo)
    model.vit.layers[1] = copy.deepcopy(model.vit.layers[1])  # with a config of its own
    before = read(model)
    hf_apply.apply(model, TopK(0.5))
    wanted, read, _ = made("ViT", zoo)
    hf_apply.apply(wanted, TopK(0.5))
    assert torch.equal(read(model), read(wanted))
    model.set_attn_implementation("eager")  # chosen after `apply`, and kept by `undo`
    hf_apply.undo(model)
    assert model.config._attn_implementation == "eager"
    torch.testing.assert_close(read(model), before)


@pytest.mark.parametrize("name", ["ViT", "BEiT"])
def test_layers_that_are_copied_after_topk_are_restored_too(name: str, zoo: ModuleType) -> None:
    model, read, room = made(name, zoo)
    before = read(model)
    room.apply(model, TopK(0.5))
    nearest = read(model)
    layers = next(part for part in model.modules() if isinstance(part, nn.ModuleList))
    for at, layer in enumerate(layers):
        layers[at] = copy.deepcopy(layer)
    assert torch.equal(read(model), nearest)
    room.undo(model)
    assert torch.equal(read(model), before)


def test_save_pretrained_of_another_library_is_kept(zoo: ModuleType, tmp_path: Any) -> None:
    model, saved = zoo.tiny("ViT"), []
    theirs = model.save_pretrained = lambda folder, **options: saved.append(options["state_dict"])
    hf_apply.apply(model, Merge(3))
    hf_apply.apply(model, TopK(0.5))
    model.save_pretrained(tmp_path)
    assert hf_apply.MARK in saved[0]
    hf_apply.undo(model)
    assert vars(model)["save_pretrained"] is theirs
    model.vit.semantic = nn.Identity()
    with pytest.raises(ValueError, match="model: has an attribute semantic of its own"):
        hf_apply.apply(model, Semantic(4, base=0))


def test_a_layer_that_runs_by_itself_is_named(zoo: ModuleType) -> None:
    model = zoo.tiny("ViT")
    hf_apply.apply(model, Merge(3))
    with pytest.raises(ValueError, match=r"model: layers\.2 ran after 0 of 2 layers before it"):
        model.vit.layers[2](torch.zeros(1, 17, 32))


@pytest.mark.parametrize("inner_first", [True, False])
@pytest.mark.parametrize("name", ["ViT", "Swin"])
def test_a_rule_of_a_part_of_the_model_is_not_overwritten(name, inner_first, zoo) -> None:
    model, read, _ = made(name, zoo)
    parts = [model.base_model, model]
    first, second = parts if inner_first else parts[::-1]
    plain = read(model)
    hf_apply.apply(first, Semantic(4, base=0))
    ruled, before = read(model), standing(model)
    with pytest.raises(ValueError, match="has a rule that was applied to a part of this"):
        hf_apply.apply(second, Semantic(1, base=0))
    assert standing(model) == before and torch.equal(read(model), ruled)
    hf_apply.apply(first, Semantic(1, base=0))  # its own is replaced
    hf_apply.undo(first)
    hf_apply.apply(second, Semantic(4, base=0))
    assert torch.equal(read(model), ruled)
    hf_apply.undo(second)
    assert torch.equal(read(model), plain)


class Hidden(nn.Module):
    """A map of low rank beside a linear one, without the attributes of that."""

    def __init__(self, base: nn.Linear) -> None:
        super().__init__()
        self.base = LowRank(base)

    def forward(self, x: Tensor) -> Tensor:
        return self.base(x)


@pytest.mark.parametrize("layers", [[0], [0, 1, 2]])
@pytest.mark.parametrize("rule", [TopK(0.5), Merge(3), Semantic(4, base=0)], ids=str)
def test_no_attention_is_passed_over_for_what_its_map_hides(layers, rule, zoo) -> None:
    found, changed = [], [f"blocks.{n}.attn" for n in range(3)] if rule == TopK(0.5) else []
    for kind in (Hidden, LowRank):
        model, read, _ = made("timm", zoo)
        torch.manual_seed(0)
        for number in layers:
            at = model.blocks[number].attn
            at.qkv = kind(at.qkv)
        assert timm.apply(model, rule) == changed
        found.append(read(model))
    assert torch.equal(*found)
