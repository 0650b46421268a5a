// Eigenvalues and eigenvectors of a symmetric matrix, A = Σ_k d_k q_k q_kᵀ, for the small matrices of a start: Householder reflections make
// it tridiagonal, implicit QL iterations make it diagonal (Bowdler, Martin, Reinsch & Wilkinson, 1968). Vectors are rows of the result.
#pragma once
#include "share.hpp"

namespace factormer::FACTORMER_SET {

class Eigen {
    static constexpr int32_t most_rounds = 60;  // of QL for one eigenvalue; two or three are usual
    double *Q_, *d_, *e_;
    Index n_;
    Look& look_;
    double* q(Index k) { return Q_ + k * n_; }

    void tridiagonal() {
        const Index n = n_;
        for (Index j = 0; j < n; ++j) d_[j] = q(j)[n - 1];
        for (Index i = n - 1; i > 0; --i) {
            double scale = 0, h = 0;
            for (Index k = 0; k < i; ++k) scale += __builtin_fabs(d_[k]);
            if (scale == 0) {
                e_[i] = d_[i - 1];
                for (Index j = 0; j < i; ++j) d_[j] = q(j)[i - 1], q(j)[i] = 0, q(i)[j] = 0;
            } else {
                for (Index k = 0; k < i; ++k) d_[k] /= scale, h += d_[k] * d_[k];
                double f = d_[i - 1], g = f > 0 ? -__builtin_sqrt(h) : __builtin_sqrt(h);
                e_[i] = scale * g, h -= f * g, d_[i - 1] = f - g;
                for (Index j = 0; j < i; ++j) e_[j] = 0;
                for (Index j = 0; j < i; ++j) {
                    f = d_[j], q(i)[j] = f, g = e_[j] + q(j)[j] * f;
                    const double* column = q(j);
                    for (Index k = j + 1; k < i; ++k) g += column[k] * d_[k], e_[k] += column[k] * f;
                    e_[j] = g;
                }
                f = 0;
                for (Index j = 0; j < i; ++j) e_[j] /= h, f += e_[j] * d_[j];
                const double half = f / (h + h);
                for (Index j = 0; j < i; ++j) e_[j] -= half * d_[j];
                for (Index j = 0; j < i; ++j) {
                    f = d_[j], g = e_[j];
                    double* column = q(j);
                    for (Index k = j; k < i; ++k) column[k] -= f * e_[k] + g * d_[k];
                    d_[j] = column[i - 1], column[i] = 0;
                }
            }
            d_[i] = h;
            if (look_(2 * double(i) * double(i))) return;
        }
        for (Index i = 0; i + 1 < n; ++i) {  // the reflections, multiplied
            q(i)[n - 1] = q(i)[i], q(i)[i] = 1;
            const double h = d_[i + 1];
            double* next = q(i + 1);
            if (h != 0) {
                for (Index k = 0; k <= i; ++k) d_[k] = next[k] / h;
                for (Index j = 0; j <= i; ++j) {
                    double g = 0;
                    for (Index k = 0; k <= i; ++k) g += next[k] * q(j)[k];
                    for (Index k = 0; k <= i; ++k) q(j)[k] -= g * d_[k];
                }
            }
            for (Index k = 0; k <= i; ++k) next[k] = 0;
            if (look_(2 * double(i) * double(i))) return;
        }
        for (Index j = 0; j < n; ++j) d_[j] = q(j)[n - 1], q(j)[n - 1] = 0;
        q(n - 1)[n - 1] = 1, e_[0] = 0;
    }

    void diagonal() {
        const Index n = n_;
        for (Index i = 1; i < n; ++i) e_[i - 1] = e_[i];
        e_[n - 1] = 0;
        double shifted = 0, largest = 0;
        for (Index l = 0; l < n; ++l) {
            const double size = __builtin_fabs(d_[l]) + __builtin_fabs(e_[l]);
            largest = size > largest ? size : largest;
            const double least = 0x1p-52 * largest;
            Index m = l;
            while (m < n - 1 && __builtin_fabs(e_[m]) > least) ++m;
            for (int32_t round = 0; m > l && round < most_rounds && __builtin_fabs(e_[l]) > least; ++round) {
                double g = d_[l], p = (d_[l + 1] - g) / (2 * e_[l]), r = __builtin_sqrt(p * p + 1);
                r = p < 0 ? -r : r;
                d_[l] = e_[l] / (p + r), d_[l + 1] = e_[l] * (p + r);
                const double next = d_[l + 1], h = g - d_[l], before = e_[l + 1];
                for (Index i = l + 2; i < n; ++i) d_[i] -= h;
                shifted += h, p = d_[m];
                double c = 1, c2 = 1, c3 = 1, s = 0, s2 = 0;
                for (Index i = m - 1; i >= l; --i) {
                    c3 = c2, c2 = c, s2 = s;
                    const double along = c * e_[i], across = c * p;
                    r = __builtin_sqrt(p * p + e_[i] * e_[i]);
                    e_[i + 1] = s * r;
                    s = r > 0 ? e_[i] / r : 0, c = r > 0 ? p / r : 1;
                    p = c * d_[i] - s * along;
                    d_[i + 1] = across + s * (c * along + s * d_[i]);
                    double *one = q(i), *two = q(i + 1);
                    for (Index k = 0; k < n; ++k) {
                        const double a = one[k], b = two[k];
                        two[k] = s * a + c * b, one[k] = c * a - s * b;
                    }
                }
                p = next != 0 ? -s * s2 * c3 * before * e_[l] / next : 0;
                e_[l] = s * p, d_[l] = c * p;
                if (look_(4 * double(m - l) * double(n))) return;
            }
            d_[l] += shifted, e_[l] = 0;
        }
    }

    void sort() {
        for (Index i = 0; i + 1 < n_; ++i) {
            Index most = i;
            for (Index j = i + 1; j < n_; ++j)
                if (d_[j] > d_[most]) most = j;
            if (most == i) continue;
            const double d = d_[i];
            d_[i] = d_[most], d_[most] = d;
            for (Index k = 0; k < n_; ++k) {
                const double a = q(i)[k];
                q(i)[k] = q(most)[k], q(most)[k] = a;
            }
        }
    }

   public:
    static Index room(Index n) { return n * n + 2 * n; }

    // Decompose an n×n matrix of which the lower half is read, in `room(n)` numbers. If the call has to end, nothing of it is of use.
    Eigen(const double* A, Index n, double* memory, Look& look) : Q_(memory), d_(memory + n * n), e_(d_ + n), n_(n), look_(look) {
        for (Index i = 0; i < n; ++i)
            for (Index j = 0; j <= i; ++j) q(i)[j] = q(j)[i] = A[i * n + j];
        if (n == 0) return;
        tridiagonal();
        if (look.ended()) return;
        diagonal();
        if (look.ended()) return;
        sort();
    }
    const double* vector(Index k) const { return Q_ + k * n_; }  // of the eigenvalue k, the largest first
    double value(Index k) const { return d_[k] > 0 ? d_[k] : 0; }
};

}  // namespace factormer::FACTORMER_SET
