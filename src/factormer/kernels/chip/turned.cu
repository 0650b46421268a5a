// A start that is learned: the layers of `nn.anyfactormer` in the block, after the subspace they turn.
//
// A few products with V give an orthonormal basis of W, and H = Vᵀ W the rest of the best fit. Both in
// principal coordinates and balanced, rotations of all rows bring them near to nonnegative factors.
// WIDTH is the network's; its weights follow each other in `net`, transposed.

constexpr int FOURS = WIDE * WIDE;     // tiles of 4 × 4 of a matrix
constexpr int GROUPS = T / R > RP / 2 ? RP / 2 : T / R > 1 ? T / R : 1;  // threads that share a column
constexpr int FEATURES = 9, OUTPUTS = 3;
constexpr float RIDGE = 1e-3f, REACH = 9;  // as in `nn.anyfactormer`
static_assert(T >= 32 && R <= 32 && WIDTH % 4 == 0, "one warp has a lane for each component");
// In all 4 R RP + R (FEATURES + 3 WIDTH + 8) numbers: see `onchip.turned_room`.

struct Turn {
  float *R0, *E, *A, *B, *h, *heard, *next, *tokens, *per;
  __device__ Turn(float *from) {
    R0 = from, E = R0 + R * RP, A = E + R * RP, B = A + R * RP;
    h = B + R * RP, heard = h + R * WIDTH, next = heard + R * WIDTH;
    tokens = next + R * WIDTH, per = tokens + R * FEATURES;
  }
};

__device__ float warp_sum(float x) {
  for (int o = 16; o; o >>= 1) x += __shfl_xor_sync(~0u, x, o);
  return x;
}

// Every row x of X becomes x Q, Q zero beyond (r, r).
__device__ void applied(float *X, int rows, const float *Q) {
  for (int row = threadIdx.x; row < rows; row += T) {
    float x[R], out[R];
    take(x, X + row * RP);
#pragma unroll
    for (int k = 0; k < R; k++) out[k] = 0;
#pragma unroll
    for (int l = 0; l < R; l++) {
      float g[RP];
#pragma unroll
      for (int k = 0; k < R; k += 4) *(float4 *)(g + k) = *(const float4 *)(Q + l * RP + k);
#pragma unroll
      for (int k = 0; k < R; k++) out[k] += x[l] * g[k];
    }
    put(X + row * RP, out);
  }
  __syncthreads();
}

// A factor made anew: the products of V with the other one, times Q if it is given.
template <int side> __device__ void projected(const Block &b, const float *Q) {
  const View<side> at(b);
  for (int base = 0; base < at.rows; base += T) {
    int row = base + threadIdx.x;
    float f[R];
    Squares<false>::target<side>(b, at, base, f);
    if (row < at.rows) put(at.X + row * RP, f);
  }
  __syncthreads();
  if (Q) applied(at.X, at.rows, Q);
}

// Balanced factors with orthogonal columns, of the best fit in the subspace that products lead to.
__device__ void sketched(const Block &b, const Turn &at, int r, int powers, unsigned long long seed) {
  for (int q = threadIdx.x; q < (b.m + b.n) * RP; q += T) {  // H follows W
    int i = q / RP, k = q % RP;
    b.W[q] = i < b.m && k < r ? uniform(seed, i * r + k) - 0.5f : 0;
  }
  for (int q = threadIdx.x; q < 4 * R * RP; q += T) at.R0[q] = 0;
  __syncthreads();
  auto ridged = [&](float *G) {
    float mean = 0;
    for (int k = 0; k < r; k++) mean += G[k * RP + k] / r;
    for (int q = threadIdx.x; q < R * R; q += T) {
      int i = q / R, j = q % R;
      at.A[i * RP + j] = G[i * RP + j] + (i == j && i < r ? 1e-6f * mean + TINY : 0);
    }
    __syncthreads();
  };
  for (int k = 0; k < powers; k++) {
    projected<0>(b, nullptr);
    gram(b, b.H, b.n, b.G), ridged(b.G);
    projected<1>(b, inverse(at.A, at.B, r));
  }
  gram(b, b.W, b.m, b.G), ridged(b.G), whiten(at.A, at.B, r), applied(b.W, b.m, at.A);
  projected<0>(b, nullptr);
  gram(b, b.H, b.n, b.G), principal(b.G, at.A, at.per, r);
  auto scaled = [&](bool up) {  // of the eigenvectors, by the fourth root of their values
    for (int q = threadIdx.x; q < R * R; q += T) {
      int i = q / R, j = q % R;
      float value = sqrtf(sqrtf(fmaxf(b.G[j * (RP + 1)], 0))), by = up ? value : value > 0 ? 1 / value : 0;
      at.B[i * RP + j] = at.A[i * RP + j] * by;
    }
    __syncthreads();
  };
  scaled(true), applied(b.W, b.m, at.B);
  scaled(false), applied(b.H, b.n, at.B);
}

