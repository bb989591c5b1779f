#!/usr/bin/env python3
"""Writes blocks.bin: random blocks of every type and what the `gguf` package decodes them to.

One record a block, little-endian: u32 ggml type, u32 block bytes, u32 count of numbers, the block, then the
numbers as f32. Plain types are written as one "block" of 16 numbers.

    pip install gguf numpy && python3 make_blocks.py
"""

import pathlib
import struct

import gguf
import numpy as np

TYPES = "F32 F16 BF16 Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 Q2_K Q3_K Q4_K Q5_K Q6_K IQ4_NL".split()
# Where the half-precision scales of a block lie.
SCALES = {
    "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0], "IQ4_NL": [0],
    "Q2_K": [80, 82], "Q3_K": [108], "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208],
}
rng = np.random.default_rng(20240607)


def random_block(name: str, size: int, extreme: bool) -> np.ndarray:
    block = rng.integers(0, 256, size, dtype=np.uint8)
    for at in SCALES.get(name, []):
        scale = np.float16(6.1e-6 if extreme else rng.normal() * 0.02)
        block[at : at + 2] = np.frombuffer(scale.tobytes(), dtype=np.uint8)
    return block


def main() -> None:
    out = bytearray()
    for name in TYPES:
        kind = gguf.GGMLQuantizationType[name]
        length, size = gguf.GGML_QUANT_SIZES[kind]
        if length == 1:
            length, size = 16, 16 * size
        for i in range(3):
            block = random_block(name, size, extreme=i == 2)
            if name in ("F32", "F16", "BF16"):
                numbers = rng.normal(size=16).astype(np.float32)
                block = gguf.quants.quantize(numbers, kind).view(np.uint8).reshape(-1)
            decoded = gguf.quants.dequantize(block, kind).astype(np.float32).reshape(-1)
            assert decoded.size == length and block.size == size and np.isfinite(decoded).all()
            out += struct.pack("<III", kind, size, length) + block.tobytes() + decoded.astype("<f4").tobytes()
    pathlib.Path(__file__).with_name("blocks.bin").write_bytes(out)


if __name__ == "__main__":
    main()
