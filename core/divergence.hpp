// Other losses than the plain squared error, min Σ_ij ω_ij d(v_ij, (W Hᵀ)_ij) + penalties over W, H ≥ 0: an iteration makes H from the W
// proposed, then W from that H, by a Newton step of each row, and is extrapolated with restart. An iteration that begins at the point kept
// searches along every step, with Hessians made for it, so that it can only lower the objective; others may rise, and are refused then.
#pragma once
#include "run.hpp"
#include "survey.hpp"

namespace factormer::FACTORMER_SET {

template <class Steps>
class Newton : public Pair<double> {
    static constexpr double eps = 0x1p-52;
    Steps& steps_;
    double *parts_, *before_, *sums_, *linear_;  // the objective's shares of parts of W, now and before a step; sums of rows
    bool* resting_;
    bool is_apart_;     // whether the term y is summed apart from entries
    int32_t made_ = 0;  // iterations of this run

    struct Ahead {  // x = kept + β(kept − before), and its nonnegative part
        const double *kept, *before;
        Index ld;
        double beta;
        Wide operator()(Index c, Index i) const {
            const Wide k = load(kept + c * ld + i);
            return positive<double>(beta == 0 ? k : k + beta * (k - load(before + c * ld + i)));
        }
        double one(Index c, Index i) const {
            const double k = kept[c * ld + i], x = beta == 0 ? k : k + beta * (k - before[c * ld + i]);
            return x > 0 ? x : 0;
        }
    };

   public:
    Newton(Steps& steps, const Index* sizes, const Course& course, bool is_apart, const Crew& crew, Arena& arena)
        : Pair(crew, course.lane.rank), steps_(steps), is_apart_(is_apart) {
        constexpr Index room = Panels::wide * Panels::C;  // lines and blocks may end beyond the last row
        Index most = 0;
        for (int s = 0; s < 2; ++s) {
            Side<double>& d = side[s];
            d.n = sizes[s], d.ld = rounded(d.n, Panels::wide) + lanes<double>;
            d.ld_rows = Steps::is_dense ? rounded(r_, lanes<double>) : gathered<double>(r_);
            d.l1 = course.l1[s], d.l2 = course.l2[s], d.fixed = course.lane.fixed[s];
            d.kept = arena.zeros<double>(r_ * d.ld), d.other = arena.zeros<double>(r_ * d.ld);
            d.rows = arena.zeros<double>((d.n + room) * d.ld_rows);
            most = steps.parts(s) > most ? steps.parts(s) : most;
        }
        parts_ = arena.zeros<double>(most), before_ = arena.zeros<double>(most), resting_ = arena.zeros<bool>(most), sums_ = arena.zeros<double>(most * r_), linear_ = arena.zeros<double>(rounded(r_, lanes<double>));
    }

    // Iterations until the run has converged or has to end.
    template <class Show>
    void run(Course& course, int32_t sweeps, double growth, Show&& show) {
        const Rules& rules = course.rules;
        Look& look = crew_.looks[0];
        course.momentum.growth = growth;
        if (course.iterations < rules.max_iter && !course.is_known) {
            const double start = value();
            if (look.ended()) return void(course.status = look.status());
            course.is_known = true;
            course.momentum.error = start;
            if (course.history.count == 0) keep(course, start);
        }
        while (course.iterations < rules.max_iter) {
            const bool was_plain = course.momentum.plain;
            Half half;
            half.sweeps = sweeps, half.strict = was_plain;
            half.fresh = was_plain || made_ < fresh_first || (made_ - fresh_first) % fresh_every == 0;
            hand_over(0, course.ahead, side[0].kept, side[0].other);
            if (!half_step(1, half, course.ahead, false)) break;
            hand_over(1, 0, side[1].other, side[1].other);
            if (!half_step(0, half, course.ahead, true)) break;
            ++made_;
            const double now = 2 * (total() + penalty(side[1].other));
            course.ahead = course.momentum.judge(now);
            ++course.iterations;
            const bool refused = course.momentum.refused;
            if (!refused)
                for (Side<double>& d : side) swap(d);
            keep(course, course.momentum.error);
            if (refused && was_plain) return void(course.status = Status::nonfinite);
            if (refused && !(now <= largest_real)) continue;
            const bool is_rise = refused && !(now - course.momentum.error <= rising_share * eps * course.sq_norm);
            if (!is_rise && has_ended(course)) return void(course.status = Status::converged);
            if (course.iterations % look_every == 0 && show(course)) look.end(Status::interrupted);
            if (look.now()) break;
        }
        course.status = look.ended() ? look.status() : Status::max_iter;
    }

    // Numbers of at least a share of the mean of their component.
    void lift() {
        for (int s = 0; s < 2; ++s)
            crew_.share_all(r_, [&](Index c, int, Look&) {
                double* x = side[s].kept + c * side[s].ld;
                double least = lift_share * survey_run(x, side[s].n).total / double(side[s].n);
                if (!(least > 0)) least = eps;
                for (Index i = 0; i < side[s].n; ++i) x[i] = x[i] > least ? x[i] : least;
            });
    }

