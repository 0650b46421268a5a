// Extrapolation with restart (Ang & Gillis, 2019): an iteration begins at y = x + β(x − x_before), and β grows while the error falls.
// Where the error rises, the new point is refused, β falls, and the next iteration begins at x; a plain iteration is taken if it is finite.
#pragma once
#include "constants.hpp"

namespace factormer::FACTORMER_SET {

struct Momentum {
    double beta = beta_start, last = beta_start, bound = 1;
    double growth = beta_growth;
    double error = largest_real * 10;  // of the point kept: infinite before the first iteration
    bool plain = true;                 // whether the next iteration begins at the point kept
    bool refused = false;              // whether the last iteration was refused

    // Judge an iteration that ended at the error `now`; return how far beyond the point then kept the next one begins.
    double judge(double now) {
        double step = beta;
        bool rose = !(now <= error);
        refused = rose && !(plain && now <= largest_real);
        if (rose) {
            bound = last, last = beta, beta /= beta_fall;
        } else {
            double grown = growth * beta, wider = bound_growth * bound;
            last = beta, beta = grown < bound ? grown : bound, bound = wider < 1 ? wider : 1;
        }
        if (!refused) error = now;
        plain = refused;
        return refused ? 0 : step;
    }
};

}  // namespace factormer::FACTORMER_SET
