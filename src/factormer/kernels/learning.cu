// Training of an N-Factormer at batch size one (app. A) in one launch for many updates: forward,
// eq. 17 through the unrolled iterations, backward, AdamW. All in float32.
//
// Rows of a factor are independent given the other factor: a block takes a row from the beginning
// to the end of a layer or of a half-step of ADMM, and all blocks wait for one another in between.
// The gradient by the other factor is gathered by its rows in the next phase, and those by the
// weights at the end of an update from what every row has written down, so that no sum depends on
// the order in which blocks run. Matrices are not padded.
//
// Put before this text: D width, HEADS, F of the feed-forward network, L layers, R rank, POINTS at
// the input, M rows at most (a multiple of 4), T threads. D and F are multiples of 4.
// The twin is `train.optimise.Learner`; the tests compile this text for the processor.

constexpr int KEYS = D / HEADS, P = POINTS * R, E = (2 * D + 4) / 4 * 4;  // E: 2 D + 1, and zeros
constexpr int N_INNER = 5, PIECES = 20, MIXED = HEADS * D + (HEADS + 3) / 4 * 4;
__host__ __device__ constexpr int least(int a, int b) { return a < b ? a : b; }
__host__ __device__ constexpr int most(int a, int b) { return a > b ? a : b; }
__host__ __device__ constexpr int split(int quads, int rows) { return most(1, least(T / quads, rows)); }
constexpr int ROOM = most(most(4 * T, HEADS * E), most(PIECES *MIXED, 5 * HEADS *M));

#define EACH(i, count) for (int i = threadIdx.x; i < (count); i += blockDim.x)
#define SYNC __syncthreads()

// The weights of a layer, one after the other; matrices are (out, in), and in the second copy of
// all weights (in, out).
constexpr int QUERY = 0, KEY = QUERY + D * D, VALUE = KEY + D * E, FIRST = VALUE + D * E;
constexpr int SECOND = FIRST + F * D, QUERY_BIAS = SECOND + D * F, VALUE_BIAS = QUERY_BIAS + D;
constexpr int FIRST_BIAS = VALUE_BIAS + D, SECOND_BIAS = FIRST_BIAS + F;
constexpr int NORM1 = SECOND_BIAS + D, SHIFT1 = NORM1 + D, NORM2 = SHIFT1 + D, SHIFT2 = NORM2 + D;
constexpr int LAYER = SHIFT2 + D;
constexpr int EMBED = L * LAYER, EMBED_BIAS = EMBED + D * P, EXTRACT = EMBED_BIAS + D;
constexpr int EXTRACT_BIAS = EXTRACT + R * D, WEIGHTS = EXTRACT_BIAS + R;

struct alignas(16) Row {  // what a row writes down in a layer: to go back, and for the weights
  float x[D], query[D], key[HEADS * D], edge[HEADS * D], mixed[HEADS * E], u[D], unit1[D];
  float hidden[F], unit2[D], scale[4], alpha[HEADS * M];
  float d_query[D], d_key[HEADS * E], d_message[D], d_hidden[F], d_out[D], d_norm1[D], d_norm2[D];
  float d_score[HEADS * M], d_mixed[HEADS * D];
};
struct Ends {  // the same at the input and the output of the network
  float in[P], d_in[D], out[R], d_out[R];
};
struct Half {  // what the backward half-step of a row says of the other factor
  float d_product[R], d_inverse[R * R];
};

struct alignas(16) Shared {
  float src[M * D], room[ROOM], x[D], g[D], dx[D], query[D], fold[HEADS * E], key[HEADS * D];
  float mixed[HEADS * E], few[4 * HEADS], alpha[HEADS * M], score[HEADS * M], edges[M], y[D], u[D];
  float hidden[F], other[M * R], gram[R * R], inverse[R * R], point[R], start[R], product[R];
  float A[(N_INNER + 1) * R], dF[N_INNER * R], open[N_INNER * R], back[2 * R], input[P];
};

struct Run {  // one update
  Row *rows;
  Ends *ends;
  float *points, *stepped, *adjoint, *d_points, *d_stepped, *inverses;
  Half *halves;
  const float *V, *theta, *turned;
  float *loss;
  int *bad;
  int m, n, layer_rows, n_steps, n_accel, call, t;
  float root, gamma;  // root: √c where the network sees V / c

  __device__ int total() const { return m + n; }
  __device__ int count(int side) const { return side ? m : n; }  // side 0: rows of H, 1: of W
  __device__ int first(int side) const { return side ? n : 0; }
  __device__ const float *edges(int side, int row) const {  // row of V, or of Vᵀ
    return side ? V + (long long)row * n : V + (long long)m * n + (long long)row * m;
  }
  __device__ Row &at(int layer, int row) const {
    return rows[(long long)layer * layer_rows + call * total() + row];
  }
  __device__ Ends &end(int row) const { return ends[call * total() + row]; }
  __device__ float *point(int t, int row) const { return points + (t * total() + row) * R; }
  __device__ float *step(int t, int row) const { return stepped + (t * total() + row) * R; }
  __device__ bool learned(int t) const { return POINTS == 1 ? t == 1 : t <= n_accel; }
  __device__ const float *solved(int t, int row) const {  // what the solver found at t
    return POINTS == 2 && learned(t) ? step(t, row) : point(t, row);
  }
  __device__ float weight(int t) const { return powf(gamma, (float)(n_steps - t)); }  // (17)
};

// ---- products of a vector and a matrix

