"""Fields of a block of text as numbers, all at once: the same values as `int` and `float` give one by one.

Eight characters are loaded as one word of 64 bits, little end first: the first character is the lowest byte. What is
not of the plain form (digits; digits with a point; these with an exponent of two digits) is left to `int` and `float`.
"""

from __future__ import annotations

import contextlib
import math

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
Positions = NDArray[np.int64]
Words = NDArray[np.uint64]
Floats = NDArray[np.float64]

MISSING = -1
"""A whole number that is not there."""

LARGEST = 2.0**53
"""Up to which a float holds every whole number."""

PADDING = 32
"""Bytes before and after a block that can be loaded together with it."""

WORD = 8
LARGEST_WHOLE = 2**63 - 1


def _all(byte: int) -> np.uint64:
    return np.uint64(byte * 0x0101010101010101)


ZEROS, TOP_BITS, BEYOND_NINE = _all(ord("0")), _all(0x80), _all(0x80 - 10)
LAST = np.array([0, *((2**64 - 1) ^ (2 ** (64 - 8 * n) - 1) for n in range(1, 9))], dtype=np.uint64)
"""Masks of the last n characters of a word."""

FIRST = np.array([2 ** (8 * n) - 1 for n in range(9)], dtype=np.uint64)
"""Masks of the first n characters."""

EIGHT, SIXTEEN, THIRTY_TWO = np.uint64(8), np.uint64(16), np.uint64(32)
TEN, BYTES_0_4 = np.uint64(10), np.uint64(0x000000FF000000FF)
ONES_AND_MYRIADS, HUNDREDS_AND_MILLIONS = np.uint64(1 + (10**4 << 32)), np.uint64(100 + (10**6 << 32))
TEN_8, TEN_16 = np.uint64(10**8), np.uint64(10**16)

MOST_POWER = 22
"""The largest power of ten that a float holds exactly."""

POWERS = 10.0 ** np.arange(MOST_POWER + 1)
WHOLE_POWERS = np.array([10**n if n < 20 else 0 for n in range(MOST_POWER + 1)], dtype=np.uint64)
LARGEST_MANTISSA = 9.0e18
SPLITTER = 2.0**27 + 1
HIGH_POWERS = POWERS * SPLITTER - (POWERS * SPLITTER - POWERS)
LOW_POWERS = POWERS - HIGH_POWERS
DOUBT = 2.0**-95
"""Relative error, far above the true one, within which a quotient must not be near the middle of two floats."""

EXPONENT = 4
"""Characters of an exponent such as e-05."""


def words_at(text: Bytes, positions: Positions) -> Words:
    """The eight characters from each position on."""
    loaded: Words = np.ndarray((len(text) - WORD + 1,), "<u8", text.data, strides=(1,))[positions]
    return loaded


def keys(text: Bytes, begin: Positions, end: Positions) -> Words:
    """Each field of up to eight characters as a number of its own, as `key` gives it; others as the highest number."""
    length = end - begin
    found = words_at(text, begin) & FIRST[np.minimum(length, WORD)]
    return np.where(length <= WORD, found, np.uint64(2**64 - 1))


def key(word: str) -> int:
    """The number that stands for a word in `keys`."""
    return int.from_bytes(word.encode(), "little")


def wholes(text: Bytes, begin: Positions, end: Positions) -> NDArray[np.int64]:
    """Whole numbers; -1 where a field is none."""
    length = end - begin
    found, plain = _digits(text, end, length, int(length.max(initial=0)))
    values = found.view(np.int64)
    plain &= (length > 0) & (length <= 2 * WORD)
    if not plain.all():
        values[length == 0] = MISSING
        for row in np.flatnonzero(~plain & (length > 0)).tolist():
            values[row] = whole(bytes(text[begin[row] : end[row]]).decode("utf-8", "replace"))
    return values


def floats(text: Bytes, begin: Positions, point: Positions, end: Positions) -> Floats:
    """Numbers; NaN where a field is none. `point`: where its only point is, or `end` where it has none."""
    if not (end > begin).any():
        return np.full(len(begin), np.nan)
    values, sure = _plain_floats(text, begin, point, end, np.zeros(1, dtype=np.int64))
    if not sure.all():
        values[end == begin] = np.nan
        rest = np.flatnonzero(~sure & (end > begin))
        rest = rest[~_with_exponents(values, rest, text, begin, point, end)]
        negative = rest[text[begin[rest]] == ord("-")]
        found, sure = _plain_floats(
            text, begin[negative] + 1, point[negative], end[negative], np.zeros(1, dtype=np.int64)
        )
        values[negative[sure]] = -found[sure]
        rest = np.setdiff1d(rest, negative[sure])
        for row in rest.tolist():
            values[row] = number(bytes(text[begin[row] : end[row]]).decode("utf-8", "replace"))
    return values


def whole(text: str) -> int:
    """One whole number, also where it is written as a float; -1 where it is none, or too large."""
    with contextlib.suppress(ValueError):
        value = int(text)
        return value if -LARGEST_WHOLE <= value <= LARGEST_WHOLE else MISSING
    floating = number(text)
    return int(floating) if abs(floating) < LARGEST and floating % 1 == 0 else MISSING


