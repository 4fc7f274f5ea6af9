"""Times of the ops beside their peers: `python -m benchmarks.run` measures, `benchmarks/render.py` makes tables."""
