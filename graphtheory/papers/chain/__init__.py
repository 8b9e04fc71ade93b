"""Li (2024), chapter 7 and appendix F: chain of thought."""
