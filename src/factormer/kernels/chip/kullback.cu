// Kullback–Leibler: Newton steps row by row, those of `kernels.kullback`, in float32.
//
// One thread has a row: it sums up the slopes and the Hessian of its loss over the entries of V,
// finds the step by sweeps of coordinate descent, and goes as far along it as that descends. The
// Hessian is summed up in bands of rows that fit into registers, each with a reading of V.

constexpr int HALF = R * (R + 1) / 2;      // entries of a symmetric matrix
constexpr int BAND = R <= 14 ? HALF : 100;  // those that are summed up at a time, about
constexpr int NEWTON_SWEEPS = 4, HALVINGS = 12, NEWTON_SETTLING = 6;
constexpr float NEAR = 1e-5f;  // share of an entry that its fit is taken to be at least
constexpr float NO_CURVE = EPS * EPS, SLOW = 1e-12f;

__device__ constexpr int place(int k, int l) { return k > l ? k * (k + 1) / 2 + l : l * (l + 1) / 2 + k; }

__device__ constexpr int band_end(int from) {
  int to = from + 1;
  while (to < R && place(to, to) - place(from, 0) < BAND) to++;
  return to;
}

__device__ float fitted(const float (&x)[R], const float (&b)[RP]) {
  float y = 0, z = 0;
#pragma unroll
  for (int k = 0; k < R; k += 2) y += x[k] * b[k], z += x[k + 1] * b[k + 1];
  return y + z;
}

struct Kullback {
  // The Hessian's rows from … , and at first the slopes: g −= Σ (v/y) b, G = Σ (v/y²) b bᵀ.
  template <int from, int side>
  static __device__ void model(
      const Block &b, const View<side> &at, int row, const float (&x)[R], float (&g)[R],
      float (&G)[HALF]) {
    constexpr int to = band_end(from), first = from * (from + 1) / 2;
    constexpr int size = to * (to + 1) / 2 - first;
    float sum[size];
#pragma unroll
    for (int p = 0; p < size; p++) sum[p] = 0;
    walk(b, at, row, [&](const float v, const float (&y)[RP]) {
      float z = __fdividef(1, fmaxf(fmaxf(fitted(x, y), NEAR * v), TINY)), pull = v * z;
      float curve = pull * z;
      if (from == 0)
#pragma unroll
        for (int k = 0; k < R; k++) g[k] -= pull * y[k];
#pragma unroll
      for (int k = from; k < to; k++) {
        float by = curve * y[k];
#pragma unroll
        for (int l = 0; l <= k; l++) sum[place(k, l) - first] += by * y[l];
      }
    });
#pragma unroll
    for (int p = 0; p < size; p++) G[first + p] = sum[p];
    if constexpr (to < R) model<to, side>(b, at, row, x, g, G);
  }

  // Sweeps on g·s + ½ s·G s over x + s ≥ 0 from s = 0; what is zero and should be, stays.
  static __device__ void descend(
      const float (&x)[R], float (&g)[R], float (&G)[HALF], float (&step)[R]) {
    float largest = 0, inverse[R];
#pragma unroll
    for (int k = 0; k < R; k++) largest = fmaxf(largest, G[place(k, k)]);
#pragma unroll
    for (int k = 0; k < R; k++) {
      float own = G[place(k, k)];
      bool bent = own > NO_CURVE * largest && (x[k] > 0 || g[k] < 0);
      inverse[k] = bent ? 1 / own : -1 / fmaxf(SLOW * largest, TINY);
      step[k] = 0;
    }
#pragma unroll 1
    for (int s = 0; s < NEWTON_SWEEPS; s++)
#pragma unroll
      for (int k = 0; k < R; k++) {  // without curvature (< 0) toward zero, where that descends
        float least = -x[k] - step[k], newton = fmaxf(-g[k] * inverse[k], least);
        float down = g[k] > 0 ? fmaxf(g[k] * inverse[k], least) : 0;
        float move = inverse[k] > 0 ? newton : down;
        step[k] += move;
#pragma unroll
        for (int l = 0; l < R; l++) g[l] += move * G[place(k, l)];
      }
  }

  // The slope along `step`, t of it away from x, without the part that is linear in the fit.
  template <int side>
  static __device__ float pulled(
      const Block &b, const View<side> &at, int row, const float (&x)[R], const float (&step)[R],
      float t) {
    float sum = 0;
    walk(b, at, row, [&](const float v, const float (&y)[RP]) {
      float d = fitted(step, y);
      sum += __fdividef(d * v, fmaxf(fitted(x, y) + t * d, TINY));
    });
    return sum;
  }

  // How far to go: a convex function falls to t if its mean slope does.
  template <int side>
  static __device__ float length(
      const Block &b, const View<side> &at, int row, const float (&x)[R], const float (&step)[R],
      float fixed) {
    float t = 1, end = fixed - pulled(b, at, row, x, step, 1);
#pragma unroll 1
    for (int k = 0; k < HALVINGS && (FAR ? __syncthreads_or(end > 0) : end > 0); k++) {
      float now = fixed - pulled(b, at, row, x, step, t / 2);
      bool falls = end <= 0 || now + end <= 0;
      t = falls ? t : t / 2, end = falls ? 0 : now;
    }
    return end > 0 ? 0 : t;
  }

  // Σ v log(v/y) − v + y over the entries of a row.
  template <int side>
  static __device__ float divergence(
      const Block &b, const View<side> &at, int row, const float (&x)[R]) {
    float sum = 0;
    walk(b, at, row, [&](const float v, const float (&y)[RP]) {
      float fit = fmaxf(fitted(x, y), TINY), more = (fit - v) / v;
      sum += v > TINY ? v * (more - log1pf(more)) : fit;
    });
    return sum;
  }

  template <int side> __device__ float half_step(const Block &b, int) const {
    const View<side> at(b);
    float part = 0;
    sums(at.other, at.count, b.S);
    for (int base = 0; base < at.rows; base += T) {
      bool real = base + threadIdx.x < at.rows;
      int row = real ? base + threadIdx.x : at.rows - 1;
      float x[R], g[R], step[R], G[HALF], fixed = 0;
      take(x, at.X + row * RP);
#pragma unroll
      for (int k = 0; k < R; k++) g[k] = b.S[k];
      model<0>(b, at, row, x, g, G);
      descend(x, g, G, step);
#pragma unroll
      for (int k = 0; k < R; k++) fixed += step[k] * b.S[k];
      float t = length(b, at, row, x, step, fixed);
#pragma unroll
      for (int k = 0; k < R; k++) x[k] = fmaxf(0, x[k] + t * step[k]);
      if (side) {
        float loss = divergence(b, at, row, x);
        part += real ? loss : 0;
      }
      if (real) put(at.X + row * RP, x);
    }
    __syncthreads();
    return part;
  }

  __device__ float value(const Block &b, float part) const { return 2 * total(part, b.few); }

  // Twice the divergence.
  __device__ float exactly(const Block &b) const {
    const View<1> at(b);
    float part = 0;
    for (int base = 0; base < at.rows; base += T) {
      int row = min(base + (int)threadIdx.x, at.rows - 1);
      float x[R];
      take(x, b.W + row * RP);
      float loss = divergence(b, at, row, x);
      if (base + threadIdx.x < at.rows) part += loss;
    }
    return value(b, part);
  }

  // Make W the best for H.
  __device__ void settle(const Block &b) const {
    for (int k = 0; k < NEWTON_SETTLING; k++) half_step<1>(b, 0);
  }

  static __device__ float beyond(float here, float by) { return fmaxf(0, here + by); }
};
