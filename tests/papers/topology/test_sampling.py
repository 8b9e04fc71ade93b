from dataclasses import replace

from graphtheory.lab.zoo import node_models as zoo
from graphtheory.papers.topology.sampling import NAMES, SAMPLERS, candidates


def test_options_are_those_of_the_gcn_but_for_the_change() -> None:
    tried: tuple[dict[str, float], ...] = ({}, {"dropout": 0.5, "weight_decay": 5e-4})
    first, second = (one.trial for one in candidates("Cora", tried, 0.1, ("FastGCN",)))
    assert second.network == replace(first.network, dropout=0.5)
    assert second.optimizer == replace(first.optimizer, weight_decay=5e-4)


def test_every_sampler_and_variant_is_a_candidate_at_its_budget() -> None:
    found = candidates("Cora", ({},), 0.1)
    variants = [(name, variant) for name in NAMES for variant in SAMPLERS.get(name, ("",))]
    assert [(one.sampler, one.variant) for one in found] == variants
    for one in found:
        assert one.budget == (0.1 if one.sampler in SAMPLERS else 1.0)
        zoo.build(one.trial.model, zoo.NetworkConfig(), num_features=3, num_classes=2)
