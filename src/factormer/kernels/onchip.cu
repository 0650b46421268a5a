// Nonnegative least squares factorizations V ≈ W Hᵀ, one thread block each: V, W and H stay in
// shared memory from the start to the answer, and each problem stops by itself. Accelerated HALS,
// extrapolated with restart: the iterations of `kernels.loops`, in float32.
//
// A half-step on X updates its rows independently, one thread a row. Its target F = VᵀW (or VH) is
// made by pairs of threads: each sums every other term of two rows, so that what it reads of the
// other factor serves both. R, components, even, and T, threads, are put before this text.

constexpr int RP = R % 4 ? R + 2 : R;  // the distance of rows of W and H: a multiple of 4
constexpr int PAIRS = R / 2;           // components two by two
constexpr int TILES = PAIRS * (PAIRS + 1) / 2;
constexpr int SPLITS = T / TILES > 1 ? T / TILES : 1;
constexpr float EPS = 1.1920929e-7f, FLAT = 1.42e-10f;  // (100 ε)²: see `solvers.hals.FLAT`
#define INF __int_as_float(0x7f800000)
constexpr int LOOKS = 5;     // as `run.stop.Stationary`
constexpr int SETTLING = 60; // sweeps that make W the best for H
constexpr int UNROLLED = R <= 10 ? 4 : R <= 16 ? 2 : 1;
constexpr int REGISTERS = R <= 10 ? 128 : R <= 16 ? 168 : 255;  // that a thread gets, about

struct Task {
  const float *V;
  long long w, h;  // where W and H begin among all, in numbers
  unsigned long long seed;
  long long m, n, r, sweeps_h, sweeps_w;
};

struct Outcome {
  float rmse, n_iter, status, slope;  // slope: of the projected gradient at the end and the start
};

enum Status { CONVERGED, MAX_ITER, NONFINITE, REFUSED };  // refused: V is for another way

struct Block {
  float *V, *W, *H, *G, *S, *room, *few;
  int m, n, LD;
};

__device__ unsigned long long mixed(unsigned long long x) {
  x += 0x9E3779B97F4A7C15ull;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
  return x ^ (x >> 31);
}

// Number `at` of the stream of a seed, uniform from 0 to 1: see `data.draws`.
__device__ float uniform(unsigned long long seed, unsigned long long at) {
  return (mixed(seed + at * 0xD1342543DE82EF95ull) >> 40) * 0x1p-24f;
}

__device__ float total(float x, float *few) {
  for (int o = 16; o; o >>= 1) x += __shfl_xor_sync(~0u, x, o);
  __syncthreads();
  if (threadIdx.x % 32 == 0) few[threadIdx.x / 32] = x;
  __syncthreads();
  float sum = 0;
  for (int k = 0; k < T / 32; k++) sum += few[k];
  return sum;
}

// G = XᵀX for X (rows, R): tiles of 2 × 2, each by SPLITS threads, whose parts are then added up.
__device__ void gram(const float *X, int rows, float *G, float *room) {
  for (int q = threadIdx.x; q < TILES * SPLITS; q += T) {
    int tile = q / SPLITS, split = q % SPLITS, c = 0;
    while (tile >= PAIRS - c) tile -= PAIRS - c++;
    int k = 2 * c, l = 2 * (c + tile);
    float a = 0, b = 0, d = 0, e = 0;
    for (int i = split; i < rows; i += SPLITS) {
      float2 p = *(const float2 *)(X + i * RP + k), s = *(const float2 *)(X + i * RP + l);
      a += p.x * s.x, b += p.x * s.y, d += p.y * s.x, e += p.y * s.y;
    }
    *(float4 *)(room + 4 * q) = make_float4(a, b, d, e);
  }
  __syncthreads();
  for (int q = threadIdx.x; q < TILES * 4; q += T) {
    int tile = q / 4, c = 0;
    float sum = 0;
    for (int s = 0; s < SPLITS; s++) sum += room[4 * (tile * SPLITS + s) + q % 4];
    while (tile >= PAIRS - c) tile -= PAIRS - c++;
    int k = 2 * c + (q % 4) / 2, l = 2 * (c + tile) + q % 2;
    G[k * RP + l] = G[l * RP + k] = sum;
  }
  __syncthreads();
}

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

