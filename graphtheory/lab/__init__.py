"""Data sets, training, benchmarks, reports, commands; the extra `lab` installs their packages."""

import sys
from importlib.util import find_spec

_PACKAGES = {
    "lightning": "lightning", "matplotlib": "matplotlib", "networkx": "networkx", "ogb": "ogb",
    "optuna": "optuna", "rich": "rich", "sklearn": "scikit-learn", "torchmetrics": "torchmetrics",
    "tyro": "tyro",
}  # fmt: skip


def require(what: str) -> None:
    """Refuse `what` where a package of the extra `lab` is not installed.

    Raises:
        ImportError: Naming the packages that are missing and the command that installs them.
    """
    missing = [name for module, name in _PACKAGES.items() if find_spec(module) is None]
    if missing:
        raise ImportError(
            f"{what} needs {', '.join(missing)}, which the extra 'lab' installs: "
            "pip install 'pyg-graphtheory[lab]'"
        )


def script() -> None:
    """Run the command line `graphtheory`."""
    try:
        require("the command graphtheory")
    except ImportError as missing:
        sys.exit(str(missing))
    from graphtheory.lab.cli import script as run

    run()