template <int COLS, int ROWS, int GROUPS, class Out>
__device__ void product(Shared &s, const float *A, const float *x, Out out) {
  constexpr int WIDE = GROUPS * COLS, QUADS = WIDE / 4, SPLIT = split(QUADS, ROWS);
  constexpr int STEPS = (ROWS + SPLIT - 1) / SPLIT;
  EACH(item, QUADS * SPLIT) {
    int quad = item % QUADS, part = item / QUADS;
    int group = quad / (COLS / 4), c = quad % (COLS / 4) * 4;
    float4 sum = {0, 0, 0, 0};
#pragma unroll 10
    for (int step = 0; step < STEPS; step++) {
      int k = part + step * SPLIT;
      if (k < ROWS) {
        float4 a = *(const float4 *)(A + (group * ROWS + k) * COLS + c);
        float b = x[group * ROWS + k];
        sum.x += a.x * b, sum.y += a.y * b, sum.z += a.z * b, sum.w += a.w * b;
      }
    }
    *(float4 *)(s.room + part * WIDE + quad * 4) = sum;
  }
  SYNC;
  EACH(o, WIDE) {
    float sum = 0;
#pragma unroll 5
    for (int part = 0; part < SPLIT; part++) sum += s.room[part * WIDE + o];
    out(o, sum);
  }
  SYNC;
}

// The same where each head has its own vector of E numbers, and its own columns of A (E, D).
template <class Out>
__device__ void product_by_head(Shared &s, const float *A, const float *x, Out out) {
  constexpr int QUADS = D / 4, SPLIT = least(split(QUADS, E), PIECES);
  constexpr int STEPS = (E + SPLIT - 1) / SPLIT;
  EACH(item, QUADS * SPLIT) {
    int c = item % QUADS * 4, part = item / QUADS;
    const float *x0 = x + c / KEYS * E, *x1 = x + (c + 1) / KEYS * E;
    const float *x2 = x + (c + 2) / KEYS * E, *x3 = x + (c + 3) / KEYS * E;
    float4 sum = {0, 0, 0, 0};
#pragma unroll 6
    for (int step = 0; step < STEPS; step++) {
      int k = part + step * SPLIT;
      if (k < E) {
        float4 a = *(const float4 *)(A + k * D + c);
        sum.x += a.x * x0[k], sum.y += a.y * x1[k], sum.z += a.z * x2[k], sum.w += a.w * x3[k];
      }
    }
    *(float4 *)(s.room + part * D + c) = sum;
  }
  SYNC;
  EACH(c, D) {
    float sum = 0;
#pragma unroll 5
    for (int part = 0; part < SPLIT; part++) sum += s.room[part * D + c];
    out(c, sum);
  }
  SYNC;
}

// ---- attention (eqs. 9–14, folded as in `nn.attention`)

// to[h, i] = x_h · src_i + number_h · edge_i
__device__ void score(Shared &s, const float *x, const float *number, int ns, float *to) {
  constexpr int SPLIT = 5;
  EACH(item, ns * SPLIT) {
    int i = item % ns, part = item / ns;
    float sum[HEADS] = {};
    for (int e = 4 * part; e < D; e += 4 * SPLIT) {
      float4 a = *(const float4 *)(s.src + i * D + e);
#pragma unroll
      for (int h = 0; h < HEADS; h++) {
        float4 b = *(const float4 *)(x + h * D + e);
        sum[h] += a.x * b.x + a.y * b.y + a.z * b.z + a.w * b.w;
      }
    }
    for (int h = 0; h < HEADS; h++) s.room[(part * HEADS + h) * M + i] = sum[h];
  }
  SYNC;
  EACH(item, ns * HEADS) {
    int h = item / ns, i = item % ns;
    float sum = number[h] * s.edges[i];
    for (int part = 0; part < SPLIT; part++) sum += s.room[(part * HEADS + h) * M + i];
    to[h * M + i] = sum;
  }
  SYNC;
}

// to[h] = Σ a[h, i] src_i, number[h] = Σ a[h, i] edge_i
__device__ void mix(Shared &s, const float *a, int ns, float *to, float *number) {
  constexpr int QUADS = D / 4 + 1, SPLIT = least(split(QUADS, M), PIECES);
  EACH(item, QUADS * SPLIT) {
    int quad = item % QUADS, part = item / QUADS;
    float *room = s.room + part * MIXED;
    if (quad < D / 4) {
      float4 sum[HEADS] = {};
      for (int i = part; i < ns; i += SPLIT) {
        float4 b = *(const float4 *)(s.src + i * D + quad * 4);
#pragma unroll
        for (int h = 0; h < HEADS; h++) {
          float w = a[h * M + i];
          sum[h].x += w * b.x, sum[h].y += w * b.y, sum[h].z += w * b.z, sum[h].w += w * b.w;
        }
      }
      for (int h = 0; h < HEADS; h++) *(float4 *)(room + h * D + quad * 4) = sum[h];
    } else {
      for (int h = 0; h < HEADS; h++) {
        float sum = 0;
        for (int i = part; i < ns; i += SPLIT) sum += a[h * M + i] * s.edges[i];
        room[HEADS * D + h] = sum;
      }
    }
  }
  SYNC;
  EACH(o, HEADS * D + HEADS) {
    float sum = 0;
#pragma unroll 5
    for (int part = 0; part < SPLIT; part++) sum += s.room[part * MIXED + o];
    if (o < HEADS * D)
      to[o] = sum;
    else
      number[o - HEADS * D] = sum;
  }
  SYNC;
}

__device__ void softmax(Shared &s, float *score, float *alpha, int ns) {  // (13)
  EACH(item, ns * HEADS) {
    int h = item / ns, i = item % ns;
    float top = score[h * M];
#pragma unroll 4
    for (int k = 1; k < ns; k++) top = fmaxf(top, score[h * M + k]);
    s.room[h * M + i] = expf(score[h * M + i] - top);
  }
  SYNC;
  EACH(item, ns * HEADS) {
    int h = item / ns, i = item % ns;
    float sum = 0;
#pragma unroll 4
    for (int k = 0; k < ns; k++) sum += s.room[h * M + k];
    alpha[h * M + i] = s.room[h * M + i] / sum;
  }
  SYNC;
}

