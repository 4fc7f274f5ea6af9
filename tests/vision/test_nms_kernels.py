"""The Metal kernels of non-maximum suppression in the MSL runner: watched, against references, and broken."""

import pytest
import torch

from tests.vision.boxes import RECORDED, clusters, recorded
from tests.vision.mutants import mutant, noticed, without_barrier
from torch_mtl4.custom import on_cpu, runner
from torch_mtl4.custom.source import INLINE
from torch_mtl4.reference import nms as reference
from torch_mtl4.testing import LAYOUTS, lay_out
from torch_mtl4.vision import kernels
from torch_mtl4.vision.nms import by_kernels

EDGES = (1, 2, 31, 32, 33, 63, 64, 65, 95, 129, 257)


def stages(n: int, dtype: torch.dtype = torch.float32, seed: int = 0):
    """The inputs of the three kernels."""
    boxes, scores, idxs = clusters(n, seed, dtype)
    order = kernels.nms_order(scores)
    overlapping = (boxes, order, idxs.int(), torch.tensor([0.3]))
    return {
        kernels.nms_order: (scores,),
        kernels.nms_overlaps: overlapping,
        kernels.nms_scan: (kernels.nms_overlaps(*overlapping), order),
    }


@pytest.mark.parametrize("n", EDGES)
def test_watched_at_the_edges_of_words_and_groups(n):
    for kernel, inputs in stages(n).items():
        assert (report := kernel.check(*inputs)), report


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_watched_in_other_dtypes(dtype):
    for kernel, inputs in stages(70, dtype).items():
        assert (report := kernel.check(*inputs)), report


@pytest.mark.parametrize("layout", LAYOUTS)
def test_watched_in_every_layout(layout):
    for kernel, inputs in stages(40).items():
        laid_out = [lay_out(t, layout) if isinstance(t, torch.Tensor) else t for t in inputs]
        assert (report := kernel.check(*laid_out)), report


def test_what_torchvision_answers():
    for case in RECORDED:
        boxes, scores, idxs = recorded(case)
        if boxes.dtype == torch.float32:
            for given, name in ((None, "kept"), (idxs, "kept_of_categories")):
                with on_cpu("msl"):
                    indices, count = by_kernels(boxes, scores, case["iou_threshold"], given)
                kept = indices[: count.item()].tolist()
                assert (kept if given is None else sorted(kept)) == case[name], case["about"]
                assert (indices[count.item() :] == -1).all()


@pytest.mark.parametrize("n", [1000, 3000])
def test_many_boxes(n):
    boxes, scores, idxs = clusters(n)
    with on_cpu("msl"):
        result = by_kernels(boxes, scores, 0.3, idxs)
    for got, want in zip(result, reference.nms_padded(boxes, scores, 0.3, idxs), strict=True):
        assert torch.equal(got, want)


def test_a_word_of_every_thread_and_more():
    # More than 512 words, so that threads of the scan have a second one, without the overlaps of 270 million pairs.
    n = 32 * 520 + 7
    words = (n + 31) // 32
    overlaps = torch.zeros(n, words, dtype=torch.int32)
    overlaps[0, 515] = -(1 << 31)
    overlaps[3, words - 1] = 1 << 6
    overlaps[32 * 515 + 31, words - 1] = 1 << 5  # which itself is dropped by the first box
    overlaps[40, 1] = 1 << 9
    order = torch.arange(n, dtype=torch.int32).flip(0)
    with on_cpu("msl"):
        indices, count = kernels.nms_scan(overlaps.flatten(), order)
    dropped = [41, 32 * 515 + 31, n - 1]
    want = order[[i for i in range(n) if i not in dropped]]
    assert count.item() == n - 3 and torch.equal(indices[:-3], want) and indices[-3:].tolist() == [-1] * 3


def test_the_form_for_torchs_stream():
    for kernel, inputs in stages(70).items():
        values = kernel.signature.bind(inputs, {})
        results = kernel.launcher.results(values)
        outputs = {
            n: torch.empty(r.shape, dtype=r.dtype) for n, r in zip(kernel.signature.outputs, results, strict=True)
        }
        named = dict(zip((i.name for i in kernel.signature.inputs), values, strict=True))
        specialized = kernel.specialize(values, results)
        library = runner.library(specialized, INLINE, checked=True)
        operands = {name: named[name] for name in kernel.signature.tensors} | outputs
        launch = kernel.launcher.launch(named | outputs)
        assert not runner.dispatch(library, specialized, operands, launch, INLINE).report
        given = kernel.reference(*values)
        given = (given,) if isinstance(given, torch.Tensor) else given
        for got, want in zip(outputs.values(), given, strict=True):
            assert torch.equal(got, want), kernel.name


BARRIERS = [(kernels.nms_overlaps, 0), *((kernels.nms_scan, i) for i in range(4))]


@pytest.mark.parametrize(("kernel", "which"), BARRIERS, ids=lambda value: getattr(value, "name", value))
def test_a_missing_barrier_is_noticed(kernel, which):
    assert noticed(without_barrier(kernel, which), *stages(129)[kernel])


def test_every_barrier_is_among_those():
    for kernel in (kernels.nms_order, kernels.nms_overlaps, kernels.nms_scan):
        count = sum(1 for k, _ in BARRIERS if k is kernel)
        assert kernel.definition.source.count("threadgroup_barrier") == count


MUTATIONS = [
    (kernels.nms_order, "other < int(box)", "other <= int(box)"),
    (kernels.nms_order, "other_key > key", "other_key >= key"),
    (kernels.nms_order, "int(box) < n", "int(box) <= n"),
    (kernels.nms_overlaps, "first + int(thread_in_group) < n", "first + int(thread_in_group) <= n"),
    (kernels.nms_overlaps, "thread_in_group < 32", "thread_in_group < 31"),
    (kernels.nms_overlaps, "row < n", "row <= n"),
    (kernels.nms_overlaps, "row < first + 31", "row < first"),
    (kernels.nms_overlaps, "row + 1 - first", "row - first"),
    (kernels.nms_overlaps, "min(32, n - first)", "32"),
    (kernels.nms_overlaps, "category == later_category[b] && ", ""),
    (kernels.nms_overlaps, "boxes[2, box]", "boxes[1, box]"),
    (kernels.nms_scan, "first + b < n", "first + b <= n"),
    (kernels.nms_scan, "gone >> i & 1", "row >> i & 1"),
    (kernels.nms_scan, "uint gone = removed[word];", "uint gone = 0;"),
    (kernels.nms_scan, "(1u << (n - first)) - 1", "0xffffffff"),
    (kernels.nms_scan, "(1u << b) - 1", "(2u << b) - 1"),
    (kernels.nms_scan, "uint suppressed = removed[later];", "uint suppressed = 0;"),
    (kernels.nms_scan, "later = word + 1 + t", "later = word + 2 + t"),
    (kernels.nms_scan, "at = total + t", "at = total + t + 1"),
]


@pytest.mark.parametrize(("kernel", "old", "new"), MUTATIONS)
def test_a_wrong_index_is_noticed(kernel, old, new):
    assert noticed(mutant(kernel, old, new), *stages(129)[kernel])
