// Newton steps on rows of a factor: a row x ≥ 0 minimises Σ_i ω_i d(v_i, b_i·x) + l1 Σx + ½ l2 ‖x‖², with b_i the rows of the other factor.
// The quadratic model of it at x has the gradient Σ slope_i b_i and the Hessian Σ curve_i b_i b_iᵀ (losses.hpp). Sweeps over coordinates
// lower the model over x + step ≥ 0, and the row goes along the step as far as the loss falls: a convex function falls on the way to t if
// its slopes at t/2 and at t sum to 0 or less, which needs no value of d. Where a Hessian is older than x the gradient is exact all the same.
#pragma once
#include "../constants.hpp"
#include "../losses.hpp"
#include "../products.hpp"

namespace factormer::FACTORMER_SET {

struct Half {  // what a half-step reads beside x: the other factor by rows of ld numbers with zeros beyond r, and the sum of its rows
    const double *rows = nullptr, *linear = nullptr;  // where a term y is apart, else zeros
    Index ld = 0;
    double l1 = 0, l2 = 0;
    const uint8_t* fixed = nullptr;
    int32_t sweeps = 0;         // 0: x stays, and its value is asked for
    bool fresh = true;          // whether Hessians are made anew, where they are kept
    bool strict = true;         // whether every rise along a step is looked for, or only a slope at its end that is large
    bool mends = false;         // a multiplicative update in place of a step: x ← x (Σ pull_i b_i) / linear
};

// Dense V as panels: for each block of `wide` rows of either side, the entries of all rows of the other side, `wide` in a line. Entries
// beyond V's are 1, and have no weight or no row of a factor.
struct Panels {
    static constexpr int C = vector_bytes == 16 ? 2 : most_components, N = vector_bytes == 16 ? 4 : 3, l = lanes<double>;
    static constexpr Index wide = N * l;
    Index n[2] = {};
    double *values[2] = {}, *weights[2] = {};

    Index size(int s) const { return n[s]; }
    double work() const { return double(n[0]) * double(n[1]); }
    Index blocks(int s) const { return blocks_of(n[s], wide); }
    Index length(int s) const { return rounded(n[1 - s], C); }
    Index numbers(int s) const { return blocks(s) * length(s) * wide; }

    // Fill panels of both sides with the entries of(row, column) of a matrix.
    template <class F>
    void set(double* const* to, F&& of, const Crew& crew) const {
        for (int s = 0; s < 2; ++s) {
            if (length(s) == 0) continue;
            const Index some = 1 + (1 << 14) / (length(s) * wide);
            crew.share(blocks_of(blocks(s), some), [&](Index piece, int, Look& look) {
                for (Index b = piece * some; b < blocks(s) && b < (piece + 1) * some; ++b) {
                    double* out = to[s] + b * length(s) * wide;
                    for (Index i = 0; i < length(s); ++i)
                        for (Index j = 0; j < wide; ++j) {
                            const Index k = b * wide + j;
                            const bool is_there = i < n[1 - s] && k < n[s];
                            out[i * wide + j] = !is_there ? 1 : s == 0 ? of(k, i) : of(i, k);
                        }
                    if (look(double(length(s) * wide))) return;
                }
            });
        }
    }
};

template <class Loss>
class DenseSteps {
    using P = Panels;
    static constexpr int C = P::C, N = P::N, l = P::l;
    static constexpr Index wide = P::wide, chunk = 64;
    static constexpr double most_kept = 1.6e7;  // numbers of Hessians in memory: those of larger factors are made anew in every half-step
    const P& V_;
    Loss loss_;
    Index r_, pairs_;
    double* hessians_[2] = {};
    struct Room {
        double *x, *g, *step, *inverse, *cap, *fit, *way, *frozen, *slope, *curve, *products, *G;
    };
    Room* rooms_;

   public:
    static constexpr bool is_dense = true;

