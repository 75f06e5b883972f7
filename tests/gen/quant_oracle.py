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
    if t == T.Q6_K:
        b[:, 208:210] = d
    elif t in (T.Q4_0, T.Q5_0, T.Q8_0):
        b[:, 0:2] = d
    return b


for t, n in ((T.Q4_0, 24), (T.Q5_0, 24), (T.Q8_0, 24), (T.Q6_K, 6)):
    b = blocks(t, n)
    raw(f"decode.{t.name}.in", b)
    w.add_tensor(f"decode.{t.name}.out", quants.dequantize(b, t).astype(np.float32).reshape(-1))

x = (rng.standard_normal(4096) * np.exp2(rng.integers(-30, 17, 4096 // 32).repeat(32))).astype(np.float32)
x[64:96] = 0  # a block of zeros
x[96:128] = np.where(rng.integers(0, 2, 32), 3, -3)  # all of one magnitude
x[128:160] *= 0
x[140] = -7
w.add_tensor("encode.in", x)
raw("encode.F16.out", x.astype(np.float16))
raw("encode.BF16.out", quants.quantize(x, T.BF16))
raw("encode.Q8_0.out", quants.quantize(x, T.Q8_0))


def nibble_levels(x, half):
    """Q4_0 (half 8) and Q5_0 (half 16) with the multiply-add fused, as the format says; f64
    holds the product of two floats exactly."""
    b = x.reshape(-1, 32)
    m = np.take_along_axis(b, np.abs(b).argmax(1)[:, None], 1)
    d = m / np.float32(-half)
    with np.errstate(divide="ignore"):
        inv = np.where(d == 0, np.float32(0), np.float32(1) / d)
    q = np.trunc((b.astype(np.float64) * inv + (half + 0.5)).astype(np.float32))
    return d.astype(np.float16).view(np.uint8), np.minimum(q, 2 * half - 1).astype(np.uint8)


d, q = nibble_levels(x, 8)
raw("encode.Q4_0.out", np.concatenate([d, q[:, :16] | q[:, 16:] << 4], 1))
d, q = nibble_levels(x, 16)
qh = np.packbits(q >> 4, axis=1, bitorder="little")
raw("encode.Q5_0.out", np.concatenate([d, qh, (q[:, :16] & 15) | (q[:, 16:] & 15) << 4], 1))

w.write_header_to_file()
w.write_kv_data_to_file()
w.write_tensors_to_file()
w.close()
