// One order and one scale for components, which the fit leaves open: by share s_c = Σw_c Σh_c / Σ_d Σw_d Σh_d, the largest first,
// and W_c·a, H_c/a with a = √(‖h_c‖/‖w_c‖) ("balanced") or a = Σh_c ("sum"). Shares that agree to some digits keep their order.
#pragma once
#include "constants.hpp"

namespace factormer::FACTORMER_SET {

// Set order[k] to the component at place k, from the sums of the columns of W and of H; `share` is room for r numbers.
// Shares that round to the same multiple of 1/`of_digits` count as equal.
template <class Real>
void by_share(const Real* w, const Real* h, int32_t r, Real* share, int32_t* order, Real of_digits = share_digits) {
    Real most_w = 0, most_h = 0, total = 0;
    for (int32_t c = 0; c < r; ++c) {
        most_w = w[c] > most_w ? w[c] : most_w;
        most_h = h[c] > most_h ? h[c] : most_h;
    }
    for (int32_t c = 0; c < r; ++c) {
        share[c] = most_w > 0 && most_h > 0 ? (w[c] / most_w) * (h[c] / most_h) : 0;
        total += share[c];
    }
    for (int32_t c = 0; c < r; ++c) {
        Real digits = share[c] / total * of_digits + Real(0.5);
        share[c] = digits >= 0 && digits <= 2 * of_digits ? Real(int64_t(digits)) : 0;  // 0 where sums overflow
    }
    for (int32_t c = 0; c < r; ++c) {  // by insertion: it is stable, and r is small
        int32_t k = c;
        for (; k > 0 && share[order[k - 1]] < share[c]; --k) order[k] = order[k - 1];
        order[k] = c;
    }
}

}  // namespace factormer::FACTORMER_SET