    DenseSteps(const P& V, const Loss& loss, Index r, int32_t width, Arena& arena) : V_(V), loss_(loss), r_(r), pairs_(r * (r + 1) / 2) {
        const Index longest = rounded(V.n[0] > V.n[1] ? V.n[0] : V.n[1], C);
        const bool keeps = double(V.blocks(0) + V.blocks(1)) * double(pairs_) * double(wide) <= most_kept;
        for (int s = 0; keeps && s < 2; ++s) hessians_[s] = arena.zeros<double>(V.blocks(s) * wide * pairs_);
        rooms_ = arena.zeros<Room>(width);
        for (int32_t k = 0; k < width; ++k) {
            Room& room = rooms_[k];
            for (double** some : {&room.x, &room.g, &room.step, &room.inverse, &room.cap}) *some = arena.zeros<double>(r * wide);
            for (double** some : {&room.fit, &room.way, &room.frozen}) *some = arena.zeros<double>(longest * wide);
            for (double** some : {&room.slope, &room.curve}) *some = arena.zeros<double>(chunk * wide);
            room.products = arena.zeros<double>(chunk * pairs_ + l);
            if (!keeps) room.G = arena.zeros<double>(pairs_ * wide);
        }
    }
    Index parts(int s) const { return V_.blocks(s); }           // that rows of a side are cut into
    Index first(int s, Index part) const { return part * wide < V_.n[s] ? part * wide : V_.n[s]; }

    // The rows of one part, x by components from `ahead` into `out`; return their share of the objective.
    template <class Ahead>
    double part(int s, Index b, const Half& half, Ahead&& ahead, double* out, Index ldo, bool wants_value, int worker, Look& look) const {
        Room room = rooms_[worker];
        const Index i0 = b * wide, count = V_.n[s] - i0 < wide ? V_.n[s] - i0 : wide, m = V_.n[1 - s];
        for (Index c = 0; c < r_; ++c)
            unroll<N>([&](auto j) { store(room.x + c * wide + j * l, ahead(c, i0 + j * l)); });
        const bool keeps = hessians_[s] != nullptr, bends = half.sweeps > 0 && (half.fresh || !keeps);
        if (keeps) room.G = hessians_[s] + b * pairs_ * wide;
        const double *v = V_.values[s] + b * V_.length(s) * wide, *w = V_.weights[s] ? V_.weights[s] + b * V_.length(s) * wide : nullptr;
        Wide t[N] = {};
        if (half.sweeps > 0 || half.mends) {
            if (!model(s, v, w, half, bends, room, look)) return 0;
            if (half.mends) {
                for (Index c = 0; c < r_; ++c) {
                    const double inverse = half.linear[c] > 0 ? 1 / half.linear[c] : 0;
                    unroll<N>([&](auto j) {
                        const Index p = c * wide + j * l;
                        store(room.x + p, load(room.x + p) * -load(room.g + p) * inverse);
                    });
                }
            } else {
                slopes_and_bends(half, bends, room);
                descend(half, room);
                if (look(double(half.sweeps) * 2 * double(pairs_) * wide)) return 0;
                search(v, w, m, half, t, room, look);
                for (Index c = 0; c < r_; ++c)
                    unroll<N>([&](auto j) {
                        const Index p = c * wide + j * l;
                        store(room.x + p, positive<double>(load(room.x + p) + t[j] * load(room.step + p)));
                    });
            }
        }
        double total = 0;
        if (wants_value) {
            const bool moved = half.sweeps > 0;
            if (!moved) fits(half, room.x, m, [&](Index p, Wide y) { store(room.fit + p, y); });
            Wide sums_of[N] = {};
            for (Index i = 0; i < m; ++i)
                unroll<N>([&](auto j) {
                    const Index p = i * wide + j * l;
                    Wide y = load(room.fit + p);
                    if (moved) y = positive<double>(y + t[j] * load(room.way + p));
                    sums_of[j] += loss_.value(load(v + p), w ? load(w + p) : all(1), y);
                });
            for (Index c = 0; c < r_; ++c)
                unroll<N>([&](auto j) {
                    const Wide x = load(room.x + c * wide + j * l);
                    sums_of[j] += x * (half.linear[c] + half.l1 + 0.5 * half.l2 * x);
                });
            for (Index j = 0; j < count; ++j) total += sums_of[j / l][j % l];
            look(20.0 * double(m) * wide);
        }
        for (Index c = 0; c < r_; ++c) __builtin_memcpy(out + c * ldo + i0, room.x + c * wide, size_t(count) * sizeof(double));
        return total;
    }