// The mean of a vector, and that of its squared distance from there; by each thread for itself.
__device__ void moments(const float *x, float &mean, float &square) {
  float a = 0, b = 0;
#pragma unroll 5
  for (int k = 0; k < D; k += 4) {
    float4 v = *(const float4 *)(x + k);
    a += (v.x + v.y) + (v.z + v.w);
  }
  mean = a / D;
#pragma unroll 5
  for (int k = 0; k < D; k += 4) {
    float4 v = *(const float4 *)(x + k);
    v.x -= mean, v.y -= mean, v.z -= mean, v.w -= mean;
    b += (v.x * v.x + v.y * v.y) + (v.z * v.z + v.w * v.w);
  }
  square = b / D;
}

__device__ void load_sources(Shared &s, const Run &run, int layer, int side, int row) {
  int ns = run.count(1 - side), first = run.first(1 - side);
  const float *edges = run.edges(side, row);
  float c = 1 / (run.root * run.root);
  EACH(item, ns * (D / 4)) {
    int i = item / (D / 4), e = item % (D / 4);
    *(float4 *)(s.src + i * D + 4 * e) =
        *(const float4 *)(run.at(layer + side, first + i).x + 4 * e);
  }
  EACH(i, ns) s.edges[i] = edges[i] * c;
}

// ---- a layer (eq. 15) for one row, forth and back

__device__ void extract(Shared &s, const Run &run, int row) {
  const float *A = run.theta + EXTRACT;
  EACH(item, R * PIECES) {
    int c = item / PIECES, part = item % PIECES;
    float sum = 0;
    for (int k = part; k < D; k += PIECES) sum += A[c * D + k] * s.y[k];
    s.room[item] = sum;
  }
  SYNC;
  EACH(c, R) {
    float sum = run.theta[EXTRACT_BIAS + c];
    for (int part = 0; part < PIECES; part++) sum += s.room[c * PIECES + part];
    run.end(row).out[c] = sum;
    run.point(run.t, row)[c] = fmaxf(sum, 0.f) * run.root;
  }
  SYNC;
}

__device__ void layer_forward(Shared &s, const Run &run, int layer, int side, int at) {
  int row = run.first(side) + at, ns = run.count(1 - side);
  Row &to = run.at(layer, row);
  const float *theta = run.theta + layer * LAYER, *turned = run.turned + layer * LAYER;
  load_sources(s, run, layer, side, at);
  EACH(c, D) s.x[c] = to.x[c];
  SYNC;
  const float temperature = rsqrtf((float)KEYS);
  product<D, D, 1>(s, turned + QUERY, s.x, [&](int c, float q) {
    to.query[c] = s.query[c] = (q + theta[QUERY_BIAS + c]) * temperature;
  });
  product<E, KEYS, HEADS>(s, theta + KEY, s.query, [&](int o, float a) { s.fold[o] = a; });
  EACH(o, HEADS * D) {
    int h = o / D, e = o % D;
    float edge = s.fold[h * E + D + e];
    to.edge[o] = edge;
    to.key[o] = s.key[o] = s.fold[h * E + e] + s.x[e] * edge;
  }
  EACH(h, HEADS) s.few[h] = s.fold[h * E + 2 * D];
  SYNC;
  score(s, s.key, s.few, ns, s.score);
  softmax(s, s.score, s.alpha, ns);
  EACH(item, HEADS * ns) {
    int o = item / ns * M + item % ns;
    to.alpha[o] = s.alpha[o];
  }
  mix(s, s.alpha, ns, s.key, s.few);
  EACH(o, HEADS * E) {
    int h = o / E, e = o % E;
    float v = e < D ? s.key[h * D + e] : e < 2 * D ? s.key[h * D + e - D] * s.x[e - D] : 0;
    to.mixed[o] = s.mixed[o] = e == 2 * D ? s.few[h] : v;
  }
  SYNC;
  product_by_head(s, turned + VALUE, s.mixed, [&](int c, float a) {  // (14)
    s.y[c] = s.x[c] + a + theta[VALUE_BIAS + c];
  });
  EACH(c, D) {
    float mean, square;
    moments(s.y, mean, square);
    float scale = rsqrtf(square + 1e-5f), unit = (s.y[c] - mean) * scale;
    if (!c) to.scale[0] = scale;
    to.unit1[c] = unit;
    to.u[c] = s.u[c] = unit * theta[NORM1 + c] + theta[SHIFT1 + c];
  }
  SYNC;
  product<F, D, 1>(s, turned + FIRST, s.u, [&](int c, float a) {
    to.hidden[c] = s.hidden[c] = fmaxf(a + theta[FIRST_BIAS + c], 0.f);
  });
  product<D, F, 1>(s, turned + SECOND, s.hidden, [&](int c, float a) {
    s.y[c] = s.x[c] + a + theta[SECOND_BIAS + c];  // (15)
  });
  float *next = run.at(layer + 1, row).x;
  if (layer == L - 1) {
    EACH(c, D) next[c] = s.y[c];
    extract(s, run, row);
    return;
  }
  EACH(c, D) {
    float mean, square;
    moments(s.y, mean, square);
    float scale = rsqrtf(square + 1e-5f), unit = (s.y[c] - mean) * scale;
    if (!c) to.scale[1] = scale;
    to.unit2[c] = unit;
    next[c] = unit * theta[NORM2 + c] + theta[SHIFT2 + c];
  }
  SYNC;
}

// s.g: the adjoint of a normed vector; s.y: that of the vector. `unit` lies in s.u.
__device__ void norm_backward(Shared &s, const float *norm, float scale, float *to) {
  EACH(c, D) {
    to[c] = s.g[c];
    s.x[c] = s.g[c] * norm[c];
    s.query[c] = s.x[c] * s.u[c];
  }
  SYNC;
  EACH(c, D) {
    float a = 0, b = 0;
#pragma unroll 5
    for (int k = 0; k < D; k += 4) {
      float4 v = *(const float4 *)(s.x + k), w = *(const float4 *)(s.query + k);
      a += (v.x + v.y) + (v.z + v.w), b += (w.x + w.y) + (w.z + w.w);
    }
    s.y[c] = scale * (s.x[c] - a / D - s.u[c] * b / D);
  }
  SYNC;
}

