import json
import shutil
import subprocess
from typing import Any

import pytest


def printed_by_node(code: str) -> Any:
    """What JavaScript prints as JSON."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("needs node, which runs the page's script")
    said = subprocess.run([node, "-e", code], capture_output=True, text=True, check=True)
    return json.loads(said.stdout)
