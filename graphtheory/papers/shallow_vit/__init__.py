"""Li (2024), chapter 2: the shallow vision transformer."""
