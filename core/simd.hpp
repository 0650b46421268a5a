// One vector type for every instruction set, by the vector extensions of GCC and Clang: Vec<Real> holds lanes<Real> numbers.
// Beside arithmetic there are loads and stores of the first k numbers, max(a, 0), and the sums s_i = Σ_l a_i[l] of several
// vectors at once, by pairs and in a fixed order.
#pragma once
#include <bit>
#include <cstdint>
#include <cstring>
#include <utility>
#if defined(__AVX2__)
#include <immintrin.h>
#endif

namespace factormer::FACTORMER_SET {

#if defined(__AVX512F__)
inline constexpr int vector_bytes = 64, n_sums = 24, most_rows = 8, most_components = 8;  // of 32 registers
#elif defined(__AVX2__)
inline constexpr int vector_bytes = 32, n_sums = 12, most_rows = 4, most_components = 4;  // of 16 registers
#else
inline constexpr int vector_bytes = 16, n_sums = 12, most_rows = 4, most_components = 4;
#endif

template <class Real, int bytes = vector_bytes>
struct VecOf {
    typedef Real type __attribute__((vector_size(bytes)));
};
template <class Real>
using Vec = typename VecOf<Real>::type;
template <class Real>
inline constexpr int lanes = vector_bytes / int(sizeof(Real));

// f(0), …, f(N − 1) with constants.
template <int N, class F>
[[gnu::always_inline]] inline void unroll(F&& f) {
    [&]<int... k>(std::integer_sequence<int, k...>) __attribute__((always_inline)) {
        (f(std::integral_constant<int, k>{}), ...);
    }(std::make_integer_sequence<int, N>{});
}

// f(n) for 1 ≤ n ≤ N, as a constant.
template <int N, class F>
[[gnu::always_inline]] inline void with(int n, F&& f) {
    if constexpr (N > 0) {
        if (n == N)
            f(std::integral_constant<int, N>{});
        else
            with<N - 1>(n, f);
    }
}

template <class Real>
[[gnu::always_inline]] inline Vec<Real> load(const Real* p) {
    Vec<Real> v;
    __builtin_memcpy(&v, p, sizeof v);
    return v;
}
template <class Real>
[[gnu::always_inline]] inline void store(Real* p, Vec<Real> v) {
    __builtin_memcpy(p, &v, sizeof v);
}

template <class Real>
[[gnu::always_inline]] inline Vec<Real> positive(Vec<Real> a) {  // max(a, 0), and 0 where a is NaN
#if defined(__AVX512F__)
    if constexpr (sizeof(Real) == 8)
        return _mm512_max_pd(a, Vec<Real>{});
    else
        return _mm512_max_ps(a, Vec<Real>{});
#elif defined(__AVX2__)
    if constexpr (sizeof(Real) == 8)
        return _mm256_max_pd(a, Vec<Real>{});
    else
        return _mm256_max_ps(a, Vec<Real>{});
#else
    return a > Vec<Real>{} ? a : Vec<Real>{};
#endif
}
template <class V>
[[gnu::always_inline]] inline V smaller(V a, V b) {
    return a < b ? a : b;
}
template <class V>
[[gnu::always_inline]] inline V larger(V a, V b) {
    return a > b ? a : b;
}
template <class V>
[[gnu::always_inline]] inline V held(V a) {  // in a register: GCC would read the vector from memory again for each use
#if defined(__x86_64__)
    asm("" : "+v"(a));
#endif
    return a;
}

// The first k < lanes numbers, then zeros; nothing beyond them is read.
template <class Real>
[[gnu::always_inline]] inline Vec<Real> load(const Real* p, int k) {
#if defined(__AVX512F__)
    if constexpr (sizeof(Real) == 8)
        return _mm512_maskz_loadu_pd(__mmask8((1u << k) - 1), p);
    else
        return _mm512_maskz_loadu_ps(__mmask16((1u << k) - 1), p);
#elif defined(__AVX2__)
    if constexpr (sizeof(Real) == 8)
        return _mm256_maskload_pd(p, _mm256_cmpgt_epi64(_mm256_set1_epi64x(k), _mm256_setr_epi64x(0, 1, 2, 3)));
    else
        return _mm256_maskload_ps(p, _mm256_cmpgt_epi32(_mm256_set1_epi32(k), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7)));
#else
    Vec<Real> v{};
    for (int i = 0; i < k; ++i) v[i] = p[i];
    return v;
#endif
}

// Numbers stored in another precision, as Real.
template <class Real, class Stored>
[[gnu::always_inline]] inline Vec<Real> load_as(const Stored* p) {
    if constexpr (sizeof(Real) == sizeof(Stored)) {
        return load(p);
    } else {
        typename VecOf<Stored, vector_bytes / 2>::type half;
        __builtin_memcpy(&half, p, sizeof half);
        return __builtin_convertvector(half, Vec<Real>);
    }
}
template <class Real, class Stored>
[[gnu::always_inline]] inline Vec<Real> load_as(const Stored* p, int k) {
    if constexpr (sizeof(Real) == sizeof(Stored)) {
        return load(p, k);
    } else {
        Vec<Real> v{};
        for (int i = 0; i < k; ++i) v[i] = Real(p[i]);
        return v;
    }
}

