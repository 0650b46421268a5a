// Python's door to the core: V ≈ W Hᵀ for a list of lanes in one call. Arrays are checked, the instruction set is chosen once at import,
// the lock of the interpreter is released while lanes run, and taken back for a moment to look for Ctrl-C or to call somebody.
#if !defined(_WIN32)
#include <dlfcn.h>
#endif
#include <nanobind/stl/pair.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <chrono>
#include <limits>
#include <new>
#include <utility>

#include "extrapolate.hpp"
#include "intake.hpp"
#include "order.hpp"
#include "pool.hpp"
#include "random.hpp"
#include "stop.hpp"
#include "threads.hpp"

namespace factormer {
namespace baseline { extern const Core core; }
#if defined(__x86_64__) || defined(_M_X64)
namespace avx2 { extern const Core core; }
namespace avx512 { extern const Core core; }
#endif
namespace rules = FACTORMER_SET;

namespace {

using Clock = std::chrono::steady_clock;
using Found = nb::ndarray<nb::numpy, double, nb::ndim<2>>;

struct Isa {
    const char* name;
    const Core* core;
    bool is_here;
};

#if defined(__x86_64__) || defined(_M_X64)
struct Registers {
    uint32_t a, b, c, d;
};
Registers cpuid(uint32_t leaf) {  // __builtin_cpu_supports needs a library that clang-cl does not link
    Registers r;
    asm volatile("cpuid" : "=a"(r.a), "=b"(r.b), "=c"(r.c), "=d"(r.d) : "a"(leaf), "c"(0));
    return r;
}
#endif

std::vector<Isa> isas() {  // the best first
    std::vector<Isa> all;
#if defined(__x86_64__) || defined(_M_X64)
    auto has = [](uint32_t bits, uint32_t all) { return (bits & all) == all; };
    const uint32_t basic = cpuid(1).c, more = cpuid(0).a >= 7 ? cpuid(7).b : 0;
    uint32_t saved = 0, high = 0;  // registers that the system saves for each thread
    if (has(basic, 1u << 27)) asm volatile("xgetbv" : "=a"(saved), "=d"(high) : "c"(0));
    bool has_avx2 = has(saved, 0x06) && has(basic, 1u << 12) && has(more, 1u << 5);                            // with FMA
    bool has_avx512 = has_avx2 && has(saved, 0xE6) && has(more, 1u << 16 | 1u << 17 | 1u << 30 | 1u << 31);  // F, DQ, BW and VL
    all.push_back({"avx512", &avx512::core, has_avx512});
    all.push_back({"avx2", &avx2::core, has_avx2});
#endif
    all.push_back({"baseline", &baseline::core, true});
    return all;
}

Isa chosen{nullptr, nullptr, false};

void choose(const std::string& name) {
    std::string known;
    for (const Isa& isa : isas()) {
        if (isa.is_here && (name.empty() || name == isa.name)) {
            chosen = isa;
            return;
        }
        if (isa.is_here) known += std::string(known.empty() ? "" : ", ") + isa.name;
    }
    refuse("FACTORMER_ISA is '" + name + "'; this machine has " + known);
}

void* allocate(size_t bytes) {
    return ::operator new(bytes < 64 ? 64 : bytes, std::align_val_t(64), std::nothrow);
}
void release(void* memory) { ::operator delete(memory, std::align_val_t(64)); }

bool is_finalizing() {
#if defined(Py_LIMITED_API) && defined(_WIN32)
    return false;  // a thread that Windows ends unwinds none of our frames
#elif defined(Py_LIMITED_API)  // the stable interface of Python 3.12 lacks the function, which has another name from 3.13 on
    static const auto ask = [] {
        void* function = dlsym(RTLD_DEFAULT, "Py_IsFinalizing");
        return reinterpret_cast<int (*)()>(function ? function : dlsym(RTLD_DEFAULT, "_Py_IsFinalizing"));
    }();
    return ask && ask();
#elif PY_VERSION_HEX >= 0x030D0000
    return Py_IsFinalizing();
#else
    return _Py_IsFinalizing();
#endif
}

// The lock of the interpreter, released for a while. At its end a thread that comes late would be ended inside of our frames, which C++
// does not survive, so it sleeps instead; and who holds the lock although the interpreter is ending is the thread that ends it.
class Unlocked {
    PyThreadState* state_ = is_finalizing() ? nullptr : PyEval_SaveThread();

