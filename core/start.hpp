// Where a lane begins that is given no factors: at random numbers, or at a truncated singular value decomposition V ≈ U S Zᵀ, rotated toward
// the nonnegative orthant. Every orthogonal R gives V ≈ (U√S R)(Z√S R)ᵀ; the start is the nonnegative part of those factors for an R that
// nearly solves min ‖X R − P‖ over R and P ≥ 0, X = [U√S; Z√S], by alternating projections on a sample of the rows of X.
#pragma once
#include "eigen.hpp"
#include "run.hpp"

namespace factormer::FACTORMER_SET {

// U becomes an orthonormal basis of (V Vᵀ)ᵏ V X for random columns X, k = `powers`, and Z = VᵀU (Halko et al., 2011); whether all was done.
template <class Matrix>
bool find_basis(Squares<Matrix>& run, uint64_t seed, int32_t powers, Look& look) {
    if (look.now()) return false;
    run.draw(seed, 1);
    if (look.now()) return false;
    run.center(1, 0.5);
    bool whole = run.times(0) && run.orthonormalize(0);
    for (int32_t k = 0; whole && k < powers; ++k) whole = run.times(1) && run.orthonormalize(1) && run.times(0) && run.orthonormalize(0);
    return whole && run.times(1);
}

class Rotation {
    using Real = float;
    static constexpr double overshoot = 3;    // how far beyond zero a projection goes: 1 would end there, and takes several times as many steps
    static constexpr Index sample_rows = 512; // of U√S, and as many of Z√S
    static constexpr int32_t steps = 30;      // the first half of them on half of the rows
    Index r_, n_, ld_;
    Real *rows_, *turned_, *R_, *small_;
    double *M_, *gram_, *eigen_;

    // R becomes the rotation nearest to M, whose transpose is in `small_`: M (MᵀM)^−½; whether all was done.
    bool nearest(Look& look) {
        const double column_work = double(r_) * double(r_);
        for (Index c = 0; c < r_; ++c)
            for (Index e = 0; e < r_; ++e) M_[c * r_ + e] = double(small_[c * rounded(r_, most_rows) + e]);
        for (Index c = 0; c < r_; ++c) {
            for (Index b = 0; b <= c; ++b) {
                double total = 0;
                for (Index e = 0; e < r_; ++e) total += M_[c * r_ + e] * M_[b * r_ + e];
                gram_[c * r_ + b] = total;
            }
            if (look(column_work)) return false;
        }
        Eigen found(gram_, r_, eigen_, look);
        if (look.ended()) return false;
        for (Index c = 0; c < r_ * r_; ++c) gram_[c] = 0;
        const double least = 0x1p-46 * found.value(0);
        for (Index k = 0; k < r_ && found.value(k) > least; ++k) {  // (MᵀM)^−½
            const double* q = found.vector(k);
            for (Index c = 0; c < r_; ++c) {
                const double times = q[c] / __builtin_sqrt(found.value(k));
                for (Index b = 0; b < r_; ++b) gram_[c * r_ + b] += times * q[b];
            }
            if (look(column_work)) return false;
        }
        for (Index c = 0; c < r_; ++c) {
            double* column = eigen_;
            for (Index e = 0; e < r_; ++e) column[e] = 0;
            for (Index b = 0; b < r_; ++b)
                for (Index e = 0; e < r_; ++e) column[e] += M_[b * r_ + e] * gram_[c * r_ + b];
            for (Index e = 0; e < r_; ++e) R_[e * r_ + c] = Real(column[e]);
            if (look(column_work)) return false;
        }
        return true;
    }

   public:
    Rotation(Index r, Index rows_of_w, Index rows_of_h, Arena& arena) : r_(r) {
        n_ = (rows_of_w < sample_rows ? rows_of_w : sample_rows) + (rows_of_h < sample_rows ? rows_of_h : sample_rows);
        ld_ = padded<Real>(n_);
        rows_ = arena.zeros<Real>(r * ld_), turned_ = arena.zeros<Real>(r * ld_);
        R_ = arena.zeros<Real>(r * r + lanes<Real>), small_ = arena.zeros<Real>(r * rounded(r, most_rows));
        M_ = arena.zeros<double>(r * r), gram_ = arena.zeros<double>(r * r), eigen_ = arena.zeros<double>(Eigen::room(r));
    }
    static Index sampled(Index rows) { return rows < sample_rows ? rows : sample_rows; }
    Real& row(Index c, Index i) { return rows_[c * ld_ + i]; }
    double operator()(Index e, Index c) const { return double(R_[e * r_ + c]); }

