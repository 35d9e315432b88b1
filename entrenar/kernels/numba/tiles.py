"""Matrix products in pieces too small, or too oddly bounded, for a call of BLAS: tiles with the sums in registers.

Goto and van de Geijn 2008, section 4: operands are packed first, so that a tile reads memory in order.  The tile is
written as LLVM vector instructions since the loop vectoriser doesn't keep so many sums in registers; at depth 64 it
runs at the processor's peak.  Everything is in contiguous 1-d arrays, matrices are positions in them.
"""

from __future__ import annotations

import platform
from collections.abc import Callable
from typing import Any, NamedTuple

import llvmlite.binding as llvm
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from .compiling import keep
from .jit import OPTIONS

FEATURES = llvm.get_host_cpu_features()
BYTES = 64 if FEATURES.get("avx512f") else 32 if FEATURES.get("avx2") else 16  # of a vector register
# Rows of a tile, and registers per row: sums fill half of the registers, 32 with AVX-512 and on ARM, else 16.
ROWS, ACROSS = (8, 2) if BYTES == 64 else (4, 4) if platform.machine() in ("aarch64", "arm64") else (4, 2)


def columns(itemsize: int) -> int:
    """Columns of a tile, for elements of that size: a multiple of ROWS."""
    return ACROSS * BYTES // itemsize


def _tile(
    typing: Any,
    c: Any,
    at_c: Any,
    row_c: Any,
    a: Any,
    at_a: Any,
    row_a: Any,
    column_a: Any,
    b: Any,
    at_b: Any,
    row_b: Any,
    depth: Any,
    add: Any,
) -> Any:
    """c = a b, or c += a b if ``add``: c is (ROWS, columns), a (ROWS, depth), b (depth, columns).

    Each is part of a contiguous 1-d array of one float dtype: its first element is number ``at``, its rows are ``row``
    elements apart and those of a row adjacent, but ``column_a`` apart in a, which may so be a transposed view.
    """
    n = types.int64
    signature = types.void(c, n, n, a, n, n, n, b, n, n, n, types.boolean)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        _, at_c, row_c, _, at_a, row_a, column_a, _, at_b, row_b, depth, add = args
        element = context.get_value_type(signature.args[0].dtype)
        size = context.get_abi_sizeof(element)
        lanes = BYTES // size
        vector = ir.VectorType(element, lanes)
        word, half = ir.IntType(64), ir.IntType(32)

        def data(i: int) -> Any:
            return context.make_array(signature.args[i])(context, builder, args[i]).data

        def at(pointer: Any, index: Any) -> Any:
            return builder.gep(pointer, [index])

        def load(pointer: Any) -> Any:
            return builder.load(builder.bitcast(pointer, vector.as_pointer()), align=size)

        def spread(scalar: Any) -> Any:
            undefined = ir.Constant(vector, ir.Undefined)
            one = builder.insert_element(undefined, scalar, half(0))
            return builder.shuffle_vector(one, undefined, ir.Constant(ir.VectorType(half, lanes), [0] * lanes))

        name = f"llvm.fmuladd.v{lanes}{'f32' if size == 4 else 'f64'}"
        multiply_add = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(vector, [vector, vector, vector]), name
        )
        rows_a = [at(data(3), builder.add(at_a, builder.mul(row_a, word(i)))) for i in range(ROWS)]
        rows_c = [at(data(0), builder.add(at_c, builder.mul(row_c, word(i)))) for i in range(ROWS)]
        begin_b = at(data(7), at_b)
        cells = [(i, v) for i in range(ROWS) for v in range(ACROSS)]

        entry = builder.block
        loop, end = builder.append_basic_block("tile.loop"), builder.append_basic_block("tile.end")
        zero = ir.Constant(vector, None)
        builder.cbranch(builder.icmp_signed(">", depth, word(0)), loop, end)
        builder.position_at_end(loop)
        k, index_a, index_b = builder.phi(word), builder.phi(word), builder.phi(word)
        sums = [builder.phi(vector) for _ in cells]
        here = at(begin_b, index_b)
        b_row = [load(at(here, word(v * lanes))) for v in range(ACROSS)]
        a_column = [spread(builder.load(at(pointer, index_a))) for pointer in rows_a]
        new = [builder.call(multiply_add, [a_column[i], b_row[v], s]) for (i, v), s in zip(cells, sums, strict=True)]
        following = [builder.add(k, word(1)), builder.add(index_a, column_a), builder.add(index_b, row_b)]
        for phi, value in zip((k, index_a, index_b), following, strict=True):
            phi.add_incoming(word(0), entry)
            phi.add_incoming(value, loop)
        for phi, value in zip(sums, new, strict=True):
            phi.add_incoming(zero, entry)
            phi.add_incoming(value, loop)
        builder.cbranch(builder.icmp_signed("<", following[0], depth), loop, end)

        builder.position_at_end(end)
        results = [builder.phi(vector) for _ in cells]
        for phi, value in zip(results, new, strict=True):
            phi.add_incoming(zero, entry)
            phi.add_incoming(value, loop)
        places = [at(rows_c[i], word(v * lanes)) for i, v in cells]

        def store(values: Any) -> None:
            for place, value in zip(places, values, strict=True):
                builder.store(value, builder.bitcast(place, vector.as_pointer()), align=size)

        with builder.if_else(add) as (then, otherwise):
            with then:
                store([builder.fadd(load(place), value) for place, value in zip(places, results, strict=True)])
            with otherwise:
                store(results)
        return context.get_dummy_value()

    return signature, generate


tile: Any = intrinsic(_tile)


# packing ------------------------------------------------------------------------------------------------------
def bare(run: Callable[..., Any]) -> Any:
    """``jit`` without reference counts, of which every slice takes some: for functions that allocate nothing."""
    return keep(njit(**OPTIONS | {"_nrt": False})(run))


class Matrices(NamedTuple):
    """A matrix per head in one stretch of memory: where each begins, and how far its rows are apart, in elements."""

    memory: Any
    begin: Any
    step: int


@bare
def up(size: int, step: int) -> int:
    """size rounded up to a multiple."""
    return (size + step - 1) // step * step


@bare
def pack(a: Any, which: int, first: int, rows: int, columns: int, scale: Any, out: Any, wide: int) -> None:
    """Rows of one matrix, scaled, to rows of ``wide`` elements: zeros beside them, and below to the end of a tile."""
    zero = out.dtype.type(0)
    for r in range(rows):
        at = a.begin[which] + (first + r) * a.step
        source, to = a.memory[at : at + columns], out[r * wide : r * wide + wide]
        for c in range(source.size):
            to[c] = source[c] * scale
        to[columns:] = zero
    out[rows * wide : up(rows, ROWS) * wide] = zero


@bare
def unpack(packed: Any, wide: int, rows: int, columns: int, scale: Any, out: Any, which: int, first: int) -> None:
    """The reverse."""
    for r in range(rows):
        at = out.begin[which] + (first + r) * out.step
        source, to = packed[r * wide : r * wide + columns], out.memory[at : at + columns]
        for c in range(source.size):
            to[c] = source[c] * scale


@bare
def pack_panels(a: Any, wide: int, rows: int, depth: int, panel: int, out: Any) -> None:
    """Packed rows, transposed: ``panel`` rows at a time, element d of all of them side by side."""
    zero = out.dtype.type(0)
    for p in range(0, rows, panel):
        count = min(panel, rows - p)
        for d in range(depth):
            to = out[p * depth + d * panel : p * depth + (d + 1) * panel]
            for j in range(count):
                to[j] = a[(p + j) * wide + d]
            to[count:] = zero
