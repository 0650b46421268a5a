// A factorization from its start to the answer: iterations extrapolated with restart, as
// `accelerate.her.HER` makes them, each problem with a stop of its own. The rules are those of the
// compiled core, core/extrapolate.hpp and core/stop.hpp.

// Registers that a thread gets, about.
constexpr int REGISTERS = R <= (KULLBACK ? 8 : 10) ? 128 : R <= (KULLBACK ? 10 : 16) ? 168 : 255;

struct Ended {
  int made, status;
};

// Iterations from the point that is both kept and in the block; the best is kept. `errors` is room
// for the error after each iteration, where `tol` is not 0; a squared error of `least` is rounding.
template <class Objective>
__device__ Ended iterated(
    const Objective &of, const Block &b, const Task &task, float *W, float *H, int max_iter,
    float tol, float least, float *errors) {
  const int m = b.m, n = b.n, r = task.r;
  Momentum momentum;
  int made = 0, status = MAX_ITER;
  while (made < max_iter && status == MAX_ITER) {
    of.template half_step<0>(b, task.sweeps_h);
    const float step = momentum.judge(of.value(b, of.template half_step<1>(b, task.sweeps_w)));
    const bool refused = momentum.refused;
    made++;
    if (!(momentum.error < INF)) { status = NONFINITE; break; }
    if (tol > 0) {
      if (threadIdx.x == 0) errors[made] = sqrtf(momentum.error);
      __syncthreads();
      const bool settled = is_look(made) && has_settled(errors[look_back(made)], errors[made], tol);
      if (!refused && (momentum.error <= least || settled)) status = CONVERGED;
    }
    extrapolate<Objective>(b.W, W, m, r, step, refused);
    extrapolate<Objective>(b.H, H, n, r, step, refused);
    __syncthreads();
  }
  recall(b.W, W, m, r), recall(b.H, H, n, r), __syncthreads();
  return {made, status};
}

// The end of a run: W the best for H if that is asked, and twice the objective.
template <class Objective>
__device__ float ended(const Objective &of, const Block &b, const float *W, int r, int settles) {
  float end = of.exactly(b);
  if (settles) {
    of.settle(b);
    float settled = of.exactly(b);
    if (settled <= end) end = settled; else recall(b.W, W, b.m, r);
    __syncthreads();
  }
  return end;
}

// Entries of at least a share of the mean of their column, and more than zero: `lifting.lifted`.
__device__ void lift(float *X, int rows, int r, float *S) {
  sums(X, rows, S);
  for (int row = threadIdx.x; row < rows; row += T)
    for (int k = 0; k < r; k++) {
      float x = fmaxf(X[row * RP + k], SHARE * S[k] / rows);
      X[row * RP + k] = x > 0 ? x : EPS;
    }
  __syncthreads();
}

// A start for V from the factors of √V, which are kept: see `run.lifting.Squared`.
__device__ void squared(float *X, float *kept, int rows, int r, float *S) {
  for (int row = threadIdx.x; row < rows; row += T)
    for (int k = 0; k < r; k++) X[row * RP + k] *= X[row * RP + k];
  __syncthreads();
  lift(X, rows, r, S);
  keep(X, kept, rows, r);
}

struct Sums {
  float sum, squares;
};

// The sums of the entries of V over `unit`, or of their roots; the block holds those, if not far.
template <bool root> __device__ Sums held(const Block &b, const float *V, int LD, float unit) {
  float sum = 0, squares = 0;
  for (int i = threadIdx.x / 32; i < b.m; i += T / 32)
    for (int j = threadIdx.x % 32; j < b.n; j += 32) {
      float v = V[i * (long long)LD + j] / unit;
      if (root) v = sqrtf(v);
      if (!FAR) const_cast<float *>(b.V)[i * b.LD + j] = v;
      sum += v, squares += v * v;
    }
  sum = total(sum, b.few);
  return {sum, total(squares, b.few)};
}

