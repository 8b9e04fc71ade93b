"""Models of Hugging Face transformers and timm, computed by `ops`."""
