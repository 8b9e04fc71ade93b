from graphtheory.papers.icl.studies import STUDIES, quick


def test_steps_of_a_study_differ_and_a_first_look_is_shorter() -> None:
    for study in STUDIES.values():
        steps = study.steps()
        keys = [repr(step.settings) for step in steps]
        assert len(set(keys)) == len(keys)
        first = quick(study)
        assert first.seeds == 2 and len(first.steps()) <= len(steps)
