// Sparse V by rows and by columns: F_ic = Σ_j V_ij H_jc over the entries stored (side 0), and the same of Vᵀ and W (side 1).
// A row gathers the rows of the other factor that its entries name, a few vectors of components at a time.
#pragma once
#include "../products.hpp"

namespace factormer::FACTORMER_SET {

template <class Number>
struct Sparse {
    using Real = Number;
    static constexpr bool is_dense = false, gathers = true;
    struct Half {
        const int64_t* from;  // where each row begins
        const int32_t* at;
        const Real* values;
    };
    Half half[2] = {};
    Index sizes[2] = {};

    Index size(int side) const { return sizes[side]; }
    double work() const { return double(half[0].from[sizes[0]]); }
    bool reads_rows(int) const { return true; }
    bool splits() const { return false; }
    Index room(Index) const { return 0; }
    bool prepare(int, const Given<Real>&, Real*, const Crew&) const { return true; }

    void product(int side, const Given<Real>& given, Index a, Index b, Index, Index, Real* F, Index ldf, const Real*, Look& look) const {
        constexpr int l = lanes<Real>, N = spare_vectors, ahead = 10;
        constexpr int64_t between_looks = 1 << 14;
        const Index r = given.components.rows, ld = given.rows.ld;
        const int64_t* from = half[side].from;
        const int32_t* at = half[side].at;
        const Real* values = half[side].values;
        const int64_t nnz = from[sizes[side]];
        for (Index c = 0; c < r; c += N * l)
            with<N>(int((r - c + l - 1) / l < N ? (r - c + l - 1) / l : N), [&](auto nn) {
                Index count = r - c < nn * l ? r - c : nn * l;
                constexpr int chains = nn < 4 ? 4 / nn : 1;  // of sums that do not wait for each other
                int64_t since = 0;                           // entries since the last look
                for (Index i = a; i < b; ++i) {
                    Vec<Real> s[chains][nn];
                    unroll<chains>([&](auto q) { unroll<nn>([&](auto j) { s[q][j] = Vec<Real>{}; }); });
                    auto add = [&](int64_t p, auto q) {
                        const Real *x = given.rows.data + at[p] * ld + c, v = values[p];
                        unroll<nn>([&](auto j) { s[q][j] += v * load(x + j * l); });  // what lies beyond r is not used
                    };
                    for (int64_t p = from[i]; p < from[i + 1];) {
                        int64_t end = from[i + 1] - p < between_looks ? from[i + 1] : p + between_looks;
                        since += end - p;
                        if (since >= between_looks) {  // a gather takes the time of a few multiplications
                            if (look(4.0 * double(since) * nn * l)) return;
                            since = 0;
                        }
                        for (; p + chains <= end; p += chains)
                            unroll<chains>([&](auto q) {
                                const Real* soon = given.rows.data + at[p + q + ahead < nnz ? p + q + ahead : p] * ld + c;
                                unroll<(nn * vector_bytes + 63) / 64>([&](auto j) { __builtin_prefetch(soon + j * (64 / sizeof(Real))); });
                                add(p + q, q);
                            });
                        for (; p < end; ++p) add(p, std::integral_constant<int, 0>{});
                    }
                    unroll<nn>([&](auto j) {
                        for (int q = 1; q < chains; ++q) s[0][j] += s[q][j];
                    });
                    Real t[nn * l];
                    unroll<nn>([&](auto j) { store(t + j * l, s[0][j]); });
                    for (Index e = 0; e < count; ++e) F[(c + e) * ldf + i - a] = t[e];
                }
            });
        clear_end(F, ldf, b - a, r);
    }
};

}  // namespace factormer::FACTORMER_SET
