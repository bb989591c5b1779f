"""Reads a GGUF file: its metadata, and its tensors dequantized to f32.

The block layouts are those of ggml; the tests compare them with the `gguf` package.
"""

import struct
from pathlib import Path

import numpy as np

_SCALARS = {0: "<u1", 1: "<i1", 2: "<u2", 3: "<i2", 4: "<u4", 5: "<i4", 6: "<f4", 7: "?", 10: "<u8",
            11: "<i8", 12: "<f8"}
_STRING, _ARRAY = 8, 9


def _half(raw, at):
    return raw[:, at:at + 2].copy().view("<f2").astype(np.float32)


def _nibbles(raw):
    """Low nibbles of all bytes, then the high ones: [n, k] to [n, 2k]."""
    return np.concatenate([raw & 15, raw >> 4], 1)


def _high_bits(raw):
    """Bit i of a little-endian u32, for i = 0..31: [n, 4] to [n, 32]."""
    word = raw.copy().view("<u4")
    return ((word >> np.arange(32, dtype=np.uint32)) & 1).astype(np.uint8)


def _q4_0(raw):
    return _half(raw, 0) * (_nibbles(raw[:, 2:18]).astype(np.float32) - 8)


def _q4_1(raw):
    return _half(raw, 0) * _nibbles(raw[:, 4:20]).astype(np.float32) + _half(raw, 2)


def _q5_0(raw):
    q = _nibbles(raw[:, 6:22]) | (_high_bits(raw[:, 2:6]) << 4)
    return _half(raw, 0) * (q.astype(np.float32) - 16)


def _q5_1(raw):
    q = _nibbles(raw[:, 8:24]) | (_high_bits(raw[:, 4:8]) << 4)
    return _half(raw, 0) * q.astype(np.float32) + _half(raw, 2)


def _q8_0(raw):
    return _half(raw, 0) * raw[:, 2:34].copy().view(np.int8).astype(np.float32)


def _k_scales(raw):
    """The eight 6-bit scales and eight 6-bit minima packed in 12 bytes: two [n, 8]."""
    a, b, c = raw[:, 0:4], raw[:, 4:8], raw[:, 8:12]
    scales = np.concatenate([a & 63, (c & 15) | ((a >> 6) << 4)], 1)
    minima = np.concatenate([b & 63, (c >> 4) | ((b >> 6) << 4)], 1)
    return scales.astype(np.float32), minima.astype(np.float32)


def _k_nibbles(raw):
    """Four runs of 32 bytes, each two sub-blocks of 32 (low nibbles first): [n, 128] to [n, 8, 32]."""
    runs = raw.reshape(len(raw), 4, 1, 32)
    return np.concatenate([runs & 15, runs >> 4], 2).reshape(len(raw), 8, 32)


def _q4_k(raw):
    scales, minima = _k_scales(raw[:, 4:16])
    d, low = _half(raw, 0) * scales, _half(raw, 2) * minima
    return (d[:, :, None] * _k_nibbles(raw[:, 16:144]) - low[:, :, None]).reshape(len(raw), 256)


def _q5_k(raw):
    scales, minima = _k_scales(raw[:, 4:16])
    d, low = _half(raw, 0) * scales, _half(raw, 2) * minima
    high = (raw[:, None, 16:48] >> np.arange(8, dtype=np.uint8)[None, :, None]) & 1
    q = _k_nibbles(raw[:, 48:176]) | (high << 4)
    return (d[:, :, None] * q - low[:, :, None]).reshape(len(raw), 256)


def _q6_k(raw):
    n = len(raw)
    low = raw[:, 0:128].reshape(n, 2, 1, 64)
    low = np.concatenate([low & 15, low >> 4], 2).reshape(n, 2, 4, 32)
    high = (raw[:, 128:192].reshape(n, 2, 1, 32) >> np.array([0, 2, 4, 6], np.uint8)[None, None, :, None]) & 3
    q = (low | (high << 4)).astype(np.float32).reshape(n, 16, 16) - 32
    scales = raw[:, 192:208].copy().view(np.int8).astype(np.float32)
    return ((_half(raw, 208) * scales)[:, :, None] * q).reshape(n, 256)


# ggml type id: (name, values a block, bytes a block, dequantizer)
BLOCKS = {
    0: ("F32", 1, 4, lambda raw: raw.copy().view("<f4")),
    1: ("F16", 1, 2, lambda raw: raw.copy().view("<f2").astype(np.float32)),
    2: ("Q4_0", 32, 18, _q4_0), 3: ("Q4_1", 32, 20, _q4_1),
    6: ("Q5_0", 32, 22, _q5_0), 7: ("Q5_1", 32, 24, _q5_1), 8: ("Q8_0", 32, 34, _q8_0),
    12: ("Q4_K", 256, 144, _q4_k), 13: ("Q5_K", 256, 176, _q5_k), 14: ("Q6_K", 256, 210, _q6_k),
    30: ("BF16", 1, 2, lambda raw: (raw.copy().view("<u2").astype(np.uint32) << 16).view("<f4")),
}


class GgufFile:
    """`fields`: metadata by key. `tensors`: (shape with rows first, ggml type, offset) by name."""

    def __init__(self, path):
        self.path = Path(path)
        self._data = np.memmap(path, dtype=np.uint8, mode="r")
        self._at = 0
        if bytes(self._data[:4]) != b"GGUF":
            raise ValueError(f"{path}: not a GGUF file")
        self._at = 4
        version = self._scalar(4)
        if version not in (2, 3):
            raise ValueError(f"{path}: GGUF version {version} is not supported")
        n_tensors, n_fields = self._scalar(10), self._scalar(10)
        self.fields = {self._string(): self._value(self._scalar(4)) for _ in range(n_fields)}
        self.tensors = {}
        for _ in range(n_tensors):
            name = self._string()
            shape = [int(self._scalar(10)) for _ in range(self._scalar(4))]
            kind, offset = self._scalar(4), self._scalar(10)
            self.tensors[name] = (shape[::-1], kind, int(offset))
        align = int(self.fields.get("general.alignment", 32))
        self._base = (self._at + align - 1) // align * align

    def _take(self, n):
        if self._at + n > len(self._data):
            raise ValueError(f"{self.path}: ends inside its header")
        self._at += n
        return self._data[self._at - n:self._at]

    def _scalar(self, kind):
        dtype = np.dtype(_SCALARS[kind])
        return self._take(dtype.itemsize).view(dtype)[0].item()

    def _string(self):
        length = struct.unpack("<Q", self._take(8))[0]
        return bytes(self._take(length)).decode("utf-8", "replace")

    def _value(self, kind):
        if kind == _STRING:
            return self._string()
        if kind != _ARRAY:
            return self._scalar(kind)
        inner, n = self._scalar(4), self._scalar(10)
        if inner in (_STRING, _ARRAY):
            return [self._value(inner) for _ in range(n)]
        dtype = np.dtype(_SCALARS[inner])
        return self._take(n * dtype.itemsize).view(dtype).tolist()

    def tensor(self, name):
        """One tensor as f32, rows first."""
        shape, kind, offset = self.tensors[name]
        if kind not in BLOCKS:
            raise ValueError(f"{self.path}: tensor {name} has ggml type {kind}, which is not supported")
        _, values, size, dequantize = BLOCKS[kind]
        count = int(np.prod(shape))
        start = self._base + offset
        raw = np.asarray(self._data[start:start + count // values * size]).reshape(-1, size)
        return dequantize(raw).astype(np.float32, copy=False).reshape(shape)
