"""Products and sweeps that keep their sums in registers, written as instructions for numba.

A tile is a few rows by a few vectors; a vector is as many numbers as a register has. In a loop over
arrays, which is all that numba knows, each sum would be written and read again at every step, which
takes twice as long. The callers, and the twins of what they make, are those of `kernels.loops`.
Arrays are by rows; places in them are counted in entries. Imported where numba is present alone.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

_FUSED = ("contract",)  # a product and a sum may be one instruction, where there is one
_BITS = {"+avx512f": 512, "+avx": 256}  # of a register, by what the processor has; else 128


class _Lines:
    """An array in compiled code that is being written: its rows are `apart`, or as they are."""

    def __init__(self, context: Any, builder: Any, kind: Any, value: Any, apart: int | None = None):
        view = context.make_array(kind)(context, builder, value)
        features = context.codegen().magic_tuple()[2].split(",")
        bits = next((bits for name, bits in _BITS.items() if name in features), 128)
        self._builder, self._data, self._bytes = builder, view.data, kind.dtype.bitwidth // 8
        self._real, self.lanes = context.get_data_type(kind.dtype), bits // kind.dtype.bitwidth
        self.shape, strides = (
            cgutils.unpack_tuple(builder, of) for of in (view.shape, view.strides)
        )
        self._apart = strides[0] if apart is None else _whole(apart * self._bytes)
        self._vector = ir.VectorType(self._real, self.lanes)

    @property
    def zero(self) -> Any:
        """A vector of zeros."""
        return ir.Constant(self._vector, [0.0] * self.lanes)

    def number(self, row: Any, column: Any) -> Any:
        """An entry, everywhere in a vector."""
        return self.everywhere(self.entry(row, column))

    def entry(self, row: Any, column: Any) -> Any:
        """An entry."""
        return self._builder.load(self._pointer(row, column, self._real), align=self._bytes)

    def everywhere(self, number: Any) -> Any:
        """A vector of one number."""
        builder, none = self._builder, ir.Constant(self._vector, ir.Undefined)
        first = builder.insert_element(none, number, ir.IntType(32)(0))
        zeros = ir.Constant(ir.VectorType(ir.IntType(32), self.lanes), [0] * self.lanes)
        return builder.shuffle_vector(first, none, zeros)

    def vector(self, row: Any, column: Any) -> Any:
        """The entries from here on."""
        pointer = self._pointer(row, column, self._vector)
        return self._builder.load(pointer, align=self._bytes)

    def write(self, vector: Any, row: Any, column: Any) -> None:
        """Write entries from here on."""
        pointer = self._pointer(row, column, self._vector)
        self._builder.store(vector, pointer, align=self._bytes)

    def further(self, column: Any, vectors: int) -> Any:
        """The column that so many vectors further begins."""
        return self._builder.add(column, _whole(vectors * self.lanes))

    def positive(self, vector: Any) -> Any:
        """Numbers below 0 become 0; what is no number stays so."""
        is_less = self._builder.fcmp_ordered("<", vector, self.zero)
        return self._builder.select(is_less, self.zero, vector)

    def _pointer(self, row: Any, column: Any, kind: Any) -> Any:
        builder = self._builder
        across = builder.mul(column, _whole(self._bytes))
        place = builder.add(builder.mul(row, self._apart), across)
        return cgutils.pointer_add(builder, self._data, place, kind.as_pointer())


class _Sums:
    """Vectors that products are added to, by rows: in registers, once the compiler is done."""

    def __init__(self, builder: Any, values: list[list[Any]]):
        self._builder = builder
        self._places = [[cgutils.alloca_once(builder, v.type) for v in row] for row in values]
        for row, places in zip(values, self._places, strict=True):
            for value, place in zip(row, places, strict=True):
                builder.store(value, place)

    def add(self, row: int, factor: Any, vectors: list[Any], *, less: bool = False) -> None:
        """Add a multiple of vectors to a row, or take it off."""
        builder, join = self._builder, self._builder.fsub if less else self._builder.fadd
        for place, vector in zip(self._places[row], vectors, strict=True):
            product = builder.fmul(factor, vector, flags=_FUSED)
            builder.store(join(builder.load(place), product, flags=_FUSED), place)

    def row(self, row: int) -> list[Any]:
        """The sums of a row."""
        return [self._builder.load(place) for place in self._places[row]]


def _whole(number: int) -> Any:
    return cgutils.intp_t(number)


def _lanes(_: Any, like: Any) -> Any:
    """How many numbers of the array's kind a register has, on the processor compiled for."""

    def lower(context: Any, builder: Any, given: Any, values: Any) -> Any:
        return _whole(_Lines(context, builder, like, values[0]).lanes)

    return types.intp(like), lower


