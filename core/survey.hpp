// What a call has to know of V before it begins: Σ v, Σ v², max |v|, and whether an entry is negative or not finite.
// A V whose squares would over- or underflow is copied times a power of four; float32 iterations get a copy in float32.
#pragma once
#include "matrix/dense.hpp"
#include "matrix/low_rank.hpp"
#include "matrix/sparse.hpp"
#include "updates/newton.hpp"

namespace factormer::FACTORMER_SET {

struct Survey {
    double total = 0, squares = 0, most = 0, least = 0, broken = 0;  // broken: Σ 0·v, which is NaN unless all are finite
    void add(const Survey& s) {
        total += s.total, squares += s.squares, broken += s.broken;
        most = s.most > most ? s.most : most;
        least = s.least < least ? s.least : least;
    }
};

template <class Stored>
Survey survey_run(const Stored* p, Index n) {  // in double, whatever is stored
    using Wide = Vec<double>;
    constexpr int l = lanes<double>;
    Wide total{}, squares{}, most{}, least{}, broken{};
    Survey found;
    Index j = 0;
    for (; j + l <= n; j += l) {
        Wide v = load_as<double>(p + j);
        total += v, squares += v * v, broken += v * 0.0;
        most = larger(v, most), least = smaller(v, least);
    }
    found.total = sum<double>(total), found.squares = sum<double>(squares), found.broken = sum<double>(broken);
    for (int k = 0; k < l; ++k) {
        found.most = most[k] > found.most ? most[k] : found.most;
        found.least = least[k] < found.least ? least[k] : found.least;
    }
    for (; j < n; ++j) {
        double v = double(p[j]);
        found.total += v, found.squares += v * v, found.broken += v * 0;
        found.most = v > found.most ? v : found.most, found.least = v < found.least ? v : found.least;
    }
    return found;
}

template <class Stored>
Survey survey_rows(const Stored* data, Index rows, Index cols, Index ld, const Crew& crew) {
    constexpr Index most = 64;
    Index pieces = double(rows) * double(cols) > 1e5 ? (rows < most ? rows : most) : 1;
    Survey parts[most], all;
    crew.share(pieces, [&](Index k, int, Look& look) {
        for (Index i = edge(rows, pieces, k); i < edge(rows, pieces, k + 1); ++i)
            for (Index j = 0; j < cols && !look(65536.0); j += 65536)
                parts[k].add(survey_run(data + i * ld + j, cols - j < 65536 ? cols - j : 65536));
    });
    for (Index k = 0; k < pieces; ++k) all.add(parts[k]);
    return all;
}

// Copies by rows, times a number, in either precision.
template <class From, class To>
void copy_rows(const From* from, Index ld_from, To* to, Index ld_to, Index rows, Index cols, double times, const Crew& crew) {
    Index some = 65536 / (cols < 1 ? 1 : cols) + 1;
    crew.share(blocks_of(rows, some), [&](Index k, int, Look& look) {
        for (Index i = k * some; i < rows && i < (k + 1) * some; ++i)
            for (Index j0 = 0; j0 < cols && !look(65536.0); j0 += 65536)
                for (Index j = j0; j < cols && j < j0 + 65536; ++j) to[i * ld_to + j] = To(double(from[i * ld_from + j]) * times);
    });
}

struct Prepared {  // V times `scale` = root², in the forms that stages ask for
    Kind kind = Kind::dense64;
    Flaw flaw = Flaw::none;
    Index m = 0, n = 0;
    double total = 0, squares = 0, scale = 1, root = 1;
    bool has_narrow = false, copies = false;
    Dense<double, double> dense64;
    Dense<double, float> dense32;
    Dense<float, float> narrow;
    Sparse<double> sparse;
    Sparse<float> sparse_narrow;
    LowRank<double> low_rank;
    LowRank<float> low_rank_narrow;
    double* values[2] = {};
    float* values_narrow[2] = {};
    double* grams = nullptr;
    Panels panels;               // for Newton steps: V dense or sparse, and what starts are fitted to
    Stored stored;
    double known = 0, mean = 0, level = 1;  // entries that count, their mean, and their mean weight
    double fit_total = 0, fit_squares = 0;
    bool newton = false, roots = false;

