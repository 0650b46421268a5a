// Least squares, min ½‖V − W Hᵀ‖² + penalties over W, H ≥ 0: an iteration makes H from the W proposed, then W from that H, by sweeps of
// HALS. Its error is ‖V‖² − 2⟨V H, W⟩ + ⟨WᵀW, HᵀH⟩, from products that are there anyway, summed in double in either precision.
// A half-step is one parallel region: pieces of rows make their product, sweeps and Gram matrix while these are in the cache.
#pragma once
#include "extrapolate.hpp"
#include "products.hpp"
#include "random.hpp"
#include "stop.hpp"
#include "updates/hals.hpp"
#include "updates/nnls.hpp"

namespace factormer::FACTORMER_SET {

struct History {  // error and seconds of each iteration; the memory belongs to the host, who releases it
    Lane* lane = nullptr;
    const Host* host = nullptr;
    Index capacity = 0, count = 0;

    void push(double error, double seconds) {
        if (count == capacity) {
            Index more = capacity ? 2 * capacity : 64;
            auto* memory = static_cast<double*>(host->allocate(size_t(more) * 2 * sizeof(double)));
            if (!memory) throw OutOfMemory{};
            if (count) __builtin_memcpy(memory, lane->history, size_t(count) * 2 * sizeof(double));
            if (lane->history) host->release(lane->history);
            lane->history = memory, capacity = more;
        }
        lane->history[2 * count] = error, lane->history[2 * count + 1] = seconds;
        lane->iterations_kept = ++count;
    }
    void begin(const double* earlier, Index n) {
        for (Index t = 0; t < n; ++t) push(earlier[2 * t], earlier[2 * t + 1]);
    }
    double error(Index t) const { return lane->history[2 * t]; }
};

struct Course {  // of one lane, through all of its stages
    const Rules& rules;
    Lane& lane;
    int32_t place;             // of the lane in the call
    double entries, sq_norm;   // m·n and ‖V‖², of V times `scale`
    double scale;
    double l1[2], l2[2], pull;
    History history;
    Momentum momentum;
    double ahead = 0;          // how far beyond the point kept the next iteration begins
    bool is_known = false;     // whether the history has the error of the start
    int32_t iterations = 0;
    int32_t widened = 0;       // iterations made when a stage in float64 followed one in float32
    Status status = Status::max_iter;

    double error(double objective) const {  // infinite where squares overflow, and their differences are no numbers
        return objective <= largest_real ? __builtin_sqrt((objective < 0 ? 0 : objective) / entries) / scale : Momentum().error;
    }
    bool is_settled() const {  // whether all components of H stay
        int32_t stay = 0;
        for (int32_t c = 0; lane.fixed[1] && c < lane.rank; ++c) stay += lane.fixed[1][c];
        return stay == lane.rank;
    }
    bool is_plain() const { return l1[0] == 0 && l1[1] == 0 && l2[0] == 0 && l2[1] == 0; }
};

template <class Real>
struct Side {
    Index n = 0, ld = 0, pieces = 1, splits = 1, ld_rows = 0;
    int32_t sweeps = 1;
    Real *kept = nullptr, *other = nullptr;      // the point kept, and the one before it or to come, by components
    Real *proposed = nullptr, *rows = nullptr;   // what the product of the other side reads, by components or by rows
    Real* partial = nullptr;                     // products over parts of what is summed, where a side is short
    double *gram = nullptr, *parts = nullptr;    // of the new point; sums of each piece
    double sum = 0, l1 = 0, l2 = 0;
    const uint8_t* fixed = nullptr;
    Index piece(Index k) const {
        Index end = edge(blocks_of(n, lanes<Real>), pieces, k) * lanes<Real>;
        return end < n ? end : n;
    }
};

// Two factors by components, and what is done to all of their numbers alike.
template <class Number>
class Pair {
   public:
    using Real = Number;
    Side<Real> side[2];

   protected:
    const Crew& crew_;
    Index r_;

