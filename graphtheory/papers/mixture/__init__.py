"""Li (2024), chapter 4 and appendix C: group imbalance."""
