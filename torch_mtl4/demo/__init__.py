"""The demo: stock PyTorch beside torch_mtl4 on real weights (`python -m torch_mtl4 demo`)."""
