// Matrices (R, R) in shared memory, rows RP apart, zero beyond (r, r): products, inverses, eigenvectors.

constexpr int WIDE = (R + 3) / 4;  // fours of components
constexpr int SWEPT = 4;           // sweeps of Jacobi's rotations

__device__ void add(float4 &sum, float by, float4 x) {
  sum.x += by * x.x, sum.y += by * x.y, sum.z += by * x.z, sum.w += by * x.w;
}

// Visit the entries (i, j) and (j, i) of a matrix (R, R), by diagonals: no two in the same bank.
template <class Visit> __device__ void diagonals(Visit visit) {
  for (int q = threadIdx.x; q < R * R; q += T) {
    int i = q % R, j = i + q / R;
    visit(i, j < R ? j : j - R);
  }
}

// C = A B for (R, R), A by its transpose or C to be transposed. C is neither.
template <bool first, bool last>
__device__ void times(float *C, const float *A, const float *B) {
  for (int q = threadIdx.x; q < R * WIDE; q += T) {
    int i = q / WIDE, j = 4 * (q % WIDE);
    float4 sum = make_float4(0, 0, 0, 0);
#pragma unroll 4
    for (int k = 0; k < R; k++) add(sum, first ? A[k * RP + i] : A[i * RP + k], *(const float4 *)(B + k * RP + j));
    if (!last) *(float4 *)(C + i * RP + j) = sum;
    else {
      C[j * RP + i] = sum.x, C[(j + 1) * RP + i] = sum.y;
      if (j + 2 < R) C[(j + 2) * RP + i] = sum.z, C[(j + 3) * RP + i] = sum.w;
    }
  }
  __syncthreads();
}

// A⁻¹ by Gauss and Jordan, in A or in B, whichever is returned. No pivots: A has a positive definite part.
__device__ float *inverse(float *A, float *B, int r) {
  for (int p = 0; p < r; p++) {
    float by = 1 / A[p * RP + p];
    for (int q = threadIdx.x; q < R * WIDE; q += T) {
      int i = q / WIDE, j = 4 * (q % WIDE);
      float row[4], here[4], column = A[i * RP + p];
      *(float4 *)row = *(const float4 *)(A + p * RP + j), *(float4 *)here = *(const float4 *)(A + i * RP + j);
#pragma unroll
      for (int k = 0; k < 4; k++) {
        row[k] *= by;
        if (j + k == p) row[k] = by, here[k] = 0;
        here[k] = i == p ? row[k] : here[k] - column * row[k];
      }
      *(float4 *)(B + i * RP + j) = *(const float4 *)here;
    }
    __syncthreads();
    float *other = A;
    A = B, B = other;
  }
  return A;
}

// The upper triangular L⁻ᵀ with A = L Lᵀ, in the place of A; below its diagonal zeros. B is overwritten.
__device__ void whiten(float *A, float *B, int r) {
  for (int p = 0; p < r; p++) {  // L by columns, A⁻ to the right of it
    float by = rsqrtf(fmaxf(A[p * RP + p], TINY));
    __syncthreads();
    for (int i = p + threadIdx.x; i < r; i += T) A[i * RP + p] *= by;
    __syncthreads();
    for (int q = threadIdx.x; q < R * R; q += T) {
      int i = q / R, j = q % R;
      if (p < j && j <= i) A[i * RP + j] -= A[i * RP + p] * A[j * RP + p];
    }
    __syncthreads();
  }
  for (int j = threadIdx.x; j < r; j += T)  // column j of L⁻¹
    for (int i = 0; i < r; i++) {
      float sum = i == j;
      for (int k = j; k < i; k++) sum -= A[i * RP + k] * B[k * RP + j];
      B[i * RP + j] = i < j ? 0 : sum / A[i * RP + i];
    }
  __syncthreads();
  diagonals([&](int i, int j) { A[i * RP + j] = i < r && j < r ? B[j * RP + i] : 0; });
  __syncthreads();
}

// Eigenvectors of A (r, r), symmetric, as columns of C; its eigenvalues are left on the diagonal.
// By Jacobi's rotations, whose cosines and sines are in `per`.
__device__ void principal(float *A, float *C, float *per, int r) {
  const int n = r + r % 2;
  for (int q = threadIdx.x; q < R * R; q += T) C[q / R * RP + q % R] = q / R == q % R && q / R < r;
  __syncthreads();
  for (int count = 0, round = 0; count < SWEPT * (n - 1); count++, round = round + 1 < n - 1 ? round + 1 : 0) {
    auto pair = [&](int i, int &p, int &q) {  // of a tournament
      p = round + i, q = round + n - 1 - i;
      p = i == 0 ? n - 1 : p < n - 1 ? p : p - n + 1, q = q < n - 1 ? q : q - n + 1;
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
      per[2 * i] = c, per[2 * i + 1] = s;
    }
    __syncthreads();
    for (int k = threadIdx.x; k < R / 2 * R; k += T) {
      int i = k / R, j = k % R, p, q;
      if (i >= n / 2 || !pair(i, p, q)) continue;
      float c = per[2 * i], s = per[2 * i + 1], x = A[p * RP + j], y = A[q * RP + j];
      A[p * RP + j] = c * x - s * y, A[q * RP + j] = s * x + c * y;
    }
    __syncthreads();
    for (int k = threadIdx.x; k < R / 2 * R; k += T) {  // all pairs of a row, which are in other banks
      int i = k % (R / 2), j = k / (R / 2), p, q;
      if (i >= n / 2 || !pair(i, p, q)) continue;
      float c = per[2 * i], s = per[2 * i + 1], x = A[j * RP + p], y = A[j * RP + q];
      A[j * RP + p] = c * x - s * y, A[j * RP + q] = s * x + c * y;
      x = C[j * RP + p], y = C[j * RP + q];
      C[j * RP + p] = c * x - s * y, C[j * RP + q] = s * x + c * y;
    }
    __syncthreads();
  }
}