   private:
    // f(place, fit) for the fits of all lines, C at a time.
    template <class F>
    [[gnu::always_inline]] void fits(const Half& half, const double* x, Index m, F&& f) const {
        for (Index i = 0; i < m; i += C) fit_tile(half, x, i, f);
    }
    template <class F>
    [[gnu::always_inline]] void fit_tile(const Half& half, const double* x, Index i, F&& f) const {
        Wide s[C][N] = {};
        const double* b = half.rows + i * half.ld;
        for (Index c = 0; c < r_; ++c, x += wide) {
            Wide v[N];
            unroll<N>([&](auto j) { v[j] = load(x + j * l); });
            unroll<C>([&](auto k) { unroll<N>([&](auto j) { s[k][j] += b[k * half.ld + c] * v[j]; }); });
        }
        unroll<C>([&](auto k) { unroll<N>([&](auto j) { f((i + k) * wide + j * l, s[k][j]); }); });
    }

    // out_c (+)= Σ_i A_ic q_i for n columns c of A, by tiles of at most C.
    void accumulate(bool first, Index K, const double* A, Index lda, const double* q, Index n, double* out) const {
        const Index tiles = blocks_of(n, C);
        for (Index p = 0; p < tiles; ++p) {
            const Index c = edge(n, tiles, p);
            with<C>(int(edge(n, tiles, p + 1) - c), [&](auto count) {
                Wide t[count][N];
                double* o = out + c * wide;
                unroll<count>([&](auto e) { unroll<N>([&](auto j) { t[e][j] = first ? Wide{} : load(o + e * wide + j * l); }); });
                const double *a = A + c, *u = q;
                for (Index i = 0; i < K; ++i, a += lda, u += wide) {
                    Wide q_i[N];
                    unroll<N>([&](auto j) { q_i[j] = load(u + j * l); });
                    unroll<count>([&](auto e) { unroll<N>([&](auto j) { t[e][j] += a[e] * q_i[j]; }); });
                }
                unroll<count>([&](auto e) { unroll<N>([&](auto j) { store(o + e * wide + j * l, t[e][j]); }); });
            });
        }
    }

    // Σ slope b in room.g and, if it `bends`, Σ curve b bᵀ in room.G, from the fits of x; whether all was done.
    bool model(int s, const double* v, const double* w, const Half& half, bool bends, const Room& room, Look& look) const {
        const Index length = V_.length(s);
        for (Index i0 = 0; i0 < length; i0 += chunk) {
            const Index count = length - i0 < chunk ? length - i0 : chunk;
            for (Index i = i0; i < i0 + count; i += C)
                fit_tile(half, room.x, i, [&](Index p, Wide y) __attribute__((always_inline)) {
                    const Model at = loss_.model(load(v + p), w ? load(w + p) : all(1), y);
                    store(room.fit + p, y), store(room.slope + p - i0 * wide, at.slope), store(room.curve + p - i0 * wide, at.curve);
                    if constexpr (Loss::freezes) store(room.frozen + p, at.frozen);
                });
            const double* rows = half.rows + i0 * half.ld;
            accumulate(i0 == 0, count, rows, half.ld, room.slope, r_, room.g);
            if (bends) {
                double* products = room.products;
                for (Index i = 0; i < count; ++i, products += pairs_) {
                    const double *row = rows + i * half.ld;
                    double* to = products;
                    for (Index c = 0; c < r_; to += ++c)  // whole vectors: what is beyond e = c is overwritten by the next
                        for (Index e = 0; e <= c; e += l) store(to + e, row[c] * load(row + e));
                }
                accumulate(i0 == 0, count, room.products, pairs_, room.curve, pairs_, room.G);
            }
            if (look(double(count) * wide * double(bends ? pairs_ : 2 * r_))) return false;
        }
        return true;
    }

