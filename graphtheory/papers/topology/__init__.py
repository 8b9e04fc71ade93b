"""Li (2024), chapter 5: graph topology sampling."""
