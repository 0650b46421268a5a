// Number k of a seed is u_k = ⌊mix(k·a + seed) / 2⁴⁰⌋·2⁻²⁴ in [0, 1), where mix is the finalizer of SplitMix64 (Steele et al., 2014).
// A random start is W_ic = u_{ir+c}·√(4 mean(V)/r), and the same for H with the seed that follows, so that W Hᵀ has the mean of V.
#pragma once
#include "constants.hpp"

namespace factormer::FACTORMER_SET {

inline uint64_t mixed(uint64_t x) {
    x += 0x9E3779B97F4A7C15ull;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
    return x ^ (x >> 31);
}

inline double uniform(uint64_t seed, uint64_t k) { return double(mixed(k * 0xD1342543DE82EF95ull + seed) >> 40) * 0x1p-24; }

inline uint64_t following(uint64_t seed) { return mixed(seed) >> 1; }  // the seed of the next stream, of 63 bits

}  // namespace factormer::FACTORMER_SET