   public:
    Unlocked() = default;
    Unlocked(const Unlocked&) = delete;
    Unlocked& operator=(const Unlocked&) = delete;
    ~Unlocked() {
        if (!state_) return;
        while (is_finalizing()) std::this_thread::sleep_for(std::chrono::seconds(1));
        PyEval_RestoreThread(state_);
    }
};

// An (n, k) array whose memory is ours to give.
Found array_of_memory(double* data, size_t rows, size_t cols) {
    nb::capsule owner(data, [](void* memory) noexcept { release(memory); });
    return Found(data, {rows, cols}, owner);
}
Found new_array(int64_t rows, int64_t cols) {
    if (rows > 0 && cols > most_entries / rows) refuse("the factors would have too many entries");
    auto* data = static_cast<double*>(allocate(size_t(rows * cols) * sizeof(double)));
    if (!data) throw std::bad_alloc();
    return array_of_memory(data, size_t(rows), size_t(cols));
}

// The number of entries of factors, with those of another one.
int64_t checked_sum(int64_t sum, int64_t rows, int64_t cols) {
    if (rows > 0 && cols > (most_entries - sum) / rows) refuse("the factors would have too many entries");
    return sum + rows * cols;
}

struct Call {  // the host of one call
    Clock::time_point begun = Clock::now(), asked = begun;
    Pool* pool = nullptr;
    int32_t width = 1;
    nb::object callback;
    nb::object found[2];  // W and H of all lanes
    const std::vector<Matrix>* matrices = nullptr;
    std::vector<Lane>* lanes = nullptr;
    std::vector<int64_t> shown;  // rows of the history of each lane that the callback has had
    bool was_raised = false;  // whether Python has an exception for us

    double seconds() const { return std::chrono::duration<double>(Clock::now() - begun).count(); }
    bool asks() {  // at most twenty times a second, since the lock has to be had for it
        auto now = Clock::now();
        if (was_raised) return true;
        if (now - asked < std::chrono::milliseconds(50)) return false;
        asked = now;
        if (is_finalizing()) return true;
        nb::gil_scoped_acquire locked;
        return was_raised = PyErr_CheckSignals() != 0;
    }
    bool shows(int32_t lane, int32_t iteration, double error) {
        if (was_raised || is_finalizing()) return true;
        nb::gil_scoped_acquire locked;
        try {
            const Lane& of = (*lanes)[size_t(lane)];
            int64_t first = std::exchange(shown[size_t(lane)], of.iterations_kept), rows = of.iterations_kept - first;
            Found news = new_array(rows, 2);
            std::memcpy(news.data(), of.history + 2 * first, size_t(rows) * 2 * sizeof(double));
            const Matrix& V = (*matrices)[size_t(of.matrix)];
            Found W(of.found[0], {size_t(V.m), size_t(of.rank)}, found[0]), H(of.found[1], {size_t(V.n), size_t(of.rank)}, found[1]);
            return nb::cast<bool>(nb::bool_(callback(lane, iteration, error, W, H, news)));
        } catch (nb::python_error& error_raised) {
            error_raised.restore();
        } catch (const std::exception& error_raised) {
            PyErr_SetString(PyExc_RuntimeError, error_raised.what());
        }
        return was_raised = true;
    }
};

template <class T>
T one_of(const std::string& name, const std::string& what, std::initializer_list<std::pair<const char*, T>> known) {
    std::string names;
    for (auto& [known_name, value] : known) {
        if (name == known_name) return value;
        names += std::string(names.empty() ? "'" : ", '") + known_name + "'";
    }
    refuse(what + " is '" + name + "'; it has to be one of " + names);
}

double number(double value, const char* what, double most = std::numeric_limits<double>::max()) {
    if (!(value >= 0 && value <= most)) refuse(std::string(what) + " has to be a finite number, 0 or above");
    return value;
}

const char* sentence_of(Flaw flaw) {
    return flaw == Flaw::not_finite ? " holds NaN or infinite entries" : " holds negative entries";
}

// Numbers that a lane reads while the call lasts: a factor of its start, or its history.
std::vector<double> finite_rows_of(nb::handle part, int64_t rows, int64_t cols, const std::string& name) {
    std::vector<double> numbers = rows_of(part, rows, cols, name);
    if (!all_finite(numbers, true)) refuse(name + " holds negative, NaN or infinite entries");
    return numbers;
}

// The host of a call on threads, which work until the call ends.
class Threads {
    std::unique_ptr<Shared> shared_;