// s.g += what the targets of the other side ask of this row as their source.
__device__ void gather(Shared &s, const Run &run, int layer, int side, int at) {
  constexpr int QUADS = D / 4, SPLIT = least(split(QUADS, 4 * M), PIECES);
  int pairs = HEADS * run.count(1 - side), first = run.first(1 - side);
  EACH(item, QUADS * SPLIT) {
    int quad = item % QUADS, part = item / QUADS;
    float4 sum = {0, 0, 0, 0};
#pragma unroll 4
    for (int pair = part; pair < pairs; pair += SPLIT) {
      const Row &from = run.at(layer, first + pair / HEADS);
      int h = pair % HEADS;
      float a = from.d_score[h * M + at], b = from.alpha[h * M + at];
      float4 x = *(const float4 *)(from.key + h * D + quad * 4);
      float4 y = *(const float4 *)(from.d_mixed + h * D + quad * 4);
      sum.x += a * x.x + b * y.x, sum.y += a * x.y + b * y.y;
      sum.z += a * x.z + b * y.z, sum.w += a * x.w + b * y.w;
    }
    *(float4 *)(s.room + part * D + quad * 4) = sum;
  }
  SYNC;
  EACH(c, D) {
    float sum = s.g[c];
    for (int part = 0; part < SPLIT; part++) sum += s.room[part * D + c];
    s.g[c] = sum;
  }
  SYNC;
}

// From s.g, the adjoint of the row's output, to s.dx, that of its input.
__device__ void layer_backward(Shared &s, const Run &run, int layer, int side, int at) {
  int row = run.first(side) + at, ns = run.count(1 - side);
  Row &to = run.at(layer, row);
  const float *theta = run.theta + layer * LAYER, *turned = run.turned + layer * LAYER;
  load_sources(s, run, layer, side, at);
  if (layer < L - 1) {
    EACH(c, D) s.u[c] = to.unit2[c];
    SYNC;
    norm_backward(s, theta + NORM2, to.scale[1], to.d_norm2);
  } else {
    EACH(c, D) s.y[c] = s.g[c];
    SYNC;
  }
  EACH(c, D) to.d_out[c] = s.dx[c] = s.y[c];
  product<F, D, 1>(s, theta + SECOND, s.y, [&](int c, float a) {
    to.d_hidden[c] = s.hidden[c] = to.hidden[c] > 0 ? a : 0;
  });
  EACH(c, D) s.u[c] = to.unit1[c];
  product<D, F, 1>(s, theta + FIRST, s.hidden, [&](int c, float a) { s.g[c] = a; });
  norm_backward(s, theta + NORM1, to.scale[0], to.d_norm1);
  EACH(c, D) {
    to.d_message[c] = s.y[c];
    s.dx[c] += s.y[c];
    s.x[c] = to.x[c];
  }
  SYNC;
  product<E, KEYS, HEADS>(s, theta + VALUE, s.y, [&](int o, float a) { s.fold[o] = a; });
  EACH(o, HEADS * D) {
    int h = o / D, e = o % D;
    to.d_mixed[o] = s.key[o] = s.fold[h * E + e] + s.fold[h * E + D + e] * s.x[e];
  }
  EACH(e, D) {
    float sum = 0;
    for (int h = 0; h < HEADS; h++) sum += s.fold[h * E + D + e] * to.mixed[h * E + e];
    s.dx[e] += sum;
  }
  EACH(h, HEADS) s.few[h] = s.fold[h * E + 2 * D];
  EACH(item, HEADS * ns) {
    int o = item / ns * M + item % ns;
    s.alpha[o] = to.alpha[o];
  }
  SYNC;
  score(s, s.key, s.few, ns, s.score);  // by α
  EACH(item, HEADS * ns) {
    int h = item / ns, i = item % ns;
    float sum = 0;
#pragma unroll 4
    for (int k = 0; k < ns; k++) sum += s.alpha[h * M + k] * s.score[h * M + k];
    s.room[h * M + i] = s.alpha[h * M + i] * (s.score[h * M + i] - sum);
  }
  SYNC;
  EACH(item, HEADS * ns) {
    int o = item / ns * M + item % ns;
    to.d_score[o] = s.alpha[o] = s.room[o];
  }
  SYNC;
  mix(s, s.alpha, ns, s.key, s.few);
  EACH(o, HEADS * E) {
    int h = o / E, e = o % E;
    float v = e < D ? s.key[h * D + e] : e < 2 * D ? s.key[h * D + e - D] * s.x[e - D] : 0;
    to.d_key[o] = s.mixed[o] = e == 2 * D ? s.few[h] : v;
  }
  EACH(e, D) {
    float sum = 0;
    for (int h = 0; h < HEADS; h++) sum += s.key[h * D + e] * to.edge[h * D + e];
    s.dx[e] += sum;
  }
  SYNC;
  const float temperature = rsqrtf((float)KEYS);
  product_by_head(s, turned + KEY, s.mixed, [&](int c, float a) {
    to.d_query[c] = s.query[c] = a * temperature;
    if (!(fabsf(a) < 1e38f)) atomicMax(run.bad, 1);
  });
  product<D, D, 1>(s, theta + QUERY, s.query, [&](int c, float a) { s.dx[c] += a; });
}

// ---- the input of the network

__device__ void embed(Shared &s, const Run &run, int row) {  // s.input holds it
  EACH(k, P) run.end(row).in[k] = s.input[k] = s.input[k] / run.root;
  SYNC;
  EACH(c, D) {
    float sum = run.theta[EMBED_BIAS + c];
    for (int k = 0; k < P; k++) sum += run.turned[EMBED + k * D + c] * s.input[k];
    run.at(0, row).x[c] = sum;
  }
  SYNC;
}