// Sums of neighbouring threads, added up: each keeps half of those that are left, from `place` on.
template <int by, int left> __device__ void halved(float (&sum)[16], int thread, int &place) {
  if constexpr (by > 0) {
    bool upper = thread & by;
#pragma unroll
    for (int e = 0; e < left; e++) {
      float mine = upper ? sum[e + left] : sum[e], theirs = upper ? sum[e] : sum[e + left];
      sum[e] = mine + __shfl_xor_sync(~0u, theirs, by);
    }
    place += upper ? left : 0;
    halved<by / 2, left / 2>(sum, thread, place);
  }
}

// E = Yᵀ N over the rows of both factors, N the parts of entries below their component's level.
// Neighbouring threads share a tile.
__device__ void message(const Block &b, const Turn &at, const float *level) {
  constexpr int SHARE = T / FOURS >= 16 ? 16 : T / FOURS >= 8 ? 8 : T / FOURS >= 4 ? 4 : T / FOURS >= 2 ? 2 : 1;
  for (int from = 0; from < FOURS * SHARE; from += T) {
    int q = from + threadIdx.x, tile = q / SHARE, share = q % SHARE, first = share;
    int k = 4 * (tile / WIDE), l = 4 * (tile % WIDE);
    if (tile >= FOURS) k = l = 0, first = b.m + b.n;  // nothing to do but to take part below
    float sum[16], y[4], n[4], low[4];
#pragma unroll
    for (int e = 0; e < 16; e++) sum[e] = 0;
#pragma unroll
    for (int e = 0; e < 4; e++) low[e] = l + e < R ? level[l + e] : 0;
    for (int i = first; i < b.m + b.n; i += SHARE) {  // H follows W
      *(float4 *)y = *(const float4 *)(b.W + i * RP + k), *(float4 *)n = *(const float4 *)(b.W + i * RP + l);
#pragma unroll
      for (int e = 0; e < 4; e++) n[e] = fminf(n[e] - low[e], 0);
#pragma unroll
      for (int e = 0; e < 16; e++) sum[e] += y[e / 4] * n[e % 4];
    }
    int place = 0;
    halved<SHARE / 2, 8>(sum, share, place);
#pragma unroll
    for (int e = 0; e < 16 / SHARE; e++) {
      int i = k + (place + e) / 4, j = l + (place + e) % 4;
      if (tile < FOURS && i < R) at.E[i * RP + j] = sum[e];
    }
  }
  __syncthreads();
}

__device__ float gated(float x) { return x * (0.5f + 0.5f * x / (1 + fabsf(x))); }

// Parts of sums over all rows, of each component GROUPS: squares, entries, squares below the level.
__device__ void columns(const Block &b, const float *level, float *parts) {
  for (int q = threadIdx.x; q < R * GROUPS; q += T) {
    float yy = 0, y = 0, nn = 0, low = level[q % R];
    for (int i = q / R; i < b.m + b.n; i += GROUPS) {
      float x = b.W[i * RP + q % R], below = fminf(x - low, 0);
      yy += x * x, y += x, nn += below * below;
    }
    parts[q] = yy, parts[R * GROUPS + q] = y, parts[2 * R * GROUPS + q] = nn;
  }
}

__device__ float added(const float *parts, int number, int k) {
  float sum = 0;
  for (int g = 0; g < GROUPS; g++) sum += parts[(number * GROUPS + g) * R + k];
  return sum;
}

