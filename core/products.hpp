// Thin products by register tiles: `dots` gives out[c, i] = Σ_j V[i, j] B[c, j], rows of V against components; `outer` gives
// out[c, j] += Σ_k A[k, c] V[k, j], rows of V weighted and summed; `gram` gives the lower half of G += A Xᵀ in double.
// Every number is summed in an order that depends on shapes alone.
#pragma once
#include "share.hpp"
#include "simd.hpp"

namespace factormer::FACTORMER_SET {

template <class Real, class Stored, int R, int C>
[[gnu::always_inline]] inline void dots_tile(const Stored* const* rows, Index n, const Real* B, Index ldb, Real* out, Index ldo,
                                             bool adds, int valid) {
    constexpr int l = lanes<Real>;
    Vec<Real> s[C][R];
    unroll<C>([&](auto c) { unroll<R>([&](auto i) { s[c][i] = Vec<Real>{}; }); });
    const Stored* p[R];
    unroll<R>([&](auto i) { p[i] = rows[i]; });
    Index j = 0;
    for (; j + l <= n; j += l) {
        Vec<Real> b[C];
        unroll<C>([&](auto c) { b[c] = load(B + c * ldb + j); });
        unroll<R>([&](auto i) {
            Vec<Real> v = held(load_as<Real>(p[i] + j));
            unroll<C>([&](auto c) { s[c][i] += v * b[c]; });
        });
    }
    if (j < n) {
        Vec<Real> b[C];
        unroll<C>([&](auto c) { b[c] = load(B + c * ldb + j, int(n - j)); });
        unroll<R>([&](auto i) {
            Vec<Real> v = load_as<Real>(p[i] + j, int(n - j));
            unroll<C>([&](auto c) { s[c][i] += v * b[c]; });
        });
    }
    unroll<C>([&](auto c) {
        Real t[R];
        sums<Real, R>(s[c], t);
        Real* o = out + c * ldo;
        for (int i = 0; i < valid; ++i) o[i] = adds ? o[i] + t[i] : t[i];
    });
}

template <class Real, class Stored>
void dots(const Stored* V, Index ldv, Index m, Index n, const Real* B, Index ldb, Index r, Real* out, Index ldo, Look& look) {
    constexpr int R = most_rows, C = n_sums / most_rows;
    constexpr Index width = 2560 / sizeof(Real);  // of a strip of V and B that stays in the first cache
    Index parts = blocks_of(r, C), strips = blocks_of(n, width), vectors = blocks_of(n, lanes<Real>);
    for (Index i = 0; i < m; i += R) {
        int valid = int(m - i < R ? m - i : R);
        for (Index s = 0; s < strips; ++s) {
            Index a = edge(vectors, strips, s) * lanes<Real>, b = edge(vectors, strips, s + 1) * lanes<Real>;
            if (b > n) b = n;
            const Stored* rows[R];
            for (int k = 0; k < R; ++k) rows[k] = V + (i + (k < valid ? k : valid - 1)) * ldv + a;
            for (Index p = 0; p < parts; ++p) {
                Index c = edge(r, parts, p);
                with<C>(int(edge(r, parts, p + 1) - c), [&](auto k) {
                    dots_tile<Real, Stored, R, k>(rows, b - a, B + c * ldb + a, ldb, out + c * ldo + i, ldo, s > 0, valid);
                });
            }
            if (look(double(R) * double(b - a) * double(r))) return;
        }
    }
}

template <class Real>
void gram(const Real* A, const Real* X, Index ld, Index n, Index r, double* G, Look& look) {
    constexpr int R = 4, C = n_sums >= 16 ? 4 : 2;
    for (Index i = 0; i < r; i += R) {
        int valid = int(r - i < R ? r - i : R);
        const Real* rows[R];
        for (int k = 0; k < R; ++k) rows[k] = A + (i + (k < valid ? k : valid - 1)) * ld;
        for (Index c = 0; c < i + valid; c += C)
            with<C>(int(r - c < C ? r - c : C), [&](auto k) {
                Real t[k * R];
                dots_tile<Real, Real, R, k>(rows, rounded(n, lanes<Real>), X + c * ld, ld, t, R, false, R);
                for (int e = 0; e < k; ++e)
                    for (int q = 0; q < valid; ++q)
                        if (c + e <= i + q) G[(i + q) * r + c + e] += double(t[e * R + q]);
            });
        if (look(double(R) * double(i + R) * double(n))) return;
    }
}

template <class Real>
void gram(const Real* X, Index ld, Index n, Index r, double* G, Look& look) {
    gram(X, X, ld, n, r, G, look);
}

template <class Real, class Stored, int C, int N, bool partial>
[[gnu::always_inline]] inline void outer_tile(Index K, const Real* A, Index lda, const Stored* V, Index ldv, Real* out, Index ldo,
                                              int last) {
    constexpr int l = lanes<Real>;
    Vec<Real> s[C][N];
    unroll<C>([&](auto c) { unroll<N>([&](auto j) { s[c][j] = load(out + c * ldo + j * l); }); });
    for (Index k = 0; k < K; ++k, A += lda, V += ldv) {
        Vec<Real> v[N];
        unroll<N>([&](auto j) {
            v[j] = partial && j == N - 1 ? load_as<Real>(V + j * l, last) : load_as<Real>(V + j * l);
        });
        unroll<C>([&](auto c) { unroll<N>([&](auto j) { s[c][j] += A[c] * v[j]; }); });
    }
    unroll<C>([&](auto c) { unroll<N>([&](auto j) { store(out + c * ldo + j * l, s[c][j]); }); });
}

// `out` has room for whole vectors in each row.
template <class Real, class Stored>
void outer(Index K, const Real* A, Index lda, const Stored* V, Index ldv, Index n, Index r, Real* out, Index ldo, Look& look) {
    constexpr int C = most_components, l = lanes<Real>;
    constexpr Index at_once = 64;  // rows of V whose strip stays in the first cache
    Index parts = blocks_of(r, C);
    int most = int(blocks_of(r, parts)), N = n_sums / most < 4 ? n_sums / most : 4;
    for (Index k = 0; k < K; k += at_once) {
        Index some = K - k < at_once ? K - k : at_once;
        for (Index j = 0; j < n; j += N * l) {
            int vectors = int(n - j < N * l ? (n - j + l - 1) / l : N), last = int(n - j - (vectors - 1) * l);
            for (Index p = 0; p < parts; ++p) {
                Index c = edge(r, parts, p);
                with<C>(int(edge(r, parts, p + 1) - c), [&](auto cc) {
                    with<(n_sums / cc < 4 ? n_sums / cc : 4)>(vectors, [&](auto nn) {
                        const Real* a = A + k * lda + c;
                        const Stored* v = V + k * ldv + j;
                        if (last < l)
                            outer_tile<Real, Stored, cc, nn, true>(some, a, lda, v, ldv, out + c * ldo + j, ldo, last);
                        else
                            outer_tile<Real, Stored, cc, nn, false>(some, a, lda, v, ldv, out + c * ldo + j, ldo, l);
                    });
                });
            }
        }
        if (look(double(some) * double(n) * double(r))) return;
    }
}

template <class Real>
void clear(Real* out, Index ld, Index n, Index r) {
    for (Index c = 0; c < r; ++c)
        __builtin_memset(static_cast<void*>(out + c * ld), 0, size_t(rounded(n, lanes<Real>)) * sizeof(Real));
}

// Zeros from n to the end of the last vector of each row.
template <class Real>
void clear_end(Real* out, Index ld, Index n, Index r) {
    for (Index c = 0; c < r; ++c)
        for (Index i = n; i < rounded(n, lanes<Real>); ++i) out[c * ld + i] = 0;
}

// The other factor of a product: by components (r, n) with zeros beyond n, and by rows (n, r) with room for `spare_vectors` beyond the end.
inline constexpr int spare_vectors = 6;
template <class Real>
struct Given {
    View<const Real> components, rows;
};

}  // namespace factormer::FACTORMER_SET