__device__ void embed_backward(Shared &s, const Run &run, int row) {  // from s.g to s.input
  EACH(c, D) run.end(row).d_in[c] = s.g[c];
  EACH(item, P * PIECES) {
    int k = item / PIECES, part = item % PIECES;
    float sum = 0;
    for (int c = part; c < D; c += PIECES) sum += run.turned[EMBED + k * D + c] * s.g[c];
    s.room[item] = sum;
  }
  SYNC;
  EACH(k, P) {
    float sum = 0;
    for (int part = 0; part < PIECES; part++) sum += s.room[k * PIECES + part];
    s.input[k] = sum / run.root;
  }
  SYNC;
}

__device__ void extract_backward(Shared &s, const Run &run, int row) {  // from s.point to s.g
  Ends &end = run.end(row);
  EACH(c, R) end.d_out[c] = s.point[c] = end.out[c] > 0 ? s.point[c] * run.root : 0;
  SYNC;
  EACH(k, D) {
    float sum = 0;
    for (int c = 0; c < R; c++) sum += run.theta[EXTRACT + c * D + k] * s.point[c];
    s.g[k] = sum;
  }
  SYNC;
}

// ---- half-steps of ADMM (eqs. 19–22), ρ = 1

__device__ void invert(const float *gram, float *inverse) {
  EACH(c, R) {  // a column by each thread
    float low[R][R], y[R];
#pragma unroll
    for (int j = 0; j < R; j++) {
#pragma unroll
      for (int i = j; i < R; i++) {
        float sum = gram[i * R + j];
#pragma unroll
        for (int k = 0; k < j; k++) sum -= low[i][k] * low[j][k];
        low[i][j] = i == j ? sqrtf(sum) : sum / low[j][j];
      }
    }
#pragma unroll
    for (int i = 0; i < R; i++) {
      float sum = i == c ? 1.f : 0.f;
#pragma unroll
      for (int k = 0; k < i; k++) sum -= low[i][k] * y[k];
      y[i] = sum / low[i][i];
    }
#pragma unroll
    for (int i = R - 1; i >= 0; i--) {
      float sum = y[i];
#pragma unroll
      for (int k = i + 1; k < R; k++) sum -= low[k][i] * y[k];
      y[i] = sum / low[i][i];
      inverse[i * R + c] = y[i];
    }
  }
  SYNC;
}

// Sweeps for one row that begins at `start`, with the rows `other` of the other factor.
__device__ void half_forward(Shared &s, const Run &run, int side, int at, const float *other,
                             const float *start) {
  constexpr int WANTED = R * R + R, SPLIT = most(1, T / WANTED);
  int ns = run.count(1 - side);
  const float *edges = run.edges(side, at);
  EACH(i, ns * R) s.other[i] = other[i];
  EACH(i, ns) s.edges[i] = edges[i];
  EACH(c, R) s.start[c] = start[c];
  SYNC;
  EACH(item, WANTED * SPLIT) {
    int o = item % WANTED, part = item / WANTED;
    float sum = 0;
    for (int i = part; i < ns; i += SPLIT) {
      float b = o < R * R ? s.other[i * R + o % R] : s.edges[i];
      sum += s.other[i * R + (o < R * R ? o / R : o - R * R)] * b;
    }
    s.room[item] = sum;
  }
  SYNC;
  EACH(o, WANTED) {
    float sum = o < R * R && o / R == o % R ? 1.f : 0.f;
    for (int part = 0; part < SPLIT; part++) sum += s.room[part * WANTED + o];
    (o < R * R ? s.gram[o] : s.product[o - R * R]) = sum;
  }
  SYNC;
  invert(s.gram, s.inverse);
  EACH(c, R) {
    s.point[c] = s.start[c];
    s.back[c] = 0;  // U
    s.A[c] = s.product[c] + s.start[c];
  }
  SYNC;
  for (int sweep = 0; sweep < N_INNER; sweep++) {
    EACH(c, R) {
      float loose = 0;
      for (int k = 0; k < R; k++) loose += s.A[sweep * R + k] * s.inverse[k * R + c];  // (20)
      float x = loose - s.back[c];
      s.open[sweep * R + c] = x >= 0 ? 1.f : 0.f;
      s.point[c] = fmaxf(x, 0.f);          // (21)
      s.back[c] += s.point[c] - loose;     // (22)
      s.A[(sweep + 1) * R + c] = s.product[c] + s.point[c] + s.back[c];
    }
    SYNC;
  }
}

// From s.input[0:R], the adjoint of the row found, to s.point, that of where it began.
__device__ void half_backward(Shared &s, const Run &run, int side, int at, const float *other,
                              const float *start) {
  half_forward(s, run, side, at, other, start);
  EACH(c, R) s.point[c] = s.input[c], s.back[c] = 0, s.product[c] = 0;
  SYNC;
  for (int sweep = N_INNER - 1; sweep >= 0; sweep--) {
    EACH(c, R) {
      float through = s.open[sweep * R + c] * (s.point[c] + s.back[c]);
      s.dF[sweep * R + c] = through - s.back[c];
      s.back[c] -= through;
    }
    SYNC;
    EACH(c, R) {
      float by = 0;
      for (int k = 0; k < R; k++) by += s.dF[sweep * R + k] * s.inverse[c * R + k];
      s.product[c] += by;
      s.point[c] = by;
      s.back[c] += by;
    }
    SYNC;
  }
  Half &to = run.halves[run.first(side) + at];
  EACH(c, R) to.d_product[c] = s.product[c];
  EACH(o, R * R) {
    float sum = 0;
    for (int sweep = 0; sweep < N_INNER; sweep++)
      sum += s.A[sweep * R + o / R] * s.dF[sweep * R + o % R];
    to.d_inverse[o] = sum;
    if (!at) run.inverses[side * R * R + o] = s.inverse[o];
  }
  SYNC;
}