    double* line(const Room& room, Index c, Index e) const { return room.G + (c * (c + 1) / 2 + e) * wide; }

    void slopes_and_bends(const Half& half, bool bends, const Room& room) const {
        for (Index c = 0; c < r_; ++c)
            unroll<N>([&](auto j) {
                const Index p = c * wide + j * l;
                store(room.g + p, load(room.g + p) + (half.linear[c] + half.l1) + half.l2 * load(room.x + p));
                if (bends) store(line(room, c, c) + j * l, load(line(room, c, c) + j * l) + half.l2);
            });
    }

    // Sweeps over coordinates, on the model, in room.step, until a sweep of a row gains little. Coordinates at zero that are drawn below it
    // stay there; where there is no curvature a coordinate can only fall.
    void descend(const Half& half, const Room& room) const {
        Wide most[N];
        unroll<N>([&](auto j) { most[j] = all(smallest); });
        const Wide zero{};
        auto moves = [&](Index c, Index p) __attribute__((always_inline)) {
            const double held = half.fixed && half.fixed[c] ? largest_real : 0;
            return (load(room.x + p) > held) | (load(room.g + p) < -held);
        };
        for (Index c = 0; c < r_; ++c)
            unroll<N>([&](auto j) {
                const Wide bend = load(line(room, c, c) + j * l);
                most[j] = moves(c, c * wide + j * l) ? larger(most[j], bend) : most[j];
            });
        for (Index c = 0; c < r_; ++c)
            unroll<N>([&](auto j) {
                const Index p = c * wide + j * l;
                const Wide bend = load(line(room, c, c) + j * l);
                const auto bent = bend > flat_bend * most[j];
                const Wide inverse = reciprocal(bent ? bend : slow_bend * most[j]);
                store(room.inverse + p, moves(c, p) ? inverse : zero);
                store(room.cap + p, bent ? all(largest_real) : zero);
                store(room.step + p, zero);
            });
        Wide first[N];
        decltype(first[0] > first[0]) opens[N];  // rows that go on
        unroll<N>([&](auto j) { opens[j] = most[j] == most[j]; });
        for (int32_t k = 0; k < half.sweeps; ++k) {
            Wide gain[N] = {};
            for (Index c = 0; c < r_; ++c) {
                Wide t[N], u[N];
                unroll<N>([&](auto j) { t[j] = load(room.g + c * wide + j * l), u[j] = Wide{}; });
                const double* y = room.step + (c + 1) * wide;
                for (Index e = c + 1; k > 0 && e < r_; ++e, y += wide) {
                    const double* G = line(room, e, c);
                    unroll<N>([&](auto j) { u[j] += load(G + j * l) * load(y + j * l); });
                }
                const double* G = line(room, c, 0);
                y = room.step;
                for (Index e = 0; e < c; ++e, y += wide, G += wide)
                    unroll<N>([&](auto j) { t[j] += load(G + j * l) * load(y + j * l); });
                unroll<N>([&](auto j) {
                    const Index p = c * wide + j * l;
                    const Wide at = load(room.step + p), inverse = load(room.inverse + p);
                    Wide to = smaller(larger(-(t[j] + u[j]) * inverse, -load(room.x + p)), load(room.cap + p));
                    to = opens[j] & (inverse > Wide{}) ? to : at;
                    store(room.step + p, to);
                    gain[j] += (to - at) * (to - at) * load(line(room, c, c) + j * l);
                });
            }
            bool goes_on = false;
            unroll<N>([&](auto j) {
                if (k == 0) first[j] = gain[j];
                opens[j] = gain[j] > sweep_gain * first[j];
                goes_on = goes_on || sum<double>(opens[j] ? all(1) : Wide{}) > 0;
            });
            if (!goes_on) break;
        }
    }

