// When a run has converged: with b(t) the error after t iterations and R = V − W Hᵀ, if b(⌊2t/3⌋) − b(t) ≤ tol·b(t) and
// Σ_c ‖projected gradient of component c‖² / G_cc ≤ tol·‖R‖², what one more step along each coordinate could gain.
// Neither compares with the start. An error that is nothing but rounding has converged as well.
#pragma once
#include "constants.hpp"

namespace factormer::FACTORMER_SET {

inline bool is_look(int32_t t) { return t >= first_look && t % look_every == 0; }

inline int32_t look_back(int32_t t) { return int32_t(int64_t(t) * back_of / back_in); }

inline bool has_settled(double then, double now, double tol) { return then - now <= tol * now; }

inline bool is_flat(double decrement, double sq_error, double tol) { return decrement <= flat_share * tol * sq_error; }

inline bool is_exact(double sq_error, double sq_norm, double eps, bool resolved) {
    return sq_error <= (resolved ? exact_share * eps * eps : unresolved_share * eps) * sq_norm;
}

// Whether a stage in float32 ends: its errors no longer decide anything.
inline bool is_rounding(double before, double now, double sq_norm) {
    return before - now <= single_share * sq_norm || now <= single_small * sq_norm;
}

}  // namespace factormer::FACTORMER_SET
