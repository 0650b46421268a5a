// What a kernel's text needs to be compiled for a processor: a thread of the block is a thread.
#include <algorithm>
#include <barrier>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <thread>
#include <vector>

#define __device__
#define __global__
#define __shared__
#define __launch_bounds__(...)
#define __int_as_float(bits) std::numeric_limits<float>::infinity()

using std::max;
using std::min;

struct float2 { float x, y; };
struct alignas(16) float4 { float x, y, z, w; };
inline float2 make_float2(float x, float y) { return {x, y}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
inline float rsqrtf(float x) { return 1 / sqrtf(x); }
inline float __fdividef(float x, float y) { return x / y; }

struct Place { int x; };
inline thread_local Place threadIdx, blockIdx;
inline std::barrier<> *together, *warps[32];
inline float slots[1024];

inline void __syncthreads() { together->arrive_and_wait(); }
inline float __shfl_xor_sync(unsigned, float x, int by) {
  auto &warp = *warps[threadIdx.x / 32];
  slots[threadIdx.x] = x, warp.arrive_and_wait();
  float other = slots[threadIdx.x ^ by];
  warp.arrive_and_wait();
  return other;
}
inline bool __syncthreads_and(bool mine) {
  slots[threadIdx.x] = mine, __syncthreads();
  bool all = true;
  for (int k = 0; k < T; k++) all &= slots[k] > 0;
  __syncthreads();
  return all;
}

inline bool __syncthreads_or(bool mine) { return !__syncthreads_and(!mine); }

// Run the threads of a block.
template <class Run> void launch(Run run) {
  std::barrier<> all(T);
  together = &all;
  std::vector<std::unique_ptr<std::barrier<>>> some;
  for (int k = 0; k < T / 32; k++) some.push_back(std::make_unique<std::barrier<>>(32)), warps[k] = some[k].get();
  std::vector<std::thread> threads;
  for (int k = 0; k < T; k++) threads.emplace_back([=] { threadIdx.x = k, blockIdx.x = 0, run(); });
  for (auto &thread : threads) thread.join();
}