    Pair(const Crew& crew, Index r) : crew_(crew), r_(r) {}
    static void swap(Side<Real>& d) {
        Real* kept = d.kept;
        d.kept = d.other, d.other = kept;
    }
    void keep(Course& course, double objective) const {
        const Host& host = crew_.looks[0].host();
        course.history.push(course.error(objective), host.seconds(host.self));
    }

   public:
    void draw(uint64_t seed, double scale) {
        for (int s = 0; s < 2; ++s) {
            uint64_t of = s == 0 ? seed : following(seed);
            by_rows(s, [&](Index c, Index i) { side[s].kept[c * side[s].ld + i] = Real(scale * uniform(of, uint64_t(i * r_ + c))); });
        }
    }
    void center(int s, double level) {
        by_rows(s, [&](Index c, Index i) { side[s].kept[c * side[s].ld + i] -= Real(level); });
    }
    void begin_at(const double* const* start, double root) {
        for (int s = 0; s < 2; ++s)
            by_rows(s, [&](Index c, Index i) { side[s].kept[c * side[s].ld + i] = Real(root * start[s][i * r_ + c]); });
    }
    // f(c, i) for all numbers of a side, in parallel over ranges of rows.
    template <class F>
    void by_rows(int s, F&& f) const {
        constexpr Index some = 4096;
        Index n = side[s].n;
        crew_.share_all(blocks_of(n, some), [&](Index k, int, Look&) {
            for (Index c = 0; c < r_; ++c)
                for (Index i = k * some; i < n && i < (k + 1) * some; ++i) f(c, i);
        });
    }
};

// ‖V − W Hᵀ‖² of dense V, formed entry by entry from factors by components, in double; negative if the call has to end.
template <class Matrix, class Real>
double residual(const Matrix& V, const Real* W, Index ldw, const Real* H, Index ldh, Index r, const Crew& crew, Arena& arena) {
    constexpr Index rows = 32, cols = 256, ld = cols + lanes<Real>;
    const Real *left = V.transposed ? H : W, *right = V.transposed ? W : H;
    Index ldl = V.transposed ? ldh : ldw, ldr = V.transposed ? ldw : ldh, pieces = blocks_of(V.rows, rows);
    auto mark = arena.mark();
    double* parts = arena.zeros<double>(pieces);
    Real* room = arena.take<Real>(crew.width * rows * ld);
    bool whole = crew.share(pieces, [&](Index k, int worker, Look& look) {
        Real* fit = room + worker * rows * ld;
        Index i0 = k * rows, count = V.rows - i0 < rows ? V.rows - i0 : rows;
        for (Index j0 = 0; j0 < V.cols; j0 += cols) {
            Index width = V.cols - j0 < cols ? V.cols - j0 : cols;
            clear(fit, ld, width, count);
            outer(r, left + i0, ldl, right + j0, ldr, width, count, fit, ld, look);
            if (look.ended()) return;
            double total = 0;
            for (Index i = 0; i < count; ++i)
                for (Index j = 0; j < width; ++j) {
                    double d = double(V.data[(i0 + i) * V.ld + j0 + j]) - double(fit[i * ld + j]);
                    total += d * d;
                }
            parts[k] += total;
        }
    });
    double total = 0;
    for (Index k = 0; k < pieces; ++k) total += parts[k];
    arena.back(mark);
    return whole ? total : -1;
}

template <class Matrix>
class Squares : public Pair<typename Matrix::Real> {
    using Base = Pair<typename Matrix::Real>;
    using typename Base::Real;
    using Base::crew_, Base::r_, Base::swap, Base::keep;
    static constexpr Index chunk = 1024 / sizeof(Real), ldf = chunk + lanes<Real>;
    static constexpr double eps = sizeof(Real) == 8 ? 0x1p-52 : 0x1p-23;
    enum Sum : Index { inner, sum, start, n_sums_of };  // ⟨F, X⟩, Σ X, ⟨F, X⟩ before the sweeps
    const Matrix& V_;
    Arena& arena_;
    double* given_gram_;
    Real *scratch_, *small_;
    double* reals_ = nullptr;       // of exact rows, for each worker
    int32_t* integers_ = nullptr;
    Normal<Real> normal_;
    double sums_[n_sums_of] = {}, pull_ = 0;
    Real share_ = Real(sweep_share);

