// A lane is one (V, rank, start, seed), run from its start to its end: stages in float32 and float64, the stop, W refined, components in
// order and to scale. Light lanes are shared out over the threads, one on each; heavy ones run one after another with all threads in their
// products. A lane does the same arithmetic either way, so its result is the same bit for bit.
#pragma once
#include "divergence.hpp"
#include "order.hpp"
#include "start.hpp"

namespace factormer::FACTORMER_SET {

// Write components in order and to scale, as rows of W (m, r) and H (n, r) of V itself.
template <class Run>
void write(const Run& run, const Course& course, double root, const Crew& crew, Arena& arena) {
    const Lane& lane = course.lane;
    const Index r = lane.rank;
    auto mark = arena.mark();
    double *sums_of = arena.take<double>(2 * r), *norms = arena.take<double>(2 * r), *share = arena.zeros<double>(r);
    double* times = arena.take<double>(2 * r);
    int32_t* order = arena.zeros<int32_t>(r);
    crew.share_all(2 * r, [&](Index k, int, Look&) {
        const auto& d = run.side[k / r];
        const Survey seen = survey_run(d.kept + k % r * d.ld, d.n);
        sums_of[k] = seen.total, norms[k] = seen.squares;
    });
    const bool keeps = lane.fixed[0] || lane.fixed[1];
    if (course.rules.order && !keeps)
        by_share(sums_of, sums_of + r, lane.rank, share, order);
    else
        for (Index c = 0; c < r; ++c) order[c] = int32_t(c);
    Scale scale = keeps || course.pull > 0 || !course.is_plain() ? Scale::none : course.rules.scale;
    for (Index c = 0; c < r; ++c) {
        double w = __builtin_sqrt(norms[c]), h = __builtin_sqrt(norms[r + c]), a = 1, to_w = 1 / root, to_h = 1 / root;
        if (scale == Scale::balanced && w > 0 && h > 0) a = __builtin_sqrt(h / w);
        if (scale == Scale::sum && sums_of[r + c] > 0) a = sums_of[r + c], to_w = 1 / root / root, to_h = 1;
        if (!(a > 0 && a * to_w * sums_of[c] <= largest_real && to_h / a <= largest_real)) a = 1, to_w = to_h = 1 / root;  // where a scale overflows, the component keeps its own
        times[c] = a * to_w, times[r + c] = to_h / a;
    }
    for (int s = 0; s < 2; ++s)
        run.by_rows(s, [&](Index k, Index i) {
            Index c = order[k];
            lane.found[s][i * r + k] = times[s * r + c] * double(run.side[s].kept[c * run.side[s].ld + i]);
        });
    arena.back(mark);
}

// What to multiply W and H of a start with, so that W Hᵀ has about the size of V: 1 unless it is larger or smaller by more than 2⁴⁰, where
// differences between the factors and their updates would have no digits.
inline double proportion(const Lane& lane, const Prepared& of) {
    double sizes[2] = {};
    for (int s = 0; s < 2; ++s)
        for (Index e = 0; e < (s ? of.n : of.m) * lane.rank; ++e) sizes[s] = lane.start[s][e] > sizes[s] ? lane.start[s][e] : sizes[s];
    const double level = __builtin_sqrt(__builtin_sqrt(of.squares / double(of.m) / double(of.n))) / of.root;
    const double times = level / __builtin_sqrt(sizes[0]) / __builtin_sqrt(sizes[1]);
    return times > 0x1p20 && times <= largest_real ? times : times < 0x1p-20 && times > 0 ? times : 1;
}

// How large random numbers are with which W Hᵀ has the mean of V.
inline double size_of_draws(const Lane& lane, const Prepared& of) {
    const double entries = double(of.m) * double(of.n);
    double mean = of.total / entries;
    if (!(mean > 0)) mean = __builtin_sqrt(of.squares / entries);  // a low-rank V may sum to anything
    return __builtin_sqrt(4 * mean / double(lane.rank));
}

// The answer of a lane whose time is up before it begins: its start, or random numbers. Nothing is allocated but a row of its history.
inline void stay(Course& course, const Prepared& of, const Crew& crew) {
    Lane& lane = course.lane;
    Host& host = crew.looks[0].host();
    const double size = size_of_draws(lane, of), scale = (size > 0 ? size : 1) / of.root;
    constexpr Index some = 4096;
    for (int s = 0; s < 2; ++s) {
        const Index n = s ? of.n : of.m, count = n * lane.rank;
        const uint64_t seed = s ? following(lane.seed) : lane.seed;
        crew.share_all(blocks_of(count, some), [&](Index k, int, Look&) {
            for (Index e = k * some; e < count && e < (k + 1) * some; ++e)
                lane.found[s][e] = lane.start[s] ? lane.start[s][e] : scale * uniform(seed, uint64_t(e));
        });
    }
    if (course.history.count == 0) course.history.push(course.momentum.error, host.seconds(host.self));
    lane.error = course.history.error(course.history.count - 1);
    lane.iterations = course.iterations, lane.status = crew.looks[0].status();
}

template <class Matrix>
void begin(Squares<Matrix>& run, const Matrix& V, const Prepared& of, Course& course, const Crew& crew, Arena& arena) {
    const Lane& lane = course.lane;
    if (lane.start[0]) {
        bool is_new = lane.n_earlier == 0 && !lane.fixed[0] && !lane.fixed[1] && course.is_plain();
        run.begin_at(lane.start, of.root * (is_new ? proportion(lane, of) : 1));
    } else {
        const double scale = size_of_draws(lane, of);
        auto mark = arena.mark();
        if (lane.draws != Start::rotated || !rotated(run, V, course, scale / 10, crew, arena)) run.draw(lane.seed, scale);
        arena.back(mark);
    }
    if (course.pull > 0) run.join();
}

template <class Matrix, class Narrow>
void run_stages(const Matrix& V, const Narrow& narrow, const Prepared& of, Course& course, const Crew& crew, Arena& arena) {
    const Rules& rules = course.rules;
    Lane& lane = course.lane;
    Host& host = crew.looks[0].host();
    auto shows = [&](const auto& run) {
        return [&](Course& now) {
            if (!host.shows || !crew.looks[0].is_caller()) return false;
            write(run, now, of.root, crew, arena);
            return host.shows(host.self, now.place, now.iterations, now.error(now.momentum.error));
        };
    };
    Squares<Matrix> run(V, course, crew, arena);
    const int32_t first_iteration = course.iterations;
    bool goes_on = true;
    if (of.has_narrow && rules.max_iter > first_iteration) {
        auto mark = arena.mark();
        {
            Squares<Narrow> first(narrow, course, crew, arena);
            begin(first, narrow, of, course, crew, arena);
            first.run(course, rules.precision == Precision::real32, shows(first));
            run.begin_at(first, course);
        }
        arena.back(mark);
        goes_on = rules.precision == Precision::mixed && course.status == Status::max_iter && course.iterations < rules.max_iter;
    } else {
        begin(run, V, of, course, crew, arena);
    }
    const bool is_coarse = !goes_on || rules.max_iter <= first_iteration;  // whether the last error was measured in float32, or not at all
    bool is_evaluated = false;
    if (goes_on) run.run(course, true, shows(run));
    if (course.pull > 0) run.join();
    if (!crew.looks[0].ended() && course.status != Status::nonfinite) {
        if (rules.finish != Finish::none && course.pull == 0) run.refine(course, rules.finish == Finish::exact);
        else if (is_coarse) run.evaluate(course), is_evaluated = true;
        run.resolve(course);
    }
    lane.iterations = course.iterations, lane.status = course.status;
    lane.error = course.momentum.error <= largest_real ? course.error(course.momentum.error)
                 : course.history.count                ? course.history.error(course.history.count - 1)
                                                       : course.momentum.error;
    if (course.history.count == 0) course.history.push(lane.error, host.seconds(host.self));
    else if (is_evaluated) lane.history[2 * (course.history.count - 1)] = lane.error;
    write(run, course, of.root, crew, arena);
}

// A fit of V or of √V by least squares, in float32 and from the start of this number: as the lane has it, then from random numbers. The
// factors are written to `found` by rows, W first; return the squared error.
template <class Narrow>
double rough_fit(const Narrow& narrow, int32_t number, const Prepared& of, const Course& course, float* found, const Crew& crew, Arena& arena) {
    const auto mark = arena.mark();
    struct Rough {  // whose history nobody asks for
        Lane lane;
        Host& host;
        ~Rough() {
            if (lane.history) host.release(lane.history);
        }
    } rough{{}, crew.looks[0].host()};
    const Index r = course.lane.rank;
    rough.lane.rank = course.lane.rank, rough.lane.seed = course.lane.seed;
    for (int32_t k = 0; k < number; ++k) rough.lane.seed = following(following(rough.lane.seed));
    Rules fits = course.rules;
    fits.max_iter = course.rules.fits, fits.tol = fit_tol;
    Course about{fits, rough.lane, course.place, course.entries, of.fit_squares, 1, {}, {}, 0, {&rough.lane, &rough.host}, {}};
    Squares<Narrow> fit(narrow, about, crew, arena);
    const double scale = __builtin_sqrt(4 * of.fit_total / (double(of.m) * double(of.n)) / double(r));
    const bool is_rotated = number == 0 && course.lane.draws == Start::rotated;
    if (!is_rotated || !rotated(fit, narrow, about, scale / 10, crew, arena)) fit.draw(rough.lane.seed, scale);
    fit.run(about, true, [](Course&) { return false; });
    for (int s = 0; s < 2; ++s)
        fit.by_rows(s, [&](Index c, Index i) { found[((s ? of.m : 0) + i) * r + c] = fit.side[s].kept[c * fit.side[s].ld + i]; });
    arena.back(mark);
    return about.momentum.error;
}

template <class F>
void spread(Index count, const double* costs, const Crew& crew, F&& f);

// The start of a lane by Newton steps: the best of some fits by least squares, squared if they are of √V, without zeros, since losses may have
// poles. A square is in the right place but too small, as a sum of squares is less than the square of a sum; a few multiplicative updates
// mend that.
template <class Run, class Narrow>
void begin_newton(Run& run, const Narrow& narrow, const Prepared& of, Course& course, const Crew& crew, Arena& arena) {
    const Lane& lane = course.lane;
    const Rules& rules = course.rules;
    if (lane.start[0]) {
        const bool is_new = lane.n_earlier == 0 && !lane.fixed[0] && !lane.fixed[1] && course.is_plain();
        return run.begin_at(lane.start, of.root * (is_new ? proportion(lane, of) : 1));
    }
    if (of.has_narrow) {
        const auto mark = arena.mark();
        const Index r = lane.rank, size = (of.m + of.n) * r;
        float* found = arena.take<float>(rules.starts * size);
        double *errors = arena.zeros<double>(rules.starts), *costs = arena.zeros<double>(rules.starts);
        for (int32_t k = 0; k < rules.starts; ++k) costs[k] = narrow.work() * double(r);
        spread(rules.starts, costs, crew, [&](Index k, const Crew& with, Arena& room) {
            errors[k] = rough_fit(narrow, int32_t(k), of, course, found + k * size, with, room);
        });
        int32_t best = 0;
        for (int32_t k = 1; k < rules.starts; ++k) best = errors[k] < errors[best] ? k : best;
        const float* from = found + best * size;
        for (int s = 0; s < 2; ++s)
            run.by_rows(s, [&](Index c, Index i) {
                const double x = double(from[((s ? of.m : 0) + i) * r + c]);
                run.side[s].kept[c * run.side[s].ld + i] = of.roots ? x * x : x;
            });
        arena.back(mark);
    } else {
        run.draw(lane.seed, size_of_draws(lane, of));
    }
    run.lift();
    if (rules.mends > 0 && !of.panels.weights[0] && !of.stored.weights[0]) run.mend(rules.mends), run.lift();
}

template <class Steps, class Narrow>
void run_steps(Steps& steps, const Index* sizes, bool is_apart, const Narrow& narrow, const Prepared& of, Course& course, const Crew& crew, Arena& arena) {
    const Rules& rules = course.rules;
    Lane& lane = course.lane;
    Host& host = crew.looks[0].host();
    Newton<Steps> run(steps, sizes, course, is_apart, crew, arena);
    begin_newton(run, narrow, of, course, crew, arena);
    const bool iterates = course.iterations < rules.max_iter && !course.is_settled();
    if (iterates)
        run.run(course, rules.sweeps, rules.growth, [&](Course& now) {
            if (!host.shows || !crew.looks[0].is_caller()) return false;
            write(run, now, of.root, crew, arena);
            return host.shows(host.self, now.place, now.iterations, now.error(now.momentum.error));
        });
    bool is_late = crew.looks[0].ended();
    const bool refines = rules.finish != Finish::none && course.status != Status::nonfinite;
    if (!is_late && (!iterates || refines)) {
        const double error = run.value();
        if (!iterates) course.momentum.error = error;
        is_late = crew.looks[0].ended();
    }
    if (!is_late && course.is_settled()) {  // these are the iterations
        if (course.history.count == 0) course.history.push(course.error(course.momentum.error), host.seconds(host.self));
        const bool rests = run.refine(course, rules.max_iter, rules.sweeps, refines, true);
        course.status = rests ? Status::converged : crew.looks[0].ended() ? crew.looks[0].status() : Status::max_iter;
    } else if (!is_late && refines) {
        run.refine(course, refine_steps, refine_sweeps_newton, true, false);
    }
    lane.iterations = course.iterations, lane.status = course.status;
    if (is_late && course.iterations == 0) lane.status = crew.looks[0].status();
    lane.error = course.momentum.error <= largest_real ? course.error(course.momentum.error) : course.momentum.error;
    if (course.history.count == 0) course.history.push(lane.error, host.seconds(host.self));
    write(run, course, of.root, crew, arena);
}

template <class Loss>
void run_loss(const Prepared& of, Course& course, const Crew& crew, Arena& arena) {
    const Rules& rules = course.rules;
    const Index sizes[2] = {of.m, of.n};
    const bool is_sparse = of.kind == Kind::sparse, weighs = is_sparse ? of.stored.weights[0] != nullptr : of.panels.weights[0] != nullptr;
    const bool is_apart = rules.beta == 1 && !weighs;
    const Loss loss(rules.beta, is_apart);
    if (is_sparse) {
        Stored V = of.stored;
        V.is_filled = !weighs && rules.beta != 1;
        SparseSteps<Loss> steps(V, loss, course.lane.rank, crew.width, arena);
        run_steps(steps, sizes, is_apart, of.sparse_narrow, of, course, crew, arena);
    } else {
        DenseSteps<Loss> steps(of.panels, loss, course.lane.rank, crew.width, arena);
        run_steps(steps, sizes, is_apart, of.narrow, of, course, crew, arena);
    }
}

inline void run_newton(const Prepared& of, Course& course, const Crew& crew, Arena& arena) {
    const double beta = course.rules.beta;
    if (beta == 1) run_loss<Kullback>(of, course, crew, arena);
    else if (beta == 2) run_loss<Squared>(of, course, crew, arena);
    else if (beta == 0) run_loss<Itakura>(of, course, crew, arena);
    else run_loss<Power>(of, course, crew, arena);
}

// The numbers of a lane by which its objective on V times `scale` is known from that on V, and back.
inline Course course_of(Lane& lane, int32_t place, const Prepared& V, const Rules& rules, Host& host) {
    double entries = double(V.m) * double(V.n);
    if (!V.newton)
        return {rules, lane, place, entries > 0 ? entries : 1, V.squares, V.scale,
                {rules.l1[0] * V.scale * V.root, rules.l1[1] * V.scale * V.root}, {rules.l2[0] * V.scale, rules.l2[1] * V.scale},
                rules.pull * V.total / (entries > 0 ? entries : 1) * double(V.n), {&lane, &host}, {}};
    entries = V.known > 0 ? V.known : 1;
    const double root_unit = __builtin_pow(V.scale, rules.beta / 2), mean = V.total / entries;  // d(c v, c y) = c^β d(v, y)
    auto penalty = [&](double weight, double per) { return weight > 0 ? weight * root_unit / per * root_unit : 0; };
    return {rules, lane, place, entries, V.level * entries * (mean > 0 ? __builtin_pow(mean, rules.beta) : 1), root_unit,
            {penalty(rules.l1[0], V.root), penalty(rules.l1[1], V.root)}, {penalty(rules.l2[0], V.scale), penalty(rules.l2[1], V.scale)}, 0, {&lane, &host}, {}};
}

inline void run_lane(Lane& lane, int32_t place, const Prepared& V, const Rules& rules, const Crew& crew, Arena& arena) {
    Host& host = crew.looks[0].host();
    auto mark = arena.mark();
    const double entries = double(V.m) * double(V.n);
    Course course = course_of(lane, place, V, rules, host);
    try {
        const bool is_late = crew.looks[0].now();
        course.history.begin(lane.earlier, lane.n_earlier);
        course.iterations = lane.n_earlier > 0 ? int32_t(lane.n_earlier - 1) : 0;
        if (entries == 0) {  // nothing to fit
            for (int s = 0; s < 2; ++s)
                for (Index i = 0; i < (s ? V.n : V.m) * lane.rank; ++i) lane.found[s][i] = 0;
            course.history.push(0, host.seconds(host.self));
            lane.error = 0, lane.iterations = 0, lane.status = Status::converged;
        } else if (is_late) {
            stay(course, V, crew);
        } else if (V.newton) {
            run_newton(V, course, crew, arena);
        } else if (V.kind == Kind::dense64) {
            run_stages(V.dense64, V.narrow, V, course, crew, arena);
        } else if (V.kind == Kind::dense32) {
            run_stages(V.dense32, V.narrow, V, course, crew, arena);
        } else if (V.kind == Kind::sparse) {
            run_stages(V.sparse, V.sparse_narrow, V, course, crew, arena);
        } else {
            run_stages(V.low_rank, V.low_rank_narrow, V, course, crew, arena);
        }
    } catch (const OutOfMemory&) {
        lane.status = Status::no_memory;
    }
    arena.back(mark);
}

inline Arena& own_arena() {  // of this thread, kept from call to call: new pages cost more than what small lanes do with them
    static thread_local Arena arena;
    return arena;
}

inline void sort_by_cost(Index* order, Index count, const double* costs) {  // the dearest first; by shell sort, stable enough for a schedule
    for (Index gap = count / 2; gap > 0; gap /= 2)
        for (Index i = gap; i < count; ++i) {
            Index k = order[i], j = i;
            for (; j >= gap && costs[order[j - gap]] < costs[k]; j -= gap) order[j] = order[j - gap];
            order[j] = k;
        }
}

// f(k, crew, arena) for 0 ≤ k < count: heavy ones in turn with all threads, then the light ones, each on one thread.
template <class F>
void spread(Index count, const double* costs, const Crew& crew, F&& f) {
    Host& host = crew.looks[0].host();
    double total = 0;
    for (Index k = 0; k < count; ++k) total += costs[k];
    double heavy = total / crew.width > 3e5 ? total / crew.width : 3e5;
    bool alone = crew.width == 1 || count == 1;
    Arena& arena = own_arena();
    auto mark = arena.mark();
    Index *order = arena.take<Index>(count), light = 0;
    for (Index k = 0; k < count; ++k) {
        if (alone || costs[k] > heavy)
            f(k, crew, arena);
        else
            order[light++] = k;
    }
    sort_by_cost(order, light, costs);
    crew.share_all(light, [&](Index k, int, Look& look) {
        own_arena().begin(host);
        f(order[k], Crew{1, &look}, own_arena());
    });
    arena.back(mark);
}

// V ≈ U Zᵀ with Zᵀ = UᵀV, for the orthonormal basis U of `find_basis`.
template <class Matrix>
void make_sketch(const Matrix& V, const Prepared& of, Sketch& sketch, const Rules& rules, const Crew& crew, Arena& arena) {
    Lane lane;
    lane.rank = sketch.p;
    Course course{rules, lane, 0, 1, of.squares, of.scale, {}, {}, 0, {}, {}};
    Look& look = crew.looks[0];
    if (look.now()) {
        sketch.status = look.status();
        return;
    }
    Squares<Matrix> run(V, course, crew, arena);
    if (!find_basis(run, sketch.seed, sketch.powers, look)) {
        sketch.status = look.status();
        return;
    }
    double kept = 0;
    for (Index c = 0; c < sketch.p; ++c) kept += run.side[1].gram[c * sketch.p + c];
    sketch.lost = kept < of.squares ? (of.squares - kept) / of.scale / of.scale : 0;
    for (int s = 0; s < 2; ++s) {
        double* to = s ? sketch.Z : sketch.U;
        const double times = s ? 1 / of.scale : 1;
        run.by_rows(s, [&](Index c, Index i) { to[i * sketch.p + c] = times * double(run.side[s].kept[c * run.side[s].ld + i]); });
    }
}

inline Flaw sketch(const Matrix& matrix, Sketch& sketch, const Rules& rules, Host& host) {
    Arena& arena = own_arena();
    auto mark = arena.begin(host);
    Flaw flaw = Flaw::none;
    try {
        Crew crew = crew_of(host, rules, host.width, arena);
        Prepared V{};
        V.look_at(matrix, rules, crew);
        flaw = V.flaw;
        if (flaw == Flaw::none) {
            V.make_room(matrix, arena);
            V.fill(matrix, crew);
            auto of = [&](const auto& any) { make_sketch(any, V, sketch, rules, crew, arena); };
            if (V.kind == Kind::sparse) V.has_narrow ? of(V.sparse_narrow) : of(V.sparse);
            else if (V.kind == Kind::low_rank) V.has_narrow ? of(V.low_rank_narrow) : of(V.low_rank);
            else if (V.has_narrow) of(V.narrow);
            else V.kind == Kind::dense64 ? of(V.dense64) : of(V.dense32);
        }
    } catch (const OutOfMemory&) {
        flaw = Flaw::no_memory;
    }
    arena.back(mark);
    return flaw;
}

// Run lanes; a matrix that cannot be factorized is named in `flawed`.
inline Flaw run(const Matrix* matrices, int32_t n_matrices, Lane* lanes_of, int32_t n_lanes, const Rules& rules, Host& host,
                int32_t* flawed) {
    Arena& arena = own_arena();
    auto mark = arena.begin(host);
    Flaw flaw = Flaw::none;
    *flawed = 0;
    try {
        Crew crew = crew_of(host, rules, host.width, arena);
        auto* prepared = arena.take<Prepared>(n_matrices);
        auto* costs = arena.take<double>(n_matrices > n_lanes ? n_matrices : n_lanes);
        for (Index k = 0; k < n_matrices; ++k) {
            const Matrix& V = matrices[k];
            prepared[k] = Prepared{};
            costs[k] = V.kind == Kind::sparse     ? double(V.from[0][V.m])
                       : V.kind == Kind::low_rank ? double(V.p) * double(V.m + V.n)
                                                  : double(V.m) * double(V.n);
        }
        spread(n_matrices, costs, crew, [&](Index k, const Crew& with, Arena&) { prepared[k].look_at(matrices[k], rules, with); });
        for (int32_t k = n_matrices - 1; k >= 0; --k)
            if (prepared[k].flaw != Flaw::none) flaw = prepared[k].flaw, *flawed = k;
        if (flaw == Flaw::none) {
            for (Index k = 0; k < n_matrices; ++k) prepared[k].make_room(matrices[k], arena);
            spread(n_matrices, costs, crew, [&](Index k, const Crew& with, Arena&) { prepared[k].fill(matrices[k], with); });
            for (Index k = 0; k < n_lanes; ++k) {
                const Matrix& V = matrices[lanes_of[k].matrix];
                double work = V.kind == Kind::sparse     ? 4 * double(V.from[0][V.m])
                              : V.kind == Kind::low_rank ? double(V.p) * double(V.m + V.n)
                                                         : double(V.m) * double(V.n);
                costs[k] = (work + double(lanes_of[k].rank) * double(V.m + V.n)) * lanes_of[k].rank;
            }
            spread(n_lanes, costs, crew, [&](Index k, const Crew& with, Arena& room) {
                run_lane(lanes_of[k], int32_t(k), prepared[lanes_of[k].matrix], rules, with, room);
            });
        }
    } catch (const OutOfMemory&) {
        flaw = Flaw::no_memory;
    }
    arena.back(mark);
    return flaw;
}

}  // namespace factormer::FACTORMER_SET
