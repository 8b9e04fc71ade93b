"""Li (2024), chapter 6 and appendix E: in-context learning."""
