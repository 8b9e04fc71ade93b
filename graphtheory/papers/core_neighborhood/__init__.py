"""Li (2024), chapter 3 and appendix B: graph transformers with distance encoding."""
