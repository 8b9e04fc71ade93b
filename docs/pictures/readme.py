"""Draws readme.png: test accuracy of five models by README's command for your own data.

graphtheory bench --data mine.pt --seeds 3 --epochs 60    # whose results.csv is bench-readme.csv
python docs/pictures/readme.py
"""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

MODELS = {
    "mlp": "mlp", "gat": "gat", "gcn": "gcn", "gt-plain": "gt-plain, without the bias",
    "gt": "gt, a bias per distance",
}  # fmt: skip

if __name__ == "__main__":
    draw = runpy.run_path(str(Path(__file__).with_name("bench.py")))["main"]
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).with_name("readme.png")
    draw(path, "bench-readme", MODELS, seeds=3)