// s.input[0:R] += what the half-step of the other side asks of this row, whose value is x.
__device__ void asked(Shared &s, const Run &run, int side, int at, const float *x) {
  constexpr int WANTED = R * R + R, SPLIT = most(1, T / WANTED);
  int nt = run.count(1 - side);
  const Half *halves = run.halves + run.first(1 - side);
  const float *edges = run.edges(side, at);
  EACH(o, R * R) s.inverse[o] = run.inverses[(1 - side) * R * R + o];
  EACH(c, R) s.start[c] = x[c];
  EACH(item, WANTED * SPLIT) {
    int o = item % WANTED, part = item / WANTED;
    float sum = 0;
    for (int j = part; j < nt; j += SPLIT)
      sum += o < R * R ? halves[j].d_inverse[o] : halves[j].d_product[o - R * R] * edges[j];
    s.room[item] = sum;
  }
  SYNC;
  EACH(o, WANTED) {
    float sum = 0;
    for (int part = 0; part < SPLIT; part++) sum += s.room[part * WANTED + o];
    (o < R * R ? s.gram[o] : s.product[o - R * R]) = sum;
  }
  SYNC;
  EACH(o, R * R) {
    float sum = 0;
    for (int k = 0; k < R; k++) sum += s.inverse[o / R * R + k] * s.gram[k * R + o % R];
    s.room[o] = sum;
  }
  SYNC;
  EACH(o, R * R) {
    float sum = 0;
    for (int k = 0; k < R; k++) sum -= s.room[o / R * R + k] * s.inverse[k * R + o % R];
    s.gram[o] = sum;
  }
  SYNC;
  EACH(c, R) {
    float sum = s.product[c];
    for (int k = 0; k < R; k++) sum += s.start[k] * (s.gram[k * R + c] + s.gram[c * R + k]);
    s.input[c] += sum;
  }
  SYNC;
}

// s.input[0:R]: the adjoint of the row of x^t, from its own loss and from what follows it.
__device__ void point_adjoint(Shared &s, const Run &run, int side, int at) {
  constexpr int WANTED = R + 1, SPLIT = PIECES;
  int row = run.first(side) + at, ns = run.count(1 - side), last = run.t == run.n_steps;
  const float *edges = run.edges(side, at), *other = run.point(run.t, run.first(1 - side));
  EACH(i, ns * R) s.other[i] = other[i];
  EACH(c, R) {
    s.start[c] = run.point(run.t, row)[c];
    s.input[c] = last ? 0 : run.d_points[row * R + c];
  }
  SYNC;
  EACH(i, ns) {
    float sum = -edges[i];
    for (int c = 0; c < R; c++) sum += s.start[c] * s.other[i * R + c];
    s.edges[i] = sum;
  }
  SYNC;
  EACH(item, WANTED * SPLIT) {
    int c = item % WANTED, part = item / WANTED;
    float sum = 0;
    for (int i = part; i < ns; i += SPLIT)
      sum += s.edges[i] * (c < R ? s.other[i * R + c] : s.edges[i]);
    s.room[item] = sum;
  }
  SYNC;
  EACH(c, WANTED) {
    float sum = 0;
    for (int part = 0; part < SPLIT; part++) sum += s.room[part * WANTED + c];
    sum *= run.weight(run.t);
    if (c < R)
      s.input[c] += sum;
    else if (side)
      atomicAdd(run.loss, sum / 2);
  }
  SYNC;
  if (side && !last) asked(s, run, side, at, run.point(run.t, row));
}

// ---- weights: gradients from what the rows wrote down, and AdamW

struct Adam {
  float *theta, *turned, *first, *second;
  float decay, rate, root;  // 1 − lr·weight decay, lr / (1 − β₁ᵗ), √(1 − β₂ᵗ)
  bool bad;

  __device__ float step(long long at, float gradient) const {
    float g = bad ? 0.f : gradient;
    float a = first[at] + (g - first[at]) * 0.1f, b = second[at] * 0.999f + g * g * 0.001f;
    first[at] = a, second[at] = b;
    float x = theta[at] * decay - rate * a / (sqrtf(b) / root + 1e-8f);
    theta[at] = x;
    return x;
  }
};

// Rows c0…c0+4 and column k of Σ left[c] right[k] over n records: of a matrix (outs, ins).
__device__ void learn_tile(const Adam &adam, const char *left, const char *right, long long size,
                           int n, long long base, int outs, int ins, int c0, int k) {
  float sum[5] = {};
#pragma unroll 4
  for (int i = 0; i < n; i++) {
    const float *a = (const float *)(left + i * size) + c0;
    float b = ((const float *)(right + i * size))[k];
#pragma unroll
    for (int c = 0; c < 5; c++)
      if (c0 + c < outs) sum[c] += a[c] * b;
  }
#pragma unroll
  for (int c = 0; c < 5; c++)
    if (c0 + c < outs)
      adam.turned[base + (long long)k * outs + c0 + c] =
          adam.step(base + (long long)(c0 + c) * ins + k, sum[c]);
}

__device__ void learn_vector(const Adam &adam, const char *left, const char *right, long long size,
                             int n, long long at) {  // Σ left, or Σ left · right
  float sum = 0;
#pragma unroll 8
  for (int i = 0; i < n; i++) {
    float a = *(const float *)(left + i * size);
    sum += right ? a * *(const float *)(right + i * size) : a;
  }
  adam.turned[at] = adam.step(at, sum);
}

#define OF(record, field) ((const char *)(record).field)
#define BANDS(rows) (((rows) + 4) / 5)

