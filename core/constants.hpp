// The numbers of every rule, for the core and for the kernels on a GPU: nothing but <cstdint> is needed to include this file,
// and the four headers of rules include nothing else. Each number says what it multiplies.
#pragma once
#include <cstdint>

namespace factormer::FACTORMER_SET {

// Stopping.
inline constexpr int32_t look_every = 5;          // iterations between two looks
inline constexpr int32_t first_look = 10;         // iterations before which nothing counts as convergence
inline constexpr int32_t back_of = 17, back_in = 20;  // the gain since iteration ⌊17t/20⌋ is judged
inline constexpr double gain_share = 0.3;         // of tol: what the last 15 % of a run may gain, if half as much again may gain tol
inline constexpr double none_share = 1e-3;         // of tol: an error relative to the size of V that counts as none
inline constexpr double exact_share = 100;        // of ε²‖V‖²: a squared error that is only rounding
inline constexpr double unresolved_share = 64;    // of ε‖V‖²: the same where errors cannot be formed entry by entry
inline constexpr double resolved_share = 1e-8;    // of ‖V‖²: squared errors below it are formed entry by entry
inline constexpr double reported_share = 1e-4;    // the same for the error that is returned
inline constexpr double rising_share = 16;         // of ε‖V‖²: a rise of the squared error that is only rounding
inline constexpr double single_share = 2e-8;      // of ‖V‖²: a fall of the squared error that float32 cannot tell from none
inline constexpr double single_small = 1e-6;      // of ‖V‖²: a squared error that float32 cannot resolve

// Extrapolation.
inline constexpr double beta_start = 0.5, beta_fall = 1.5, beta_growth = 1.05, bound_growth = 1.01;

// Order.
inline constexpr double share_digits = 1e9;       // shares that round to the same multiple of its inverse count as equal

// Sweeps of HALS.
inline constexpr double sweep_alpha = 0.5;        // cost of the sweeps relative to that of the product they share
inline constexpr double sweep_share = 0.1;        // of the first sweep's change: a change at which sweeps end
inline constexpr double refine_share = 1e-4;      // the same in the refinement of W
inline constexpr int32_t refine_sweeps = 60;
inline constexpr double flat_ulps = 100;          // a curvature below (100 ε)² times the largest counts as zero

// Newton steps.
inline constexpr double smallest = 1e-150;        // a Hessian below it counts as this
inline constexpr double flat_bend = 0x1p-104;     // of the largest curvature of a row: one below it counts as none, and a coordinate
inline constexpr double slow_bend = 1e-12;        // that has none falls as if it had this share of the largest
inline constexpr double level_slope = 1e-12;      // of the sum of its terms: a slope at the end of a step that is only rounding
inline constexpr double end_share = 0.25;         // of the slope at the beginning of a step: one at its end for which no search is made
inline constexpr double sweep_gain = 1e-4;        // of the first sweep's gain: a gain at which sweeps over the coordinates of a step end
inline constexpr int32_t refine_steps = 100, refine_sweeps_newton = 50;  // in the refinement of W, at most, and sweeps of each
inline constexpr double refine_gain = 1e-10;      // of the objective: a gain at which the refinement ends
inline constexpr double fit_tol = 5e-4;           // of the fits by least squares that starts are made from
inline constexpr double lift_share = 0.01;        // of the mean of a component: the least entry of a start under losses with poles
inline constexpr int32_t halvings = 12;           // of a step, at most
inline constexpr int32_t fresh_first = 3, fresh_every = 8;  // iterations with new Hessians: the first ones, and then every eighth

inline constexpr double largest_real = 1.7976931348623157e308;

}  // namespace factormer::FACTORMER_SET
