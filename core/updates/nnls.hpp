// Nonnegative least squares row by row and to the last digit: min q(x) = ½ xᵀG x − fᵀx over x ≥ 0, from a point that sweeps have
// brought near the end. Block pivoting (Kim & Park, 2011) on its support, then one component at a time (Lawson & Hanson, 1974); an
// answer counts if the signs of x and of f − G x prove it, or if q is lower, and never if q is higher than before. All loops are bounded.
#pragma once
#include "hals.hpp"

namespace factormer::FACTORMER_SET {

class Exact {
    static constexpr double pivot = 1e-13;  // the share of G_cc left over at which a component depends on others
    static constexpr int32_t rounds = 20, patience_of = 3;
    const double* G_;
    Index ld_, r_;
    double *L_, *s_, *y_, *g_, *best_;
    int32_t *list_, *state_;  // 1: in the support, 0: at zero, 2: was tried in vain

    // Solve G s = f on the components of state 1, the others of s being zero; return how many are not dependent, listed first, or −1 if the
    // call has to end.
    Index solve(const double* f, Look& look) {
        Index count = 0;
        for (Index c = 0; c < r_; ++c) {
            s_[c] = 0;
            if (state_[c] != 1) continue;
            if (look(double(count) * double(count) / 2 + double(r_))) return -1;
            double left = G_[c * ld_ + c];
            for (Index b = 0; b < count; ++b) {
                double value = G_[c * ld_ + list_[b]];
                for (Index e = 0; e < b; ++e) value -= L_[count * r_ + e] * L_[b * r_ + e];
                value /= L_[b * r_ + b];
                L_[count * r_ + b] = value;
                left -= value * value;
            }
            if (left > pivot * G_[c * ld_ + c]) {
                L_[count * r_ + count] = __builtin_sqrt(left);
                list_[count++] = int32_t(c);
            } else {
                state_[c] = 0;
            }
        }
        correct(f, count);
        slopes(f, s_);
        correct(g_, count);  // once more from the residual
        return count;
    }
    void correct(const double* f, Index count) {
        for (Index a = 0; a < count; ++a) {
            double value = f[list_[a]];
            for (Index b = 0; b < a; ++b) value -= L_[a * r_ + b] * y_[b];
            y_[a] = value / L_[a * r_ + a];
        }
        for (Index a = count - 1; a >= 0; --a) {
            double value = y_[a];
            for (Index b = a + 1; b < count; ++b) value -= L_[b * r_ + a] * y_[b];
            y_[a] = value / L_[a * r_ + a];
            s_[list_[a]] += y_[a];
        }
    }
    void slopes(const double* f, const double* x) {  // g = f − G x
        for (Index c = 0; c < r_; ++c) g_[c] = f[c];
        for (Index e = 0; e < r_; ++e)
            if (x[e] != 0)
                for (Index c = 0; c < r_; ++c) g_[c] -= G_[e * ld_ + c] * x[e];
    }
    double value(const double* f, const double* x) {  // q(x) = −½ Σ x (f + g)
        slopes(f, x);
        double total = 0;
        for (Index c = 0; c < r_; ++c) total -= x[c] * (f[c] + g_[c]) / 2;
        return total;
    }
    double bound(const double* f, Index c) const {  // a slope that rounding cannot tell from zero
        double size = __builtin_fabs(f[c]);
        for (Index e = 0; e < r_; ++e) size += __builtin_fabs(G_[e * ld_ + c] * s_[e]);
        return 0x1p-46 * size;
    }

    bool by_blocks(const double* f, Look& look) {
        Index fewest = r_ + 1;
        int32_t patience = patience_of;
        for (int32_t round = 0; round < rounds; ++round) {
            Index asked = 0;
            for (Index c = 0; c < r_; ++c) asked += state_[c] == 1;
            Index count = solve(f, look), wrong = 0;
            if (count < asked || look(double(r_) * double(r_))) return false;
            slopes(f, s_);
            for (Index c = 0; c < r_; ++c) {
                bool changes = state_[c] == 1 ? s_[c] < 0 : g_[c] > bound(f, c);
                y_[c] = changes;
                wrong += changes;
            }
            if (wrong == 0) return true;
            patience = wrong < fewest ? patience_of : patience - 1;
            fewest = wrong < fewest ? wrong : fewest;
            if (patience < 0) return false;
            for (Index c = 0; c < r_; ++c)
                if (y_[c] != 0) state_[c] = state_[c] == 1 ? 0 : 1;
        }
        return false;
    }

