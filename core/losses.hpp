// β-divergences d(v, y) of an entry v ≥ 0 and its fit y, as Newton steps and their line searches need them, for a vector of entries:
//     d = (v^β + (β − 1) y^β − β v y^(β − 1)) / (β (β − 1)), with the limits v log(v/y) − v + y at β = 1 and v/y − log(v/y) − 1 at β = 0.
// A model of d at y has its slope and a curvature with which it bounds d from above: a part of d that is concave, as d has where β < 1 or
// β > 2, is replaced by its tangent, whose slope is `frozen` while a search goes along the step. Weights ω multiply everything.
#pragma once
#include "simd.hpp"

namespace factormer::FACTORMER_SET {

inline constexpr double near_share = 1e-5;  // of an entry: its model is made for a fit of at least that

struct Model {
    Wide slope, curve, frozen;
};

struct Squared {  // β = 2, with weights: the model is exact
    static constexpr bool searches = false, freezes = false;
    explicit Squared(double, bool) {}
    [[gnu::always_inline]] Model model(Wide v, Wide w, Wide y) const { return {w * (y - v), w, Wide{}}; }
    [[gnu::always_inline]] Wide slope(Wide v, Wide w, Wide, Wide y) const { return w * (y - v); }
    [[gnu::always_inline]] Wide value(Wide v, Wide w, Wide y) const { return w * (y - v) * (y - v) * 0.5; }
};

struct Kullback {  // β = 1; where `apart`, the term y is summed elsewhere, for all entries at once, those not stored among them
    static constexpr bool searches = true, freezes = false;
    static constexpr double least = 1e-150;
    double held;
    explicit Kullback(double, bool apart) : held(apart ? 0 : 1) {}
    [[gnu::always_inline]] Model model(Wide v, Wide w, Wide y) const {
        const Wide z = reciprocal(larger(larger(y, near_share * v), all(least))), p = w * v * z;
        return {held * w - p, p * z, Wide{}};
    }
    [[gnu::always_inline]] Wide slope(Wide v, Wide w, Wide, Wide y) const { return w * (held - v * reciprocal(larger(y, all(least)))); }
    [[gnu::always_inline]] Wide value(Wide v, Wide w, Wide y) const {
        return w * (v * (logarithm(larger(v, all(least)) * reciprocal(larger(y, all(least)))) - 1) + held * y);
    }
};

struct Itakura {  // β = 0
    static constexpr bool searches = true, freezes = true;
    static constexpr double least = 1e-90;
    explicit Itakura(double, bool) {}
    [[gnu::always_inline]] Model model(Wide v, Wide w, Wide y) const {
        const Wide z = reciprocal(larger(larger(y, near_share * v), all(least))), up = w * z, down = up * v * z;
        return {up - down, 2 * down * z, up};
    }
    [[gnu::always_inline]] Wide slope(Wide v, Wide w, Wide frozen, Wide y) const {
        const Wide z = reciprocal(larger(y, all(least)));
        return frozen - w * v * z * z;
    }
    [[gnu::always_inline]] Wide value(Wide v, Wide w, Wide y) const {
        const Wide ratio = larger(v, all(least)) * reciprocal(larger(y, all(least)));
        return w * (ratio - logarithm(ratio) - 1);
    }
};

struct Power {  // any other β
    static constexpr bool searches = true, freezes = true;
    double beta, least;
    explicit Power(double beta_, bool) : beta(beta_), least(__builtin_exp(-600 / (__builtin_fabs(beta_) + 4))) {}
    [[gnu::always_inline]] Wide floored(Wide y) const { return larger(y, all(least)); }
    [[gnu::always_inline]] Wide raised(Wide y, double power) const { return exponential(power * logarithm(y)); }
    [[gnu::always_inline]] Model model(Wide v, Wide w, Wide y) const {
        const Wide z = floored(larger(y, near_share * v)), power = w * raised(z, beta - 2), up = power * z, down = power * v;
        if (beta < 1) return {up - down, (2 - beta) * down * reciprocal(z), up};
        if (beta > 2) return {up - down, (beta - 1) * power, -down};
        return {up - down, power * ((beta - 1) + (2 - beta) * v * reciprocal(z)), Wide{}};
    }
    [[gnu::always_inline]] Wide slope(Wide v, Wide w, Wide frozen, Wide y) const {
        const Wide z = floored(y), power = w * raised(z, beta - 2);
        if (beta < 1) return frozen - power * v;
        if (beta > 2) return frozen + power * z;
        return power * (z - v);
    }
    [[gnu::always_inline]] Wide value(Wide v, Wide w, Wide y) const {
        const Wide z = floored(y), whole = v > least ? raised(floored(v), beta) : Wide{};
        return w * (whole + raised(z, beta - 1) * ((beta - 1) * z - beta * v)) / (beta * (beta - 1));
    }
};

}  // namespace factormer::FACTORMER_SET