// What tokens see: see `look`. Its parts of sums fill A and B; then the first warp has a lane for
// each component.
__device__ void looked(const Block &b, const Turn &at, const float *level, int r, int number) {
  columns(b, level, at.A);
  for (int q = threadIdx.x; q < R * GROUPS; q += T) {
    int k = q % R;
    float turned = 0;
    for (int s = q / R; s < R; s += GROUPS) {
      int l = k + s < R ? k + s : k + s - R;
      turned += fabsf(at.E[k * RP + l] - at.E[l * RP + k]);
    }
    at.A[3 * R * GROUPS + q] = turned;
  }
  __syncthreads();
  if (threadIdx.x < 32) {
    const int k = threadIdx.x, rows = b.m + b.n;
    const bool real = k < r;
    float squares = real ? added(at.A, 0, k) / rows : 0, pull = real ? added(at.A, 3, k) : 0;
    float overall = fmaxf(warp_sum(squares) / r, TINY), square = fmaxf(squares, 1e-12f * overall);
    float share = real ? sqrtf(fminf(added(at.A, 2, k) / rows / square, 4)) : 0;
    float pulled = real ? fminf(pull / (rows * overall), 4) : 0;
    float shares = warp_sum(share) / r, pulls = warp_sum(pulled) / r;
    if (real) {
      float *f = at.tokens + k * FEATURES, lean = added(at.A, 1, k) / rows;
      f[0] = share, f[1] = lean * rsqrtf(square), f[2] = logf(square / overall) / 4, f[3] = pulled;
      f[4] = shares, f[5] = pulls, f[6] = log1pf(number) / 2, f[7] = number == 0, f[8] = logf(r) / 3;
      at.per[R + k] = squares, at.per[5 * R + k] = 1 / (pull + 1e-6f * overall);
    }
  }
  __syncthreads();
}

// The tokens' answer: how far each component goes, how much it repeats, and its next level.
__device__ void listened(const Turn &at, const float *net, float *out, int r) {
  constexpr int D = WIDTH / 4;
  const float *embed = net, *hear = embed + WIDTH * (FEATURES + 1), *extract = hear + WIDTH * (3 * WIDTH + 1);
  for (int q = threadIdx.x; q < r * WIDTH; q += T) {
    int k = q / WIDTH, d = q % WIDTH;
    float sum = embed[WIDTH * FEATURES + d];
#pragma unroll
    for (int f = 0; f < FEATURES; f++) sum += embed[f * WIDTH + d] * at.tokens[k * FEATURES + f];
    at.h[q] = gated(sum);
  }
  diagonals([&](int i, int j) { at.B[i * RP + j] = fabsf(at.E[i * RP + j] - at.E[j * RP + i]); });
  __syncthreads();
  for (int q = threadIdx.x; q < r * D; q += T) {
    int k = q / D, d = 4 * (q % D);
    float4 sum = make_float4(0, 0, 0, 0), heard = sum;
    for (int l = 0; l < r; l++) add(sum, at.B[k * RP + l], *(const float4 *)(at.h + l * WIDTH + d));
    add(heard, at.per[5 * R + k], sum);
    *(float4 *)(at.heard + k * WIDTH + d) = heard;
  }
  for (int d = threadIdx.x; d < WIDTH; d += T) {
    float sum = 0;
    for (int l = 0; l < r; l++) sum += at.h[l * WIDTH + d];
    at.tokens[d] = sum / r;  // the mean of all: tokens are read no more
  }
  __syncthreads();
  for (int q = threadIdx.x; q < r * D; q += T) {
    int k = q / D, d = 4 * (q % D);
    const float *own = at.h + k * WIDTH, *heard = at.heard + k * WIDTH;
    auto by = [&](int l) { return *(const float4 *)(hear + l * WIDTH + d); };
    float4 sum = by(3 * WIDTH);
#pragma unroll 4
    for (int l = 0; l < WIDTH; l++)
      add(sum, own[l], by(l)), add(sum, at.tokens[l], by(WIDTH + l)), add(sum, heard[l], by(2 * WIDTH + l));
    float4 h = *(const float4 *)(own + d);
    h.x += gated(sum.x), h.y += gated(sum.y), h.z += gated(sum.z), h.w += gated(sum.w);
    *(float4 *)(at.next + k * WIDTH + d) = h;
  }
  __syncthreads();
  for (int q = threadIdx.x; q < r * OUTPUTS; q += T) {
    int k = q / OUTPUTS, d = q % OUTPUTS;
    float sum = extract[OUTPUTS * WIDTH + d];
#pragma unroll
    for (int l = 0; l < WIDTH; l++) sum += extract[l * OUTPUTS + d] * at.next[k * WIDTH + l];
    out[d * R + k] = d == 0 ? REACH * expf(fminf(fmaxf(sum, -2), 2))
                     : d == 1 ? fminf(fmaxf(sum, -1), 1)
                              : fminf(fmaxf(sum, -1), 1) / 2 * sqrtf(at.per[R + k]);
  }
  __syncthreads();
}

