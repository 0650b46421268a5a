// What `learning.cu` needs of CUDA, on a processor: threads take the place of threads.
#include <cmath>
#include <thread>
#include <vector>
#include <atomic>
#define __global__
#define __device__
#define __host__
#define __launch_bounds__(a, b)
#define __threadfence() std::atomic_thread_fence(std::memory_order_seq_cst)
#define SHARED(type, name) type &name = *(type *)emulated_memory
#define PAUSE std::this_thread::yield()
#define PEEK(p) __atomic_load_n(p, __ATOMIC_ACQUIRE)

struct alignas(16) float4 { float x, y, z, w; };
struct Index { int x; };
struct Meeting {
  int size; std::atomic<int> count{0}, round{0};
  void wait() {
    int now = round.load();
    if (count.fetch_add(1) + 1 == size) { count.store(0); round.fetch_add(1); }
    else while (round.load() == now) std::this_thread::yield();
  }
};
static thread_local Index threadIdx, blockIdx, blockDim, gridDim;
static thread_local void *emulated_memory;
static thread_local Meeting *emulated_meeting;
static inline void __syncthreads() { if (blockDim.x > 1) emulated_meeting->wait(); }
static inline float rsqrtf(float x) { return 1 / std::sqrt(x); }
static inline unsigned atomicAdd(unsigned *p, unsigned v) { return __atomic_fetch_add(p, v, __ATOMIC_SEQ_CST); }
static inline void atomicMax(int *p, int v) { __atomic_store_n(p, v, __ATOMIC_SEQ_CST); }
static inline void atomicAdd(float *p, float v) {
  float old, sum;
  __atomic_load(p, &old, __ATOMIC_SEQ_CST);
  do sum = old + v; while (!__atomic_compare_exchange(p, &old, &sum, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST));
}
