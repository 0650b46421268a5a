// Least squares: accelerated HALS, the iterations of `kernels.loops`, in float32.
//
// A half-step on X updates its rows independently, one thread a row. Its target F = VᵀW (or VH) is
// made by pairs of threads: each sums every other term of two rows, so that what it reads of the
// other factor serves both.

constexpr float FLAT = 1.42e-10f;  // (100 ε)²: see `solvers.hals.FLAT`
constexpr int SETTLING = 60;       // sweeps that make W the best for H
constexpr int UNROLLED = R <= (FAR ? 20 : 10) ? 4 : R <= 16 || FAR ? 2 : 1;

// S = rows of G over their diagonal, which is left out, and after them what they are multiplied
// with. A component without curvature gets −1 on the diagonal alone: sweeps leave it as it is.
__device__ void scale(const float *G, float *S) {
  float largest = 0;
  for (int k = 0; k < R; k++) largest = fmaxf(largest, G[k * RP + k]);
  for (int q = threadIdx.x; q < R * R; q += T) {
    int k = q / R, l = q % R;
    float own = G[k * RP + k], by = own > FLAT * largest ? 1 / own : 0;
    S[k * RP + l] = k == l ? (by > 0 ? 0 : -1) : by * G[k * RP + l];
    if (k == l) S[R * RP + k] = by;
  }
  __syncthreads();
}

// Sweeps of coordinate descent on a row x, with f over the diagonal of G.
__device__ void sweep(const float *S, const float (&f)[R], float (&x)[R], int count) {
  for (int s = 0; s < count; s++) {
#pragma unroll
    for (int k = 0; k < R; k++) {
      float g[RP], d = f[k], e = 0;
#pragma unroll
      for (int l = 0; l < RP; l += 4) *(float4 *)(g + l) = *(const float4 *)(S + k * RP + l);
#pragma unroll
      for (int l = 0; l < R; l++) (l % 2 ? e : d) -= g[l] * x[l];
      x[k] = fmaxf(0, d + e);
      asm volatile("" ::: "memory");  // keeps the compiler from reading all of S ahead, into too few registers
    }
  }
}

// Least squares on V, or on the roots of its entries: those are taken here where V is far.
template <bool root> struct Squares {
  float norm;  // ‖V‖²

  static __device__ float entry(const float *v) { return root && FAR ? sqrtf(*v) : *v; }

  // The row of this thread of F, for the rows base … base + T of X.
  template <int side>
  static __device__ void target(const Block &b, const View<side> &at, int base, float (&f)[R]) {
    int half = threadIdx.x & 1, row = min(base + (int)(threadIdx.x & ~1), at.rows - 1);
    const float *V = at.V + half * at.along + row * at.across;
    int next = row + 1 < at.rows ? at.across : 0;
    float other[R];
#pragma unroll
    for (int k = 0; k < R; k++) f[k] = other[k] = 0;
    for (int from = 0; from < at.count; from += TILE) {
      int some = min(TILE, at.count - from), left = (some + 1 - half) / 2;
      const float *X = at_hand(b, at.other + from * RP, some) + half * RP;
#pragma unroll UNROLLED
      for (int i = 0; i < left; i++) {
        float v = entry(V), u = entry(V + next), x[RP];
#pragma unroll
        for (int k = 0; k < RP; k += 4) *(float4 *)(x + k) = *(const float4 *)(X + k);
#pragma unroll
        for (int k = 0; k < R; k++) f[k] += v * x[k], other[k] += u * x[k];
        V += 2 * at.along, X += 2 * RP;
      }
    }
#pragma unroll
    for (int k = 0; k < R; k++) {
      float mine = half ? other[k] : f[k], theirs = half ? f[k] : other[k];
      f[k] = mine + __shfl_xor_sync(~0u, theirs, 1);
    }
  }

  // Update X; returns this thread's part of ⟨X G, X⟩ − 2⟨F, X⟩ for W.
  template <int side> __device__ float half_step(const Block &b, int sweeps) const {
    const View<side> at(b);
    float part = 0;
    gram(b, at.other, at.count, b.G);
    scale(b.G, b.S);
    for (int base = 0; base < at.rows; base += T) {
      int row = base + threadIdx.x;
      float f[R], x[R];
      target<side>(b, at, base, f);
      if (row >= at.rows) continue;
      take(x, at.X + row * RP);
#pragma unroll
      for (int k = 0; k < R; k++) x[k] = fmaxf(0, x[k]), f[k] *= b.S[R * RP + k];
      sweep(b.S, f, x, sweeps);
      put(at.X + row * RP, x);
      if (side)  // ⟨x G, x⟩ − 2⟨f, x⟩, from S
#pragma unroll
        for (int k = 0; k < R; k++) {
          float g[RP], own = b.G[k * RP + k], q = x[k] - 2 * f[k];
#pragma unroll
          for (int l = 0; l < RP; l += 4) *(float4 *)(g + l) = *(const float4 *)(b.S + k * RP + l);
#pragma unroll
          for (int l = 0; l < R; l++) q += g[l] * x[l];
          part += own * q * x[k];
          asm volatile("" ::: "memory");
        }
    }
    __syncthreads();
    return part;
  }

  // ‖W Hᵀ − V‖² from the parts of an update of W, or entry by entry where they leave few digits.
  __device__ float value(const Block &b, float part) const {
    float now = norm + total(part, b.few);
    return now < 1e-3f * norm ? exactly(b) : now;
  }

  // ‖W Hᵀ − V‖², entry by entry.
  __device__ float exactly(const Block &b) const {
    const View<1> at(b);
    float part = 0;
    for (int base = 0; base < at.rows; base += T) {
      int row = min(base + (int)threadIdx.x, at.rows - 1);
      float x[R], sum = 0;
      take(x, b.W + row * RP);
      walk(b, at, row, [&](const float v, const float (&y)[RP]) {
        float d = -entry(&v);
#pragma unroll
        for (int k = 0; k < R; k++) d += x[k] * y[k];
        sum += d * d;
      });
      if (base + threadIdx.x < at.rows) part += sum;
    }
    return total(part, b.few);
  }

  // Make W the best for H.
  __device__ void settle(const Block &b) const { half_step<1>(b, SETTLING); }

  static __device__ float beyond(float here, float by) { return here + by; }
};
