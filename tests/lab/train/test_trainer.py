import logging
import warnings

import pytest

from graphtheory.lab.train.fit import lean_trainer, quiet_lightning


def test_trainer_writes_nothing() -> None:
    with quiet_lightning():
        trainer = lean_trainer(3, [])
    assert trainer.max_epochs == 3
    assert not trainer.loggers and not trainer.checkpoint_callbacks


def test_quiet_is_only_inside_and_only_that() -> None:
    logger = logging.getLogger("lightning.pytorch")
    level = logger.level
    old = "`isinstance(treespec, LeafSpec)` is deprecated"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with quiet_lightning():
            assert not logger.isEnabledFor(logging.INFO) and logger.isEnabledFor(logging.WARNING)
            warnings.warn(old, FutureWarning, stacklevel=1)
            with pytest.raises(UserWarning, match="anything else"):
                warnings.warn("anything else", UserWarning, stacklevel=1)
        with pytest.raises(FutureWarning):
            warnings.warn(old, FutureWarning, stacklevel=1)
    assert logger.level == level


def test_a_level_that_is_quieter_still_is_kept() -> None:
    logger = logging.getLogger("lightning.pytorch")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    with quiet_lightning():
        assert logger.level == logging.CRITICAL
    logger.setLevel(level)