    Index stride() const { return rounded(r_ * r_ + n_sums_of, 8); }
    Real* room(int worker) { return scratch_ + 2 * worker * r_ * ldf; }

   public:
    using Base::side, Base::by_rows, Base::begin_at;

    Squares(const Matrix& V, const Course& course, const Crew& crew, Arena& arena)
        : Base(crew, course.lane.rank), V_(V), arena_(arena), pull_(course.pull) {
        const Index r = r_;
        for (int s = 0; s < 2; ++s) {
            Side<Real>& d = side[s];
            d.n = V.size(s), d.ld = padded<Real>(d.n), d.ld_rows = r;
            if constexpr (Matrix::gathers) d.ld_rows = gathered<Real>(r);
            d.l1 = course.l1[s], d.l2 = course.l2[s], d.fixed = course.lane.fixed[s];
            d.kept = arena.zeros<Real>(r * d.ld), d.other = arena.zeros<Real>(r * d.ld);
            if (V.reads_rows(1 - s)) d.rows = arena.zeros<Real>(d.n * d.ld_rows + spare_vectors * lanes<Real>);
            if (!d.rows || pull_ > 0) d.proposed = arena.zeros<Real>(r * d.ld);
            double work = V.work() * double(r);
            if (work > 3e5 && d.n > 4 * lanes<Real>) {
                d.pieces = blocks_of(d.n, chunk);
                d.pieces = d.pieces < 4 ? 4 : d.pieces > 64 ? 64 : d.pieces;
                while (d.pieces > 4 && double(d.pieces) * double(r) * double(r) > 4e6) d.pieces /= 2;
            }
            if (V.splits() && work > 4e6 && d.pieces < 16) {
                Index most = 64 / d.pieces, vectors = blocks_of(V.size(1 - s), 64);
                d.splits = most < vectors ? most : vectors;
                while (d.splits > 1 && double(d.splits) * double(r) * double(d.ld) > 4e6) d.splits /= 2;
                if (d.splits > 1) d.partial = arena.zeros<Real>(d.splits * r * d.ld);
            }
            d.sweeps = sweeps_of(V.work(), V.size(1 - s), d.n, r, course.rules.max_sweeps);
            d.gram = arena.zeros<double>(r * r), d.parts = arena.zeros<double>(d.pieces * stride());
        }
        given_gram_ = arena.zeros<double>(r * r);
        normal_.ld = rounded(r, lanes<Real>);
        normal_.G = arena.zeros<Real>(r * normal_.ld + lanes<Real>), normal_.inverse = arena.zeros<Real>(r);
        scratch_ = arena.zeros<Real>(2 * crew.width * r * ldf);
        small_ = arena.zeros<Real>(V.room(r));
    }

