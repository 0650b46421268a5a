// Sweeps of HALS: with F = V H and G = HᵀH, each component in turn becomes x_k ← max(0, x_k + (F_k − Σ_l G_kl x_l) / G_kk).
// A tile of rows is swept until a sweep changes it by less than a share of the first one (Gillis & Glineur, 2012), at most
// 1 + ⌊α·(1 + (work + m r) / (n r + n))⌋ times; a component that is fixed, or whose G_kk is zero, stays as it is.
#pragma once
#include "../constants.hpp"
#include "../share.hpp"
#include "../simd.hpp"

namespace factormer::FACTORMER_SET {

// Sweeps of a half-step on n rows, where a product with V takes `work` multiplications a component.
inline int32_t sweeps_of(double work, Index other, Index n, Index r, int32_t limit) {
    double sweeps = 1 + sweep_alpha * (1 + (work + double(other) * double(r)) / (double(n) * double(r) + double(n)));
    return sweeps < limit ? int32_t(sweeps) : limit;
}

template <class Real>
struct Normal {  // G + l2·I by rows of ld numbers, and 1/G_kk, or 0 where component k stays
    Real *G = nullptr, *inverse = nullptr;
    Index ld = 0;
    Real l1 = 0;

    void set(const double* gram, Index r, double l1_, double l2, const uint8_t* fixed) {
        constexpr double eps = sizeof(Real) == 8 ? 0x1p-52 : 0x1p-23;
        double largest = 0;
        for (Index k = 0; k < r; ++k) largest = gram[k * r + k] + l2 > largest ? gram[k * r + k] + l2 : largest;
        double flat = (flat_ulps * eps) * (flat_ulps * eps) * largest;
        l1 = Real(l1_);
        for (Index k = 0; k < r; ++k) {
            double curvature = gram[k * r + k] + l2;
            if (l1_ > 0 && curvature <= flat) curvature = largest > 0 ? largest : 1;  // only a penalty to lower
            for (Index e = 0; e < r; ++e) G[k * ld + e] = Real(k > e ? gram[k * r + e] : gram[e * r + k]);
            G[k * ld + k] = Real(curvature);
            inverse[k] = curvature > flat && !(fixed && fixed[k]) ? Real(1 / curvature) : Real(0);
        }
    }
};

// K components of N vectors of rows: the part of F − G x that comes from all others is gathered at once, then K steps in turn.
template <class Real, int K, int N>
[[gnu::always_inline]] inline Vec<Real> sweep_block(Real* x, const Real* F, Index ld, const Normal<Real> normal, Index r, Index k0) {
    constexpr int l = lanes<Real>;
    Vec<Real> s[K][N];
    unroll<K>([&](auto k) { unroll<N>([&](auto v) { s[k][v] = load(F + (k0 + k) * ld + v * l); }); });
    const Real* g = normal.G + k0;
    auto subtract = [&](Index a, Index b) __attribute__((always_inline)) {
        const Real *row = g + a * normal.ld, *y = x + a * ld;
        for (Index e = a; e < b; ++e, row += normal.ld, y += ld)
            unroll<N>([&](auto v) {
                Vec<Real> xe = held(load(y + v * l));
                unroll<K>([&](auto k) { s[k][v] -= row[k] * xe; });
            });
    };
    subtract(0, k0);
    subtract(k0 + K, r);
    unroll<K>([&](auto e) {  // the values before the step, of this component and of those after it
        unroll<N>([&](auto v) {
            Vec<Real> xe = load(x + (k0 + e) * ld + v * l);
            unroll<e + 1>([&](auto k) { s[k][v] -= g[(k0 + e) * normal.ld + k] * xe; });
        });
    });
    Vec<Real> change[N] = {};
    unroll<K>([&](auto k) {
        Real inverse = normal.inverse[k0 + k], *y = x + (k0 + k) * ld;
        const Real* row = g + (k0 + k) * normal.ld + k;
        unroll<N>([&](auto v) {
            Vec<Real> old = load(y + v * l), now = positive<Real>(old + inverse * s[k][v]), d = now - old;
            store(y + v * l, now);
            change[v] += d * d;
            unroll<K - k - 1>([&](auto e) { s[k + 1 + e][v] -= row[1 + e] * now; });
        });
    });
    Vec<Real> total = change[0];
    unroll<N - 1>([&](auto v) { total += change[v + 1]; });
    return total;
}

template <class Real, int N>
void sweep_tile(Real* x, const Real* F, Index ld, const Normal<Real> normal, Index r, int32_t most, Real share, Look& look) {
    constexpr int K = n_sums >= 16 ? 4 : 2;
    Real first = 0;
    for (int32_t t = 0; t < most; ++t) {
        Vec<Real> change{};
        Index k = 0;
        for (; k + K <= r; k += K) change += sweep_block<Real, K, N>(x, F, ld, normal, r, k);
        if (k < r) with<K>(int(r - k), [&](auto left) { change += sweep_block<Real, left, N>(x, F, ld, normal, r, k); });
        if (most == 1) return;
        Real d = sum<Real>(change);
        if (t == 0) first = d;
        if (!(d > share * share * first) && (t > 0 || d == 0)) return;
        if (look(double(r) * double(r) * N * lanes<Real>)) return;
    }
}

// Sweeps for n rows, x and F by components, in tiles of four vectors.
template <class Real>
void sweeps(Real* x, const Real* F, Index ld, Index n, const Normal<Real>& normal, Index r, int32_t most, Real share, Look& look) {
    constexpr int N = 4, l = lanes<Real>;
    for (Index i = 0; i < n; i += N * l) {
        int vectors = int(n - i >= N * l ? N : (n - i + l - 1) / l);
        with<N>(vectors, [&](auto v) { sweep_tile<Real, v>(x + i, F + i, ld, normal, r, most, share, look); });
    }
}

}  // namespace factormer::FACTORMER_SET
