// A start that is learned: the layers of `nn.anyfactormer` in the block, after the subspace they turn.
//
// A few products with V give an orthonormal basis of W, and H = Vᵀ W the rest of the best fit. Both in
// principal coordinates and balanced, rotations of all rows bring them near to nonnegative factors.
// Matrices (r, r) have rows RP apart. WIDTH is the network's; its weights follow each other in `net`.

constexpr int FULL = PAIRS * PAIRS;  // tiles of a matrix that is not symmetric
constexpr int PARTS = T / FULL > 1 ? T / FULL : 1;
constexpr int SWEPT = 4;             // sweeps of Jacobi's rotations
constexpr int FEATURES = 9, OUTPUTS = 3;
constexpr float RIDGE = 1e-3f, REACH = 9;  // as in `nn.anyfactormer`
constexpr int ROOM = 4 * FULL * PARTS > R * WIDTH ? 4 * FULL * PARTS : R * WIDTH;
// In all 4 R RP + ROOM + R (FEATURES + 2 WIDTH + 8) + 2 RP numbers: see `onchip.turned_room`.

struct Turn {
  float *R0, *E, *A, *B, *parts, *tokens, *h, *heard, *per, *row, *column;
  __device__ Turn(float *from) {
    R0 = from, E = R0 + R * RP, A = E + R * RP, B = A + R * RP, parts = B + R * RP;
    tokens = parts + ROOM, h = tokens + R * FEATURES, heard = h + R * WIDTH;
    per = heard + R * WIDTH, row = per + 8 * R, column = row + RP;
  }
};

// C = A B for (r, r), either one by its transpose. C is neither.
template <bool a, bool b>
__device__ void times(float *C, const float *A, const float *B, int r) {
  for (int q = threadIdx.x; q < r * r; q += T) {
    int i = q / r, j = q % r;
    float sum = 0;
    for (int k = 0; k < r; k++)
      sum += (a ? A[k * RP + i] : A[i * RP + k]) * (b ? B[j * RP + k] : B[k * RP + j]);
    C[i * RP + j] = sum;
  }
  __syncthreads();
}

// A⁻¹ in the place of A (r, r), by Gauss and Jordan. No pivots: A has a positive definite part.
__device__ void invert(const Turn &at, float *A, int r) {
  for (int p = 0; p < r; p++) {
    float by = 1 / A[p * RP + p];
    for (int k = threadIdx.x; k < r; k += T) at.row[k] = A[p * RP + k] * by, at.column[k] = A[k * RP + p];
    __syncthreads();
    for (int q = threadIdx.x; q < r * r; q += T) {
      int i = q / r, j = q % r;
      float &here = A[i * RP + j];
      here = i == p ? (j == p ? by : at.row[j]) : j == p ? -at.column[i] * by : here - at.column[i] * at.row[j];
    }
    __syncthreads();
  }
}

// The upper triangular L⁻ᵀ with A = L Lᵀ, in the place of A; below its diagonal zeros.
__device__ void whiten(const Turn &at, float *A, int r) {
  for (int p = 0; p < r; p++) {  // L by columns, A⁻ to the right of it
    float by = rsqrtf(fmaxf(A[p * RP + p], TINY));
    __syncthreads();
    for (int i = p + threadIdx.x; i < r; i += T) A[i * RP + p] *= by;
    __syncthreads();
    for (int q = threadIdx.x; q < (r - p - 1) * (r - p - 1); q += T) {
      int i = p + 1 + q / (r - p - 1), j = p + 1 + q % (r - p - 1);
      if (j <= i) A[i * RP + j] -= A[i * RP + p] * A[j * RP + p];
    }
    __syncthreads();
  }
  for (int j = threadIdx.x; j < r; j += T)  // column j of L⁻¹, which is row j of L⁻ᵀ
    for (int i = 0; i < r; i++) {
      float sum = i == j;
      for (int k = j; k < i; k++) sum -= A[i * RP + k] * at.B[j * RP + k];
      at.B[j * RP + i] = i < j ? 0 : sum / A[i * RP + i];
    }
  __syncthreads();
  for (int q = threadIdx.x; q < r * r; q += T) A[q / r * RP + q % r] = at.B[q / r * RP + q % r];
  __syncthreads();
}