    template <class Other>
    void begin_at(const Other& other, Course& course) {  // go on from where a run in another precision stands
        for (int s = 0; s < 2; ++s)
            by_rows(s, [&](Index c, Index i) { side[s].kept[c * side[s].ld + i] = Real(other.side[s].kept[c * other.side[s].ld + i]); });
        double infinite = Momentum().error;
        course.momentum.error = infinite, course.momentum.plain = true, course.ahead = 0;
        course.widened = course.iterations, pull_ = course.pull;
    }
    // Iterations until the run has converged or has to end, or if `last_stage` is false until float32 no longer serves.
    // `show` is called between iterations and says whether somebody wants to end.
    template <class Show>
    void run(Course& course, bool last_stage, Show&& show) {
        const Rules& rules = course.rules;
        Look& look = crew_.looks[0];
        while (course.iterations < rules.max_iter) {
            bool first = !course.is_known, was_plain = course.momentum.plain;
            if (first && !propose(1, 0, side[1].gram)) break;  // the Gram matrix of H for the error of the start
            double start_gram = 0, start_trace = 0, start_sum = sums_[sum];
            if (!propose(0, course.ahead, given_gram_)) break;
            if (first) {  // the sums at the start, for its error
                start_gram = product_of(given_gram_, side[1].gram);
                start_trace = side[1].l1 * 2 * start_sum + (side[1].l2 + pull_) * trace(side[1].gram) +
                              side[0].l1 * 2 * sums_[sum] + (side[0].l2 + pull_) * trace(given_gram_);
            }
            if (!half_step(1, given_gram_, course.ahead, side[1].sweeps)) break;
            if (first) {
                const double begun = course.sq_norm - 2 * sums_[start] + start_gram + start_trace;
                begin_history(course, begun);
                if (pull_ > 0) course.momentum.error = begun;  // as the first iteration may end higher
            }
            if (!half_step(0, side[1].gram, course.ahead, side[0].sweeps)) break;
            if (pull_ > 0 && !average()) break;
            double now = objective(course), before = course.momentum.error;
            if constexpr (Matrix::is_dense && sizeof(Real) == 8)
                if (now < resolved_share * course.sq_norm && course.is_plain()) {
                    const Real *W = pull_ > 0 ? side[1].proposed : side[0].other, *H = pull_ > 0 ? W : side[1].other;
                    now = residual(V_, W, side[0].ld, H, side[1].ld, r_, crew_, arena_);
                    if (now < 0) break;
                }
            const bool drifts = pull_ > 0 && was_plain && now > before;  // apart, which a stronger pull does not allow
            if (drifts) join(), pull_ = course.pull *= 2;
            else course.ahead = course.momentum.judge(now);
            ++course.iterations;
            bool refused = drifts || course.momentum.refused;
            if (!refused)
                for (Side<Real>& d : side) swap(d);
            keep(course, course.momentum.error);
            if (refused && was_plain && !drifts) {
                course.status = Status::nonfinite;
                return;
            }
            const bool is_rise = refused && !(now - course.momentum.error <= rising_share * eps * course.sq_norm);
            if (!is_rise && has_ended(course, last_stage)) return;
            if (!last_stage && !refused && is_rounding(before, now, course.sq_norm)) return;
            if (course.iterations % look_every == 0 && show(course)) look.end(Status::interrupted);
            if (look(V_.work() * double(r_) * 1e-3 + 1e3)) break;
        }
        course.status = look.ended() ? look.status() : Status::max_iter;
    }

    // The error of the point kept, in this precision.
    void evaluate(Course& course) {
        pull_ = 0;  // between factors that are the same
        if (propose(1, 0, side[1].gram) && half_step(0, side[1].gram, 0, 0)) course.momentum.error = objective(course);
    }

    // The best W for the H kept, by sweeps and if asked by supports, unless it is worse than what was there.
    void refine(Course& course, bool exact) {
        Side<Real>& d = side[0];
        if (exact && sizeof(Real) == 8 && !d.fixed) {
            reals_ = arena_.zeros<double>(crew_.width * Exact::room(r_)), integers_ = arena_.zeros<int32_t>(crew_.width * 2 * r_);
        }
        share_ = Real(refine_share);
        bool whole = propose(1, 0, side[1].gram) && half_step(0, side[1].gram, 0, refine_sweeps);
        share_ = Real(sweep_share), reals_ = nullptr;
        double now = whole ? objective(course) : 0, rounding = rising_share * eps * course.sq_norm;
        if (course.momentum.error < resolved_share * course.sq_norm) {
            rounding = 0;
            if constexpr (Matrix::is_dense && sizeof(Real) == 8)
                if (whole && course.is_plain()) {
                    now = residual(V_, d.other, d.ld, side[1].kept, side[1].ld, r_, crew_, arena_);
                    whole = now >= 0;
                }
        }
        if (whole && !(now > course.momentum.error + rounding)) {
            swap(d);
            course.momentum.error = now;
        }
        if (!whole && course.iterations == 0) course.status = crew_.looks[0].status();
    }