// The row of this thread of F, for the rows base … base + T of X: from W for H (side 0), or the
// other way round.
template <int side> __device__ void target(const Block &b, int base, float (&f)[R]) {
  int half = threadIdx.x & 1, rows = side ? b.m : b.n, count = side ? b.n : b.m;
  int along = side ? 1 : b.LD, across = side ? b.LD : 1;
  int p = min(base + (int)(threadIdx.x & ~1), rows - 1), q = min(p + 1, rows - 1);
  const float *V = b.V + half * along + p * across, *X = (side ? b.H : b.W) + half * RP;
  int next = (q - p) * across;
  float other[R];
#pragma unroll
  for (int k = 0; k < R; k++) f[k] = other[k] = 0;
  int left = (count + 1 - half) / 2;
#pragma unroll UNROLLED
  for (int i = 0; i < left; i++) {
    float v = V[0], u = V[next], x[RP];
#pragma unroll
    for (int k = 0; k < RP; k += 4) *(float4 *)(x + k) = *(const float4 *)(X + k);
#pragma unroll
    for (int k = 0; k < R; k++) f[k] += v * x[k], other[k] += u * x[k];
    V += 2 * along, X += 2 * RP;
  }
#pragma unroll
  for (int k = 0; k < R; k++) {
    float mine = half ? other[k] : f[k], theirs = half ? f[k] : other[k];
    f[k] = mine + __shfl_xor_sync(~0u, theirs, 1);
  }
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

// Update H from W (side 0), or W from H (side 1); returns this thread's part of
// ⟨X G, X⟩ − 2⟨F, X⟩.
template <int side> __device__ float half_step(const Block &b, int sweeps) {
  int rows = side ? b.m : b.n;
  float *X = side ? b.W : b.H, part = 0;
  gram(side ? b.H : b.W, side ? b.n : b.m, b.G, b.room);
  scale(b.G, b.S);
  for (int base = 0; base < rows; base += T) {
    int row = base + threadIdx.x;
    float f[R], x[R];
    target<side>(b, base, f);
    if (row >= rows) continue;
#pragma unroll
    for (int k = 0; k < R; k++) x[k] = fmaxf(0, X[row * RP + k]), f[k] *= b.S[R * RP + k];
    sweep(b.S, f, x, sweeps);
#pragma unroll
    for (int k = 0; k < R; k++) X[row * RP + k] = x[k];
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

// ‖W Hᵀ − V‖², entry by entry.
__device__ float residual(const Block &b) {
  float part = 0;
  for (int i = threadIdx.x; i < b.m; i += T) {
    float x[R];
#pragma unroll
    for (int k = 0; k < R; k++) x[k] = b.W[i * RP + k];
    for (int j = 0; j < b.n; j++) {
      float y[RP], d = -b.V[i * b.LD + j];
#pragma unroll
      for (int k = 0; k < RP; k += 4) *(float4 *)(y + k) = *(const float4 *)(b.H + j * RP + k);
#pragma unroll
      for (int k = 0; k < R; k++) d += x[k] * y[k];
      part += d * d;
    }
  }
  return total(part, b.few);
}

// This thread's part of the squared projected gradient by H (side 0), or by W (side 1).
template <int side> __device__ float steepness(const Block &b) {
  int rows = side ? b.m : b.n;
  const float *X = side ? b.W : b.H;
  float part = 0;
  gram(side ? b.H : b.W, side ? b.n : b.m, b.G, b.room);
  for (int base = 0; base < rows; base += T) {
    int row = base + threadIdx.x;
    float f[R], x[R];
    target<side>(b, base, f);
    if (row >= rows) continue;
#pragma unroll
    for (int k = 0; k < R; k++) x[k] = X[row * RP + k];
#pragma unroll
    for (int k = 0; k < R; k++) {
      float g[RP], d = -f[k];
#pragma unroll
      for (int l = 0; l < RP; l += 4) *(float4 *)(g + l) = *(const float4 *)(b.G + k * RP + l);
#pragma unroll
      for (int l = 0; l < R; l++) d += g[l] * x[l];
      if (x[k] > 0 || d < 0) part += d * d;
      asm volatile("" ::: "memory");
    }
  }
  __syncthreads();
  return part;
}

// The norm of the projected gradient.
__device__ float slope(const Block &b) {
  float part = steepness<0>(b);
  return sqrtf(total(part + steepness<1>(b), b.few));
}

// Put a factor of the point kept, (r, rows) in the factors' own memory, into shared memory.
__device__ void recall(float *X, const float *kept, int rows, int r) {
  for (int row = threadIdx.x; row < rows; row += T)
#pragma unroll
    for (int k = 0; k < R; k++)
      if (k < r) X[row * RP + k] = kept[k * rows + row];
}

// Keep what shared memory holds, unless it is refused; then let it hold the point β beyond.
__device__ void extrapolate(float *X, float *kept, int rows, int r, float beta, bool refused) {
  for (int row = threadIdx.x; row < rows; row += T)
#pragma unroll
    for (int k = 0; k < R; k++)
      if (k < r) {
        float before = kept[k * rows + row], here = refused ? before : X[row * RP + k];
        X[row * RP + k] = here + beta * (here - before);
        if (!refused) kept[k * rows + row] = here;
      }
}

// The start: random, or given as (rows, r).
__device__ void begin(
    float *X, float *kept, int rows, int r, const float *given, float size, unsigned long long seed) {
  for (int row = threadIdx.x; row < rows; row += T)
#pragma unroll
    for (int k = 0; k < RP; k++)
      X[row * RP + k] = k >= r ? 0 : size * (given ? given[row * r + k] : uniform(seed, row * r + k));
  __syncthreads();
  for (int row = threadIdx.x; row < rows; row += T)
#pragma unroll
    for (int k = 0; k < R; k++)
      if (k < r) kept[k * rows + row] = X[row * RP + k];
}

// Components by their share of W Hᵀ, the largest first, and to scale, in the unit of V.
__device__ void written(const Block &b, float *W, float *H, int r, float unit, int order, int mode) {
  float *w = b.G, *h = b.G + R, *by = b.S;
  int *place = (int *)(b.S + R);
  for (int k = threadIdx.x; k < r; k += T) {
    float ws = 0, hs = 0, ww = 0, hh = 0;
    for (int i = 0; i < b.m; i++) ws += b.W[i * RP + k], ww += b.W[i * RP + k] * b.W[i * RP + k];
    for (int j = 0; j < b.n; j++) hs += b.H[j * RP + k], hh += b.H[j * RP + k] * b.H[j * RP + k];
    float times = mode == 1 ? sqrtf(sqrtf(hh / ww)) : mode == 2 ? hs * sqrtf(unit) : 1;
    by[k] = times > 0 && times < INF ? times : 1;
    w[k] = ws, h[k] = hs;
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    float whole = 0;
    for (int k = 0; k < r; k++) w[k] *= h[k], whole += w[k], place[k] = k;
    for (int k = 0; k < r; k++) w[k] = rintf(1e6f * w[k] / fmaxf(whole, 1e-30f));
    for (int k = 1; k < r && order; k++)
      for (int l = k; l > 0 && w[place[l]] > w[place[l - 1]]; l--) {
        int other = place[l];
        place[l] = place[l - 1], place[l - 1] = other;
      }
  }
  __syncthreads();
  float root = sqrtf(unit);
  for (int i = threadIdx.x; i < b.m; i += T)
    for (int k = 0; k < r; k++) W[i * r + k] = b.W[i * RP + place[k]] * by[place[k]] * root;
  for (int j = threadIdx.x; j < b.n; j += T)
    for (int k = 0; k < r; k++) H[j * r + k] = b.H[j * RP + place[k]] / by[place[k]] * root;
}

extern "C" __global__ __launch_bounds__(T, 65536 / REGISTERS / T) void factorize(
    const Task *tasks, float *Ws, float *Hs, Outcome *outcomes, int max_iter,
    float tol, int order, int mode, int settles, int given) {
  extern __shared__ float4 shared[];
  const Task task = tasks[blockIdx.x];
  const int m = task.m, n = task.n, r = task.r, t = threadIdx.x;
  Block b;
  b.m = m, b.n = n, b.LD = n | 1;
  b.W = (float *)shared, b.H = b.W + m * RP, b.G = b.H + n * RP, b.S = b.G + R * RP;
  b.room = b.S + (R + 1) * RP, b.few = b.room + 4 * TILES * SPLITS, b.V = b.few + 32;
  float *W = Ws + task.w, *H = Hs + task.h;

  float sum = 0, norm = 0;
  bool fine = true;
  for (int i = t / 32; i < m; i += T / 32)
    for (int j = t % 32; j < n; j += 32) {
      float v = task.V[i * (long long)n + j];
      b.V[i * b.LD + j] = v, sum += v, fine &= v >= 0 && v < INF;
    }
  if (!__syncthreads_and(fine)) {
    if (t == 0) outcomes[blockIdx.x] = {0, 0, float(REFUSED), 1};
    return;
  }
  sum = total(sum, b.few);
  const float mean = sum > 0 ? sum / (float(m) * n) : 1;
  if (!(mean > 1e-30f && mean < 1e30f)) {  // whose squares float32 does not hold
    if (t == 0) outcomes[blockIdx.x] = {0, 0, float(REFUSED), 1};
    return;
  }
  for (int i = t / 32; i < m; i += T / 32)
    for (int j = t % 32; j < n; j += 32) {
      float v = b.V[i * b.LD + j] / mean;
      b.V[i * b.LD + j] = v, norm += v * v;
    }
  norm = total(norm, b.few);
  const float size = given ? rsqrtf(mean) : sqrtf(4.0f / r);
  begin(b.W, W, m, r, given ? W : nullptr, size, task.seed);
  begin(b.H, H, n, r, given ? H : nullptr, size, mixed(task.seed) >> 1);
  __syncthreads();

  const float start = tol > 0 ? slope(b) : 0;
  float beta = 0.5f, last = 0.5f, bound = 1, error = INF, errors[LOOKS + 1];
  float fall = 1;  // of the projected gradient since the start
  bool plain = true;
  int made = 0, looks = 0, status = tol > 0 && start <= tol * start ? CONVERGED : MAX_ITER;
  while (made < max_iter && status == MAX_ITER) {
    half_step<0>(b, task.sweeps_h);
    float now = norm + total(half_step<1>(b, task.sweeps_w), b.few);
    if (now < 1e-3f * norm) now = residual(b);
    made++;
    bool rose = !(now <= error), refused = rose && !(plain && now < INF);
    float step = beta;
    if (rose) beta /= 1.5f; else beta = fminf(bound, 1.05f * beta);
    bound = rose ? last : fminf(1, 1.01f * bound), last = step, plain = refused;
    if (!refused) error = now;
    if (!(error < INF)) { status = NONFINITE; break; }
    if (tol > 0 && made % 10 == 0) {
      if (refused) recall(b.W, W, m, r), recall(b.H, H, n, r), __syncthreads();
      float size = slope(b);
      fall = size / start;
      bool done = size <= tol * start || error <= 100 * EPS * EPS * m * n;
      for (int k = 0; k < LOOKS; k++) errors[k] = errors[k + 1];
      errors[LOOKS] = error;
      float before = sqrtf(errors[0]), after = sqrtf(error);
      if (++looks > LOOKS)
        done |= before - after <= 4 * EPS * after && size <= 10 * sqrtf(EPS) * start;
      if (done) status = CONVERGED;
    }
    extrapolate(b.W, W, m, r, refused ? 0 : step, refused);
    extrapolate(b.H, H, n, r, refused ? 0 : step, refused);
    __syncthreads();
  }
  recall(b.W, W, m, r), recall(b.H, H, n, r), __syncthreads();
  float end = residual(b);
  if (settles) {
    half_step<1>(b, SETTLING);
    float settled = residual(b);
    if (settled <= end) end = settled; else recall(b.W, W, m, r);
    __syncthreads();
  }
  written(b, W, H, r, mean, order, mode);
  if (t == 0) {
    float each = mean * rsqrtf(float(m) * n);
    outcomes[blockIdx.x] = {sqrtf(end) * each, float(made), float(status), fall};
  }
}