// Eigenvectors of A (r, r), symmetric, as columns of C; its eigenvalues are left on the diagonal.
__device__ void principal(const Turn &at, float *A, float *C, int r) {
  const int n = r + r % 2;
  for (int q = threadIdx.x; q < r * r; q += T) C[q / r * RP + q % r] = q / r == q % r;
  __syncthreads();
  for (int round = 0; round < SWEPT * (n - 1); round++) {
    auto pair = [&](int i, int &p, int &q) {  // of a tournament
      p = i ? (round + i) % (n - 1) : n - 1, q = (round + n - 1 - i) % (n - 1);
      return p < r && q < r;
    };
    for (int i = threadIdx.x; i < n / 2; i += T) {
      int p, q;
      float c = 1, s = 0;
      if (pair(i, p, q) && A[p * RP + q] != 0) {
        float ratio = (A[q * RP + q] - A[p * RP + p]) / (2 * A[p * RP + q]);
        float tangent = copysignf(1, ratio) / (fabsf(ratio) + sqrtf(1 + ratio * ratio));
        c = rsqrtf(1 + tangent * tangent), s = tangent * c;
      }
      at.per[2 * i] = c, at.per[2 * i + 1] = s;
    }
    __syncthreads();
    for (int k = threadIdx.x; k < n / 2 * r; k += T) {
      int i = k / r, j = k % r, p, q;
      if (!pair(i, p, q)) continue;
      float c = at.per[2 * i], s = at.per[2 * i + 1], x = A[p * RP + j], y = A[q * RP + j];
      A[p * RP + j] = c * x - s * y, A[q * RP + j] = s * x + c * y;
    }
    __syncthreads();
    for (int k = threadIdx.x; k < n / 2 * r; k += T) {
      int i = k / r, j = k % r, p, q;
      if (!pair(i, p, q)) continue;
      float c = at.per[2 * i], s = at.per[2 * i + 1], x = A[j * RP + p], y = A[j * RP + q];
      A[j * RP + p] = c * x - s * y, A[j * RP + q] = s * x + c * y;
      x = C[j * RP + p], y = C[j * RP + q];
      C[j * RP + p] = c * x - s * y, C[j * RP + q] = s * x + c * y;
    }
    __syncthreads();
  }
}

// Every row x of X becomes x Q, Q zero beyond (r, r).
__device__ void applied(float *X, int rows, const float *Q) {
  for (int row = threadIdx.x; row < rows; row += T) {
    float out[RP];
#pragma unroll
    for (int k = 0; k < RP; k++) out[k] = 0;
#pragma unroll
    for (int l = 0; l < R; l++) {
      float x = X[row * RP + l], g[RP];
#pragma unroll
      for (int k = 0; k < RP; k += 4) *(float4 *)(g + k) = *(const float4 *)(Q + l * RP + k);
#pragma unroll
      for (int k = 0; k < R; k++) out[k] += x * g[k];
    }
#pragma unroll
    for (int k = 0; k < R; k++) X[row * RP + k] = out[k];
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
    if (row >= at.rows) continue;
#pragma unroll
    for (int k = 0; k < R; k++) at.X[row * RP + k] = f[k];
  }
  __syncthreads();
  if (Q) applied(at.X, at.rows, Q);
}