def number(text: str) -> float:
    """One number; NaN where it is none."""
    try:
        return float(text)
    except ValueError:
        return math.nan


def _digits(text: Bytes, end: Positions, length: Positions, longest: int) -> tuple[Words, NDArray[np.bool_]]:
    """The last 16 characters of fields as a number, and where they are digits only."""
    found, strange = _eight(text, end, length)
    if longest > WORD:
        more, more_strange = _eight(text, end - WORD, np.maximum(length - WORD, 0))
        found += more * TEN_8
        strange |= more_strange
    return found, strange == 0


def _eight(text: Bytes, end: Positions, length: Positions) -> tuple[Words, Words]:
    """Up to eight digits before `end` as a number; not 0 in the second array: not all are digits."""
    value = words_at(text, end - WORD)
    value ^= ZEROS
    value &= LAST[np.minimum(length, WORD)]
    strange = value + BEYOND_NINE
    strange |= value
    strange &= TOP_BITS
    # Two digits, then four, then eight at once.
    pairs = value * TEN
    value >>= EIGHT
    pairs += value
    high = pairs >> SIXTEEN
    high &= BYTES_0_4
    high *= ONES_AND_MYRIADS
    pairs &= BYTES_0_4
    pairs *= HUNDREDS_AND_MILLIONS
    pairs += high
    pairs >>= THIRTY_TWO
    return pairs, strange


def _plain_floats(
    text: Bytes, begin: Positions, point: Positions, end: Positions, exponent: Positions
) -> tuple[Floats, NDArray[np.bool_]]:
    """Numbers of digits with at most one point, times ten to the exponent; and where they are surely right."""
    before, decimals = point - begin, np.maximum(end - point - 1, 0)
    mantissa, plain = _digits(text, end, decimals, int(decimals.max(initial=0)))
    integer, plain_integer = _digits(text, point, before, int(before.max(initial=0)))
    plain &= plain_integer
    plain &= (before + decimals > 0) & (before <= 2 * WORD) & (decimals <= MOST_POWER)
    power = np.clip(decimals, 0, MOST_POWER)
    size = integer.astype(np.float64) * POWERS[power]
    long = decimals > 2 * WORD
    if long.any():
        rows = np.flatnonzero(long & plain)
        more, strange = _eight(text, end[rows] - 2 * WORD, np.minimum(decimals[rows] - 2 * WORD, WORD))
        mantissa[rows] += more * TEN_16
        size[rows] += more.astype(np.float64) * 1e16
        plain[rows] &= strange == 0
    plain &= size < LARGEST_MANTISSA
    mantissa += integer * WHOLE_POWERS[power]
    scale = decimals - exponent
    plain &= (scale >= 0) & (scale <= MOST_POWER)
    mantissa *= plain
    values, sure = _divided(mantissa, np.clip(scale, 0, MOST_POWER))
    sure &= plain
    return values, sure


def _divided(mantissa: Words, power: Positions) -> tuple[Floats, NDArray[np.bool_]]:
    """Whole numbers divided by powers of ten, and where the result is surely the nearest float."""
    high = mantissa.astype(np.float64)
    low = (mantissa - high.astype(np.uint64)).view(np.int64).astype(np.float64)
    divisor = POWERS[power]
    quotient = high / divisor
    # The remainder, exact except for a rounding far below a digit of the quotient: the product of quotient and divisor
    # is the sum of two floats (Dekker's product), and the first of them is near `high`.
    product = quotient * divisor
    part = quotient * SPLITTER
    first = part - (part - quotient)
    second = quotient - first
    divisor_first, divisor_second = HIGH_POWERS[power], LOW_POWERS[power]
    error = first * divisor_first - product
    error += first * divisor_second
    error += second * divisor_first
    error += second * divisor_second
    remainder = high - product
    remainder -= error
    remainder += low
    remainder /= divisor
    doubt = quotient * DOUBT
    found = quotient + (remainder + doubt)
    sure = found == quotient + (remainder - doubt)
    return found, sure


def _with_exponents(
    values: Floats, rows: Positions, text: Bytes, begin: Positions, point: Positions, end: Positions
) -> NDArray[np.bool_]:
    """Fill in those of these rows that end as e-05 does; which ones."""
    begin, point, end = begin[rows], point[rows], end[rows]
    tail = end - EXPONENT
    sign = text[tail + 1]
    tens, ones = text[tail + 2].astype(np.int64) - ord("0"), text[tail + 3].astype(np.int64) - ord("0")
    fits: NDArray[np.bool_] = (tail > begin) & (text[tail] == ord("e")) & ((sign == ord("-")) | (sign == ord("+")))
    fits &= (tens >= 0) & (tens <= 9) & (ones >= 0) & (ones <= 9)
    exponent = np.where(sign == ord("-"), -1, 1) * (10 * tens + ones)
    if fits.any():
        found, sure = _plain_floats(text, begin[fits], np.minimum(point[fits], tail[fits]), tail[fits], exponent[fits])
        values[rows[fits][sure]] = found[sure]
        fits[np.flatnonzero(fits)[~sure]] = False
    return fits