   public:
    Threads(Call& call, int64_t asked) {
        int32_t width = asked > 0 ? int32_t(asked) : threads();
        if (width <= 1) return;
        shared_ = std::make_unique<Shared>();
        call.pool = shared_->pool();
        if (call.pool) call.width = call.pool->grow(width, processors());
    }
};

Host host_of(Call& call) {
    Host host;
    host.self = &call, host.allocate = allocate, host.release = release;
    host.seconds = [](void* self) { return static_cast<Call*>(self)->seconds(); };
    host.asks = [](void* self) { return static_cast<Call*>(self)->asks(); };
    if (call.callback.is_valid() && !call.callback.is_none())
        host.shows = [](void* self, int32_t lane, int32_t iteration, double error) { return static_cast<Call*>(self)->shows(lane, iteration, error); };
    host.share = [](void* self, int32_t pieces, Piece f, void* context) {
        auto& of = *static_cast<Call*>(self);
        of.pool->run(of.width, pieces, f, context, [&] { of.asks(); });
    };
    return host;
}

double limit_of(double seconds) {
    if (!(seconds >= 0)) refuse("seconds has to be 0 or above");
    return seconds == std::numeric_limits<double>::infinity() ? 0 : seconds > 0 ? seconds : 1e-300;
}
void check_threads(int64_t asked) {
    if (asked < 0 || asked > most_threads) refuse("threads has to be between 0 (as many as there are) and 256");
}
Precision precision_of(const std::string& name) {
    return one_of<Precision>(name, "precision", {{"float64", Precision::real64}, {"mixed", Precision::mixed}, {"float32", Precision::real32}});
}

nb::tuple sketch(nb::object V, int64_t p, uint64_t seed, int64_t powers, const std::string& precision, double seconds, int64_t threads_asked) {
    Call call;
    check_threads(threads_asked);
    Rules rules;
    rules.seconds = limit_of(seconds), rules.precision = precision_of(precision);
    Intake intake;
    take(intake, V, numbered(0));
    const int64_t m = intake.matrix.m, n = intake.matrix.n;
    if (m < 1 || n < 1 || p < 1 || p > std::min(m, n)) refuse("p has to be between 1 and the smaller side of the matrix");
    if (powers < 0 || powers > 100) refuse("powers has to be between 0 and 100");
    Found U = new_array(m, p), Z = new_array(n, p);
    Sketch made;
    made.p = int32_t(p), made.powers = int32_t(powers), made.seed = seed, made.U = U.data(), made.Z = Z.data();
    Host host = host_of(call);
    Flaw flaw;
    {
        Unlocked unlocked;
        Threads held(call, threads_asked);
        host.width = call.width;
        flaw = chosen.core->sketch(intake.matrix, made, rules, host);
    }
    if (call.was_raised) throw nb::python_error();
    if (flaw == Flaw::no_memory) throw std::bad_alloc();
    if (flaw != Flaw::none) refuse(numbered(0) + sentence_of(flaw));
    if (made.status != Status::converged) return nb::make_tuple(nb::none(), nb::none(), 0.0);
    return nb::make_tuple(U, Z, made.lost);
}

// (β, sweeps, growth, starts, fits, mends, roots): see Rules.
void take_loss(nb::object loss, Rules& rules) {
    if (nb::len(loss) != 7) refuse("loss has to be (beta, sweeps, growth, starts, fits, mends, roots), or None");
    auto [beta, sweeps, growth, starts, fits, mends, roots] = nb::cast<std::tuple<double, int64_t, double, int64_t, int64_t, int64_t, bool>>(loss);
    if (!(beta >= -100 && beta <= 100)) refuse("loss: beta has to be between -100 and 100");
    if (sweeps < 1 || sweeps > 1000) refuse("loss: sweeps has to be between 1 and 1000");
    if (!(growth >= 1 && growth <= 2)) refuse("loss: growth has to be between 1 and 2");
    if (fits < 0 || fits > 100000 || mends < 0 || mends > 100000) refuse("loss: fits and mends have to be between 0 and 100000");
    if (starts < 1 || starts > 100) refuse("loss: starts has to be between 1 and 100");
    rules.newton = true, rules.starts = int32_t(starts), rules.beta = beta, rules.sweeps = int32_t(sweeps), rules.growth = growth;
    rules.fits = int32_t(fits), rules.mends = beta == 1 ? int32_t(mends) : 0, rules.roots = roots;
    if (rules.pull > 0) refuse("a symmetric factorization serves no loss");
}

nb::tuple run(nb::sequence matrices, std::vector<int64_t> index, std::vector<int64_t> ranks, std::vector<uint64_t> seeds, nb::object starts,
             nb::object fixed, nb::object earlier, int64_t max_iter, double tol, double seconds, double since, std::pair<double, double> l1,
             std::pair<double, double> l2, double pull, int64_t max_sweeps, const std::string& precision, const std::string& finish,
             bool order, const std::string& scale, int64_t threads_asked, nb::object callback, nb::object loss) {
    Call call;  // whose clock begins before anything is copied
    const size_t count = index.size();
    if (ranks.size() != count || seeds.size() != count) refuse("index, ranks and seeds have to be of one length");
    if (count > size_t(INT32_MAX) || nb::len(matrices) > size_t(INT32_MAX)) refuse("there are too many lanes");
    if (max_iter < 0 || max_iter > INT32_MAX) refuse("max_iter has to be between 0 and 2147483647");
    if (max_sweeps < 1 || max_sweeps > 1000) refuse("max_sweeps has to be between 1 and 1000");
    check_threads(threads_asked);
    Rules rules;
    rules.max_iter = int32_t(max_iter), rules.max_sweeps = int32_t(max_sweeps);
    rules.tol = number(tol, "tol"), rules.pull = number(pull, "pull");
    rules.l1[0] = number(l1.first, "l1"), rules.l1[1] = number(l1.second, "l1");
    rules.l2[0] = number(l2.first, "l2"), rules.l2[1] = number(l2.second, "l2");
    rules.seconds = limit_of(seconds), rules.precision = precision_of(precision);
    call.begun -= std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(number(since, "since", 1e9)));
    if (rules.seconds > 0) rules.seconds += since;
    rules.finish = one_of<Finish>(finish, "finish", {{"none", Finish::none}, {"sweeps", Finish::sweeps}, {"exact", Finish::exact}});
    rules.scale = one_of<Scale>(scale, "scale", {{"none", Scale::none}, {"balanced", Scale::balanced}, {"sum", Scale::sum}});
    rules.order = order;
    if (!loss.is_none()) take_loss(loss, rules);