// Balanced factors with orthogonal columns, of the best fit in the subspace that products lead to.
__device__ void sketched(const Block &b, const Turn &at, int r, int powers, unsigned long long seed) {
  for (int i = threadIdx.x; i < b.m; i += T)
    for (int k = 0; k < RP; k++) b.W[i * RP + k] = k < r ? uniform(seed, i * r + k) - 0.5f : 0;
  for (int j = threadIdx.x; j < b.n; j += T)
    for (int k = R; k < RP; k++) b.H[j * RP + k] = 0;
  for (int q = threadIdx.x; q < 4 * R * RP; q += T) at.R0[q] = 0;
  __syncthreads();
  auto ridged = [&](float *G) {
    float mean = 0;
    for (int k = 0; k < r; k++) mean += G[k * RP + k] / r;
    for (int q = threadIdx.x; q < r * r; q += T)
      at.A[q / r * RP + q % r] = G[q / r * RP + q % r] + (q / r == q % r ? 1e-6f * mean + TINY : 0);
    __syncthreads();
  };
  for (int k = 0; k < powers; k++) {
    projected<0>(b, nullptr);
    gram(b, b.H, b.n, b.G), ridged(b.G), invert(at, at.A, r);
    projected<1>(b, at.A);
  }
  gram(b, b.W, b.m, b.G), ridged(b.G), whiten(at, at.A, r), applied(b.W, b.m, at.A);
  projected<0>(b, nullptr);
  gram(b, b.H, b.n, b.G), principal(at, b.G, at.A, r);
  auto scaled = [&](bool up) {  // of the eigenvectors, by the fourth root of their values
    for (int q = threadIdx.x; q < r * r; q += T) {
      float value = sqrtf(sqrtf(fmaxf(b.G[q % r * (RP + 1)], 0))), by = up ? value : value > 0 ? 1 / value : 0;
      at.B[q / r * RP + q % r] = at.A[q / r * RP + q % r] * by;
    }
    __syncthreads();
  };
  scaled(true), applied(b.W, b.m, at.B);
  scaled(false), applied(b.H, b.n, at.B);
}

// E = Yᵀ N over the rows of both factors, N the parts of entries below their component's level.
__device__ void message(const Block &b, const Turn &at, const float *level) {
  for (int q = threadIdx.x; q < FULL * PARTS; q += T) {
    int tile = q / PARTS, k = 2 * (tile / PAIRS), l = 2 * (tile % PAIRS);
    float2 low = make_float2(level[l], level[l + 1]);
    float4 sum = make_float4(0, 0, 0, 0);
    for (int i = q % PARTS; i < b.m + b.n; i += PARTS) {  // H follows W
      const float *y = b.W + i * RP;
      float2 p = *(const float2 *)(y + k), s = *(const float2 *)(y + l);
      s.x = fminf(s.x - low.x, 0), s.y = fminf(s.y - low.y, 0);
      sum.x += p.x * s.x, sum.y += p.x * s.y, sum.z += p.y * s.x, sum.w += p.y * s.y;
    }
    *(float4 *)(at.parts + 4 * q) = sum;
  }
  __syncthreads();
  for (int q = threadIdx.x; q < FULL * 4; q += T) {
    int tile = q / 4;
    float sum = 0;
    for (int s = 0; s < PARTS; s++) sum += at.parts[4 * (tile * PARTS + s) + q % 4];
    at.E[(2 * (tile / PAIRS) + (q % 4) / 2) * RP + 2 * (tile % PAIRS) + q % 2] = sum;
  }
  __syncthreads();
}

__device__ float gated(float x) { return x * (0.5f + 0.5f * x / (1 + fabsf(x))); }

