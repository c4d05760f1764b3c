"""Lanes: a number for each of SIDE_BY_SIDE entities, which are computed at once.

In plain Python lanes are a row of an array. Compiled they are one vector, which stays in registers.
"""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic, models, overload, register_model

from fedhlcr.kernels.compiling import kernel

# Entities that are computed at once.
SIDE_BY_SIDE = 8
# Bytes that a processor loads from memory at once.
CACHE_LINE = 64


# Lanes: a number for each of SIDE_BY_SIDE entities. In plain Python they are a row of an array. Compiled they are one
# vector, which stays in registers. Loops over entities would not do: the compiler does not turn them into vectors,
# because it cannot know that arrays do not overlap.


class LanesType(types.Type):
    """The type of lanes in compiled code."""

    def __init__(self):
        super().__init__(name=f"Lanes({SIDE_BY_SIDE})")


_LANES = LanesType()
_VECTOR = ir.VectorType(ir.DoubleType(), SIDE_BY_SIDE)
# Products and sums may be fused. Other orders of operations are not allowed: a product with an inverse would become a
# division, which takes much longer.
_FLAGS = ("contract", "nsz")
# mypy does not know that compiled code calls intrinsics without their first argument
_intrinsic: Any = intrinsic


@register_model(LanesType)
class _LanesModel(models.PrimitiveModel):
    def __init__(self, manager, lanes_type):
        super().__init__(manager, lanes_type, _VECTOR)


def load(array, index):
    """Lanes from a row of an array (..., SIDE_BY_SIDE)."""
    return array[index].copy()


def store(array, index, lanes):
    """Write lanes to a row of an array."""
    array[index] = lanes


def spread(value):
    """The same number in every lane."""
    return np.full(SIDE_BY_SIDE, value)


def inverse_root(lanes):
    """1/√x in every lane."""
    return 1.0 / np.sqrt(lanes)


def larger(lanes, others):
    """The larger one in every lane."""
    return np.maximum(lanes, others)


def prefetch(array, row):
    """Ask for a row of an array (rows, n) that will be needed soon, and go on; changes nothing."""


def _row_pointer(context, builder, array_type, array, index_type, index):
    """The address of a row of lanes."""
    array = context.make_array(array_type)(context, builder, array)
    positions = [index]
    kinds = [index_type]
    if isinstance(index_type, types.BaseTuple):
        positions = cgutils.unpack_tuple(builder, index)
        kinds = index_type.types
    positions = [context.cast(builder, *of, types.intp) for of in zip(positions, kinds, strict=True)]
    positions.append(context.get_constant(types.intp, 0))
    pointer = cgutils.get_item_pointer(context, builder, array_type, array, positions)
    return builder.bitcast(pointer, _VECTOR.as_pointer())


@_intrinsic
def _load(_, array, index):
    def generate(context, builder, signature, args):
        pointer = _row_pointer(context, builder, signature.args[0], args[0], signature.args[1], args[1])
        return builder.load(pointer, align=8)

    return _LANES(array, index), generate


@_intrinsic
def _prefetch(_, array, row):
    def generate(context, builder, signature, args):
        array = context.make_array(signature.args[0])(context, builder, args[0])
        size = builder.extract_value(array.strides, 0)
        byte = ir.IntType(8).as_pointer()
        word = ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [byte, word, word, word])
        fetch = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
        # to read, into the second-level cache, data
        options = [ir.Constant(word, option) for option in (0, 2, 1)]
        start = builder.gep(builder.bitcast(array.data, byte), [builder.mul(args[1], size)])
        line = ir.Constant(size.type, CACHE_LINE)
        with cgutils.for_range(builder, builder.udiv(size, line), intp=size.type) as lines:
            builder.call(fetch, [builder.gep(start, [builder.mul(lines.index, line)]), *options])
        return context.get_dummy_value()

    return types.void(array, row), generate


@_intrinsic
def _store(_, array, index, lanes):
    def generate(context, builder, signature, args):
        pointer = _row_pointer(context, builder, signature.args[0], args[0], signature.args[1], args[1])
        builder.store(args[2], pointer, align=8)
        return context.get_dummy_value()

    return types.void(array, index, lanes), generate


@_intrinsic
def _spread(_, value):
    def generate(_, builder, __, args):
        nothing = ir.Constant(_VECTOR, ir.Undefined)
        zero = ir.Constant(ir.IntType(32), 0)
        single = builder.insert_element(nothing, args[0], zero)
        return builder.shuffle_vector(single, nothing, ir.Constant(ir.VectorType(zero.type, SIDE_BY_SIDE), None))

    return _LANES(value), generate


