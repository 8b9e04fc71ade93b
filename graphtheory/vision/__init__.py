"""Images and token sequences as graphs: ViT, Swin, STViT, ViG, GPT, token reduction."""