    // How far each row goes along its step, in t.
    void search(const double* v, const double* w, Index m, const Half& half, Wide (&t)[N], const Room& room, Look& look) const {
        unroll<N>([&](auto j) { t[j] = all(1); });
        Wide fixed[N] = {}, bend[N] = {}, end[N], allowed[N] = {};
        for (Index c = 0; c < r_; ++c)
            unroll<N>([&](auto j) {
                const Index p = c * wide + j * l;
                const Wide step = load(room.step + p), by_sum = (half.linear[c] + half.l1 + half.l2 * load(room.x + p)) * step;
                fixed[j] += by_sum, bend[j] += half.l2 * step * step;
                allowed[j] += level_slope * larger(by_sum, -by_sum);
                if (!half.strict) allowed[j] -= end_share * step * load(room.g + p);
            });
        fits(half, room.step, m, [&](Index p, Wide d) __attribute__((always_inline)) { store(room.way + p, d); });
        if constexpr (!Loss::searches) return;
        const Wide zero{};
        auto slope_at = [&](double share, Wide (&slope)[N]) __attribute__((always_inline)) {  // at `share` of t
            Wide at[N];
            unroll<N>([&](auto j) { at[j] = share * t[j], slope[j] = fixed[j] + at[j] * bend[j]; });
            for (Index i = 0; i < m; ++i)
                unroll<N>([&](auto j) {
                    const Index p = i * wide + j * l;
                    const Wide d = load(room.way + p), frozen = Loss::freezes ? load(room.frozen + p) : zero;
                    slope[j] += d * loss_.slope(load(v + p), w ? load(w + p) : all(1), frozen, load(room.fit + p) + at[j] * d);
                });
        };
        slope_at(1, end);
        unroll<N>([&](auto j) { end[j] = end[j] > allowed[j] ? end[j] : zero; });
        for (int32_t attempt = 0; attempt < halvings; ++attempt) {
            bool rises = false;
            unroll<N>([&](auto j) { rises = rises || sum<double>(positive<double>(end[j])) > 0; });
            if (!rises || look(10.0 * double(m) * wide)) break;
            Wide now[N];
            slope_at(0.5, now);
            unroll<N>([&](auto j) {
                const auto open = end[j] > zero, falls = now[j] + end[j] <= zero;
                t[j] = open ? (falls ? t[j] : t[j] * 0.5) : t[j];
                end[j] = open ? (falls ? zero : now[j]) : end[j];
            });
        }
        unroll<N>([&](auto j) { t[j] = end[j] > zero ? zero : t[j]; });
    }
};

// Sparse V by rows and by columns, with a weight for each entry stored or for none. What is not stored is zero where V is `complete`, and is
// not known otherwise. Zeros of a complete V only add to the linear term under Kullback–Leibler; under other losses rows are filled with them.
struct Stored {
    Index n[2] = {};
    const int64_t* from[2] = {};
    const int32_t* at[2] = {};
    const double *values[2] = {}, *weights[2] = {};
    bool is_filled = false;

    Index size(int s) const { return n[s]; }
    double work() const { return is_filled ? double(n[0]) * double(n[1]) : double(from[0][n[0]]); }
};

// A row reads the rows of the other factor that its entries name: for the fits and the gradient with components in the lanes, and for the
// Hessian with entries in the lanes, of those components alone that are not zero or are drawn away from it.
template <class Loss>
class SparseSteps {
    static constexpr int l = lanes<double>, at_once = 4;  // vectors of a gradient in registers
    static constexpr Index chunk = 256, most_parts = 64;
    const Stored& V_;
    Loss loss_;
    Index r_, ld_;
    Index* edges_[2];
    int32_t* every_ = nullptr;  // 0, 1, …: the columns of a row that is filled
    struct Room {
        double *x, *g, *step, *begun, *packed, *scaled, *G, *half, *fit, *way, *frozen, *slope, *curve, *v, *w;
        Index* free;
    };
    Room* rooms_;