lanes: Any = intrinsic(_lanes)


def product(rows: int, vectors: int) -> Any:
    """`call(A, c, a, B, j, out, o)`: out = A B for some rows from c on, and columns from j on.

    B (k, n) is multiplied by the columns a … a + k of A; out is written from its column o + j on.
    """

    @intrinsic
    def call(_: Any, A: Any, c: Any, a: Any, B: Any, j: Any, out: Any, o: Any) -> Any:
        def lower(context: Any, builder: Any, given: Any, values: Any) -> Any:
            c, a, j, o = (values[k] for k in (1, 2, 4, 6))
            A, B, out = (_Lines(context, builder, given.args[k], values[k]) for k in (0, 3, 5))
            at = [builder.add(c, _whole(k)) for k in range(rows)]
            sums = _Sums(builder, [[A.zero] * vectors] * rows)
            with cgutils.for_range(builder, B.shape[0]) as loop:
                some = [B.vector(loop.index, B.further(j, v)) for v in range(vectors)]
                for k in range(rows):
                    sums.add(k, A.number(at[k], builder.add(a, loop.index)), some)
            for k in range(rows):
                for v, vector in enumerate(sums.row(k)):
                    out.write(vector, at[k], out.further(builder.add(o, j), v))
            return context.get_dummy_value()

        return types.void(A, types.intp, types.intp, B, types.intp, out, types.intp), lower

    return call


def descent(rows: int, vectors: int, apart: int) -> Any:
    """`call(f, x, g, c, j, r)`: make the components c … c + rows of x the best, one or two.

    Each is max(0, f_c − Σ_k g_ck x_k) for k < r, in columns from j on; the second of two takes off
    g[c + 1, −1] times the first besides. Rows of f and x are `apart`.
    """

    @intrinsic
    def call(_: Any, f: Any, x: Any, g: Any, c: Any, j: Any, r: Any) -> Any:
        def lower(context: Any, builder: Any, given: Any, values: Any) -> Any:
            c, j, r = values[3:]
            f, x = (_Lines(context, builder, given.args[k], values[k], apart) for k in (0, 1))
            g = _Lines(context, builder, given.args[2], values[2])
            at = [builder.add(c, _whole(k)) for k in range(rows)]
            columns = [f.further(j, v) for v in range(vectors)]
            sums = _Sums(builder, [[f.vector(row, column) for column in columns] for row in at])
            with cgutils.for_range(builder, r) as loop:
                some = [x.vector(loop.index, column) for column in columns]
                for k in range(rows):
                    sums.add(k, g.number(at[k], loop.index), some, less=True)
            for k in range(rows):
                best = [x.positive(vector) for vector in sums.row(k)]
                for vector, column in zip(best, columns, strict=True):
                    x.write(vector, at[k], column)
                if k + 1 < rows:
                    last = builder.sub(g.shape[1], _whole(1))
                    sums.add(k + 1, g.number(at[k + 1], last), best, less=True)
            return context.get_dummy_value()

        return types.void(f, x, g, types.intp, types.intp, types.intp), lower

    return call