// The mean of V, which the block holds then; infinite if an entry is no number of at least zero.
__device__ float taken(const Block &b, const float *V) {
  float sum = 0;
  bool fine = true;
  for (int i = threadIdx.x / 32; i < b.m; i += T / 32)
    for (int j = threadIdx.x % 32; j < b.n; j += 32) {
      float v = V[i * (long long)b.n + j];
      if (!FAR) const_cast<float *>(b.V)[i * b.LD + j] = v;
      sum += v, fine &= v >= 0 && v < INF;
    }
  if (!__syncthreads_and(fine)) return INF;
  sum = total(sum, b.few);
  return sum > 0 ? sum / (float(b.m) * b.n) : 1;
}

extern "C" __global__ __launch_bounds__(T, 65536 / REGISTERS / T) void factorize(
    const Task *tasks, float *Ws, float *Hs, float *rooms, Outcome *outcomes, float *histories,
    int max_iter, float tol, int order, int mode, int settles, int given, int first) {
  extern __shared__ float4 shared[];
  const Task task = tasks[blockIdx.x];
  const int m = task.m, n = task.n, r = task.r, t = threadIdx.x;
  const float entries = float(m) * n;
  Block b;
  b.m = m, b.n = n, b.LD = FAR ? n : n | 1;
  b.W = FAR ? rooms + task.far : (float *)shared, b.H = b.W + m * RP;
  b.G = FAR ? (float *)shared : b.H + n * RP, b.S = b.G + R * RP;
  b.room = b.S + (R + 1) * RP, b.few = b.room + 4 * TILES * SPLITS;
  b.tile = b.few + 32, b.stage = b.tile + (FAR ? TILE * RP : 0);
  b.V = FAR ? task.V : b.tile, b.transposed = task.transposed;
  float *W = Ws + task.w, *H = Hs + task.h;

  const float mean = taken(b, task.V);
  if (!(mean > LEAST && mean < 1 / LEAST)) {  // whose squares float32 does not hold
    if (t == 0) outcomes[blockIdx.x] = {0, 0, float(REFUSED)};
    return;
  }
  const float unit = FAR ? 1 : mean, level = mean / unit;  // of what is held, and its mean
  const bool begins = KULLBACK && first > 0 && !given;
  const Sums all = begins ? held<true>(b, b.V, b.LD, unit) : held<false>(b, b.V, b.LD, unit);
  const float size = given ? rsqrtf(unit) : sqrtf(4 * all.sum / entries / r);
  begin(b.W, W, m, r, given ? W : nullptr, size, task.seed);
  begin(b.H, H, n, r, given ? H : nullptr, size, mixed(task.seed) >> 1);
  __syncthreads();

  Ended run;
  float end;
  const float least = exact_share * EPS * EPS * entries * level * level;
  float *errors = histories + (max_iter + 1LL) * blockIdx.x;
  if constexpr (KULLBACK) {
    if (begins) {
      iterated(Squares<true>{all.squares}, b, task, W, H, first, 0, 0, nullptr);
      squared(b.W, W, m, r, b.S), squared(b.H, H, n, r, b.S);
      held<false>(b, task.V, n, unit);
    } else if (!given) {  // losses may have poles
      lift(b.W, m, r, b.S), lift(b.H, n, r, b.S);
      keep(b.W, W, m, r), keep(b.H, H, n, r);
    }
    run = iterated(Kullback{}, b, task, W, H, max_iter, tol, least, errors);
    end = ended(Kullback{}, b, W, r, settles);
  } else {
    const Squares<false> of{all.squares};
    run = iterated(of, b, task, W, H, max_iter, tol, least, errors);
    end = ended(of, b, W, r, settles);
  }
  written(b, W, H, r, unit, order, mode);
  if (t == 0) {
    float rmse = sqrtf(end / entries) * (KULLBACK ? sqrtf(unit) : unit);
    outcomes[blockIdx.x] = {rmse, float(run.made), float(run.status)};
  }
}