// Rotations of all rows toward nonnegative ones: the layers.
__device__ void turned(const Block &b, const Turn &at, const float *net, int r, int layers) {
  float *strength = at.per, *out = at.per + 5 * R, *level = out + 2 * R, *mean = at.per + 2 * R;
  for (int k = threadIdx.x; k < R; k += T) level[k] = 0;
  for (int q = threadIdx.x; q < R * RP; q += T) b.S[q] = 0;
  __syncthreads();
  columns(b, level, at.A);
  __syncthreads();
  for (int k = threadIdx.x; k < R; k += T) strength[k] = added(at.A, 0, k), mean[k] = added(at.A, 1, k);
  __syncthreads();
  float norm = 0, size = 0, whole = 0, even = rsqrtf(float(r));
  for (int k = 0; k < r; k++) norm += mean[k] * mean[k], whole += strength[k] / r;
  norm = norm > 0 ? rsqrtf(norm) : 0, whole = fmaxf(whole, TINY);
  auto way = [&](int k) { return norm > 0 ? mean[k] * norm - even : 0; };
  for (int k = 0; k < r; k++) size += way(k) * way(k);
  for (int q = threadIdx.x; q < R * R; q += T) {
    int i = q / R, j = q % R;
    float one = i == j, by = size > 1e-12f ? 2 / size : 0;
    at.R0[i * RP + j] = i < r && j < r ? one - by * way(i) * way(j) : 0;
  }
  __syncthreads();
  applied(b.W, b.m + b.n, at.R0);
  for (int number = 0; number < layers; number++) {
    message(b, at, level);
    looked(b, at, level, r, number);
    listened(at, net, out, r);
    diagonals([&](int i, int j) { at.A[i * RP + j] = at.E[j * RP + i] * out[i] - at.E[i * RP + j] * out[j]; });
    __syncthreads();
    times<false, true>(at.B, at.R0, at.A);
    times<false, false>(at.A, at.R0, at.B);  // (R0 A R0ᵀ)ᵀ, that is −R0 A R0ᵀ
    for (int q = threadIdx.x; q < R * R; q += T) {
      int i = q / R, j = q % R;
      at.A[i * RP + j] /= -(strength[i] + strength[j] + RIDGE * whole);
    }
    __syncthreads();
    times<true, false>(at.B, at.R0, at.A);
    times<false, false>(at.A, at.B, at.R0);
    for (int q = threadIdx.x; q < R * R; q += T) {
      int i = q / R, j = q % R;
      float step = at.A[i * RP + j] + (out[R + i] + out[R + j]) / 2 * b.S[i * RP + j];
      step /= 1 + fabsf(step);
      b.S[i * RP + j] = step, at.A[i * RP + j] = float(i == j) - step / 2;
    }
    __syncthreads();
    float *Q = inverse(at.A, at.B, r), *next = Q == at.A ? at.B : at.A;
    for (int q = threadIdx.x; q < R * R; q += T) {  // Cayley's transform
      int i = q / R, j = q % R;
      Q[i * RP + j] = 2 * Q[i * RP + j] - float(i == j);
    }
    __syncthreads();
    applied(b.W, b.m + b.n, Q);
    times<false, false>(next, at.R0, Q);
    for (int q = threadIdx.x; q < R * RP; q += T) at.R0[q] = next[q];
    __syncthreads();
  }
}

// The nonnegative part, kept; a component that vanished begins at random. False if it is no number.
__device__ bool clipped(const Block &b, float *W, float *H, int r, float size, unsigned long long seed) {
  float all = 0;
  for (int i = threadIdx.x; i < b.m + b.n; i += T)
    for (int k = 0; k < r; k++) all += b.W[i * RP + k] = fmaxf(0, b.W[i * RP + k]);
  all = total(all, b.few);
  if (!(all > 0 && all < INF)) return false;
  sums(b.W, b.m, b.G), sums(b.H, b.n, b.G + RP);
  for (int i = threadIdx.x; i < b.m + b.n; i += T)
    for (int k = 0; k < r; k++)
      if (!(b.G[k] > 0 && b.G[RP + k] > 0)) b.W[i * RP + k] = 0.1f * size * uniform(seed, i * r + k);
  __syncthreads();
  keep(b.W, W, b.m, r), keep(b.H, H, b.n, r);
  __syncthreads();
  return true;
}