    // The mean of both factors kept in place of each.
    void join() {
        by_rows(0, [&](Index c, Index i) {
            Real *w = side[0].kept + c * side[0].ld + i, *h = side[1].kept + c * side[1].ld + i;
            *w = *h = (*w + *h) / 2;
        });
    }

    // Form the error entry by entry where ‖V‖² − 2⟨V H, W⟩ + ⟨WᵀW, HᵀH⟩ has lost too many digits.
    void resolve(Course& course) {
        if constexpr (Matrix::is_dense)
            if (course.momentum.error < reported_share * course.sq_norm) {
                double formed = residual(V_, side[0].kept, side[0].ld, side[1].kept, side[1].ld, r_, crew_, arena_);
                for (int s = 0; s < 2 && formed >= 0 && !course.is_plain(); ++s) {
                    if (!propose(s, 0, given_gram_)) return;
                    formed += 2 * side[s].l1 * side[s].sum + side[s].l2 * trace(given_gram_);
                }
                if (formed >= 0) course.momentum.error = formed;
            }
    }

    // The other point of side s becomes V X or Vᵀ X of the point kept on the other side, with its Gram matrix; whether it was done.
    bool times(int s) {
        Side<Real>& d = side[s];
        if (!propose(1 - s, 0, given_gram_)) return false;
        const Given<Real> given = given_by(1 - s);
        bool whole = multiply(s, given) && over_chunks(d, [&](double* part, Index a, Index b, Real* f, Real*, int, Look& look) {
            rows_of_product(s, given, a, b, f, look);
            if (look.ended()) return;
            clear_end(f, ldf, b - a, r_);
            gram(f, ldf, b - a, r_, part, look);
            for (Index c = 0; c < r_; ++c) __builtin_memcpy(d.other + c * d.ld + a, f + c * ldf, size_t(b - a) * sizeof(Real));
        });
        add_up(d, d.gram);
        if (whole) swap(d);
        return whole;
    }

    // Make the components of side s orthonormal, by Cholesky factors of their Gram matrix, until that is the identity. The first two times
    // the diagonal is raised, unless it is near the identity already, which keeps the factor stable for components that nearly depend on each
    // other; what depends on others to all digits becomes zero.
    bool orthonormalize(int s) {
        Side<Real>& d = side[s];
        double *L = given_gram_, away = 1;  // the largest entry of the Gram matrix without the identity
        for (int round = 0; round < 4 && away > 4 * eps; ++round) {
            double largest = 0;
            for (Index c = 0; c < r_; ++c) largest = d.gram[c * r_ + c] > largest ? d.gram[c * r_ + c] : largest;
            const double raised = round < 2 && away > 0.5 ? 16 * eps * largest : 0, least = 16 * eps;
            for (Index c = 0; c < r_; ++c) {
                for (Index e = 0; e <= c; ++e) {
                    double value = d.gram[c * r_ + e] + (e == c ? raised : 0), whole = value;
                    for (Index k = 0; k < e; ++k) value -= L[c * r_ + k] * L[e * r_ + k];
                    if (e < c) L[c * r_ + e] = L[e * r_ + e] > 0 ? value / L[e * r_ + e] : 0;
                    else L[c * r_ + c] = value > least * whole && value > 0 ? __builtin_sqrt(value) : 0;
                }
                if (crew_.looks[0](double(c) * double(c) / 2)) return false;
            }
            bool whole = over_chunks(d, [&](double* part, Index a, Index b, Real*, Real* x, int, Look& look) {
                ahead(d, a, b, 0, x, false);
                for (Index c = 0; c < r_; ++c) {
                    double pivot = L[c * r_ + c];
                    for (Index e = 0; e < c; ++e)
                        for (Index i = 0; i < b - a; ++i) x[c * ldf + i] -= Real(L[c * r_ + e]) * x[e * ldf + i];
                    for (Index i = 0; i < b - a; ++i) x[c * ldf + i] = pivot > 0 ? x[c * ldf + i] / Real(pivot) : Real(0);
                    if (look(double(c + 1) * double(b - a))) return;
                }
                gram(x, ldf, b - a, r_, part, look);
                for (Index c = 0; c < r_; ++c) __builtin_memcpy(d.kept + c * d.ld + a, x + c * ldf, size_t(b - a) * sizeof(Real));
            });
            if (!whole) return false;
            add_up(d, d.gram);
            away = 0;
            for (Index c = 0; c < r_; ++c)
                for (Index e = 0; e <= c; ++e) {
                    const double one = e == c && L[c * r_ + c] > 0, apart = __builtin_fabs(d.gram[c * r_ + e] - one);
                    away = apart > away ? apart : away;
                }
        }
        return true;
    }

