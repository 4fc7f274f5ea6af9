"""Run lengths of masks: by hand, as pycocotools 2.0.11 encodes them, and by the kernel in the MSL runner."""

import inspect

import pytest
import torch

from tests.vision.mutants import mutant, noticed, without_barrier
from torch_mtl4 import vision
from torch_mtl4.custom import on_cpu
from torch_mtl4.reference import masks as reference
from torch_mtl4.testing import LAYOUTS, lay_out, randn
from torch_mtl4.vision import kernels

WAYS = pytest.mark.parametrize("way", ["reference", "msl"])


def masks_of(*shape: int, above: float = 0.0) -> torch.Tensor:
    return (randn(*shape) > above).to(torch.uint8)


def rectangle(height: int, width: int, top: int, bottom: int, left: int, right: int) -> torch.Tensor:
    mask = torch.zeros(1, height, width, dtype=torch.uint8)
    mask[:, top:bottom, left:right] = 1
    return mask


@WAYS
def test_values_by_hand(way):
    mask = torch.tensor([[0, 1, 1], [0, 1, 0]])  # columns 00 11 10
    masks = torch.stack((mask, 1 - mask, torch.zeros(2, 3), torch.ones(2, 3)))
    with on_cpu(way):
        assert vision.encode_rle(masks) == [[2, 3, 1], [0, 2, 3, 1], [6], [0, 6]]
        counts, runs = vision.encode_rle_padded(masks, 3)
    assert counts.tolist() == [[2, 3, 1], [0, 2, 3], [6, 0, 0], [0, 6, 0]] and runs.tolist() == [3, 4, 1, 2]
    assert counts.dtype == runs.dtype == torch.int32


@WAYS
@pytest.mark.parametrize(
    ("mask", "text"),
    [
        (torch.zeros(1, 5, 7), b"S1"),
        (torch.ones(1, 5, 7), b"0S1"),
        (rectangle(5, 7, 1, 4, 2, 5), b";320009"),
        (rectangle(12, 10, 3, 9, 2, 7), b"k0660000000Q1"),
        (rectangle(400, 300, 100, 103, 50, 53), b"Tdc03]<000\\\\P3"),
    ],
    ids=["zeros", "ones", "small", "larger", "large"],
)
def test_what_pycocotools_encodes(way, mask, text):
    with on_cpu(way):
        (encoded,) = vision.coco_rle(mask)
    assert encoded == {"size": list(mask.shape[1:]), "counts": text}


def decoded(text: bytes) -> list[int]:
    """The counts of a compressed text, by the rules of maskApi.c's rleFrString."""
    counts, value, shift = [], 0, 0
    for character in text:
        bits = character - 48
        value |= (bits & 31) << shift
        shift += 5
        if not bits & 32:
            value -= (1 << shift) if bits & 16 else 0
            counts.append(value + (counts[-2] if len(counts) > 2 else 0))
            value = shift = 0
    return counts


@pytest.mark.parametrize("mask", [masks_of(1, 60, 50, above=x) for x in (-3.0, 0.0, 2.0)], ids=["few", "half", "many"])
def test_compressed_texts_are_read_back(mask):
    (encoded,) = vision.coco_rle(mask)
    assert decoded(encoded["counts"]) == reference.encode_rle(mask)[0]


@WAYS
@pytest.mark.parametrize(
    "shape", [(1, 1, 1), (2, 1, 40), (2, 40, 1), (3, 33, 65), (2, 3, 511), (2, 3, 513), (1, 2, 1100)]
)
def test_any_size(way, shape):
    masks = masks_of(*shape)
    runs = reference.encode_rle(masks)
    with on_cpu(way):
        assert vision.encode_rle(masks) == runs
        for capacity in {1, max(1, max(map(len, runs)) - 1), max(map(len, runs)), shape[1] * shape[2] + 1}:
            for got, want in zip(
                vision.encode_rle_padded(masks, capacity), reference.encode_rle_padded(masks, capacity), strict=True
            ):
                assert torch.equal(got, want)


