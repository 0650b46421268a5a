// A small pool of threads that stays from call to call: the calling thread is worker 0 and takes pieces like the others, who spin for a
// moment after a job and then sleep. The caller waits only for workers that have begun, so that one that the system has put aside delays
// nobody. Threads are never joined: they sleep until the process ends, and a process that was forked begins with a new pool.
#pragma once
#if defined(__linux__)
#include <sched.h>
#endif
#if !defined(_WIN32)
#include <pthread.h>
#endif

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <system_error>
#include <thread>

#include "request.hpp"

namespace factormer {

class Pool {
    std::atomic<uint32_t> job_{0};         // how many jobs there have been
    std::atomic<uint32_t> open_{0};        // the job that may be worked on, 0 if none
    std::atomic<int32_t> next_{0};         // the next piece
    std::atomic<int32_t> working_{0};      // workers that have begun
    std::atomic<int32_t> sleeping_{0};
    std::atomic<int32_t> home_{-1};        // the caller's processor
    std::atomic<int32_t> width_{1};        // threads of this job, with the caller
    std::mutex sleep_;
    std::condition_variable wake_;
    std::atomic<int32_t> spins_{2000};     // before a worker sleeps
    int32_t pieces_ = 0, threads_ = 1;
    Piece function_ = nullptr;
    void* context_ = nullptr;

    static void pause() {
#if defined(__x86_64__)
        __builtin_ia32_pause();
#elif defined(__aarch64__)
        asm volatile("yield");
#endif
    }

    // A thread that wakes is often put on the processor of the one that woke it, and stays behind it, beside an idle one, until the system
    // balances its queues, which took a second where this was measured. Leaving that processor from the set allowed, and returning it at
    // once, moves the thread.
    void step_aside() {
#if defined(__linux__)
        int here = sched_getcpu();
        if (here < 0 || here != home_.load(std::memory_order_relaxed)) return;
        cpu_set_t allowed, others;
        if (here >= CPU_SETSIZE || sched_getaffinity(0, sizeof allowed, &allowed) != 0 || CPU_COUNT(&allowed) < 2) return;
        others = allowed;
        CPU_CLR(here, &others);
        if (sched_setaffinity(0, sizeof others, &others) == 0) sched_setaffinity(0, sizeof allowed, &allowed);
#endif
    }

    void work(int32_t worker) {
        for (int32_t k; (k = next_.fetch_add(1)) < pieces_;) function_(context_, k, worker);
    }

    void serve(int32_t worker) {
        for (uint32_t seen = 0;;) {
            for (int32_t spin = 0; job_.load() == seen && spin < spins_; ++spin) pause();
            if (job_.load() == seen) {
                std::unique_lock<std::mutex> lock(sleep_);
                ++sleeping_;
                wake_.wait(lock, [&] { return job_.load() != seen; });
                --sleeping_;
            }
            seen = job_.load();
            if (worker >= width_.load()) continue;
            step_aside();
            ++working_;
            if (open_.load() == seen) work(worker);
            --working_;
        }
    }

   public:
    // Threads for `width` workers in all, as many as the system gives; returns how many there are.
    int32_t grow(int32_t width, int32_t processors) {
        spins_ = width <= processors ? 2000 : 0;
        try {
            for (; threads_ < width; ++threads_) std::thread([this, k = threads_] { serve(k); }).detach();
        } catch (const std::system_error&) {
        }
        return width < threads_ ? width : threads_;
    }

    // f(context, k, worker) for 0 ≤ k < pieces on `width` threads; `idle` is called now and then while the caller waits.
    template <class Idle>
    void run(int32_t width, int32_t pieces, Piece f, void* context, Idle&& idle) {
        pieces_ = pieces, function_ = f, context_ = context;
#if defined(__linux__)
        home_.store(sched_getcpu(), std::memory_order_relaxed);
#endif
        width_ = width, next_ = 0;
        uint32_t job = job_.load() + 1;
        if (job == 0) job = 1;  // 0 means that no job is open
        open_ = job;
        job_ = job;
        if (sleeping_.load() > 0) {
            { std::lock_guard<std::mutex> lock(sleep_); }
            wake_.notify_all();
        }
        work(0);
        open_ = 0;
        for (int32_t round = 0; working_.load() > 0; ++round) {
            if (round < 200) {
                pause();
            } else {
                std::this_thread::yield();  // a worker may be waiting for this very processor
                if (round % 64 == 0) idle();
            }
        }
    }
};

// The pool of this process, for one call at a time; who finds it busy works alone, which also serves a call from within a callback.
class Shared {
    struct State {
        Pool pool;
        std::atomic<bool> busy{false};
    };
    static inline std::atomic<State*> state_{nullptr};
    State* mine_ = nullptr;

    static State* state() {
        State* now = state_.load();
        if (now) return now;
        auto* fresh = new State;
        if (state_.compare_exchange_strong(now, fresh)) return fresh;
        delete fresh;
        return now;
    }

   public:
    Shared() {
        State* now = state();
        if (!now->busy.exchange(true)) mine_ = now;
    }
    Shared(const Shared&) = delete;
    Shared& operator=(const Shared&) = delete;
    ~Shared() {
        if (mine_) mine_->busy = false;
    }
    Pool* pool() const { return mine_ ? &mine_->pool : nullptr; }

    // A forked process has none of the threads, and maybe a lock that nobody will open: it forgets the pool.
    static void forget_at_fork() {
#if !defined(_WIN32)
        pthread_atfork(nullptr, nullptr, [] { state_.store(nullptr); });
#endif
    }
};

}  // namespace factormer
