"""XXH32, the sum that LZ4 streams carry (xxHash specification, section XXH32)."""

import struct

_P1, _P2, _P3, _P4, _P5 = 0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D, 0x27D4EB2F, 0x165667B1
_MASK = 0xFFFFFFFF
_STRIPE = 16


def xxh32(data: bytes, seed: int) -> int:
    """The 32-bit xxHash of some bytes."""
    striped = len(data) - len(data) % _STRIPE
    if striped:
        lanes = [(seed + _P1 + _P2) & _MASK, (seed + _P2) & _MASK, seed & _MASK, (seed - _P1) & _MASK]
        for words in struct.iter_unpack("<4I", data[:striped]):
            lanes = [_round(lane, word) for lane, word in zip(lanes, words, strict=True)]
        turns = zip(lanes, (1, 7, 12, 18), strict=True)
        total = sum(_rotated(lane, bits) for lane, bits in turns)
    else:
        total = seed + _P5
    total = (total + len(data)) & _MASK
    worded = len(data) - len(data) % 4
    for (word,) in struct.iter_unpack("<I", data[striped:worded]):
        total = _rotated((total + word * _P3) & _MASK, 17) * _P4 & _MASK
    for byte in data[worded:]:
        total = _rotated((total + byte * _P5) & _MASK, 11) * _P1 & _MASK
    total = (total ^ total >> 15) * _P2 & _MASK
    total = (total ^ total >> 13) * _P3 & _MASK
    return total ^ total >> 16


def _round(lane: int, word: int) -> int:
    return _rotated((lane + word * _P2) & _MASK, 13) * _P1 & _MASK


def _rotated(value: int, bits: int) -> int:
    return (value << bits | value >> (32 - bits)) & _MASK
