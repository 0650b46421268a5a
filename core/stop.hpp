// When a run has converged: with b(t) the least error of t iterations, if half as many iterations again would gain no more than tol·b(t)
// at the pace of the last 15 % of the run, over which it gained b(⌊17t/20⌋) − b(t). So nothing is compared with the start, and no
// gradient is needed. An error that is nothing but rounding, or below a thousandth of tol times the size of V, has converged as well.
#pragma once
#include "constants.hpp"

namespace factormer::FACTORMER_SET {

inline bool is_look(int32_t t) { return t >= first_look && t % look_every == 0; }

inline int32_t look_back(int32_t t) { return int32_t(int64_t(t) * back_of / back_in); }

inline bool has_settled(double then, double now, double tol) { return then - now <= gain_share * tol * now; }

inline bool is_exact(double sq_error, double sq_norm, double eps, bool resolved, double tol) {
    const double rounding = resolved ? exact_share * eps * eps : unresolved_share * eps, none = none_share * tol;
    return sq_error <= (none * none > rounding ? none * none : rounding) * sq_norm;
}

// Whether a stage in float32 ends: its errors no longer decide anything.
inline bool is_rounding(double before, double now, double sq_norm) {
    return before - now <= single_share * sq_norm || now <= single_small * sq_norm;
}

}  // namespace factormer::FACTORMER_SET