    std::vector<Intake> intakes(nb::len(matrices));
    std::vector<Matrix> inputs(intakes.size());
    for (size_t k = 0; k < intakes.size(); ++k) {
        nb::object V = matrices[k];
        take(intakes[k], V, numbered(k));
        inputs[k] = intakes[k].matrix;
        if (inputs[k].weights[0] && !rules.newton) refuse(numbered(k) + " has weights, which need a loss");
        if (rules.newton && inputs[k].kind == Kind::low_rank) refuse(numbered(k) + " is of low rank, which serves no loss");
    }
    for (nb::object* list : {&starts, &fixed, &earlier})
        if (!list->is_none() && nb::len(*list) != count) refuse("starts, fixed and earlier have to have one entry for each lane, or be None");
    auto entry = [](nb::object& list, size_t k) { return list.is_none() ? nb::none() : nb::object(list[k]); };

    std::vector<Lane> lanes(count);
    std::vector<std::vector<double>> begun(2 * count), histories_before(count);
    std::vector<std::vector<uint8_t>> masks(2 * count);
    struct Histories {  // released unless they were handed on
        std::vector<Lane>& lanes;
        ~Histories() {
            for (Lane& lane : lanes)
                if (lane.history) release(lane.history);
        }
    } histories{lanes};
    int64_t totals[2] = {0, 0};
    for (size_t k = 0; k < count; ++k) {
        Lane& lane = lanes[k];
        const std::string what = "lane " + std::to_string(k);
        if (index[k] < 0 || size_t(index[k]) >= inputs.size()) refuse(what + ": there is no matrix " + std::to_string(index[k]));
        if (ranks[k] < 1 || ranks[k] > 1000000) refuse(what + ": the rank is " + std::to_string(ranks[k]) + "; it has to be between 1 and 1000000");
        const Matrix& V = inputs[size_t(index[k])];
        if (pull > 0 && V.m != V.n) refuse(what + ": a symmetric factorization needs a square V");
        lane.matrix = int32_t(index[k]), lane.rank = int32_t(ranks[k]), lane.seed = seeds[k];
        for (int s = 0; s < 2; ++s) totals[s] = checked_sum(totals[s], s ? V.n : V.m, lane.rank);
        nb::object start = entry(starts, k);
        if (!start.is_none() && nb::isinstance<nb::str>(start)) {
            lane.draws = one_of<Start>(nb::cast<std::string>(start), what + ": the start", {{"random", Start::random}, {"rotated", Start::rotated}});
            start = nb::none();
        }
        if (!start.is_none()) {
            if (nb::len(start) != 2) refuse(what + ": a start is a pair of W and H, 'random' or 'rotated'");
            for (int s = 0; s < 2; ++s) {
                auto& numbers = begun[2 * k + size_t(s)];
                nb::object part = start[s];
                const std::string name = what + ": the start of " + (s ? "H" : "W");
                numbers = finite_rows_of(part, s ? V.n : V.m, lane.rank, name);
                lane.start[s] = numbers.data();
            }
        }
        nb::object rows = entry(earlier, k);
        if (!rows.is_none()) {
            AnyArray kept = array_of(rows, 2, what + ": earlier");
            histories_before[k] = rows_of(rows, int64_t(kept.shape(0)), 2, what + ": earlier");
            for (double number : histories_before[k])
                if (!(number >= 0)) refuse(what + ": earlier holds negative or NaN entries");  // the error of a start may be infinite
            if (kept.shape(0) > size_t(max_iter) + 1) refuse(what + ": earlier has more iterations than max_iter");
            lane.earlier = histories_before[k].data(), lane.n_earlier = int64_t(kept.shape(0));
        }
        nb::object mask = entry(fixed, k);
        if (!mask.is_none()) {
            if (start.is_none()) refuse(what + ": fixed components need a start that holds them");
            if (nb::len(mask) != 2) refuse(what + ": fixed is a pair of lists of components, of W and of H");
            for (int s = 0; s < 2; ++s) {
                auto& flags = masks[2 * k + size_t(s)];
                flags.assign(size_t(lane.rank), 0);
                nb::object components = mask[s];
                for (int64_t c : nb::cast<std::vector<int64_t>>(components)) {
                    if (c < 0 || c >= lane.rank) refuse(what + ": there is no component " + std::to_string(c) + " to keep fixed");
                    flags[size_t(c)] = 1;
                }
                lane.fixed[s] = nb::len(components) ? flags.data() : nullptr;
            }
            if (pull > 0) refuse(what + ": a symmetric factorization takes no fixed components");
        }
    }