// Sums over rows, a warp a component: mean square, lean, share below the level. See `look`.
__device__ void looked(const Block &b, const Turn &at, const float *level, int r, int number) {
  float *squares = at.per + R, *share = at.per + 2 * R, *lean = at.per + 3 * R, *pull = at.per + 4 * R;
  const int rows = b.m + b.n;
  for (int k = threadIdx.x / 32; k < r; k += T / 32) {
    float yy = 0, y = 0, nn = 0, turned = 0;
    for (int i = threadIdx.x % 32; i < rows; i += 32) {
      float x = b.W[i * RP + k], below = fminf(x - level[k], 0);
      yy += x * x, y += x, nn += below * below;
    }
    for (int l = threadIdx.x % 32; l < r; l += 32) turned += fabsf(at.E[k * RP + l] - at.E[l * RP + k]);
    for (int o = 16; o; o >>= 1) {
      yy += __shfl_xor_sync(~0u, yy, o), y += __shfl_xor_sync(~0u, y, o);
      nn += __shfl_xor_sync(~0u, nn, o), turned += __shfl_xor_sync(~0u, turned, o);
    }
    if (threadIdx.x % 32 == 0)
      squares[k] = yy / rows, lean[k] = y / rows, share[k] = nn / rows, pull[k] = turned;
  }
  __syncthreads();
  float overall = 0, shares = 0, pulls = 0;
  for (int k = 0; k < r; k++) overall += squares[k] / r;
  overall = fmaxf(overall, TINY);
  auto shared_of = [&](int k) { return sqrtf(fminf(share[k] / fmaxf(squares[k], 1e-12f * overall), 4)); };
  auto pulled = [&](int k) { return fminf(pull[k] / (rows * overall), 4); };
  for (int k = 0; k < r; k++) shares += shared_of(k) / r, pulls += pulled(k) / r;
  for (int k = threadIdx.x; k < r; k += T) {
    float *f = at.tokens + k * FEATURES, square = fmaxf(squares[k], 1e-12f * overall);
    f[0] = shared_of(k), f[1] = lean[k] * rsqrtf(square), f[2] = logf(square / overall) / 4, f[3] = pulled(k);
    f[4] = shares, f[5] = pulls, f[6] = log1pf(number) / 2, f[7] = number == 0, f[8] = logf(r) / 3;
    at.per[5 * R + k] = 1 / (pull[k] + 1e-6f * overall);
  }
  __syncthreads();
}

// The tokens' answer: how far each component goes, how much it repeats, and its next level.
__device__ void listened(const Turn &at, const float *net, float *out, int r) {
  const float *embed = net, *hear = embed + WIDTH * (FEATURES + 1), *extract = hear + WIDTH * (3 * WIDTH + 1);
  for (int q = threadIdx.x; q < r * WIDTH; q += T) {
    int k = q / WIDTH, d = q % WIDTH;
    float sum = embed[WIDTH * FEATURES + d];
    for (int f = 0; f < FEATURES; f++) sum += embed[d * FEATURES + f] * at.tokens[k * FEATURES + f];
    at.h[q] = gated(sum);
  }
  __syncthreads();
  for (int q = threadIdx.x; q < r * WIDTH; q += T) {
    int k = q / WIDTH, d = q % WIDTH;
    float sum = 0;
    for (int l = 0; l < r; l++) sum += fabsf(at.E[k * RP + l] - at.E[l * RP + k]) * at.h[l * WIDTH + d];
    at.heard[q] = sum * at.per[5 * R + k];
  }
  for (int d = threadIdx.x; d < WIDTH; d += T) {
    float sum = 0;
    for (int l = 0; l < r; l++) sum += at.h[l * WIDTH + d];
    at.tokens[d] = sum / r;  // the mean of all: tokens are read no more
  }
  __syncthreads();
  for (int q = threadIdx.x; q < r * WIDTH; q += T) {
    int k = q / WIDTH, d = q % WIDTH;
    const float *by = hear + d * 3 * WIDTH;
    float sum = hear[WIDTH * 3 * WIDTH + d];
    for (int l = 0; l < WIDTH; l++)
      sum += by[l] * at.h[k * WIDTH + l] + by[WIDTH + l] * at.tokens[l] + by[2 * WIDTH + l] * at.heard[k * WIDTH + l];
    at.parts[q] = at.h[q] + gated(sum);
  }
  __syncthreads();
  for (int q = threadIdx.x; q < r * OUTPUTS; q += T) {
    int k = q / OUTPUTS, d = q % OUTPUTS;
    float sum = extract[OUTPUTS * WIDTH + d];
    for (int l = 0; l < WIDTH; l++) sum += extract[d * WIDTH + l] * at.parts[k * WIDTH + l];
    out[d * R + k] = d == 0 ? REACH * expf(fminf(fmaxf(sum, -2), 2))
                     : d == 1 ? fminf(fmaxf(sum, -1), 1)
                              : fminf(fmaxf(sum, -1), 1) / 2 * sqrtf(at.per[R + k]);
  }
  __syncthreads();
}

