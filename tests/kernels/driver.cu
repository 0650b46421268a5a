// Blocks of one problem each, on a processor: a whole factorization.

alignas(16) float4 shared[1 << 15];

extern "C" void run(
    const Task *task, float *W, float *H, float *room, Outcome *outcome, int max_iter, float tol,
    int settles, int given, int first) {
  std::vector<float> errors(max_iter + 1);
  float *history = errors.data();
  launch([=] {
    factorize(task, W, H, room, outcome, history, max_iter, tol, 0, 0, settles, given, first);
  });
}
