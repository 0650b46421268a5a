// Factorizations V ≈ W Hᵀ with W, H ≥ 0, one thread block each: what all of them share.
//
// R, components, even; T, threads; FAR and KULLBACK are put before this text, after the rules of the
// compiled core: how to draw, extrapolate, stop, and put components in order (core/*.hpp). A problem that is not FAR has
// V, W and H in shared memory from the start to the answer. Otherwise V stays where it is, once by
// rows and once by columns, and rows of W and H, side by side, are in `room`s of the GPU's memory.

// The distance of rows of W and H: an odd number of fours, so that neighbours lie in other banks.
constexpr int RP = (R + 3) / 8 * 8 + 4;
constexpr int PAIRS = R / 2;           // components two by two
constexpr int TILES = PAIRS * (PAIRS + 1) / 2;
constexpr int SPLITS = T / TILES > 1 ? T / TILES : 1;
constexpr int TILE = FAR ? 64 : 1 << 30;  // rows of the other factor that are at hand at a time
constexpr int VISITS = R <= 6 ? 2 : 1;    // made at a time
constexpr float EPS = 1.1920929e-7f, TINY = 1.1754944e-34f;  // as `kernels.entrywise.tiny_of`
#define INF __int_as_float(0x7f800000)
constexpr float LEAST = FAR ? 1e-8f : 1e-30f;  // mean of V: what is far is not divided by it

struct Task {
  const float *V, *transposed;  // of which the second is for what is far
  long long w, h, far;          // where W, H and their room begin among all, in numbers
  unsigned long long seed;
  long long m, n, r, sweeps_h, sweeps_w;
};

struct Outcome {
  float rmse, n_iter, status;
};

enum Status { CONVERGED, MAX_ITER, NONFINITE, REFUSED };  // refused: V is for another way

struct Block {
  float *W, *H, *G, *S, *room, *few, *tile, *stage;
  const float *V, *transposed;
  int m, n, LD;
};

// What an update of H (side 0) or of W (side 1) sees: its rows, those of the other factor, and V.
template <int side> struct View {
  float *X;
  const float *other, *V;
  int rows, count, along, across;  // V[along * i + across * row] is the entry of other row i
  __device__ View(const Block &b)
      : X(side ? b.W : b.H), other(side ? b.H : b.W), V(side && FAR ? b.transposed : b.V),
        rows(side ? b.m : b.n), count(side ? b.n : b.m), along(side ? (FAR ? b.m : 1) : b.LD),
        across(side && !FAR ? b.LD : 1) {}
};

// A row of a factor, four numbers at a time.
__device__ void take(float (&x)[R], const float *row) {
  float all[RP];
#pragma unroll
  for (int k = 0; k < R; k += 4) *(float4 *)(all + k) = *(const float4 *)(row + k);
#pragma unroll
  for (int k = 0; k < R; k++) x[k] = all[k];
}

