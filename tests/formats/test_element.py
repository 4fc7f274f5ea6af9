"""Element formats against tables written out from the specification, independently of torch's own float8 type."""

import math

import pytest
import torch

from torch_mtl4 import testing
from torch_mtl4.formats import E4M3, ElementFormat

ALL_CODES = torch.arange(256).to(torch.uint8)


def e4m3_by_hand(code):
    """OFP8 v1.0, table 2: one sign, four exponent bits with bias 7, three mantissa bits, S.1111.111 is NaN."""
    bits = f"{code:08b}"
    sign, exponent, mantissa = -1.0 if bits[0] == "1" else 1.0, int(bits[1:5], 2), int(bits[5:], 2)
    if exponent == 15 and mantissa == 7:
        return math.nan
    if exponent == 0:
        return sign * mantissa / 8 * 2**-6
    return sign * (1 + mantissa / 8) * 2.0 ** (exponent - 7)


def test_every_code_stands_for_what_the_specification_says():
    want = torch.tensor([e4m3_by_hand(code) for code in range(256)], dtype=torch.float64)
    testing.assert_equal(E4M3.values(), want)
    testing.assert_equal(E4M3.decode(ALL_CODES), want)


def test_named_values():
    assert E4M3.max == 448 and E4M3.max_exponent == 8 and E4M3.bias == 7 and E4M3.sign == 0x80
    assert [E4M3.value(code) for code in range(1, 9)] == [k * 2**-9 for k in range(1, 9)]
    assert E4M3.value(0x08) == 0.015625 and E4M3.value(0x7E) == 448 and math.isnan(E4M3.value(0xFF))


def test_torch_reads_the_same_table():
    testing.assert_equal(ALL_CODES.view(torch.float8_e4m3fn).float(), E4M3.values().float())


def test_encode_inverts_decode():
    codes = E4M3.encode(E4M3.values())
    want = ALL_CODES.clone()
    want[0xFF] = 0x7F  # one code of NaN
    testing.assert_equal(codes, want)


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_midpoints_go_to_the_even_code_and_their_neighbours_to_the_nearest(sign):
    values = E4M3.values()[:0x7F]
    middle = (values[1:] + values[:-1]) / 2
    low = torch.arange(0x7E)
    flip = 0x80 if sign < 0 else 0
    below = torch.nextafter(middle, torch.tensor(-math.inf, dtype=torch.float64))
    above = torch.nextafter(middle, torch.tensor(math.inf, dtype=torch.float64))
    testing.assert_equal(E4M3.encode(sign * middle), (low + low % 2 | flip).to(torch.uint8), "midpoint")
    testing.assert_equal(E4M3.encode(sign * below), (low | flip).to(torch.uint8), "below")
    testing.assert_equal(E4M3.encode(sign * above), (low + 1 | flip).to(torch.uint8), "above")


def test_overflow_saturates_and_nan_stays_nan():
    x = torch.tensor([448.0, 449.0, 464.0, 465.0, 1e30, math.inf, -math.inf, math.nan, -0.0, 0.0])
    want = torch.tensor([0x7E] * 6 + [0xFE, 0x7F, 0x80, 0x00], dtype=torch.uint8)
    testing.assert_equal(E4M3.encode(x), want)


def test_a_format_without_nan():
    # The shape is open: e2m1 of OCP MX v1.0, section 5.3.3, has eight magnitudes and no NaN.
    e2m1 = ElementFormat("e2m1", exponent_bits=2, mantissa_bits=1, nan=None)
    assert e2m1.values()[:8].tolist() == [0, 0.5, 1, 1.5, 2, 3, 4, 6] and e2m1.max == 6 and e2m1.max_exponent == 2
    x = torch.tensor([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0, 7.0, -1.25, 0.2500001])
    assert e2m1.decode(e2m1.encode(x)).tolist() == [0, 1, 1, 2, 2, 4, 4, 6, -1, 0.5]
