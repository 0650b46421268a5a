// Python's arrays as the matrices of request.hpp: V dense (m, n), sparse (starts, indices, data) by rows and by columns, or U Zᵀ.
// Nothing is believed that was not looked at: types, shapes, strides, alignment, index arrays; what does not fit is refused in a sentence.
// The caller's arrays are read and never written.
#pragma once
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "request.hpp"

namespace factormer {

namespace nb = nanobind;
using namespace nb::literals;
using AnyArray = nb::ndarray<nb::ro, nb::device::cpu>;

inline constexpr int64_t most_entries = int64_t(1) << 43;  // numbers in one array: 64 TiB in float64

[[noreturn]] inline void refuse(const std::string& sentence) { throw nb::value_error(sentence.c_str()); }

inline std::string numbered(size_t k) { return "matrix " + std::to_string(k); }

// An array of `ndim` axes from any object that exports one; `what` begins the sentence of a refusal.
inline AnyArray array_of(nb::handle object, size_t ndim, const std::string& what) {
    AnyArray array;
    if (!nb::try_cast<AnyArray>(object, array, false)) refuse(what + " is not an array of numbers in the byte order of this machine");
    if (array.ndim() != ndim) refuse(what + " has " + std::to_string(array.ndim()) + " axes; it needs " + std::to_string(ndim));
    size_t size = 1;
    for (size_t k = 0; k < ndim; ++k) {
        if (array.shape(k) > size_t(most_entries) || size * array.shape(k) > size_t(most_entries)) refuse(what + " has too many entries");
        size *= array.shape(k);
    }
    return array;
}

// A matrix of float64 by rows, converted; the copy is ours.
inline std::vector<double> rows_of(nb::handle object, int64_t rows, int64_t cols, const std::string& what) {
    AnyArray array = array_of(object, 2, what);
    if (int64_t(array.shape(0)) != rows || int64_t(array.shape(1)) != cols)
        refuse(what + " has shape (" + std::to_string(array.shape(0)) + ", " + std::to_string(array.shape(1)) + "); it has to be (" +
               std::to_string(rows) + ", " + std::to_string(cols) + ")");
    std::vector<double> numbers(size_t(rows * cols));
    auto convert = [&]<class F>(F) {
        if (array.dtype() != nb::dtype<F>()) return false;
        const char* data = static_cast<const char*>(array.data());
        for (int64_t i = 0; i < rows; ++i)
            for (int64_t j = 0; j < cols; ++j) {
                F number;
                std::memcpy(&number, data + (i * array.stride(0) + j * array.stride(1)) * int64_t(sizeof(F)), sizeof(F));
                numbers[size_t(i * cols + j)] = double(number);
            }
        return true;
    };
    if (!convert(double{}) && !convert(float{})) refuse(what + " has to be of type float64 or float32");
    return numbers;
}

inline bool all_finite(const std::vector<double>& numbers, bool nonnegative) {
    double broken = 0, least = 0;
    for (double v : numbers) broken += v * 0, least = v < least ? v : least;
    return broken == 0 && (!nonnegative || least >= 0);
}

struct Intake {  // a matrix, and what keeps its numbers alive
    Matrix matrix;
    nb::object held;
    std::vector<double> part[2];
};

inline void take_dense(Intake& in, const AnyArray& V, const std::string& what) {
    Matrix& to = in.matrix;
    bool single = V.dtype() == nb::dtype<float>();
    if (!single && V.dtype() != nb::dtype<double>()) refuse(what + " has to be of type float64 or float32");
    to.kind = single ? Kind::dense32 : Kind::dense64;
    to.m = int64_t(V.shape(0)), to.n = int64_t(V.shape(1)), to.data = V.data();
    if (to.m == 0 || to.n == 0) return;
    if (reinterpret_cast<uintptr_t>(to.data) % (single ? alignof(float) : alignof(double)) != 0) refuse(what + " is not aligned in memory");
    int64_t down = V.stride(0), along = V.stride(1);
    auto lies = [](int64_t step, int64_t cols, int64_t stride, int64_t rows) {
        return (step == 1 || cols == 1) && (stride >= cols || rows == 1);
    };
    if (lies(along, to.n, down, to.m))
        to.transposed = false, to.ld = to.m == 1 ? to.n : down;
    else if (lies(down, to.m, along, to.n))
        to.transposed = true, to.ld = to.n == 1 ? to.m : along;
    else
        refuse(what + " has to lie in memory by rows or by columns, each without gaps or overlaps; make a contiguous copy");
}

// Sparse V by rows and by columns, in arrays of the types that the core works on, which are used where they are.
inline void take_sparse(Intake& in, nb::tuple parts, const std::string& what) {
    Matrix& to = in.matrix;
    to.kind = Kind::sparse;
    nb::handle sizes[2] = {parts[1], parts[2]};
    for (int s = 0; s < 2; ++s)
        if (!nb::try_cast<int64_t>(sizes[s], s ? to.n : to.m) || (s ? to.n : to.m) < 0 || (s ? to.n : to.m) >= INT32_MAX)
            refuse(what + " has to have fewer than 2^31 - 1 rows and columns");
    int64_t nnz[2];
    for (int s = 0; s < 2; ++s) {
        auto place = [&]<class T>(int k, const char* name, T) {
            AnyArray array = array_of(parts[size_t(3 + 3 * s + k)], 1, what + ": " + name);
            if (array.dtype() != nb::dtype<T>() || (array.shape(0) > 1 && array.stride(0) != 1) || reinterpret_cast<uintptr_t>(array.data()) % alignof(T))
                refuse(what + ": " + name + " has another type, or gaps");
            return std::pair(static_cast<const T*>(array.data()), int64_t(array.shape(0)));
        };
        auto [from, rows] = place(0, "starts", int64_t{});
        auto [at, columns] = place(1, "indices", int32_t{});
        auto [values, count] = place(2, "data", double{});
        const int64_t size = s ? to.n : to.m, other = s ? to.m : to.n;
        if (rows != size + 1 || from[0] != 0) refuse(what + ": starts has to begin with 0 and to have one number more than there are rows");
        for (int64_t i = 0; i < size; ++i)
            if (from[i] > from[i + 1]) refuse(what + ": starts falls");
        nnz[s] = from[size];
        if (nnz[s] > columns || nnz[s] > count) refuse(what + ": starts goes beyond the end of indices or data");
        int32_t least = 0, most = -1;
        for (int64_t p = 0; p < nnz[s]; ++p) least = at[p] < least ? at[p] : least, most = at[p] > most ? at[p] : most;
        if (least < 0 || most >= other) refuse(what + ": an index is out of range");
        to.from[s] = from, to.at[s] = at, to.values[s] = values;
        if (parts.size() == 11) {
            AnyArray weights = array_of(parts[size_t(9 + s)], 1, what + ": weights");
            if (weights.dtype() != nb::dtype<double>() || (weights.shape(0) > 1 && weights.stride(0) != 1) ||
                reinterpret_cast<uintptr_t>(weights.data()) % alignof(double) || int64_t(weights.shape(0)) < nnz[s])
                refuse(what + ": weights has another type, gaps, or too few entries");
            to.weights[s] = weights.data();
        }
    }
    if (nnz[0] != nnz[1]) refuse(what + " has other entries by columns than by rows");
}

inline void take_low_rank(Intake& in, nb::tuple parts, const std::string& what) {
    Matrix& to = in.matrix;
    to.kind = Kind::low_rank;
    AnyArray first = array_of(parts[1], 2, what + ": U"), second = array_of(parts[2], 2, what + ": Z");
    to.m = int64_t(first.shape(0)), to.n = int64_t(second.shape(0)), to.p = int64_t(first.shape(1));
    if (parts.size() == 4 && (!nb::try_cast<double>(parts[3], to.lost) || !(to.lost >= 0 && to.lost <= 1e300)))
        refuse(what + ": lost has to be a finite number, 0 or above");
    if (first.shape(1) != second.shape(1)) refuse(what + ": U and Z have to have the same number of columns");
    for (int s = 0; s < 2; ++s) {
        int64_t size = s ? to.n : to.m;
        std::vector<double> rows = rows_of(parts[1 + s], size, to.p, what + (s ? ": Z" : ": U"));
        in.part[s].resize(rows.size());
        for (int64_t i = 0; i < size; ++i)
            for (int64_t k = 0; k < to.p; ++k) in.part[s][size_t(k * size + i)] = rows[size_t(i * to.p + k)];
        to.part[s] = in.part[s].data();
    }
}

// Dense V with a weight for each of its entries.
inline void take_weighted(Intake& in, nb::tuple parts, const std::string& what) {
    take_dense(in, array_of(parts[1], 2, what), what);
    Matrix& to = in.matrix;
    AnyArray weights = array_of(parts[2], 2, what + ": weights");
    to.is_single = weights.dtype() == nb::dtype<float>();
    if (!to.is_single && weights.dtype() != nb::dtype<double>()) refuse(what + ": weights has to be of type float64 or float32");
    if (int64_t(weights.shape(0)) != to.m || int64_t(weights.shape(1)) != to.n) refuse(what + ": weights has another shape than the matrix");
    if (reinterpret_cast<uintptr_t>(weights.data()) % (to.is_single ? alignof(float) : alignof(double))) refuse(what + ": weights is not aligned in memory");
    to.weights[0] = weights.data(), to.steps[0] = weights.stride(0), to.steps[1] = weights.stride(1);
}

// ("sparse", m, n, by rows: starts, indices, data; by columns: the same three), ("low-rank", U, Z, lost), or an array.
inline void take(Intake& in, nb::handle V, const std::string& what) {
    in.held = nb::borrow(V);
    if (nb::isinstance<nb::tuple>(V)) {
        nb::tuple parts = nb::borrow<nb::tuple>(V);
        std::string kind;
        if (parts.size() > 0 && nb::try_cast<std::string>(parts[0], kind)) {
            if (kind == "sparse" && (parts.size() == 9 || parts.size() == 11)) return take_sparse(in, parts, what);
            if (kind == "weighted" && parts.size() == 3) return take_weighted(in, parts, what);
            if (kind == "low-rank" && (parts.size() == 3 || parts.size() == 4)) return take_low_rank(in, parts, what);
        }
        refuse(what + " is a tuple; it has to be ('sparse', m, n, starts, indices, data by rows, the same by columns, and perhaps weights by rows and "
               "by columns), ('weighted', V, weights) or ('low-rank', U, Z, lost)");
    }
    AnyArray array = array_of(V, 2, what);
    take_dense(in, array, what);
}

}  // namespace factormer