   private:
    double product_of(const double* A, const double* B) const {  // ⟨A, B⟩ from lower halves
        double total = 0;
        for (Index c = 0; c < r_; ++c)
            for (Index e = 0; e <= c; ++e) total += (e < c ? 2 : 1) * A[c * r_ + e] * B[c * r_ + e];
        return total;
    }
    double trace(const double* A) const {
        double total = 0;
        for (Index c = 0; c < r_; ++c) total += A[c * r_ + c];
        return total;
    }
    // The sums that `objective` reads, of the mean M of both new factors in place of each; M is proposed for side 1.
    bool average() {
        Side<Real>&w = side[0], &h = side[1];
        bool whole = over_chunks(h, [&](double* part, Index a, Index b, Real*, Real* x, int, Look& look) {
            for (Index c = 0; c < r_; ++c)
                for (Index i = 0; i < b - a; i += lanes<Real>)
                    store(x + c * ldf + i, (load(w.other + c * w.ld + a + i) + load(h.other + c * h.ld + a + i)) / 2);
            gram(x, ldf, b - a, r_, part, look);
            part[r_ * r_ + sum] += sum_of(x, b - a);
            hand_over(h, a, b, x);
        });
        add_up(h, w.gram), add_up(h, h.gram);
        w.sum = h.sum = sums_[sum];
        const Given<Real> given = given_by(1);
        whole = whole && multiply(0, given) && over_chunks(w, [&](double* part, Index a, Index b, Real* f, Real* x, int, Look& look) {
            rows_of_product(0, given, a, b, f, look);
            if (look.ended()) return;
            for (Index c = 0; c < r_; ++c)
                for (Index i = 0; i < b - a; i += lanes<Real>) store(x + c * ldf + i, load(h.proposed + c * h.ld + a + i));
            part[r_ * r_ + inner] += dot(f, x, b - a);
        });
        add_up(w, nullptr);
        return whole;
    }
    double objective(const Course& course) const {  // twice the objective, after a half-step of W or `average`
        double total = course.sq_norm - 2 * sums_[inner] + product_of(side[0].gram, side[1].gram);
        for (const Side<Real>& d : side) total += 2 * d.l1 * d.sum + d.l2 * trace(d.gram);
        return total;
    }

    // The error of the start. What earlier stages measured on coarser data moves so that it ends there.
    void begin_history(Course& course, double objective) const {
        History& history = course.history;
        course.is_known = true;
        if (history.count == 0) return keep(course, objective);
        double error = course.error(objective), last = history.error(history.count - 1), moved = error * error - last * last;
        for (Index t = 0; t < history.count; ++t) {
            double sq = history.error(t) * history.error(t) + moved;
            course.lane.history[2 * t] = __builtin_sqrt(sq > 0 ? sq : 0);
        }
    }

    bool has_ended(Course& course, bool last_stage) {
        const Rules& rules = course.rules;
        double now = course.momentum.error;
        int32_t t = course.iterations;
        if (!(rules.tol > 0)) return false;
        bool resolved = Matrix::is_dense && sizeof(Real) == 8 && course.is_plain();
        if (is_exact(now, course.sq_norm, eps, resolved, rules.tol)) return course.status = last_stage ? Status::converged : Status::max_iter, true;
        if (!is_look(t) || !has_settled(course.history.error(look_back(t)), course.history.error(t), rules.tol)) return false;
        if (2 * gain_share * rules.tol * now > single_share * course.sq_norm) return course.status = Status::converged, true;
        // Float32 cannot see such a gain: its stage ends here, and the pace of the next one counts from its own beginning.
        if (!last_stage) return true;
        if (look_back(t) < course.widened) return false;
        return course.status = Status::converged, true;
    }

