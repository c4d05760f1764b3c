"""Keyed uniform random numbers in lanes: those of `keyed_uniforms`, for several keys at once.

The compiler does not find out that the words of a counter have 32 bits, for which processors multiply vectors.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic, overload

from fedhlcr.kernels.lanes import SIDE_BY_SIDE
from fedhlcr.kernels.uniforms import (
    MASK,
    MULTIPLIER_0,
    MULTIPLIER_1,
    ROUNDS,
    SHIFT,
    WEYL_0,
    WEYL_1,
    keyed_uniforms,
)

_WORDS, _NUMBERS = (ir.VectorType(of, SIDE_BY_SIDE) for of in (ir.IntType(64), ir.DoubleType()))
# mypy does not know that compiled code calls intrinsics without their first argument
_intrinsic: Any = intrinsic


def uniform_lanes(streams, keys, round_number, purpose, out, row):
    """Write the first two numbers of `keyed_uniforms` in each lane to out[0, row] and out[1, row].

    Streams and keys are (lanes,), `out` is (2, rows, lanes).
    """
    for lane in range(SIDE_BY_SIDE):
        out[0, row, lane], out[1, row, lane], _ = keyed_uniforms(streams[lane], keys[lane], round_number, purpose)


@_intrinsic
def _uniform_lanes(_, streams, keys, round_number, purpose, out, row):  # noqa: ARG001
    def generate(context, builder, signature, args):
        arrays = [context.make_array(signature.args[i])(context, builder, args[i]) for i in (0, 1, 4)]
        stream, key = (builder.load(builder.bitcast(of.data, _WORDS.as_pointer()), align=8) for of in arrays[:2])
        mask = _words(MASK)
        shift = _words(SHIFT)
        counter = [builder.and_(key, mask), builder.lshr(key, shift), *(_spread(builder, word) for word in args[2:4])]
        words = _philox(builder, counter, [builder.and_(stream, mask), builder.lshr(stream, shift)])
        for position, lanes in enumerate(_uniforms(builder, *words[:3])):
            place = [args[5].type(position), args[5], args[5].type(0)]
            pointer = cgutils.get_item_pointer(context, builder, signature.args[4], arrays[2], place)
            builder.store(lanes, builder.bitcast(pointer, _NUMBERS.as_pointer()), align=8)
        return context.get_dummy_value()

    return types.void(streams, keys, types.uint64, types.uint64, out, types.intp), generate


@overload(uniform_lanes)
def _compile_uniform_lanes(streams, keys, round_number, purpose, out, row):  # noqa: ARG001
    return lambda streams, keys, round_number, purpose, out, row: _uniform_lanes(
        streams, keys, np.uint64(round_number), purpose, out, row
    )


def _words(value):
    return ir.Constant(_WORDS, [int(value)] * SIDE_BY_SIDE)


def _numbers(value):
    return ir.Constant(_NUMBERS, [float(value)] * SIDE_BY_SIDE)


def _spread(builder, word):
    nothing = ir.Constant(_WORDS, ir.Undefined)
    zero = ir.IntType(32)(0)
    single = builder.insert_element(nothing, word, zero)
    return builder.shuffle_vector(single, nothing, ir.Constant(ir.VectorType(zero.type, SIDE_BY_SIDE), None))


def _philox(builder, counter, key):
    """`uniforms.philox` in each lane."""
    (c0, c1, c2, c3), (k0, k1), mask, shift = counter, key, _words(MASK), _words(SHIFT)
    for _ in range(ROUNDS):
        # the compiler must see that words have 32 bits
        product_0 = builder.mul(_words(MULTIPLIER_0), builder.and_(c0, mask))
        product_1 = builder.mul(_words(MULTIPLIER_1), builder.and_(c2, mask))
        c0 = builder.xor(builder.xor(builder.lshr(product_1, shift), c1), k0)
        c2 = builder.xor(builder.xor(builder.lshr(product_0, shift), c3), k1)
        c1 = builder.and_(product_1, mask)
        c3 = builder.and_(product_0, mask)
        k0 = builder.and_(builder.add(k0, _words(WEYL_0)), mask)
        k1 = builder.and_(builder.add(k1, _words(WEYL_1)), mask)
    return c0, c1, c2, c3


def _uniforms(builder, a, b, c):
    """The first two numbers of `keyed_uniforms` from the words of a counter; powers of two divide without rounding."""
    high, low, other = (
        builder.uitofp(of, _NUMBERS) for of in (builder.lshr(a, _words(5)), builder.lshr(b, _words(6)), c)
    )
    fine = builder.fadd(builder.fadd(builder.fmul(high, _numbers(2.0**26)), low), _numbers(0.5))
    coarse = builder.fadd(other, _numbers(0.5))
    return builder.fmul(fine, _numbers(2.0**-53)), builder.fmul(coarse, _numbers(2.0**-32))
