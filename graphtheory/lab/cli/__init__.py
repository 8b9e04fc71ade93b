"""The command line, `graphtheory`: a module for each command, and what they share."""

from typing import TYPE_CHECKING

from graphtheory.lazy import import_when_used

if TYPE_CHECKING:
    from graphtheory.lab.cli.main import main, script

import_when_used(__name__)

__all__ = ["main", "script"]
