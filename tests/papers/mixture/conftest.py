"""What tests of the figures of chapter 4 share."""

from typing import Any


def row(value: float, seed: int, **entries: Any) -> dict[str, Any]:
    return {"learner": "a", "value": value, "seed": seed, "ended": True} | entries
