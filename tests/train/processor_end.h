
extern "C" long long sizes_of(int what) {
  return what == 0 ? sizeof(Row) : what == 1 ? sizeof(Ends) : what == 2 ? sizeof(Half) : what == 3 ? sizeof(Shared) : WEIGHTS;
}
extern "C" void run_on_processor(int blocks, int threads, float *theta, float *turned, float *first, float *second,
    const long long *problems, const float *V, const float *x0, const float *scales, const int *updates,
    const float *rates, int n_updates, int n_steps, float gamma, float weight_decay, int layer_rows, Row *rows,
    Ends *ends, float *points, Half *halves, unsigned *arrived, int *bad, float *losses) {
  std::vector<std::thread> all;
  std::vector<Meeting> meetings(blocks);
  std::vector<Shared> memory(blocks);
  for (int b = 0; b < blocks; b++) {
    meetings[b].size = threads;
    for (int t = 0; t < threads; t++)
      all.emplace_back([=, &meetings, &memory] {
        threadIdx.x = t, blockIdx.x = b, blockDim.x = threads, gridDim.x = blocks;
        emulated_memory = &memory[b], emulated_meeting = &meetings[b];
        learn_updates(theta, turned, first, second, problems, V, x0, scales, updates, rates, n_updates, n_steps,
                      gamma, weight_decay, layer_rows, rows, ends, points, halves, arrived, bad, losses);
      });
  }
  for (auto &t : all) t.join();
}
