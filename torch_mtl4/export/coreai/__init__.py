"""Export to Core AI. Importing this loads coreai-torch; `pip install 'torch_mtl4[coreai]'` brings it."""
