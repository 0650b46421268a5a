// Blocks of one problem each, on a processor: a whole factorization, and a learned start by itself.

alignas(16) float4 shared[1 << 15];

extern "C" void run(
    const Task *task, float *W, float *H, float *room, Outcome *outcome, int max_iter, float tol,
    int settles, int given, int first) {
  launch([=] {
    factorize(task, W, H, room, outcome, max_iter, tol, 0, 0, settles, given, first
#ifdef WIDTH
              , nullptr, 0, 0
#endif
    );
  });
}

#ifdef WIDTH
// The factors (r, rows) of the leading subspace, and what layers make of them.
extern "C" void start(
    const Task *task, const float *net, int layers, int powers, float *W, float *H, float *W1,
    float *H1) {
  launch([=] {
    const int m = task->m, n = task->n, r = task->r;
    Block b;
    b.m = m, b.n = n, b.LD = n | 1, b.W = (float *)shared, b.H = b.W + m * RP;
    b.G = b.H + n * RP, b.S = b.G + R * RP, b.room = b.S + (R + 1) * RP;
    b.few = b.room + 4 * TILES * SPLITS, b.V = b.tile = b.few + 32;
    taken(b, task->V);
    const Turn at(b.tile + m * b.LD + (4 - m * b.LD % 4));
    sketched(b, at, r, powers, task->seed);
    keep(b.W, W, m, r), keep(b.H, H, n, r);
    __syncthreads();
    turned(b, at, net, r, layers);
    keep(b.W, W1, m, r), keep(b.H, H1, n, r);
  });
}
#endif
