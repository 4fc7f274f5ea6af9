"""The ways to load a model that the demo compares: stock PyTorch, and the package through its public API."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Setup:
    """One column of the table."""

    title: str
    attention: str
    packed: bool = False  # whether it loads the MXFP8 checkpoint of the model

    def kernels(self, model) -> dict | None:
        """Returns which modules call this package's kernels, as they were counted, or None for stock PyTorch."""
        if self.attention != "mtl4":
            return None
        import torch_mtl4

        report = torch_mtl4.report(model)
        return {
            "attention": [sum(m.ready for m in report.attention), len(report.attention)],
            "weights": [sum(m.ready for m in report.weights), len(report.weights)],
            "attention_calls": report.fused_calls,
            "other_attention_calls": report.unfused_calls,
            "reasons": sorted({m.reason for m in report.modules if m.reason}),
        }


SETUPS = {
    "stock": Setup("stock PyTorch", "sdpa"),
    "attention": Setup("mtl4 attention", "mtl4"),
    "mxfp8": Setup("mtl4 + mxfp8 weights", "mtl4", packed=True),
}