    // Look at V; nothing is allocated.
    void look_at(const Matrix& in, const Rules& rules, const Crew& crew) {
        kind = in.kind, m = in.m, n = in.n;
        has_narrow = rules.precision != Precision::real64;
        Survey seen;
        double most_part[2] = {0, 0};
        if (kind == Kind::low_rank) {
            for (int s = 0; s < 2; ++s) {
                Survey part = survey_rows(in.part[s], in.p, s ? n : m, s ? n : m, crew);
                most_part[s] = part.most > -part.least ? part.most : -part.least;
                seen.broken += part.broken;
            }
            seen.most = most_part[0] > 0 && most_part[1] > 0 ? most_part[0] * most_part[1] * double(in.p) : 0;
            if (seen.most > largest_real) seen.most = largest_real;
        } else if (kind == Kind::sparse) {
            const Index nnz = in.from[0][m];
            seen = survey_rows(in.values[0], 1, nnz, nnz, crew);
            const Survey again = survey_rows(in.values[1], 1, nnz, nnz, crew);  // which may be another array of the caller
            seen.broken += again.broken, seen.least = again.least < seen.least ? again.least : seen.least;
        } else {
            Index rows = in.transposed ? n : m, cols = in.transposed ? m : n;
            seen = kind == Kind::dense64 ? survey_rows(static_cast<const double*>(in.data), rows, cols, in.ld, crew)
                                         : survey_rows(static_cast<const float*>(in.data), rows, cols, in.ld, crew);
            dense64 = {static_cast<const double*>(in.data), rows, cols, in.ld, in.transposed};
            dense32 = {static_cast<const float*>(in.data), rows, cols, in.ld, in.transposed};
            narrow = {static_cast<const float*>(in.data), rows, cols, in.ld, in.transposed};
        }
        if (!(seen.broken == 0))
            flaw = Flaw::not_finite;
        else if (kind != Kind::low_rank && seen.least < 0)
            flaw = Flaw::negative;
        total = seen.total, squares = seen.squares;
        double near = has_narrow || kind == Kind::dense32 ? 0x1p20 : 0x1p200;
        if (flaw == Flaw::none && seen.most > 0 && !(seen.most < near && seen.most > 1 / near)) {
            int exponent;
            __builtin_frexp(seen.most, &exponent);
            exponent = exponent > 1000 ? 1000 : exponent < -1000 ? -1000 : exponent;
            root = __builtin_ldexp(1, -exponent / 2), scale = root * root;
        }
        if (rules.newton && flaw == Flaw::none) look_at_known(in, rules, seen.most, crew);
        copies = scale != 1;
    }

    // Take memory for copies.
    void make_room(const Matrix& in, Arena& arena) {
        if (newton) {
            make_room_for_newton(in, arena);
        } else if (kind == Kind::low_rank) {
            grams = arena.zeros<double>(2 * in.p * in.p);
            for (int s = 0; s < 2; ++s) {
                Index size = s ? n : m, ld = padded<double>(size), ldn = padded<float>(size);
                low_rank.part[s] = {arena.zeros<double>(in.p * ld), in.p, size, ld};
                if (has_narrow) low_rank_narrow.part[s] = {arena.zeros<float>(in.p * ldn), in.p, size, ldn};
            }
        } else if (kind == Kind::sparse) {
            for (int s = 0; s < 2; ++s) {
                Index nnz = in.from[0][m];
                if (copies) values[s] = arena.take<double>(nnz);
                if (has_narrow) values_narrow[s] = arena.take<float>(nnz);
                sparse.sizes[s] = sparse_narrow.sizes[s] = s ? n : m;
                sparse.half[s] = {in.from[s], in.at[s], copies ? values[s] : in.values[s]};
                sparse_narrow.half[s] = {in.from[s], in.at[s], values_narrow[s]};
            }
        } else if (copies || (has_narrow && kind == Kind::dense64)) {
            Index ld = padded<double>(dense64.cols), ldn = padded<float>(dense64.cols);
            if (copies) dense64.data = arena.take<double>(dense64.rows * ld), dense64.ld = ld;
            if (has_narrow) narrow.data = arena.take<float>(dense64.rows * ldn), narrow.ld = ldn;
        }
    }