__device__ void put(float *row, const float (&x)[R]) {
  float all[RP];
#pragma unroll
  for (int k = 0; k < RP; k++) all[k] = k < R ? x[k] : 0;
#pragma unroll
  for (int k = 0; k < R; k += 4) *(float4 *)(row + k) = *(const float4 *)(all + k);
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

// Rows of a factor at hand: in shared memory, if they are not there already.
__device__ const float *at_hand(const Block &b, const float *X, int rows) {
  if (!FAR) return X;
  __syncthreads();
  for (int q = threadIdx.x; q < rows * RP / 4; q += T) ((float4 *)b.tile)[q] = ((const float4 *)X)[q];
  __syncthreads();
  return b.tile;
}

// G = XᵀX for X (rows, R): tiles of 2 × 2, each by SPLITS threads, whose parts are then added up.
__device__ void gram(const Block &b, const float *all, int rows, float *G) {
  float *room = b.room;
  for (int from = 0; from < rows; from += TILE) {
    int some = min(TILE, rows - from);
    const float *X = at_hand(b, all + from * RP, some);
    for (int q = threadIdx.x; q < TILES * SPLITS; q += T) {
      int tile = q / SPLITS, split = q % SPLITS, c = 0;
      while (tile >= PAIRS - c) tile -= PAIRS - c++;
      int k = 2 * c, l = 2 * (c + tile);
      float4 sum = from ? *(float4 *)(room + 4 * q) : make_float4(0, 0, 0, 0);
      for (int i = split; i < some; i += SPLITS) {
        float2 p = *(const float2 *)(X + i * RP + k), s = *(const float2 *)(X + i * RP + l);
        sum.x += p.x * s.x, sum.y += p.x * s.y, sum.z += p.y * s.x, sum.w += p.y * s.y;
      }
      *(float4 *)(room + 4 * q) = sum;
    }
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

// Entries of V that this thread is about to read, `along` apart: each in its place of shared memory,
// all on their way at once, if they are not there already.
__device__ void fetch(const Block &b, const float *V, int count, int along) {
#pragma unroll 8
  for (int i = 0; i < count; i++) b.stage[i * T + threadIdx.x] = V[i * (long long)along];
}

// Visit the entries of a row of V, each with its row of the other factor. All threads take part.
template <int side, class Visit>
__device__ void walk(const Block &b, const View<side> &at, int row, Visit visit) {
  const float *V = at.V + row * at.across;
  for (int from = 0; from < at.count; from += TILE) {
    int some = min(TILE, at.count - from);
    if (FAR) fetch(b, V + from * (long long)at.along, some, at.along);
    const float *X = at_hand(b, at.other + from * RP, some);
    const float *v = FAR ? b.stage + threadIdx.x : V;
    const int apart = FAR ? T : at.along;
#pragma unroll VISITS
    for (int i = 0; i < some; i++) {
      float x[RP];
#pragma unroll
      for (int k = 0; k < RP; k += 4) *(float4 *)(x + k) = *(const float4 *)(X + k);
      visit(*v, x);
      X += RP, v += apart;
    }
  }
}

// The sums of the columns of X (rows, R): one warp a column.
__device__ void sums(const float *X, int rows, float *out) {
  for (int k = threadIdx.x / 32; k < R; k += T / 32) {
    float sum = 0;
    for (int i = threadIdx.x % 32; i < rows; i += 32) sum += X[i * RP + k];
    for (int o = 16; o; o >>= 1) sum += __shfl_xor_sync(~0u, sum, o);
    if (threadIdx.x % 32 == 0) out[k] = sum;
  }
  __syncthreads();
}

// Put a factor of the point kept, (r, rows) in the factors' own memory, into the block.
__device__ void recall(float *X, const float *kept, int rows, int r) {
  for (int row = threadIdx.x; row < rows; row += T) {
    float x[R];
#pragma unroll
    for (int k = 0; k < R; k++) x[k] = k < r ? kept[k * rows + row] : 0;
    put(X + row * RP, x);
  }
}

__device__ void keep(const float *X, float *kept, int rows, int r) {
  for (int row = threadIdx.x; row < rows; row += T) {
    float x[R];
    take(x, X + row * RP);
#pragma unroll
    for (int k = 0; k < R; k++)
      if (k < r) kept[k * rows + row] = x[k];
  }
}

// Keep what the block holds, unless it is refused; then let it hold the point β beyond.
template <class Objective>
__device__ void extrapolate(float *X, float *kept, int rows, int r, float beta, bool refused) {
  for (int row = threadIdx.x; row < rows; row += T) {
    float x[R];
    take(x, X + row * RP);
#pragma unroll
    for (int k = 0; k < R; k++)
      if (k < r) {
        float before = kept[k * rows + row], here = refused ? before : x[k];
        x[k] = Objective::beyond(here, beta * (here - before));
        if (!refused) kept[k * rows + row] = here;
      }
    put(X + row * RP, x);
  }
}

// The start: random, or given as (rows, r).
__device__ void begin(
    float *X, float *kept, int rows, int r, const float *given, float size, unsigned long long seed) {
  for (int row = threadIdx.x; row < rows; row += T)
#pragma unroll
    for (int k = 0; k < RP; k++)
      X[row * RP + k] = k >= r ? 0 : size * (given ? given[row * r + k] : float(uniform(seed, row * r + k)));
  __syncthreads();
  keep(X, kept, rows, r);
}

// Components by their share of W Hᵀ, the largest first, and to scale, in the unit of V.
__device__ void written(const Block &b, float *W, float *H, int r, float unit, int order, int mode) {
  float *w = b.G, *h = b.G + R, *by = b.S;
  int *place = (int *)(b.S + R);
  for (int k = threadIdx.x / 32; k < r; k += T / 32) {
    float ws = 0, hs = 0, ww = 0, hh = 0;
    for (int i = threadIdx.x % 32; i < b.m; i += 32)
      ws += b.W[i * RP + k], ww += b.W[i * RP + k] * b.W[i * RP + k];
    for (int j = threadIdx.x % 32; j < b.n; j += 32)
      hs += b.H[j * RP + k], hh += b.H[j * RP + k] * b.H[j * RP + k];
    for (int o = 16; o; o >>= 1) {
      ws += __shfl_xor_sync(~0u, ws, o), ww += __shfl_xor_sync(~0u, ww, o);
      hs += __shfl_xor_sync(~0u, hs, o), hh += __shfl_xor_sync(~0u, hh, o);
    }
    float times = mode == 1 ? sqrtf(sqrtf(hh / ww)) : mode == 2 ? hs * sqrtf(unit) : 1;
    if (threadIdx.x % 32 == 0) by[k] = times > 0 && times < INF ? times : 1, w[k] = ws, h[k] = hs;
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    for (int k = 0; k < r; k++) place[k] = k;
    if (order) by_share(w, h, r, b.G + 2 * R, place, 1e6f);  // digits that float32 has
  }
  __syncthreads();
  float root = sqrtf(unit);
  for (int i = threadIdx.x; i < b.m; i += T)
    for (int k = 0; k < r; k++) W[i * r + k] = b.W[i * RP + place[k]] * by[place[k]] * root;
  for (int j = threadIdx.x; j < b.n; j += T)
    for (int k = 0; k < r; k++) H[j * r + k] = b.H[j * RP + place[k]] / by[place[k]] * root;
}

