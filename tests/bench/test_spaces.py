from math import prod

import pytest

from graphtheory.bench.spaces import DEFAULT, SPACES, Space, make_trial, space_of
from graphtheory.bench.trial import NodeTrial
from graphtheory.models import zoo

every_space = pytest.mark.parametrize("space", [*SPACES.values(), DEFAULT], ids=[*SPACES, "other"])
every_model = pytest.mark.parametrize("model", zoo.NAMES)


def flat(trial: NodeTrial) -> dict[str, object]:
    values = trial.as_dict()
    return (
        values["network"]
        | values["optimizer"]
        | values["sampling"]
        | {name: values[name] for name in ("degree", "row_scale")}
    )


@every_model
@every_space
def test_candidates_are_the_same_again_distinct_and_a_prefix(space: Space, model: str) -> None:
    four, eight = space.candidates(model, 4), space.candidates(model, 8)
    assert eight == space.candidates(model, 8)
    assert eight[:4] == four
    assert len(set(eight)) == len(eight)
    choices = prod(len(v) for v in (space.shared | space.extra.get(model, {})).values())
    assert len(eight) == min(8, choices)


@every_model
@every_space
def test_candidates_lie_in_the_space_and_can_be_built(space: Space, model: str) -> None:
    axes = space.shared | space.extra.get(model, {})
    for trial in space.candidates(model, 8):
        assert trial.model == model
        assert all(flat(trial)[name] in values for name, values in axes.items())
        zoo.build(model, trial.network, num_features=5, num_classes=3)
        zoo.pattern_of(model, trial.network)


@every_space
def test_the_common_axes_are_common(space: Space) -> None:
    for model in zoo.NAMES:
        own = space.extra.get(model, {})
        for name, values in own.items():
            common = space.shared.get(name, values)
            # An own axis narrows a common one, but for width and for what the name decides; those
            # that ours are compared with may have a wider one.
            wider = name in ("hidden", "residual") or not model.startswith("gt")
            assert set(values) <= set(common) or wider, (model, name)


@every_space
def test_plain_transformer_has_the_choices_of_the_encoded_one(space: Space) -> None:
    encoded, plain = dict(space.extra["gt"]), space.extra["gt-plain"]
    assert encoded.pop("bias_lr")  # which without encoding means nothing
    assert encoded == plain


@every_space
def test_every_value_is_drawn(space: Space) -> None:
    drawn = [flat(t) for t in space.candidates("gt", 60)]
    for name, values in (space.shared | space.extra["gt"]).items():
        assert {d[name] for d in drawn} == set(values)


def test_space_by_name_in_any_case() -> None:
    assert space_of("Cora") is SPACES["cora"]
    assert space_of("a graph of your own") is DEFAULT


def test_unknown_option() -> None:
    with pytest.raises(ValueError, match=r"options: unknown 'depth', expected some of .*layers"):
        make_trial("gt", depth=3)
    with pytest.raises(ValueError, match="lr: got -1"):
        make_trial("gt", lr=-1)


@every_space
def test_transformers_share_their_candidates_but_for_the_encoding(space: Space) -> None:
    encoded, plain = (space.candidates(model, 4) for model in ("gt", "gt-plain"))
    networks = {trial.network for trial in plain}
    assert all(trial.network in networks for trial in encoded)