@_intrinsic
def _inverse_root(_, lanes):
    def generate(_, builder, __, args):
        root_type = ir.FunctionType(_VECTOR, [_VECTOR])
        root = cgutils.get_or_insert_function(builder.module, root_type, f"llvm.sqrt.v{SIDE_BY_SIDE}f64")
        one = ir.Constant(_VECTOR, [1.0] * SIDE_BY_SIDE)
        return builder.fdiv(one, builder.call(root, args), flags=_FLAGS)

    return _LANES(lanes), generate


@_intrinsic
def _larger(_, lanes, others):
    def generate(_, builder, __, args):
        return builder.select(builder.fcmp_ordered(">", *args), *args)

    return _LANES(lanes, others), generate


overload(load)(lambda array, index: lambda array, index: _load(array, index))  # noqa: ARG005
overload(store)(lambda array, index, lanes: lambda array, index, lanes: _store(array, index, lanes))  # noqa: ARG005
overload(prefetch)(lambda array, row: lambda array, row: _prefetch(array, row))  # noqa: ARG005
overload(spread)(lambda value: lambda value: _spread(value))  # noqa: ARG005
overload(inverse_root)(lambda lanes: lambda lanes: _inverse_root(lanes))  # noqa: ARG005
overload(larger)(lambda lanes, others: lambda lanes, others: _larger(lanes, others))  # noqa: ARG005


def _compile_operator(symbol, instruction):
    """Let compiled code apply an operator to lanes, or to a number and lanes."""

    @_intrinsic
    def apply(_, left, right):
        def generate(_, builder, __, args):
            return getattr(builder, instruction)(*args, flags=_FLAGS)

        return _LANES(left, right), generate

    @overload(symbol)
    def choose(left, right):
        if left == _LANES and right == _LANES:
            return lambda left, right: apply(left, right)
        if left == types.float64 and right == _LANES:
            return lambda left, right: apply(_spread(left), right)
        return None


_compile_operator(operator.add, "fadd")
_compile_operator(operator.sub, "fsub")
_compile_operator(operator.mul, "fmul")


@kernel
def empty_lanes(n_rows):
    """(n_rows, lanes) scratch space; rows begin with a cache line, without which they take twice as long to load."""
    flat = np.empty(n_rows * SIDE_BY_SIDE + CACHE_LINE // 8)
    start = (-flat.ctypes.data % CACHE_LINE) // 8
    return flat[start : start + n_rows * SIDE_BY_SIDE].reshape(n_rows, SIDE_BY_SIDE)


@kernel
def load_four(array, index):
    """Lanes from rows (g, r, i), (g, r + 1, i), … of an array; `index` is (g, r, i)."""
    g, r, i = index
    return load(array, (g, r, i)), load(array, (g, r + 1, i)), load(array, (g, r + 2, i)), load(array, (g, r + 3, i))


@kernel
def store_four(array, index, a, b, c, d):
    """Write lanes to the same rows."""
    g, r, i = index
    store(array, (g, r, i), a)
    store(array, (g, r + 1, i), b)
    store(array, (g, r + 2, i), c)
    store(array, (g, r + 3, i), d)


@kernel
def cholesky_lanes(b):
    """Replace the lower triangle of B = I + a positive semi-definite matrix by its Cholesky factor, in each lane.

    b is (n, n, groups, lanes). The diagonal holds the inverses of the factor's diagonal, because all that follows
    divides by it.
    """
    n = b.shape[0]
    for group in range(b.shape[2]):
        for j in range(n):
            pivot = load(b, (j, j, group))
            for t in range(j):
                pivot = pivot - load(b, (j, t, group)) * load(b, (j, t, group))
            # without rounding errors the pivot is at least 1
            inverse = inverse_root(larger(pivot, spread(1.0)))
            store(b, (j, j, group), inverse)
            # two rows at once, because a sum must wait for its last summand
            for i in range(j + 1, n, 2):
                k = min(i + 1, n - 1)
                left = load(b, (i, j, group))
                other = load(b, (k, j, group))
                for t in range(j):
                    factor = load(b, (j, t, group))
                    left = left - factor * load(b, (i, t, group))
                    other = other - factor * load(b, (k, t, group))
                store(b, (i, j, group), inverse * left)
                store(b, (k, j, group), inverse * other)