// a0 + a1, a2 + a3, …, b0 + b1, …
template <class Real>
[[gnu::always_inline]] inline Vec<Real> by_pairs(Vec<Real> a, Vec<Real> b) {
    return [&]<int... k>(std::integer_sequence<int, k...>) __attribute__((always_inline)) {
        return __builtin_shufflevector(a, b, 2 * k...) + __builtin_shufflevector(a, b, 2 * k + 1 ...);
    }(std::make_integer_sequence<int, lanes<Real>>{});
}
template <class Real, int N, int M>
[[gnu::always_inline]] inline void paired(Vec<Real> (&a)[M]) {
    if constexpr (N > 0) {
        unroll<N>([&](auto k) { a[k] = by_pairs<Real>(a[2 * k], a[2 * k + 1]); });
        paired<Real, N / 2>(a);
    }
}

// out_i = Σ_l a_i[l] for N = 1, 2, 4 or 8 vectors.
template <class Real, int N>
[[gnu::always_inline]] inline void sums(Vec<Real> (&a)[N], Real* out) {
    constexpr int l = lanes<Real>;
    if constexpr (N > l) {
        Vec<Real> half[N / 2];
        unroll<N / 2>([&](auto k) { half[k] = a[k]; });
        sums<Real, N / 2>(half, out);
        unroll<N / 2>([&](auto k) { half[k] = a[k + N / 2]; });
        sums<Real, N / 2>(half, out + N / 2);
    } else {
        paired<Real, N / 2>(a);
        constexpr int folds = std::countr_zero(unsigned(l / N));
        unroll<folds>([&](auto) { a[0] = by_pairs<Real>(a[0], a[0]); });
        unroll<N>([&](auto k) { out[k] = a[0][int(k)]; });
    }
}
template <class Real>
[[gnu::always_inline]] inline Real sum(Vec<Real> a) {
    Vec<Real> one[1] = {a};
    Real out;
    sums<Real, 1>(one, &out);
    return out;
}

// Elementary functions of normal numbers in double, to an ulp or two. A division would take as long as twenty multiplications.
using Wide = Vec<double>;
typedef int64_t WideBits __attribute__((vector_size(vector_bytes)));

[[gnu::always_inline]] inline Wide all(double x) { return x - Wide{}; }

[[gnu::always_inline]] inline Wide reciprocal(Wide y) {
#if defined(__AVX512F__)
    Wide z = _mm512_rcp14_pd(y);
    z += z * (1 - y * z);
    return z + z * (1 - y * z);
#else
    return 1 / y;
#endif
}

// log x = e log 2 + log f for x = 2ᵉ f with √½ ≤ f < √2, and log f = 2 artanh((f − 1)/(f + 1)) by its series.
[[gnu::always_inline]] inline Wide logarithm(Wide x) {
    constexpr int64_t root = 0x3FE6A09E667F3BCD;  // the bits of √½
    constexpr int terms = 10;
    const WideBits bits = (WideBits)x, e = (bits - root) >> 52;
    const Wide f = (Wide)(bits - (e << 52)), s = (f - 1) * reciprocal(f + 1), z = s * s, zz = z * z;
    Wide even{}, odd{};  // two chains in place of one
    unroll<terms / 2>([&](auto k) {
        even = even * zz + 2.0 / (2 * (terms - 2 * k) - 1);
        odd = odd * zz + 2.0 / (2 * (terms - 2 * k) + 1);
    });
    return __builtin_convertvector(e, Wide) * 0.6931471805599453094 + (s * z * (even + z * odd) + 2 * s);
}

// eˣ = 2ⁿ e^f for |x| ≤ 700, and the values at these bounds beyond them.
[[gnu::always_inline]] inline Wide exponential(Wide x) {
    constexpr double shift = 0x1.8p52, of_two = 1.4426950408889634074, high = 0x1.62e42fefa38p-1, low = 0x1.ef35793c7673p-45;
    x = larger(smaller(x, all(700)), all(-700));
    const Wide shifted = x * of_two + shift, n = shifted - shift, f = (x - n * high) - n * low;
    Wide sum = all(1.0 / 6227020800.0);
    constexpr double inverse[] = {1.0 / 479001600, 1.0 / 39916800, 1.0 / 3628800, 1.0 / 362880, 1.0 / 40320, 1.0 / 5040, 1.0 / 720, 1.0 / 120, 1.0 / 24, 1.0 / 6, 0.5, 1, 1};
    unroll<13>([&](auto k) { sum = sum * f + inverse[k]; });
    return (Wide)((WideBits)sum + (((WideBits)shifted - (WideBits)all(shift)) << 52));
}

}  // namespace factormer::FACTORMER_SET