def begin(apart: int) -> Any:
    """`call(F, X, c, i, f, x, j, scale)`: f = F_c · scale and x = max(0, X_c), a vector of each.

    From column i of F and X, whose rows lie side by side, to column j of f and x.
    """

    @intrinsic
    def call(_: Any, F: Any, X: Any, c: Any, i: Any, f: Any, x: Any, j: Any, scale: Any) -> Any:
        def lower(context: Any, builder: Any, given: Any, values: Any) -> Any:
            c, i, j, scale = (values[k] for k in (2, 3, 6, 7))
            F, X = (_Lines(context, builder, given.args[k], values[k]) for k in (0, 1))
            f, x = (_Lines(context, builder, given.args[k], values[k], apart) for k in (4, 5))
            f.write(builder.fmul(F.vector(c, i), F.everywhere(scale)), c, j)
            x.write(X.positive(X.vector(c, i)), c, j)
            return context.get_dummy_value()

        places = types.intp, types.intp
        return types.void(F, X, *places, f, x, types.intp, f.dtype), lower

    return call


def end(apart: int) -> Any:
    """`call(x, j, out, c, i)`: a vector of x_c, from column j on, to column i of out."""

    @intrinsic
    def call(_: Any, x: Any, j: Any, out: Any, c: Any, i: Any) -> Any:
        def lower(context: Any, builder: Any, given: Any, values: Any) -> Any:
            j, c, i = (values[k] for k in (1, 3, 4))
            x = _Lines(context, builder, given.args[0], values[0], apart)
            out = _Lines(context, builder, given.args[2], values[2])
            out.write(x.vector(c, j), c, i)
            return context.get_dummy_value()

        return types.void(x, types.intp, out, types.intp, types.intp), lower

    return call


def _transpose(_: Any, A: Any, i: Any, j: Any, out: Any, k: Any, c: Any) -> Any:
    """`transpose(A, i, j, out, k, c)`: a square of A, from row i and column j on, turned, to out.

    There it begins in row k and column c; its side is `lanes`. The rows of both halves are shuffled
    together, as often as they can be halved.
    """

    def lower(context: Any, builder: Any, given: Any, values: Any) -> Any:
        i, j, k, c = (values[at] for at in (1, 2, 4, 5))
        A, out = (_Lines(context, builder, given.args[at], values[at]) for at in (0, 3))
        side, half = A.lanes, A.lanes // 2
        kind = ir.VectorType(ir.IntType(32), side)
        halves = [
            ir.Constant(kind, [place // 2 + place % 2 * side + first for place in range(side)])
            for first in (0, half)
        ]
        rows = [A.vector(builder.add(i, _whole(row)), j) for row in range(side)]
        for _ in range(side.bit_length() - 1):
            pairs = zip(rows[:half], rows[half:], strict=True)
            rows = [builder.shuffle_vector(p, q, each) for p, q in pairs for each in halves]
        for place, row in enumerate(rows):
            out.write(row, builder.add(k, _whole(place)), c)
        return context.get_dummy_value()

    places = types.intp, types.intp
    return types.void(A, *places, out, *places), lower


transpose: Any = intrinsic(_transpose)


def gather(vectors: int) -> Any:
    """`call(columns, weights, a, b, Y, out, i)`: out_i = Σ_k weights_k Y[columns_k].

    For the stored entries a … b of a row of a sparse matrix, and a few vectors of Y.
    """

    @intrinsic
    def call(_: Any, columns: Any, weights: Any, a: Any, b: Any, Y: Any, out: Any, i: Any) -> Any:
        def lower(context: Any, builder: Any, given: Any, values: Any) -> Any:
            a, b, i = (values[at] for at in (2, 3, 6))
            columns, weights, Y, out = (
                _Lines(context, builder, given.args[at], values[at]) for at in (0, 1, 4, 5)
            )
            at, none = [Y.further(_whole(0), v) for v in range(vectors)], _whole(0)
            sums = _Sums(builder, [[Y.zero] * vectors])
            with cgutils.for_range_slice(builder, a, b, _whole(1)) as (k, _):
                row = builder.sext(columns.entry(none, k), cgutils.intp_t)
                sums.add(0, weights.number(none, k), [Y.vector(row, column) for column in at])
            for vector, column in zip(sums.row(0), at, strict=True):
                out.write(vector, i, column)
            return context.get_dummy_value()

        return types.void(columns, weights, types.intp, types.intp, Y, out, types.intp), lower

    return call