// Rotations of all rows toward nonnegative ones: the layers.
__device__ void turned(const Block &b, const Turn &at, const float *net, int r, int layers) {
  float *strength = at.per, *out = at.per + 5 * R, *level = out + 2 * R, *mean = at.per + R, *other = at.per + 2 * R;
  sums(b.W, b.m, mean), sums(b.H, b.n, other);
  float norm = 0, size = 0, even = rsqrtf(float(r));
  for (int k = 0; k < r; k++) norm += (mean[k] + other[k]) * (mean[k] + other[k]);
  norm = norm > 0 ? rsqrtf(norm) : 0;
  auto way = [&](int k) { return norm > 0 ? (mean[k] + other[k]) * norm - even : 0; };
  for (int k = 0; k < r; k++) size += way(k) * way(k);
  for (int q = threadIdx.x; q < r * r; q += T) {
    int i = q / r, j = q % r;
    at.R0[i * RP + j] = float(i == j) - (size > 1e-12f ? 2 / size * way(i) * way(j) : 0);
    b.S[i * RP + j] = 0;
  }
  __syncthreads();
  for (int k = threadIdx.x / 32; k < r; k += T / 32) {
    float sum = 0;
    for (int i = threadIdx.x % 32; i < b.m + b.n; i += 32) sum += b.W[i * RP + k] * b.W[i * RP + k];
    for (int o = 16; o; o >>= 1) sum += __shfl_xor_sync(~0u, sum, o);
    if (threadIdx.x % 32 == 0) strength[k] = sum;
  }
  for (int k = threadIdx.x; k < R; k += T) level[k] = 0;
  __syncthreads();
  applied(b.W, b.m + b.n, at.R0);
  float whole = 0;
  for (int k = 0; k < r; k++) whole += strength[k] / r;
  whole = fmaxf(whole, TINY);
  for (int number = 0; number < layers; number++) {
    message(b, at, level);
    looked(b, at, level, r, number);
    listened(at, net, out, r);
    for (int q = threadIdx.x; q < r * r; q += T) {
      int i = q / r, j = q % r;
      at.A[i * RP + j] = at.E[j * RP + i] * out[i] - at.E[i * RP + j] * out[j];
    }
    __syncthreads();
    times<false, false>(at.B, at.R0, at.A, r);
    times<false, true>(at.A, at.B, at.R0, r);
    for (int q = threadIdx.x; q < r * r; q += T)
      at.A[q / r * RP + q % r] /= strength[q / r] + strength[q % r] + RIDGE * whole;
    __syncthreads();
    times<true, false>(at.B, at.R0, at.A, r);
    times<false, false>(at.A, at.B, at.R0, r);
    for (int q = threadIdx.x; q < r * r; q += T) {
      int i = q / r, j = q % r;
      float step = at.A[i * RP + j] + (out[R + i] + out[R + j]) / 2 * b.S[i * RP + j];
      step /= 1 + fabsf(step);
      b.S[i * RP + j] = step, at.A[i * RP + j] = float(i == j) - step / 2;
    }
    __syncthreads();
    invert(at, at.A, r);
    for (int q = threadIdx.x; q < r * r; q += T)  // Cayley's transform
      at.A[q / r * RP + q % r] = 2 * at.A[q / r * RP + q % r] - float(q / r == q % r);
    __syncthreads();
    applied(b.W, b.m + b.n, at.A);
    times<false, false>(at.B, at.R0, at.A, r);
    for (int q = threadIdx.x; q < r * r; q += T) at.R0[q / r * RP + q % r] = at.B[q / r * RP + q % r];
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