    // Whether a rotation was found.
    bool find(uint64_t seed, Look& look) {
        for (Index c = 0; c < r_; ++c)  // random signs and sizes of the rows, so that no choice of singular vectors matters
            for (Index i = 0; i < n_; ++i) turned_[c * ld_ + i] = Real(uniform(seed, uint64_t(i * r_ + c)) - 0.5);
        for (int32_t step = 0; step <= steps; ++step) {
            const Index n = step < steps / 2 ? rounded(n_ / 2, lanes<Real>) : n_;
            if (step > 0) {
                clear(turned_, ld_, n, r_);
                outer(r_, R_, r_, rows_, ld_, n, r_, turned_, ld_, look);
                for (Index c = 0; c < r_; ++c)
                    for (Index i = 0; i < n; ++i) {
                        const Real y = turned_[c * ld_ + i];
                        turned_[c * ld_ + i] = y < 0 ? Real(1 - overshoot) * y : y;
                    }
            }
            dots(rows_, ld_, r_, n, turned_, ld_, r_, small_, rounded(r_, most_rows), look);
            if (look.ended() || !nearest(look)) return false;
        }
        return true;
    }
};

// Put the rotated start of V into `run`, with components of random numbers up to `little` beyond the rank of V; whether there is one.
template <class Matrix>
bool rotated(Squares<Matrix>& run, const Matrix& V, const Course& course, double little, const Crew& crew, Arena& arena) {
    using Real = typename Matrix::Real;
    constexpr Index oversampling = 10;
    const Index r = course.lane.rank, sizes[2] = {V.size(0), V.size(1)};
    const Index least = sizes[0] < sizes[1] ? sizes[0] : sizes[1], p = r + oversampling < least ? r + oversampling : least, k = r < p ? r : p;
    const uint64_t seed = course.lane.seed, seeds[] = {mixed(seed), mixed(seed + 1), mixed(seed + 2)};
    Lane wide;
    wide.rank = int32_t(p);
    Look& look = crew.looks[0];
    if (look.now()) return false;  // memory for it may take long
    Course about{course.rules, wide, 0, 1, course.sq_norm, 1, {}, {}, 0, {}, {}};
    Squares<Matrix> basis(V, about, crew, arena);
    if (!find_basis(basis, seeds[0], 1, look)) return false;
    Eigen found(basis.side[1].gram, p, arena.take<double>(Eigen::room(p)), look);
    if (look.ended()) return false;
    if (!(found.value(0) > 0) || !(found.value(0) <= largest_real)) return false;
    const double unit = 1 / __builtin_sqrt(__builtin_sqrt(found.value(0)));  // in which the sample fits into float32
    double* to[2] = {arena.zeros<double>(k * p), arena.zeros<double>(k * p)};  // U√S = Σ_e to[0][c, e] U_e, and Z√S
    for (Index c = 0; c < k && found.value(c) > 0x1p-40 * found.value(0); ++c) {
        const double root = __builtin_sqrt(__builtin_sqrt(found.value(c)));
        for (Index e = 0; e < p; ++e) to[0][c * p + e] = found.vector(c)[e] * root, to[1][c * p + e] = found.vector(c)[e] / root;
    }
    Rotation rotation(k, sizes[0], sizes[1], arena);
    Index at = 0;
    const Index counts[2] = {Rotation::sampled(sizes[0]), Rotation::sampled(sizes[1])};
    for (Index i = 0; i < counts[0] || i < counts[1]; ++i)  // in turn, so that the first half has rows of both
        for (int s = 0; s < 2; ++s) {
            if (i >= counts[s]) continue;
            const bool all = counts[s] == sizes[s];
            const Index row = all ? i : Index(uniform(seeds[1 + s], uint64_t(i)) * double(sizes[s]));
            const double weight = unit * (all ? 1 : __builtin_sqrt(double(sizes[s]) / double(counts[s])));
            for (Index c = 0; c < k; ++c) {
                double total = 0;
                for (Index e = 0; e < p; ++e) total += to[s][c * p + e] * double(basis.side[s].kept[e * basis.side[s].ld + row]);
                rotation.row(c, at) = float(weight * total);
            }
            if (look(double(k) * double(p))) return false;
            ++at;
        }
    if (!rotation.find(seeds[2], look)) return false;
    run.draw(seed, little);
    for (int s = 0; s < 2; ++s) {
        Real* from = arena.zeros<Real>(p * k + lanes<Real>);  // U√S R = Σ_e from[e, c] U_e
        for (Index e = 0; e < p; ++e) {
            for (Index c = 0; c < k; ++c) {
                double total = 0;
                for (Index b = 0; b < k; ++b) total += to[s][b * p + e] * rotation(b, c);
                from[e * k + c] = Real(total);
            }
            if (look(double(k) * double(k))) return false;
        }
        const Side<Real>&d = run.side[s], &of = basis.side[s];
        constexpr Index some = 1024;
        bool whole = crew.share(blocks_of(sizes[s], some), [&](Index piece, int, Look& own) {
            const Index a = piece * some, n = sizes[s] - a < some ? sizes[s] - a : some;
            clear(d.kept + a, d.ld, n, k);
            outer(p, from, k, of.kept + a, of.ld, n, k, d.kept + a, d.ld, own);
            for (Index c = 0; c < k; ++c)
                for (Index i = a; i < a + rounded(n, lanes<Real>); ++i) {
                    const Real x = d.kept[c * d.ld + i];
                    d.kept[c * d.ld + i] = i < sizes[s] && x > 0 ? x : Real(0);
                }
        });
        if (!whole) return false;
    }
    return true;
}

}  // namespace factormer::FACTORMER_SET
