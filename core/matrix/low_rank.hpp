// V = U Zᵀ of rank p, each part by components with zeros beyond its end: V H = U (ZᵀH) and Vᵀ W = Z (UᵀW).
// The small product S[k, c] = Σ_j Z_jk H_jc is made once before a half-step, and the rows of F from it.
#pragma once
#include "../products.hpp"

namespace factormer::FACTORMER_SET {

template <class Number>
struct LowRank {
    using Real = Number;
    static constexpr bool is_dense = false, gathers = false;
    View<const Real> part[2];  // Uᵀ (p, m) and Zᵀ (p, n)

    Index size(int side) const { return part[side].cols; }
    double work() const { return double(part[0].rows) * double(part[0].cols + part[1].cols); }
    bool reads_rows(int) const { return false; }
    bool splits() const { return false; }
    Index room(Index r) const { return part[0].rows * rounded(r, lanes<Real>) + r * rounded(part[0].rows, most_rows); }

    // S by rows of r numbers, in `small`.
    bool prepare(int side, const Given<Real>& given, Real* small, const Crew& crew) const {
        const View<const Real>& other = part[1 - side];
        Index r = given.components.rows, p = other.rows, lds = rounded(r, lanes<Real>), ldt = rounded(p, most_rows);
        Real* turned = small + p * lds;
        bool whole = crew.share(blocks_of(p, most_rows), [&](Index k, int, Look& look) {
            Index a = k * most_rows, b = a + most_rows < p ? a + most_rows : p;
            dots(other.data + a * other.ld, other.ld, b - a, other.cols, given.components.data, given.components.ld, r, turned + a, ldt, look);
        });
        for (Index k = 0; k < p; ++k)
            for (Index c = 0; c < r; ++c) small[k * lds + c] = turned[c * ldt + k];
        return whole;
    }
    void product(int side, const Given<Real>& given, Index a, Index b, Index, Index, Real* F, Index ldf, const Real* small,
                 Look& look) const {
        Index r = given.components.rows;
        clear(F, ldf, b - a, r);
        outer(part[side].rows, small, rounded(r, lanes<Real>), part[side].data + a, part[side].ld, b - a, r, F, ldf, look);
    }
};

}  // namespace factormer::FACTORMER_SET