   public:
    static constexpr bool is_dense = false;

    SparseSteps(const Stored& V, const Loss& loss, Index r, int32_t width, Arena& arena) : V_(V), loss_(loss), r_(r), ld_(rounded(r, l)) {
        Index longest = 0;
        for (int s = 0; s < 2; ++s) {
            const int64_t* from = V.from[s];
            const Index n = V.n[s];
            edges_[s] = arena.zeros<Index>(most_parts + 1);
            const double every = V.is_filled ? double(V.n[1 - s]) : 8, all_of = (V.is_filled ? 0 : double(from[n])) + every * double(n);
            for (Index k = 0, i = 0; k <= most_parts; ++k) {  // as many entries, and a few for each row, in each part
                while (i < n && (V.is_filled ? 0 : double(from[i])) + every * double(i) < all_of * double(k) / most_parts) ++i;
                edges_[s][k] = k == most_parts ? n : i;
            }
            for (Index i = 0; i < n; ++i) longest = from[i + 1] - from[i] > longest ? from[i + 1] - from[i] : longest;
            if (V.is_filled) longest = longest > V.n[1 - s] ? longest : V.n[1 - s];
        }
        if (V.is_filled) {
            every_ = arena.zeros<int32_t>(longest);
            for (Index i = 0; i < longest; ++i) every_[i] = int32_t(i);
        }
        longest = rounded(longest, l) + l;
        rooms_ = arena.zeros<Room>(width);
        for (int32_t k = 0; k < width; ++k) {
            Room& room = rooms_[k];
            for (double** some : {&room.x, &room.g, &room.step, &room.begun}) *some = arena.zeros<double>(ld_ + l);
            for (double** some : {&room.packed, &room.scaled}) *some = arena.zeros<double>(r * (chunk + l));
            room.G = arena.zeros<double>(r * ld_ + l), room.half = arena.zeros<double>(r * r);
            for (double** some : {&room.fit, &room.way, &room.frozen, &room.slope, &room.curve, &room.v, &room.w}) *some = arena.zeros<double>(longest);
            room.free = arena.zeros<Index>(r);
        }
    }
    Index parts(int) const { return most_parts; }
    Index first(int s, Index part) const { return edges_[s][part]; }

    template <class Ahead>
    double part(int s, Index k, const Half& half, Ahead&& ahead, double* out, Index ldo, bool wants_value, int worker, Look& look) const {
        double total = 0;
        for (Index i = edges_[s][k]; i < edges_[s][k + 1]; ++i) {
            const Room& room = rooms_[worker];
            for (Index c = 0; c < r_; ++c) room.x[c] = ahead.one(c, i);
            total += row(s, i, half, wants_value, room, look);
            if (look.ended()) return total;
            for (Index c = 0; c < r_; ++c) out[c * ldo + i] = room.x[c];
        }
        return total;
    }

