#!/usr/bin/env python3
"""golden-quants.py: blocks of every weight type and their values, by the gguf package.

Usage: scripts/golden-quants.py tests/golden/quants.bin

For development only: needs numpy and gguf. Where the package can quantize, one row of the file is a
quantized sine-like row; another is random bytes with finite scales, so that every code occurs. Per
row: u32 type number, u32 number of values, the blocks, the values as f32 (little endian).
"""
import sys

import numpy as np
from gguf import quants
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType as T

VALUES = 1024
PLAIN_VALUES = 256

# Where the f16 scales of a block are.
SCALES = {
    T.Q8_0: [0], T.Q4_0: [0], T.Q4_1: [0, 2], T.Q5_0: [0], T.Q5_1: [0, 2], T.IQ4_NL: [0],
    T.MXFP4: [], T.Q2_K: [80, 82], T.Q3_K: [108], T.Q4_K: [0, 2], T.Q5_K: [0, 2], T.Q6_K: [208],
    T.IQ4_XS: [0],
}


def random_blocks(kind, rng, values):
    block, size = GGML_QUANT_SIZES[kind]
    blocks = rng.integers(0, 256, (values // block, size), dtype=np.uint8)
    for at in SCALES[kind]:
        scale = (rng.standard_normal(len(blocks)) * 0.05).astype(np.float16)
        blocks[:, at:at + 2] = scale.view(np.uint8).reshape(-1, 2)
    if kind == T.MXFP4:
        blocks[:, 0] = np.where(blocks[:, 0] > 250, 120, blocks[:, 0])
        blocks[:2, 0] = [0, 1]  # denormal scales
    return blocks.reshape(-1)


def main():
    rng = np.random.default_rng(2026)
    plain = (rng.standard_normal(PLAIN_VALUES) * 0.7).astype(np.float32)
    wave = (np.sin(np.arange(VALUES) * 0.37) * rng.uniform(0.01, 2, VALUES)).astype(np.float32)
    with open(sys.argv[1], "wb") as out:
        def row(kind, data):
            values = quants.dequantize(data, kind).astype(np.float32).reshape(-1)
            out.write(np.array([kind, values.size], dtype="<u4").tobytes())
            out.write(data.tobytes())
            out.write(values.astype("<f4").tobytes())

        for kind in (T.F32, T.F16, T.BF16):
            row(kind, quants.quantize(plain, kind).view(np.uint8).reshape(-1)
                if kind == T.BF16 else
                plain if kind == T.F32 else plain.astype(np.float16))
        for kind in SCALES:
            row(kind, random_blocks(kind, rng, VALUES))
            try:
                row(kind, quants.quantize(wave, kind).reshape(-1))
            except NotImplementedError:
                pass


main()
