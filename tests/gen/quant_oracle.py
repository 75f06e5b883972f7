#!/usr/bin/env python3
"""Writes tests/golden/quant/oracle.gguf: what Python's gguf package makes of our block types.

For each type T: `decode.T.in` (raw blocks, as I8) and `decode.T.out` (F32), and for those the
package can encode, `encode.in` (F32) and `encode.T.out` (raw, as I8).  Needs gguf and numpy.
"""
import sys

import gguf
import numpy as np
from gguf import GGMLQuantizationType as T
from gguf import quants

rng = np.random.default_rng(7)
w = gguf.GGUFWriter(sys.argv[1] if len(sys.argv) > 1 else "tests/golden/quant/oracle.gguf", "oracle")


def raw(name, a):
    w.add_tensor(name, np.frombuffer(a.tobytes(), np.int8))


def blocks(t, n):
    """Random bytes with sane f16 scales: every level and every packed bit occurs."""
    size = gguf.GGML_QUANT_SIZES[t][1]
    b = rng.integers(0, 256, (n, size), np.uint8)
    d = (rng.standard_normal(n) * 0.1).astype(np.float16).view(np.uint8).reshape(n, 2)
    at = {T.Q6_K: 208, T.Q2_K: 80, T.Q3_K: 108}.get(t, 0)
    b[:, at:at + 2] = d
    if t in MINIMA:
        b[:, at + 2:at + 4] = (rng.standard_normal(n) * 0.1).astype(np.float16).view(np.uint8).reshape(n, 2)
    return b


MINIMA = (T.Q4_1, T.Q5_1, T.Q2_K, T.Q4_K, T.Q5_K)
SMALL = (T.Q4_0, T.Q5_0, T.Q8_0, T.Q4_1, T.Q5_1, T.IQ4_NL)
LARGE = (T.Q6_K, T.Q2_K, T.Q3_K, T.Q4_K, T.Q5_K, T.IQ4_XS)
for t in SMALL + LARGE:
    b = blocks(t, 24 if t in SMALL else 6)
    b[1] = 0  # all levels the lowest, scale 0
    b[2] = np.where(np.arange(b.shape[1]) % 2, 0x7B, 0xFF)  # the largest finite scale or near it
    raw(f"decode.{t.name}.in", b)
    w.add_tensor(f"decode.{t.name}.out", quants.dequantize(b, t).astype(np.float32).reshape(-1))

x = (rng.standard_normal(4096) * np.exp2(rng.integers(-30, 17, 4096 // 32).repeat(32))).astype(np.float32)
x[64:96] = 0  # a block of zeros
x[96:128] = np.where(rng.integers(0, 2, 32), 3, -3)  # all of one magnitude
x[128:160] *= 0
x[140] = -7
x[160:192] = 1.25  # constants
x[192:224] = -3
x[224:256] = 1e-8
x[230] = 100  # one outlier
x[1024:2048] = rng.integers(-64, 65, 1024) / 64  # exact halves between levels
w.add_tensor("encode.in", x)
raw("encode.F16.out", x.astype(np.float16))
raw("encode.BF16.out", quants.quantize(x, T.BF16))
for t in (T.Q8_0, T.Q4_0, T.Q4_1, T.Q5_0, T.Q5_1):
    raw(f"encode.{t.name}.out", quants.quantize(x, t))

w.write_header_to_file()
w.write_kv_data_to_file()
w.write_tensors_to_file()
w.close()