__device__ void learn(const Run &run, const Adam &adam, int n) {
  // bands of five rows: of the query, of key and value by head, and of the two of the feed-forward
  constexpr int HEAD = BANDS(KEYS), B0 = BANDS(D), B1 = B0 + HEADS * HEAD, B2 = B1 + HEADS * HEAD;
  constexpr int B3 = B2 + BANDS(F), BANDED = B3 + BANDS(D);
  constexpr int ITEMS = B0 * D + 2 * HEADS * HEAD * E + BANDS(F) * D + BANDS(D) * F;
  constexpr int VECTORS = 8 * D + F, PER = ITEMS + VECTORS;
  constexpr int ENDS = BANDS(D) * P + BANDS(R) * D + D + R;
  (void)BANDED;
  long long all = (long long)L * PER + ENDS, stride = (long long)gridDim.x * blockDim.x;
  for (long long task = (long long)blockIdx.x * blockDim.x + threadIdx.x; task < all;
       task += stride) {
    long long left = task;
    if (left >= (long long)L * PER) {
      int o = (int)(left - (long long)L * PER);
      const Ends &e = run.ends[0];
      if (o < BANDS(D) * P) {
        learn_tile(adam, OF(e, d_in), OF(e, in), sizeof(Ends), n, EMBED, D, P, o / P * 5, o % P);
        continue;
      }
      o -= BANDS(D) * P;
      if (o < BANDS(R) * D) {
        // the record of the last layer's output lies in the rows: two strides
        float sum[5] = {};
        int c0 = o / D * 5, k = o % D;
        for (int i = 0; i < n; i++) {
          float b = run.rows[(long long)L * run.layer_rows + i].x[k];
          for (int c = 0; c < 5; c++)
            if (c0 + c < R) sum[c] += run.ends[i].d_out[c0 + c] * b;
        }
        for (int c = 0; c < 5; c++)
          if (c0 + c < R)
            adam.turned[EXTRACT + k * R + c0 + c] =
                adam.step(EXTRACT + (c0 + c) * D + k, sum[c]);
        continue;
      }
      o -= BANDS(R) * D;
      if (o < D)
        learn_vector(adam, (const char *)(e.d_in + o), 0, sizeof(Ends), n, EMBED_BIAS + o);
      else
        learn_vector(adam, (const char *)(e.d_out + o - D), 0, sizeof(Ends), n,
                     EXTRACT_BIAS + o - D);
      continue;
    }
    int layer = (int)(left / PER), o = (int)(left % PER);
    long long base = (long long)layer * LAYER, size = sizeof(Row);
    const Row &r = run.rows[(long long)layer * run.layer_rows];
    if (o < B0 * D) {
      learn_tile(adam, OF(r, d_query), OF(r, x), size, n, base + QUERY, D, D, o / D * 5, o % D);
      continue;
    }
    o -= B0 * D;
    if (o < 2 * HEADS * HEAD * E) {
      int value = o / (HEADS * HEAD * E), band = o / E % (HEADS * HEAD), k = o % E;
      int h = band / HEAD, c0 = h * KEYS + band % HEAD * 5;
      const char *a = value ? OF(r, d_message) : OF(r, query);
      const char *b = (const char *)((value ? r.mixed : r.d_key) + h * E);
      // a band ends with its head: `outs` is where, and the matrix has D rows
      float sum[5] = {};
      int end = least((h + 1) * KEYS, c0 + 5);
#pragma unroll 4
      for (int i = 0; i < n; i++) {
        const float *x = (const float *)(a + i * size) + c0;
        float y = ((const float *)(b + i * size))[k];
#pragma unroll
        for (int c = 0; c < 5; c++)
          if (c0 + c < end) sum[c] += x[c] * y;
      }
      long long at = base + (value ? VALUE : KEY);
#pragma unroll
      for (int c = 0; c < 5; c++)
        if (c0 + c < end)
          adam.turned[at + (long long)k * D + c0 + c] =
              adam.step(at + (long long)(c0 + c) * E + k, sum[c]);
      continue;
    }
    o -= 2 * HEADS * HEAD * E;
    if (o < BANDS(F) * D) {
      learn_tile(adam, OF(r, d_hidden), OF(r, u), size, n, base + FIRST, F, D, o / D * 5, o % D);
      continue;
    }
    o -= BANDS(F) * D;
    if (o < BANDS(D) * F) {
      learn_tile(adam, OF(r, d_out), OF(r, hidden), size, n, base + SECOND, D, F, o / F * 5, o % F);
      continue;
    }
    o -= BANDS(D) * F;
    const int which = o < F ? -1 : (o - F) / D, k = o < F ? o : (o - F) % D;
    const float *a = which < 0    ? r.d_hidden
                     : which == 0 ? r.d_query
                     : which == 1 ? r.d_message
                     : which == 2 ? r.d_out
                     : which < 5  ? r.d_norm1
                                  : r.d_norm2;
    const float *b = which == 3 ? r.unit1 : which == 5 ? r.unit2 : 0;
    const int place = which < 0    ? FIRST_BIAS
                      : which == 0 ? QUERY_BIAS
                      : which == 1 ? VALUE_BIAS
                      : which == 2 ? SECOND_BIAS
                      : which == 3 ? NORM1
                      : which == 4 ? SHIFT1
                      : which == 5 ? NORM2
                                   : SHIFT2;
    if (which > 6 || (layer == L - 1 && which > 4)) continue;  // the last layer skips its norm
    learn_vector(adam, (const char *)(a + k), b ? (const char *)(b + k) : 0, size, n,
                 base + place + k);
  }
}

// ---- all of it

struct Barrier {
  unsigned *arrived;
  unsigned due;
  __device__ void wait() {
    due += gridDim.x;
    SYNC;
    if (!threadIdx.x) {
      __threadfence();
      atomicAdd(arrived, 1u);
      while (PEEK(arrived) < due) PAUSE;
      __threadfence();
    }
    SYNC;
  }
};

#define ROWS(side) for (int at = blockIdx.x; at < run.count(side); at += gridDim.x)