    // The proposal x + β(x − x_before) of one side, as the product of the other side reads it, and its Gram matrix.
    bool propose(int s, double beta, double* gram_of) {
        Side<Real>& d = side[s];
        bool whole = over_chunks(d, [&](double* part, Index a, Index b, Real*, Real* x, int, Look& look) {
            ahead(d, a, b, Real(beta), x, false);
            gram(x, ldf, b - a, r_, part, look);
            if (d.l1 > 0) part[r_ * r_ + sum] += sum_of(x, b - a);
            hand_over(d, a, b, x);
        });
        add_up(d, gram_of);
        d.sum = sums_[sum];
        return whole;
    }

    // The new point of side s from what the other side proposed, whose Gram matrix is `gram_of`.
    bool half_step(int s, const double* gram_of, double beta, int32_t n_sweeps) {
        Side<Real>& d = side[s];
        const Side<Real>& by = side[1 - s];
        normal_.set(gram_of, r_, d.l1, d.l2 + pull_, d.fixed);
        const Given<Real> given = given_by(1 - s);
        bool whole = multiply(s, given) && over_chunks(d, [&](double* part, Index a, Index b, Real* f, Real* x, int worker, Look& look) {
            rows_of_product(s, given, a, b, f, look);
            if (look.ended()) return;
            for (Index c = 0; pull_ > 0 && c < r_; ++c)
                for (Index i = a; i < b; ++i) f[c * ldf + i - a] += Real(pull_) * by.proposed[c * by.ld + i];
            ahead(d, a, b, Real(beta), x, true);
            if (s == 1) part[r_ * r_ + start] += dot(f, x, b - a);
            for (Index c = 0; d.l1 > 0 && c < r_; ++c)
                for (Index i = 0; i < b - a; ++i) f[c * ldf + i] -= normal_.l1;
            if (n_sweeps > 0) sweeps(x, f, ldf, b - a, normal_, r_, n_sweeps, share_, look);
            if constexpr (sizeof(Real) == 8)
                if (reals_)
                    exact_rows(x, f, ldf, b - a, normal_, r_, reals_ + worker * Exact::room(r_), integers_ + worker * 2 * r_, look);
            if (look.ended()) return;
            gram(x, ldf, b - a, r_, part, look);
            part[r_ * r_ + inner] += dot(f, x, b - a);
            if (d.l1 > 0) part[r_ * r_ + sum] += sum_of(x, b - a);
            for (Index c = 0; c < r_; ++c) __builtin_memcpy(d.other + c * d.ld + a, x + c * ldf, size_t(b - a) * sizeof(Real));
            if (s == 1) hand_over(d, a, b, x);
        });
        add_up(d, d.gram);
        d.sum = sums_[sum];
        sums_[inner] += d.l1 * d.sum;  // F was without l1
        return whole;
    }