    for (int s = 0; s < 2; ++s) {
        Found whole = new_array(totals[s], 1);
        double* next = whole.data();
        for (Lane& lane : lanes) {
            const Matrix& V = inputs[size_t(lane.matrix)];
            lane.found[s] = next, next += (s ? V.n : V.m) * lane.rank;
        }
        call.found[s] = nb::cast(whole);
    }
    call.callback = callback, call.matrices = &inputs, call.lanes = &lanes, call.shown.assign(count, 0);
    for (size_t k = 0; k < count; ++k) call.shown[k] = lanes[k].n_earlier;
    Host host = host_of(call);
    Flaw flaw;
    int32_t flawed = 0;
    {
        Unlocked unlocked;
        Threads held(call, threads_asked);
        host.width = call.width;
        flaw = chosen.core->run(inputs.data(), int32_t(inputs.size()), lanes.data(), int32_t(count), rules, host, &flawed);
    }
    bool has_moved = false;  // whether Ctrl-C leaves something to return
    for (const Lane& lane : lanes) has_moved |= lane.iterations > 0;
    if (call.was_raised && has_moved && PyErr_ExceptionMatches(PyExc_KeyboardInterrupt)) PyErr_Clear(), call.was_raised = false;
    if (call.was_raised) throw nb::python_error();
    bool no_memory = flaw == Flaw::no_memory;
    for (const Lane& lane : lanes) no_memory |= lane.status == Status::no_memory;
    if (no_memory) throw std::bad_alloc();
    if (flaw != Flaw::none) refuse(numbered(size_t(flawed)) + sentence_of(flaw));
    nb::list ends;
    int64_t rows = 0;
    for (const Lane& lane : lanes) {
        const int64_t kept = lane.history ? lane.iterations_kept : 0;
        ends.append(nb::make_tuple(lane.error, lane.iterations, int(lane.status), kept));
        rows += kept;
    }
    Found history = new_array(rows, 2);
    double* next = history.data();
    for (size_t k = 0; k < count; ++k) {
        if (!lanes[k].history) continue;
        std::memcpy(next, lanes[k].history, size_t(lanes[k].iterations_kept) * 2 * sizeof(double));
        next += 2 * lanes[k].iterations_kept;
    }
    return nb::make_tuple(call.found[0], call.found[1], history, ends);
}

// The rules, as Python may call them; laws tie them to their slow twins.
std::vector<double> draw(uint64_t seed, uint64_t count) {
    std::vector<double> numbers;
    for (uint64_t k = 0; k < count; ++k) numbers.push_back(rules::uniform(seed, k));
    return numbers;
}
nb::list judge(std::vector<double> errors) {
    rules::Momentum momentum;
    nb::list steps;
    for (double error : errors) {
        double ahead = momentum.judge(error);
        steps.append(nb::make_tuple(ahead, momentum.beta, momentum.bound, momentum.error, momentum.refused));
    }
    return steps;
}
int64_t settled_at(std::vector<double> errors, double tol) {  // the first iteration at which the error has settled, or −1
    for (size_t t = 0; t < errors.size(); ++t)
        if (rules::is_look(int32_t(t)) && rules::has_settled(errors[size_t(rules::look_back(int32_t(t)))], errors[t], tol)) return int64_t(t);
    return -1;
}
std::vector<int32_t> order_of(std::vector<double> w, std::vector<double> h) {
    if (w.size() != h.size()) refuse("w and h have to be of one length");
    std::vector<double> share(w.size());
    std::vector<int32_t> order(w.size());
    rules::by_share(w.data(), h.data(), int32_t(w.size()), share.data(), order.data());
    return order;
}

}  // namespace
}  // namespace factormer