   private:
    double row(int s, Index i, const Half& half, bool wants_value, const Room& room, Look& look) const {
        const int64_t first = V_.from[s][i];
        const Index stored = V_.from[s][i + 1] - first, k = V_.is_filled ? V_.n[1 - s] : stored, whole = rounded(k, l);
        const int32_t* at = V_.is_filled ? every_ : V_.at[s] + first;
        take(s, first, stored, k, whole, room);
        fits<true>(half, at, k, room.x, room.fit);
        bool moved = false;
        double t = 0;
        if (half.sweeps > 0 || half.mends) {
            for (Index q = 0; q < whole; q += l) {
                const Model model = loss_.model(load(room.v + q), load(room.w + q), load(room.fit + q));
                store(room.slope + q, model.slope), store(room.curve + q, model.curve), store(room.frozen + q, model.frozen);
            }
            gradient(half, at, k, room);
            if (half.mends) {
                for (Index c = 0; c < r_; ++c) room.x[c] = half.linear[c] > 0 ? room.x[c] * -room.g[c] / half.linear[c] : 0;
            } else {
                for (Index c = 0; c < r_; ++c) room.g[c] += half.linear[c] + half.l1 + half.l2 * room.x[c];
                Index free = 0;
                for (Index c = 0; c < r_; ++c) {
                    room.free[free] = c;
                    free += (room.x[c] > 0 || room.g[c] < 0) && !(half.fixed && half.fixed[c]);
                }
                hessian(half, at, k, free, room, look);
                if (look.ended()) return 0;
                t = descend(half, at, k, whole, free, room, look);
                moved = true;
                for (Index c = 0; c < r_; ++c) {
                    const double now = room.x[c] + t * room.step[c];
                    room.x[c] = now > 0 ? now : 0;
                }
            }
            if (look(double(k) * double(4 * r_) + 50)) return 0;
        }
        double total = 0;
        if (wants_value) {
            if (half.mends) fits<false>(half, at, k, room.x, room.fit);
            Wide sums_of{};
            for (Index q = 0; q < whole; q += l) {
                Wide y = load(room.fit + q);
                if (moved) y = positive<double>(y + t * load(room.way + q));
                sums_of += loss_.value(load(room.v + q), load(room.w + q), y);
            }
            total = sum<double>(sums_of);
            for (Index c = 0; c < r_; ++c) total += room.x[c] * (half.linear[c] + half.l1 + 0.5 * half.l2 * room.x[c]);
        }
        return total;
    }

    // The entries of a row and their weights, 0 beyond its end.
    void take(int s, int64_t first, Index stored, Index k, Index whole, const Room& room) const {
        const double* values = V_.values[s] + first;
        if (V_.is_filled) {
            for (Index q = 0; q < k; ++q) room.v[q] = 0, room.w[q] = 1;
            for (Index q = 0; q < stored; ++q) room.v[V_.at[s][first + q]] = values[q];
        } else {
            for (Index q = 0; q < k; ++q) room.v[q] = values[q], room.w[q] = V_.weights[s] ? V_.weights[s][first + q] : 1;
        }
        for (Index q = k; q < whole; ++q) room.v[q] = 1, room.w[q] = 0;
    }

    // y_q = b_q · x for the entries of a row.
    template <bool fetches>
    void fits(const Half& half, const int32_t* at, Index k, const double* x, double* y) const {
        for (Index q = 0; q < k; q += l) {
            Wide t[l];
            unroll<l>([&](auto e) {
                const double* b = half.rows + Index(at[q + e < k ? q + e : k - 1]) * half.ld;
                if constexpr (fetches) {
                    const double* next = half.rows + Index(at[q + l + e < k ? q + l + e : k - 1]) * half.ld;
                    for (Index c = 0; c < r_; c += 64 / Index(sizeof(double))) __builtin_prefetch(next + c);
                }
                t[e] = load(b) * load(x);
                for (Index c = l; c < r_; c += l) t[e] += load(b + c) * load(x + c);
            });
            sums<double, l>(t, y + q);
        }
    }

    // g = Σ slope_q b_q.
    void gradient(const Half& half, const int32_t* at, Index k, const Room& room) const {
        for (Index c = 0; c < r_; c += at_once * l)
            with<at_once>(int((r_ - c + l - 1) / l < at_once ? (r_ - c + l - 1) / l : at_once), [&](auto n) {
                Wide t[n] = {};
                for (Index q = 0; q < k; ++q) {
                    const double *b = half.rows + Index(at[q]) * half.ld + c, slope = room.slope[q];
                    unroll<n>([&](auto j) { t[j] += slope * load(b + j * l); });
                }
                unroll<n>([&](auto j) { store(room.g + c + j * l, t[j]); });
            });
    }