    // From zero; leaves the answer in `best_`.
    void one_by_one(const double* f, Look& look) {
        for (Index c = 0; c < r_; ++c) best_[c] = 0, state_[c] = 0;
        double before = 0;
        for (Index tries = 0; tries < 6 * r_ + 20;) {
            slopes(f, best_);
            for (Index c = 0; c < r_; ++c) s_[c] = best_[c];
            Index enters = -1;
            double steepest = 0;
            for (Index c = 0; c < r_; ++c) {
                double curvature = G_[c * ld_ + c];
                if (state_[c] != 0 || !(curvature > 0) || !(g_[c] > bound(f, c))) continue;
                double gain = g_[c] * g_[c] / curvature;
                if (gain > steepest) enters = c, steepest = gain;
            }
            ++tries;
            if (enters < 0) return;
            state_[enters] = 1;
            if (solve(f, look) < 0) return;
            if (state_[enters] != 1 || !(s_[enters] > 0)) {
                state_[enters] = 2;
                continue;
            }
            for (Index left = 0; left <= r_; ++left) {  // each time round, a component leaves
                double step = 1;
                Index leaves = -1;
                for (Index c = 0; c < r_; ++c)
                    if (state_[c] == 1 && s_[c] <= 0) {
                        double reach = best_[c] > 0 ? best_[c] / (best_[c] - s_[c]) : 0;
                        if (reach <= step) step = reach, leaves = c;
                    }
                for (Index c = 0; c < r_; ++c) {
                    double now = leaves < 0 ? s_[c] : best_[c] + step * (s_[c] - best_[c]);
                    best_[c] = state_[c] == 1 && now > 0 ? now : 0;
                }
                if (leaves < 0) break;
                best_[leaves] = 0, state_[leaves] = 0;
                if (solve(f, look) < 0) return;
            }
            double now = value(f, best_);
            if (!(now < before) || look(double(r_) * double(r_))) return;
            before = now;
            for (Index c = 0; c < r_; ++c) state_[c] = state_[c] == 2 ? 0 : state_[c];  // it may pay from here
        }
    }

   public:
    static Index room(Index r) { return r * r + 6 * r; }

    Exact(const double* G, Index ld, Index r, double* reals, int32_t* integers)
        : G_(G), ld_(ld), r_(r), L_(reals), s_(L_ + r * r), y_(s_ + r), g_(y_ + r), best_(g_ + r), list_(integers), state_(list_ + r) {}

    // Overwrite x by the solution for f, if one was found that is as good.
    void row(const double* f, double* x, Look& look) {
        double before = value(f, x);
        for (Index c = 0; c < r_; ++c) state_[c] = x[c] > 0;
        if (by_blocks(f, look)) {
            for (Index c = 0; c < r_; ++c) best_[c] = s_[c] > 0 ? s_[c] : 0;
        } else {
            if (look.ended()) return;
            one_by_one(f, look);
        }
        if (value(f, best_) <= before + 0x1p-50 * __builtin_fabs(before))
            for (Index c = 0; c < r_; ++c) x[c] = best_[c];
    }
};

// n rows, x and F by components.
inline void exact_rows(double* x, const double* F, Index ld, Index n, const Normal<double>& normal, Index r, double* reals,
                       int32_t* integers, Look& look) {
    Exact exact(normal.G, normal.ld, r, reals, integers);
    double *row = reals + r * r + 4 * r, *f = row + r;
    for (Index i = 0; i < n; ++i) {
        for (Index c = 0; c < r; ++c) row[c] = x[c * ld + i], f[c] = F[c * ld + i];
        exact.row(f, row, look);
        if (look(double(r) * double(r))) return;
        for (Index c = 0; c < r; ++c) x[c * ld + i] = row[c];
    }
}

}  // namespace factormer::FACTORMER_SET