    // Fill what there is room for, and add up what was copied.
    void fill(const Matrix& in, const Crew& crew) {
        if (newton) {
            fill_for_newton(in, crew);
        } else if (kind == Kind::low_rank) {
            for (int s = 0; s < 2; ++s) {
                Index size = s ? n : m;
                auto [data, p, cols, ld] = low_rank.part[s];
                copy_rows(in.part[s], size, const_cast<double*>(data), ld, p, size, s == 0 ? scale : 1, crew);
                auto [data_n, p_n, cols_n, ld_n] = low_rank_narrow.part[s];
                if (has_narrow) copy_rows(in.part[s], size, const_cast<float*>(data_n), ld_n, p, size, s == 0 ? scale : 1, crew);
            }
            count_parts(crew.looks[0]);
            squares += in.lost * scale * scale;
        } else if (kind == Kind::sparse) {
            Index nnz = in.from[0][m];
            for (int s = 0; s < 2; ++s) {
                if (copies) copy_rows(in.values[s], 0, values[s], 0, 1, nnz, scale, crew);
                if (has_narrow) copy_rows(in.values[s], 0, values_narrow[s], 0, 1, nnz, scale, crew);
            }
            if (copies) count(survey_rows(values[0], 1, nnz, nnz, crew));
        } else if (copies || (has_narrow && kind == Kind::dense64)) {
            auto copy = [&](auto* to, Index ld) {
                if (kind == Kind::dense64)
                    copy_rows(static_cast<const double*>(in.data), in.ld, to, ld, dense64.rows, dense64.cols, scale, crew);
                else
                    copy_rows(static_cast<const float*>(in.data), in.ld, to, ld, dense64.rows, dense64.cols, scale, crew);
            };
            if (copies) copy(const_cast<double*>(dense64.data), dense64.ld);
            if (has_narrow) copy(const_cast<float*>(narrow.data), narrow.ld);
            if (copies) kind = Kind::dense64, count(survey_rows(dense64.data, dense64.rows, dense64.cols, dense64.ld, crew));
        }
    }

   private:
    // Σ v and Σ v² of a low-rank V, from Gram matrices.
    void count_parts(Look& look) {
        Index p = low_rank.part[0].rows;
        for (int s = 0; s < 2; ++s) gram(low_rank.part[s].data, low_rank.part[s].ld, low_rank.part[s].cols, p, grams + s * p * p, look);
        total = squares = 0;
        for (Index k = 0; k < p; ++k) {
            double sums_of[2] = {0, 0};
            for (int s = 0; s < 2; ++s)
                for (Index i = 0; i < low_rank.part[s].cols; ++i) sums_of[s] += low_rank.part[s].data[k * low_rank.part[s].ld + i];
            total += sums_of[0] * sums_of[1];
            for (Index e = 0; e <= k; ++e) squares += (e < k ? 2 : 1) * grams[k * p + e] * grams[p * p + k * p + e];
        }
        if (squares < 0) squares = 0;
    }

    void count(const Survey& seen) { total = seen.total, squares = seen.squares; }

    static double weight_of(const Matrix& in, Index i, Index j) {
        const Index at = i * in.steps[0] + j * in.steps[1];
        return in.is_single ? double(static_cast<const float*>(in.weights[0])[at]) : static_cast<const double*>(in.weights[0])[at];
    }
    double entry_of(Index i, Index j) const {
        if (dense64.transposed) { const Index k = i; i = j, j = k; }
        return kind == Kind::dense64 ? dense64.data[i * dense64.ld + j] : double(dense32.data[i * dense32.ld + j]);
    }