    // Multiplicative updates of H, then of W, without extrapolation.
    void mend(int32_t times) {
        for (int32_t k = 0; k < times && !crew_.looks[0].ended(); ++k)
            for (int s = 1; s >= 0; --s) {
                hand_over(1 - s, 0, side[1 - s].kept, side[1 - s].kept);
                Half half;
                half.mends = true;
                if (!half_step(s, half, 0, false)) return;
                swap(side[s]);
            }
    }

    // Steps of W for the H kept, at most so many; if it `ends`, a part of the rows rests once a step gains no more than rounding there. Return
    // whether all parts came to rest. Steps search along their way, so that none raises the objective.
    bool refine(Course& course, int32_t steps, int32_t sweeps, bool ends, bool counts) {
        const Index parts = steps_.parts(0);
        for (Index k = 0; k < parts; ++k) resting_[k] = false;
        Half half;
        half.sweeps = sweeps;
        for (int32_t t = 0; t < steps; ++t) {
            if (!half_step(0, half, 0, true, true)) return false;
            bool rests = ends;
            for (Index k = 0; k < parts; ++k) {
                const double now = parts_[k], before = before_[k];
                if (ends && !(before - now > refine_gain * __builtin_fabs(now))) resting_[k] = true;
                before_[k] = now, rests = rests && resting_[k];
            }
            course.momentum.error = 2 * (total() + penalty(side[1].kept));
            if (counts) ++course.iterations, keep(course, course.momentum.error);
            if (rests) return true;
        }
        return false;
    }

    // Twice the objective at the point kept.
    double value() {
        if (!hand_over(1, 0, side[1].kept, side[1].kept)) return 0;
        Half half;
        half.sweeps = 0;
        half_step(0, half, 0, true, true);
        for (Index k = 0; k < steps_.parts(0); ++k) before_[k] = parts_[k];
        return 2 * (total() + penalty(side[1].kept));
    }

   private:
    double penalty(const double* X) const {  // on H
        const Side<double>& d = side[1];
        double sum = 0, squares = 0;
        if (d.l1 == 0 && d.l2 == 0) return 0;
        for (Index c = 0; c < r_; ++c) {
            const Survey seen = survey_run(X + c * d.ld, d.n);
            sum += seen.total, squares += seen.squares;
        }
        return d.l1 * sum + 0.5 * d.l2 * squares;
    }
    double total() const {
        double all_of = 0;
        for (Index k = 0; k < steps_.parts(0); ++k) all_of += parts_[k];
        return all_of;
    }
    bool has_ended(Course& course) const {
        const Rules& rules = course.rules;
        const double now = course.momentum.error;
        if (!(rules.tol > 0)) return false;
        if (is_exact(now, course.sq_norm, eps, true, rules.tol)) return true;
        const int32_t t = course.iterations;
        return is_look(t) && has_settled(course.history.error(look_back(t)), course.history.error(t), rules.tol);
    }

    // Rows of the proposal of a side, as the other side reads them, and their sum; whether all was done.
    bool hand_over(int s, double beta, const double* kept, const double* before) {
        const Side<double>& d = side[s];
        const Ahead ahead{kept, before, d.ld, beta};
        const Index parts = steps_.parts(s), some = double(d.n) * double(r_) > 2e4 ? 1 : parts;
        const bool whole = crew_.share(blocks_of(parts, some), [&](Index piece, int, Look& look) {
            for (Index k = piece * some; k < parts && k < (piece + 1) * some; ++k) {
                double* sums = sums_ + k * r_;
                const Index a = steps_.first(s, k), b = steps_.first(s, k + 1);
                for (Index c = 0; c < r_; ++c) {
                    double sum_of = 0;
                    for (Index i = a; i < b; ++i) {
                        const double x = ahead.one(c, i);
                        d.rows[i * d.ld_rows + c] = x, sum_of += x;
                    }
                    sums[c] = sum_of;
                }
                if (look(double(b - a) * double(r_))) return;
            }
        });
        for (Index c = 0; c < r_; ++c) {
            double sum_of = 0;
            for (Index k = 0; is_apart_ && k < parts; ++k) sum_of += sums_[k * r_ + c];
            linear_[c] = sum_of;
        }
        return whole;
    }

    // The new point of side s, in place of the one before.
    bool half_step(int s, Half half, double beta, bool wants_value, bool in_place = false) {
        Side<double>& d = side[s];
        half.rows = side[1 - s].rows, half.ld = side[1 - s].ld_rows, half.linear = linear_;
        half.l1 = d.l1, half.l2 = d.l2, half.fixed = d.fixed;
        const Ahead ahead{d.kept, d.other, d.ld, beta};
        const Index parts = steps_.parts(s);
        return crew_.share(parts, [&](Index k, int worker, Look& look) {
            if (in_place && resting_[k]) return;
            const double part = steps_.part(s, k, half, ahead, in_place ? d.kept : d.other, d.ld, wants_value, worker, look);
            if (wants_value) parts_[k] = part;
        });
    }
};

}  // namespace factormer::FACTORMER_SET