    // G = Σ curve_q b_q b_qᵀ + l2 on the components that are free, by rows of ld numbers.
    void hessian(const Half& half, const int32_t* at, Index k, Index free, const Room& room, Look& look) const {
        constexpr Index ld = chunk + l;
        for (Index e = 0; e < free * free; ++e) room.half[e] = 0;
        for (Index q0 = 0; q0 < k; q0 += chunk) {
            const Index count = k - q0 < chunk ? k - q0 : chunk, whole = rounded(count, l);
            for (Index q = 0; q < whole; ++q) {
                const double *b = half.rows + Index(at[q < count ? q0 + q : q0]) * half.ld, times = q < count ? room.curve[q0 + q] : 0;
                for (Index c = 0; c < free; ++c) {
                    const double b_c = b[room.free[c]];
                    room.packed[c * ld + q] = b_c, room.scaled[c * ld + q] = b_c * times;
                }
            }
            gram(room.scaled, room.packed, ld, whole, free, room.half, look);
        }
        for (Index c = 0; c < free; ++c) {
            for (Index e = 0; e <= c; ++e) room.G[c * ld_ + e] = room.G[e * ld_ + c] = room.half[c * free + e];
            room.G[c * ld_ + c] += half.l2;
            for (Index e = free; e < rounded(free, l); ++e) room.G[c * ld_ + e] = 0;
        }
    }

    // Sweeps on the model, in room.step, and how far to go along it.
    double descend(const Half& half, const int32_t* at, Index k, Index whole, Index free, const Room& room, Look& look) const {
        double *g = room.begun, most = smallest, first = 0;
        for (Index c = 0; c < ld_; ++c) room.step[c] = 0;
        for (Index c = 0; c < free; ++c) g[c] = room.g[room.free[c]], most = room.G[c * ld_ + c] > most ? room.G[c * ld_ + c] : most;
        for (Index c = free; c < rounded(free, l); ++c) g[c] = 0;
        for (int32_t sweep = 0; sweep < half.sweeps; ++sweep) {
            double fall = 0;
            for (Index c = 0; c < free; ++c) {
                const double bend = room.G[c * ld_ + c], at_c = room.step[room.free[c]], floor = -room.x[room.free[c]] - at_c;
                const bool bent = bend > flat_bend * most;
                double move = -g[c] / (bent ? bend : slow_bend * most);
                if (!bent && move > 0) move = 0;
                move = move > floor ? move : floor;
                if (move == 0) continue;
                room.step[room.free[c]] = at_c + move;
                fall += move * move * bend;
                for (Index e = 0; e < free; e += l) store(g + e, load(g + e) + move * load(room.G + c * ld_ + e));
            }
            if (sweep == 0) first = fall;
            if (!(fall > sweep_gain * first) || look(2.0 * double(free) * double(free))) break;
        }
        fits<false>(half, at, k, room.step, room.way);
        if constexpr (!Loss::searches) return 1;
        double fixed = 0, bend = 0, allowed = 0;
        for (Index c = 0; c < r_; ++c) {
            const double step = room.step[c], by_sum = (half.linear[c] + half.l1 + half.l2 * room.x[c]) * step;
            fixed += by_sum, bend += half.l2 * step * step;
            allowed += level_slope * __builtin_fabs(by_sum);
            if (!half.strict) allowed -= end_share * step * room.g[c];
        }
        auto slope_at = [&](double t) {
            Wide slope{};
            for (Index q = 0; q < whole; q += l) {
                const Wide d = load(room.way + q);
                slope += d * loss_.slope(load(room.v + q), load(room.w + q), load(room.frozen + q), load(room.fit + q) + t * d);
            }
            return fixed + t * bend + sum<double>(slope);
        };
        double t = 1, end = slope_at(1);
        if (!(end > allowed)) end = 0;
        for (int32_t attempt = 0; attempt < halvings && end > 0; ++attempt) {
            const double now = slope_at(0.5 * t);
            if (now + end <= 0) end = 0;
            else end = now, t *= 0.5;
        }
        return end > 0 ? 0 : t;
    }
};

}  // namespace factormer::FACTORMER_SET
