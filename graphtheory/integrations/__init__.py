"""Models of PyG, Hugging Face transformers and timm, computed by `ops`."""