    // Count the entries that have weights, and choose a power of four that brings their mean near 1.
    void look_at_known(const Matrix& in, const Rules& rules, double most, const Crew& crew) {
        newton = true, roots = rules.roots, has_narrow = rules.fits > 0 && !in.weights[0];
        root = scale = 1;
        const Index nnz = kind == Kind::sparse ? in.from[0][m] : 0, rows = kind == Kind::sparse ? 1 : m;
        known = double(m) * double(n);
        if (in.weights[0]) {
            known = total = level = 0;
            double broken = 0, least = 0;
            auto add = [&](double v, double w) {
                known += w > 0, total += w > 0 ? v : 0, level += w;
                broken += w * 0, least = w < least ? w : least;
            };
            if (kind == Kind::sparse)
                for (int s = 0; s < 2; ++s) {
                    known = total = level = 0;
                    for (Index k = 0; k < nnz; ++k) add(in.values[s][k], static_cast<const double*>(in.weights[s])[k]);
                }
            else
                for (Index i = 0; i < rows && !crew.looks[0](double(n)); ++i)
                    for (Index j = 0; j < n; ++j) add(entry_of(i, j), weight_of(in, i, j));
            if (!(broken == 0)) flaw = Flaw::not_finite;
            else if (least < 0) flaw = Flaw::negative;
            level = known > 0 ? level / known : 1;
        }
        mean = known > 0 ? total / known : 0;
        if (!(mean <= largest_real)) mean = most;  // where the sum overflows
        if (mean > 0) {
            int exponent;
            __builtin_frexp(mean, &exponent);
            exponent = exponent > 1000 ? 1000 : exponent < -1000 ? -1000 : exponent;
            root = __builtin_ldexp(1, -(exponent / 2)), scale = root * root;
        }
    }

    void make_room_for_newton(const Matrix& in, Arena& arena) {
        if (kind == Kind::sparse) {
            const Index nnz = in.from[0][m];
            for (int s = 0; s < 2; ++s) {
                stored.n[s] = sparse_narrow.sizes[s] = s ? n : m, stored.from[s] = in.from[s], stored.at[s] = in.at[s];
                if (copies) values[s] = arena.take<double>(nnz);
                stored.values[s] = copies ? values[s] : in.values[s];
                stored.weights[s] = static_cast<const double*>(in.weights[s]);
                if (has_narrow) values_narrow[s] = arena.take<float>(nnz);
                sparse_narrow.half[s] = {in.from[s], in.at[s], values_narrow[s]};
            }
            return;
        }
        panels.n[0] = m, panels.n[1] = n;
        for (int s = 0; s < 2; ++s) {
            panels.values[s] = arena.take<double>(panels.numbers(s));
            if (in.weights[0]) panels.weights[s] = arena.take<double>(panels.numbers(s));
        }
        const Index ldn = padded<float>(dense64.cols);
        if (has_narrow) narrow.data = arena.take<float>(dense64.rows * ldn), narrow.ld = ldn;
    }

    void fill_for_newton(const Matrix& in, const Crew& crew) {
        const bool is_sparse = kind == Kind::sparse;
        if (is_sparse) {
            const Index nnz = in.from[0][m];
            for (int s = 0; s < 2; ++s) {
                if (copies) copy_rows(in.values[s], 0, values[s], 0, 1, nnz, scale, crew);
                if (has_narrow) copy_rows(in.values[s], 0, values_narrow[s], 0, 1, nnz, scale, crew);
                for (Index k = 0; has_narrow && roots && k < nnz; ++k) values_narrow[s][k] = __builtin_sqrtf(values_narrow[s][k]);
            }
            if (has_narrow) count_fit(survey_rows(values_narrow[0], 1, nnz, nnz, crew));
        } else {
            panels.set(panels.values, [&](Index i, Index j) { return in.weights[0] && !(weight_of(in, i, j) > 0) ? 1 : scale * entry_of(i, j); }, crew);
            if (in.weights[0]) panels.set(panels.weights, [&](Index i, Index j) { return weight_of(in, i, j); }, crew);
            if (has_narrow) {
                float* to = const_cast<float*>(narrow.data);
                if (kind == Kind::dense64)
                    copy_rows(dense64.data, dense64.ld, to, narrow.ld, dense64.rows, dense64.cols, scale, crew);
                else
                    copy_rows(dense32.data, dense32.ld, to, narrow.ld, dense64.rows, dense64.cols, scale, crew);
                for (Index i = 0; roots && i < dense64.rows; ++i)
                    for (Index j = 0; j < dense64.cols; ++j) to[i * narrow.ld + j] = __builtin_sqrtf(to[i * narrow.ld + j]);
                count_fit(survey_rows(narrow.data, dense64.rows, dense64.cols, narrow.ld, crew));
            }
        }
        total = scale * mean * known, squares *= scale * scale;
    }
    void count_fit(const Survey& seen) { fit_total = seen.total, fit_squares = seen.squares; }
};

}  // namespace factormer::FACTORMER_SET