    // f(part, a, b, room, room, worker, look) for chunks of the rows of a side, piece by piece.
    template <class F>
    bool over_chunks(Side<Real>& d, F&& f) {
        return crew_.share(d.pieces, [&](Index k, int worker, Look& look) {
            double* part = d.parts + k * stride();
            __builtin_memset(part, 0, size_t(stride()) * sizeof(double));
            for (Index a = d.piece(k), end = d.piece(k + 1); a < end && !look.ended(); a += chunk)
                f(part, a, a + chunk < end ? a + chunk : end, room(worker), room(worker) + r_ * ldf, worker, look);
        });
    }
    // What has to be done of a product before its rows are asked for.
    bool multiply(int s, const Given<Real>& given) {
        Side<Real>& d = side[s];
        if (!V_.prepare(s, given, small_, crew_)) return false;
        if (d.splits == 1) return true;
        Index blocks = blocks_of(V_.size(1 - s), 64), total = V_.size(1 - s);
        return crew_.share(d.splits * d.pieces, [&](Index k, int, Look& look) {
            Index part = k / d.pieces, a = d.piece(k % d.pieces), b = d.piece(k % d.pieces + 1);
            Index k0 = edge(blocks, d.splits, part) * 64, k1 = edge(blocks, d.splits, part + 1) * 64;
            V_.product(s, given, a, b, k0, k1 < total ? k1 : total, d.partial + part * r_ * d.ld + a, d.ld, small_, look);
        });
    }
    void rows_of_product(int s, const Given<Real>& given, Index a, Index b, Real* f, Look& look) {
        Side<Real>& d = side[s];
        if (d.splits == 1) return V_.product(s, given, a, b, 0, V_.size(1 - s), f, ldf, small_, look);
        for (Index c = 0; c < r_; ++c)
            for (Index i = 0; i < b - a; i += lanes<Real>) {
                Vec<Real> total{};
                for (Index part = 0; part < d.splits; ++part) total += load(d.partial + (part * r_ + c) * d.ld + a + i);
                store(f + c * ldf + i, total);
            }
    }
    Given<Real> given_by(int s) const {
        const Side<Real>& d = side[s];
        return {{d.proposed, r_, d.n, d.ld}, {d.rows, d.n, r_, d.ld_rows}};
    }
    // x = kept + β(kept − before) for rows a ≤ i < b, its nonnegative part if `projects`, with zeros beyond b.
    void ahead(const Side<Real>& d, Index a, Index b, Real beta, Real* x, bool projects) const {
        constexpr int l = lanes<Real>;
        for (Index c = 0; c < r_; ++c) {
            const Real *kept = d.kept + c * d.ld + a, *before = d.other + c * d.ld + a;
            for (Index i = 0; i < b - a; i += l) {  // rows have zeros beyond n, and pieces end at whole vectors
                Vec<Real> k = load(kept + i), y = beta == 0 ? k : k + beta * (k - load(before + i));
                store(x + c * ldf + i, projects ? positive<Real>(y) : y);
            }
        }
    }
    void hand_over(Side<Real>& d, Index a, Index b, const Real* x) const {
        if (d.rows)
            for (Index i = a; i < b; ++i)
                for (Index c = 0; c < r_; ++c) d.rows[i * d.ld_rows + c] = x[c * ldf + i - a];
        if (d.proposed)
            for (Index c = 0; c < r_; ++c) __builtin_memcpy(d.proposed + c * d.ld + a, x + c * ldf, size_t(b - a) * sizeof(Real));
    }
    double dot(const Real* f, const Real* x, Index n) const {  // whole vectors, whose ends are zero in x
        double total = 0;
        for (Index c = 0; c < r_; ++c) {
            Vec<Real> t{};
            for (Index i = 0; i < n; i += lanes<Real>) t += load(f + c * ldf + i) * load(x + c * ldf + i);
            total += double(sum_up(t));
        }
        return total;
    }
    static Real sum_up(Vec<Real> t) { return FACTORMER_SET::sum<Real>(t); }
    double sum_of(const Real* x, Index n) const {
        double total = 0;
        for (Index c = 0; c < r_; ++c) {
            Vec<Real> t{};
            for (Index i = 0; i < n; i += lanes<Real>) t += load(x + c * ldf + i);
            total += double(sum_up(t));
        }
        return total;
    }
    void add_up(const Side<Real>& d, double* gram_to) {
        for (double& total : sums_) total = 0;
        if (gram_to) __builtin_memset(gram_to, 0, size_t(r_ * r_) * sizeof(double));
        for (Index k = 0; k < d.pieces; ++k) {
            const double* part = d.parts + k * stride();
            for (Index e = 0; gram_to && e < r_ * r_; ++e) gram_to[e] += part[e];
            for (Index e = 0; e < n_sums_of; ++e) sums_[e] += part[r_ * r_ + e];
        }
    }
};

}  // namespace factormer::FACTORMER_SET
