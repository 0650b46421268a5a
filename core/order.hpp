// One order and one scale for components, which the fit leaves open: by share s_c = Σw_c Σh_c / Σ_d Σw_d Σh_d, the largest first,
// and W_c·a, H_c/a with a = √(‖h_c‖/‖w_c‖) ("balanced") or a = Σh_c ("sum"). Shares that agree to nine digits keep their order.
#pragma once
#include "constants.hpp"

namespace factormer::FACTORMER_SET {

// Set order[k] to the component at place k, from the sums of the columns of W and of H; `share` is room for r numbers.
inline void by_share(const double* w, const double* h, int32_t r, double* share, int32_t* order) {
    double most_w = 0, most_h = 0, total = 0;
    for (int32_t c = 0; c < r; ++c) {
        most_w = w[c] > most_w ? w[c] : most_w;
        most_h = h[c] > most_h ? h[c] : most_h;
    }
    for (int32_t c = 0; c < r; ++c) {
        share[c] = most_w > 0 && most_h > 0 ? (w[c] / most_w) * (h[c] / most_h) : 0;
        total += share[c];
    }
    for (int32_t c = 0; c < r; ++c) {
        double digits = share[c] / total * share_digits + 0.5;
        share[c] = digits >= 0 && digits <= 2 * share_digits ? double(int64_t(digits)) : 0;  // 0 where sums overflow
    }
    for (int32_t c = 0; c < r; ++c) {  // by insertion: it is stable, and r is small
        int32_t k = c;
        for (; k > 0 && share[order[k - 1]] < share[c]; --k) order[k] = order[k - 1];
        order[k] = c;
    }
}

}  // namespace factormer::FACTORMER_SET