// For threadpoolctl, which looks for these names in the libraries of a process.
extern "C" NB_EXPORT int factormer_get_num_threads() { return factormer::threads(); }
extern "C" NB_EXPORT void factormer_set_num_threads(int count) { factormer::set_threads(count); }

NB_MODULE(_core, module) {
    using namespace factormer;
    const char* asked = std::getenv("FACTORMER_ISA");
    choose(asked ? asked : "");
    Shared::forget_at_fork();
    module.doc() = "Nonnegative matrix factorization, compiled: V ≈ W Hᵀ for lists of lanes.";
    module.def("run", run, "matrices"_a, "index"_a, "ranks"_a, "seeds"_a, "starts"_a.none() = nb::none(), "fixed"_a.none() = nb::none(),
               "earlier"_a.none() = nb::none(), nb::kw_only(), "max_iter"_a = 200, "tol"_a = 1e-4, "seconds"_a = std::numeric_limits<double>::infinity(),
               "since"_a = 0.0, "l1"_a = std::pair(0.0, 0.0), "l2"_a = std::pair(0.0, 0.0), "pull"_a = 0.0, "max_sweeps"_a = 10, "precision"_a = "float64",
               "finish"_a = "sweeps", "order"_a = true, "scale"_a = "balanced", "threads"_a = 0, "callback"_a.none() = nb::none(), "loss"_a.none() = nb::none(),
               "Factorize: lane k is matrices[index[k]] at ranks[k], from starts[k]: a pair of W and H, or 'random' or 'rotated', drawn by seeds[k]. Return W and H of all, and (error, "
               "seconds) after 0, 1, … iterations, one lane after another, and for each lane the error √(2·objective/(m n)), iterations, the number of the "
               "status in STATUSES, and the rows of its history. Seconds begin with `since`.");
    module.def("sketch", sketch, "matrix"_a.none(), "p"_a, nb::kw_only(), "seed"_a = 0, "powers"_a = 1, "precision"_a = "float64",
               "seconds"_a = std::numeric_limits<double>::infinity(), "threads"_a = 0,
               "Return U, Z and ‖V − U Zᵀ‖² for an orthonormal U of p columns that nearly spans V; None for both if time ran out.");
    module.attr("STATUSES") = nb::make_tuple("CONVERGED", "MAX_ITER", "TIME_LIMIT", "INTERRUPTED", "NONFINITE");
    module.def("isa", [] { return chosen.name; }, "Return the name of the instruction set in use.");
    module.def("isas", [] {
        nb::list names;
        for (const Isa& isa : isas())
            if (isa.is_here) names.append(isa.name);
        return names;
    }, "Return the names of the instruction sets that this machine has, the best first.");
    module.def("use_isa", choose, "name"_a, "Use this instruction set from now on.");
    module.def("threads", threads, "Return how many threads a call uses.");
    module.def("set_threads", factormer_set_num_threads, "count"_a, "Set how many threads calls use; 0 leaves it to the environment.");
    module.def("quota", quota, "root"_a, "groups"_a, "Return the processors that the control groups under a folder allow.");
    module.def("draw", draw, "seed"_a, "count"_a);
    module.def("following", rules::following, "seed"_a);
    module.def("judge", judge, "errors"_a);
    module.def("settled_at", settled_at, "errors"_a, "tol"_a);
    module.def("order_of", order_of, "w"_a, "h"_a);
}
