// Dense V as it lies in memory, by rows or by columns and in float64 or float32: the products F = V H (side 0) and F = Vᵀ W (side 1),
// a range of rows of F and of the numbers k0 ≤ k < k1 that each row sums; F[c, i − a] is written for a ≤ i < b.
#pragma once
#include "../products.hpp"

namespace factormer::FACTORMER_SET {

template <class Number, class Stored_>
struct Dense {
    using Real = Number;      // of the factors
    using Stored = Stored_;   // of V
    static constexpr bool is_dense = true, gathers = false;
    const Stored* data = nullptr;
    Index rows = 0, cols = 0, ld = 0;  // of the stored matrix
    bool transposed = false;           // whether that is Vᵀ

    Index size(int side) const { return (side == 0) != transposed ? rows : cols; }
    double work() const { return double(rows) * double(cols); }
    bool reads_rows(int side) const { return (side == 1) != transposed; }
    bool splits() const { return true; }
    Index room(Index) const { return 0; }
    bool prepare(int, const Given<Real>&, Real*, const Crew&) const { return true; }

    void product(int side, const Given<Real>& given, Index a, Index b, Index k0, Index k1, Real* F, Index ldf, const Real*,
                 Look& look) const {
        Index r = given.components.rows;
        if (reads_rows(side)) {
            clear(F, ldf, b - a, r);
            outer(k1 - k0, given.rows.data + k0 * given.rows.ld, given.rows.ld, data + k0 * ld + a, ld, b - a, r, F, ldf, look);
        } else {
            dots(data + a * ld + k0, ld, b - a, k1 - k0, given.components.data + k0, given.components.ld, r, F, ldf, look);
            clear_end(F, ldf, b - a, r);
        }
    }
};

}  // namespace factormer::FACTORMER_SET
