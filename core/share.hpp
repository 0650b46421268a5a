// A crew shares out numbered pieces of work, f(piece, worker, look), among its threads. Pieces are cut by shapes alone and what they sum
// is added up in their order, so results depend on no number of threads; each worker looks up now and then whether the call has to end.
#pragma once
#include "view.hpp"

namespace factormer::FACTORMER_SET {

class Look {
    Host* host_ = nullptr;
    double limit_ = 0, work_ = 0;
    bool is_caller_ = false;

    int32_t why() const { return __atomic_load_n(&host_->halted, __ATOMIC_RELAXED); }

   public:
    Look() = default;
    Look(Host& host, double limit, bool is_caller) : host_(&host), limit_(limit), is_caller_(is_caller) {}

    bool ended() const { return why() >= 0; }
    Status status() const { return Status(why()); }  // once it has ended
    void end(Status why) const {
        int32_t running = -1;
        __atomic_compare_exchange_n(&host_->halted, &running, int32_t(why), false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
    }
    // Whether to stop, after so many multiplications more; the clock is read a few hundred times a second.
    bool operator()(double multiplications) {
        constexpr double between = 1e7;
        work_ += multiplications;
        if (work_ < between) return ended();
        return now();
    }
    // Whether to stop, by the clock as it is now.
    bool now() {
        work_ = 0;
        if (limit_ > 0 && host_->seconds(host_->self) >= limit_) end(Status::time_limit);
        if (is_caller_ && host_->asks(host_->self)) end(Status::interrupted);
        return ended();
    }
    bool is_caller() const { return is_caller_; }
    Host& host() const { return *host_; }
};

struct Crew {
    int32_t width = 1;
    Look* looks = nullptr;  // one for each worker

    // Whether all pieces were done; if not, the call has to end.
    template <class F>
    bool share(Index pieces, F&& f) const {
        share_all(pieces, [&](Index k, int32_t worker, Look& look) {
            if (!look.ended()) f(k, worker, look);
        });
        return !looks[0].ended();
    }

    // All pieces, even if the call has to end.
    template <class F>
    void share_all(Index pieces, F&& f) const {
        if (width == 1 || pieces == 1) {
            for (Index k = 0; k < pieces; ++k) f(k, 0, looks[0]);
            return;
        }
        struct Context {
            F& f;
            Look* looks;
        } context{f, looks};
        Host& host = looks[0].host();
        host.share(host.self, int32_t(pieces), [](void* c, int32_t piece, int32_t worker) {
            auto& [function, own] = *static_cast<Context*>(c);
            function(Index(piece), worker, own[worker]);
        }, &context);
    }
};

inline Crew crew_of(Host& host, const Rules& rules, int32_t width, Arena& arena) {
    Look* looks = arena.take<Look>(width);
    for (int32_t k = 0; k < width; ++k) looks[k] = Look(host, rules.seconds, k == 0);
    return {width, looks};
}

}  // namespace factormer::FACTORMER_SET