__device__ void network_forward(Shared &s, const Run &run, Barrier &all) {
  for (int layer = 0; layer < L; layer++)
    for (int side = 0; side < 2; side++) {
      ROWS(side) layer_forward(s, run, layer, side, at);
      all.wait();
    }
}

__device__ void network_backward(Shared &s, const Run &run, Barrier &all) {
  for (int layer = L - 1; layer >= 0; layer--)
    for (int side = 1; side >= 0; side--) {
      ROWS(side) {
        int row = run.first(side) + at;
        if (layer == L - 1) {
          point_adjoint(s, run, side, at);
          EACH(c, R) s.point[c] = s.input[c];
          SYNC;
          extract_backward(s, run, row);
        } else {
          EACH(c, D) s.g[c] = run.adjoint[row * D + c];
          SYNC;
        }
        if (!side)
          gather(s, run, layer, side, at);
        else if (layer < L - 1)
          gather(s, run, layer + 1, side, at);
        layer_backward(s, run, layer, side, at);
        if (layer || side) {
          EACH(c, D) run.adjoint[row * D + c] = s.dx[c];
          SYNC;
          continue;
        }
        EACH(c, D) s.g[c] = s.dx[c];
        SYNC;
        embed_backward(s, run, row);
        EACH(c, R) {
          run.d_points[row * R + c] = s.input[c];
          if (POINTS == 2) run.d_stepped[row * R + c] = s.input[P - R + c];
        }
        SYNC;
      }
      all.wait();
    }
}

extern "C" __global__ void __launch_bounds__(T, 1)
    learn_updates(float *theta, float *turned, float *first, float *second,
                  const long long *problems, const float *V, const float *x0, const float *scales,
                  const int *updates, const float *rates, int n_updates, int n_steps, float gamma,
                  float weight_decay, int layer_rows, Row *rows, Ends *ends, float *points,
                  Half *halves, unsigned *arrived, int *bad, float *losses) {
  SHARED(Shared, s);
  Barrier all = {arrived, 0};
  for (int update = 0; update < n_updates; update++) {
    const long long *problem = problems + 4 * updates[2 * update];
    Run run;
    run.m = (int)problem[0], run.n = (int)problem[1];
    run.V = V + problem[2];
    const float *start = x0 + problem[3];
    int total = run.total();
    run.rows = rows, run.ends = ends, run.halves = halves;
    run.points = points, run.stepped = points + (n_steps + 1) * total * R;
    run.d_points = run.stepped + (n_steps + 1) * total * R;
    run.d_stepped = run.d_points + total * R;
    run.adjoint = run.d_stepped + total * R;
    run.inverses = run.adjoint + total * D;
    run.theta = theta, run.turned = turned;
    run.loss = losses + update, run.bad = bad + update;
    run.layer_rows = layer_rows, run.n_steps = n_steps;
    run.n_accel = least(updates[2 * update + 1], n_steps);
    run.gamma = gamma, run.root = sqrtf(scales[updates[2 * update]]);
    run.call = 0, run.t = 1;

    for (int side = 0; side < 2; side++) ROWS(side) {
      int row = run.first(side) + at;
      EACH(c, R) {
        run.point(0, row)[c] = start[row * R + c];
        if (POINTS == 1) s.input[c] = start[row * R + c];
      }
      SYNC;
      if (POINTS == 1) embed(s, run, row);
    }
    all.wait();
    for (int t = 1; t <= n_steps; t++) {
      run.t = t, run.call = POINTS == 1 ? 0 : t - 1;
      bool learned = run.learned(t);
      if (POINTS == 2 || !learned)
        for (int side = 0; side < 2; side++) {
          ROWS(side) {
            int row = run.first(side) + at, there = run.first(1 - side);
            const float *other = side ? run.solved(t, there) : run.point(t - 1, there);
            half_forward(s, run, side, at, other, run.point(t - 1, row));
            float *to = (float *)run.solved(t, row);
            EACH(c, R) {
              to[c] = s.point[c];
              s.input[c] = s.start[c];
              s.input[P - R + c] = s.point[c];
            }
            SYNC;
            if (learned) embed(s, run, row);
          }
          all.wait();
        }
      if (learned) network_forward(s, run, all);
    }
    for (int t = n_steps; t >= 1; t--) {
      run.t = t, run.call = POINTS == 1 ? 0 : t - 1;
      bool learned = run.learned(t), solver = t > 1 || !learned;
      if (learned) network_backward(s, run, all);
      if (POINTS == 1 && learned) solver = false;
      for (int side = 1; side >= 0; side--) {
        if (!side && !solver) continue;
        ROWS(side) {
          int row = run.first(side) + at, there = run.first(1 - side);
          if (learned && side) {
            EACH(c, D) s.g[c] = run.adjoint[row * D + c];
            SYNC;
            gather(s, run, 0, side, at);
            embed_backward(s, run, row);
            EACH(c, R) {
              run.d_points[row * R + c] = s.input[c];
              if (POINTS == 2) s.input[c] = s.input[P - R + c];
            }
            SYNC;
            if (!solver) continue;
          } else if (learned) {
            EACH(c, R) s.input[c] = run.d_stepped[row * R + c];
            SYNC;
          } else {
            point_adjoint(s, run, side, at);
          }
          if (!side) asked(s, run, side, at, run.solved(t, row));
          const float *other = side ? run.solved(t, there) : run.point(t - 1, there);
          half_backward(s, run, side, at, other, run.point(t - 1, row));
          EACH(c, R)
            run.d_points[row * R + c] = s.point[c] + (learned ? run.d_points[row * R + c] : 0);
          SYNC;
        }
        all.wait();
      }
    }
    int calls = POINTS == 1 ? 1 : run.n_accel;
    const float *rate = rates + 3 * update;
    Adam adam = {theta, turned, first, second, 1 - rate[0] * weight_decay, rate[1], rate[2],
                 PEEK(run.bad) != 0};
    learn(run, adam, calls * total);
    all.wait();
  }
}