@WAYS
def test_more_runs_than_a_first_attempt_has_room_for(way):
    masks = torch.stack((torch.arange(50 * 60).view(50, 60) % 2, torch.zeros(50, 60))).to(torch.uint8)
    with on_cpu(way):
        assert vision.encode_rle(masks) == reference.encode_rle(masks)


@WAYS
@pytest.mark.parametrize("dtype", [torch.bool, torch.float32, torch.int64], ids=str)
def test_any_dtype(way, dtype):
    masks = masks_of(2, 9, 8)
    given = masks.to(dtype) if dtype == torch.bool else (masks * 300).to(dtype)
    with on_cpu(way):
        assert vision.encode_rle(given) == reference.encode_rle(masks)


def test_no_masks():
    assert vision.encode_rle(torch.zeros(0, 3, 4)) == vision.coco_rle(torch.zeros(0, 3, 4)) == []
    counts, runs = vision.encode_rle_padded(torch.zeros(0, 3, 4), 5)
    assert counts.shape == (0, 5) and runs.shape == (0,)


@pytest.mark.parametrize("capacity", [1, 40, 700])
@pytest.mark.parametrize("shape", [(2, 9, 65), (1, 2, 1100), (1, 33, 1)])
def test_watched(shape, capacity):
    assert (report := kernels.encode_rle.check(masks_of(*shape), [capacity])), report


@pytest.mark.parametrize("layout", LAYOUTS)
def test_watched_in_every_layout(layout):
    assert (report := kernels.encode_rle.check(lay_out(masks_of(3, 9, 11), layout), [50])), report


MUTATED = torch.cat((masks_of(1, 3, 1100), torch.zeros(1, 3, 1100, dtype=torch.uint8)))


@pytest.mark.parametrize("which", [0, 1])
def test_a_missing_barrier_is_noticed(which):
    assert noticed(without_barrier(kernels.encode_rle, which), MUTATED, [2000])


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("height - 1, mask", "0, mask"),
        ("first > 0 && ", ""),
        ("other < t", "other <= t"),
        ("min(first + columns, width)", "first + columns"),
        ("if (changes[other] > 0) ", ""),
        ("start = change;", ""),
        ("if (run < capacity) counts[run, mask] = change", "counts[run, mask] = change"),
        ("t == THREADS - 1", "t == 0"),
        ("int i = total + t", "int i = total + t + 1"),
        ("previous = before;\nfor (int x = first; mine", "for (int x = first; mine"),
    ],
)
def test_a_wrong_index_is_noticed(old, new):
    broken = mutant(kernels.encode_rle, old, new)
    assert noticed(broken, MUTATED, [1000 if "capacity" in old else 2500])


MASKS = masks_of(2, 3, 4)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((MASKS, 0), ValueError, r"expected capacity of at least 1, got 0"),
        ((MASKS, 2.0), TypeError, r"expected capacity a whole number, got float"),
        ((MASKS[0], 5), ValueError, r"expected masks \[B, H, W\], got \[3, 4\]"),
        ((MASKS[:, :0], 5), ValueError, r"expected masks \[..., H, W\] with pixels, got \[2, 0, 4\]"),
        ((MASKS.tolist(), 5), TypeError, r"expected masks a torch.Tensor, got list"),
    ],
)
def test_errors(arguments, error, message):
    with pytest.raises(error, match=f"^encode_rle_padded: {message}"):
        vision.encode_rle_padded(*arguments)
    if "masks" in message:
        for name in ("encode_rle", "coco_rle"):
            with pytest.raises(error, match=f"^{name}: {message}"):
                getattr(vision, name)(arguments[0])


@pytest.mark.parametrize("name", ["encode_rle", "encode_rle_padded"])
def test_reference_has_the_signature(name):
    assert inspect.signature(getattr(reference, name)) == inspect.signature(getattr(vision, name))
