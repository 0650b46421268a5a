// Views of arrays, and the memory that a lane works in. A factor X (n, r) is held by components, X_ic = data[c·ld + i], padded with
// zeros to whole vectors; an arena hands out aligned blocks and takes them back in reverse order, so that no iteration allocates.
#pragma once
#include <cassert>
#include <cstdint>
#include <cstring>

#include "request.hpp"
#include "simd.hpp"

namespace factormer::FACTORMER_SET {

template <class T>
struct View {  // rows × cols, row k at data + k·ld
    T* data = nullptr;
    Index rows = 0, cols = 0, ld = 0;
    T* row(Index k) const {
        assert(k >= 0 && k < rows);
        return data + k * ld;
    }
};

inline Index rounded(Index n, Index to) { return (n + to - 1) / to * to; }
inline Index blocks_of(Index n, Index most) { return (n + most - 1) / most; }
inline Index edge(Index n, Index parts, Index k) { return n / parts * k + n % parts * k / parts; }  // where part k of n begins

// A length of rows that fall on different places of a cache: an odd number of vectors.
template <class Real>
Index padded(Index n) {
    Index ld = rounded(n < 1 ? 1 : n, lanes<Real>);
    return ld / lanes<Real> % 2 ? ld : ld + lanes<Real>;
}

// The distance of rows of r numbers that are gathered one by one: each begins with a line of the cache, or shares it with whole others.
template <class Real>
Index gathered(Index r) {
    constexpr Index line = 64 / sizeof(Real);
    Index apart = 1;
    while (apart < r && apart < line) apart *= 2;
    return r > line ? rounded(r, line) : apart;
}

struct OutOfMemory {};  // thrown and caught on one thread, outside of parallel regions

class Arena {
    struct Block {
        Block* before;
        size_t size, used;  // bytes after this header, which takes `head` bytes
    };
    static constexpr size_t head = 64;
#if defined(__SANITIZE_ADDRESS__)
    static constexpr size_t least = 0;  // a block for each request, so that every overrun is seen
#else
    static constexpr size_t least = size_t(1) << 18;
#endif
    static constexpr size_t most_kept = size_t(128) << 20;
    Block* top_ = nullptr;
    Block* spare_ = nullptr;          // one block kept for the next call
    size_t taken_ = 0, most_ = 0;     // bytes of all blocks, now and at most since there were none
    size_t whole_ = 0;                // the most that was needed the last time, up to what is kept: the size of a first block
    void* (*allocate_)(size_t) = nullptr;
    void (*release_)(void*) = nullptr;

    static char* memory(Block* block) { return reinterpret_cast<char*>(block) + head; }
    void push(size_t bytes) {
        Block* block = spare_;
        if (block && block->size >= bytes) {
            spare_ = nullptr;
        } else {
            size_t size = bytes > least ? bytes : least;
            if (least && !top_ && whole_ > size) size = whole_;
            block = static_cast<Block*>(allocate_(size + head));
            if (!block) throw OutOfMemory{};
            block->size = size;
        }
        block->before = top_, block->used = 0;
        top_ = block, taken_ += block->size;
        most_ = taken_ > most_ ? taken_ : most_;
    }

   public:
    Arena() = default;
    Arena(const Arena&) = delete;
    Arena& operator=(const Arena&) = delete;
    ~Arena() {
        while (top_) pop();
        if (spare_) release_(spare_);
    }
    struct Mark {
        Block* top;
        size_t used;
    };
    Mark begin(const Host& host) {
        allocate_ = host.allocate, release_ = host.release;
        return mark();
    }
    Mark mark() const { return {top_, top_ ? top_->used : 0}; }
    void back(Mark m) {
        while (top_ != m.top) pop();
        if (top_) top_->used = m.used;
    }
    void pop() {  // of the blocks that come free, the largest is kept up to a limit
        Block* block = top_;
        top_ = block->before, taken_ -= block->size;
        if (!top_) whole_ = most_ < most_kept ? most_ : most_kept, most_ = 0;
        if (least && block->size <= most_kept && (!spare_ || spare_->size < block->size)) {
            if (spare_) release_(spare_);
            spare_ = block;
        } else {
            release_(block);
        }
    }
    // Memory for n numbers, whatever is in it.
    template <class T>
    T* take(Index n) {
        if (n < 0 || uint64_t(n) > (uint64_t(1) << 46) / sizeof(T)) throw OutOfMemory{};
        size_t bytes = (size_t(n) * sizeof(T) + 127) / 64 * 64;
        if (!top_ || !least || top_->size - top_->used < bytes) push(bytes);
        char* p = memory(top_) + top_->used;
        top_->used += bytes;
        return reinterpret_cast<T*>(p);
    }
    template <class T>
    T* zeros(Index n) {
        T* p = take<T>(n);
        __builtin_memset(static_cast<void*>(p), 0, size_t(n) * sizeof(T));
        return p;
    }
};

}  // namespace factormer::FACTORMER_SET
