// What a caller asks of the core, as plain data that every instruction set reads alike: matrices V, lanes (V, rank, start, seed),
// rules, and functions of the host for memory, time and threads. A lane's answer is W, H ≥ 0 that minimise
//     Σ_ij ω_ij d(v_ij, (W Hᵀ)_ij) + Σ_s (l1_s ‖X_s‖₁ + ½ l2_s ‖X_s‖²),  X_0 = W, X_1 = H,
// where d is a β-divergence: ½(v − y)² unless a loss is asked for, with weights ω = 1 unless these are given.
#pragma once
#include <cstddef>
#include <cstdint>

namespace factormer {

using Index = int64_t;

enum class Status : int32_t { converged, max_iter, time_limit, interrupted, nonfinite, no_memory };
enum class Kind : int32_t { dense64, dense32, sparse, low_rank };
enum class Precision : int32_t { real64, mixed, real32 };  // mixed: float32 until rounding matters, then float64
enum class Finish : int32_t { none, sweeps, exact };       // how W is refined for the last H
enum class Scale : int32_t { none, balanced, sum };        // ‖w_c‖ = ‖h_c‖, or Σ h_c = 1
enum class Start : int32_t { random, rotated };               // where a lane begins that is given no factors
enum class Flaw : int32_t { none, not_finite, negative, no_memory };

struct Matrix {
    Kind kind = Kind::dense64;
    Index m = 0, n = 0;
    const void* data = nullptr;  // dense: row i of the stored matrix begins at data + i·ld
    Index ld = 0;
    bool transposed = false;         // dense: whether the stored rows are the columns of V
    const int64_t* from[2] = {};     // sparse, by rows and by columns: where each row begins
    const int32_t* at[2] = {};       // sparse: the column of each entry
    const double* values[2] = {};    // sparse: the entries
    const double* part[2] = {};      // low rank, V = U Zᵀ: Uᵀ (p, m) and Zᵀ (p, n), each by rows
    Index p = 0;
    const void* weights[2] = {};     // dense, in [0]: of entry (i, j) at i·steps[0] + j·steps[1]; sparse: of each entry, by rows and by columns
    int64_t steps[2] = {};
    bool is_single = false;          // dense: whether the weights are of float32
    double lost = 0;                 // low rank: ‖V − U Zᵀ‖² of the V that it stands for, which errors include
};

struct Rules {
    int32_t max_iter = 200;
    double tol = 1e-4;               // the relative error that may be left ungained; 0 never stops
    double seconds = 0;              // a time limit; 0 is none
    double l1[2] = {0, 0}, l2[2] = {0, 0};
    double pull = 0;                 // symmetric V: ½μ‖W − H‖² is added, μ = pull · mean row sum; 0 is off
    int32_t max_sweeps = 10;
    bool newton = false;             // Newton steps, for β-divergences and weights; what follows is for them alone
    double beta = 2;
    int32_t sweeps = 6;              // over coordinates, in a step
    double growth = 1.05;            // of the extrapolation
    int32_t starts = 1;              // of which the best is taken
    int32_t fits = 0, mends = 0;     // of a start: iterations of least squares, and multiplicative updates after them
    bool roots = false;              // whether the least squares fit √V, and their factors are squared
    Precision precision = Precision::real64;
    Finish finish = Finish::sweeps;
    bool order = true;               // components in order of their shares
    Scale scale = Scale::balanced;
};

struct Lane {
    int32_t matrix = 0, rank = 1;
    uint64_t seed = 0;
    Start draws = Start::random;
    const double* start[2] = {};     // W (m, r) and H (n, r) by rows, or none: `draws` says where it begins
    const uint8_t* fixed[2] = {};    // which components of W and of H stay as the start has them, or none
    const double* earlier = nullptr; // error and seconds after 0, 1, … iterations of the stages before this call
    int64_t n_earlier = 0;
    double* found[2] = {};           // W (m, r) and H (n, r) by rows, written here
    double error = 0;                // √(2·objective / (m n)) of what was found
    int32_t iterations = 0;
    Status status = Status::max_iter;
    double* history = nullptr;       // error and seconds after 0, 1, … iterations; to be released by the host
    int64_t iterations_kept = 0;     // rows of the history
};

using Piece = void (*)(void* context, int32_t piece, int32_t worker);

struct Host {
    void* self = nullptr;
    int32_t width = 1;                                            // threads of `share`
    double (*seconds)(void* self) = nullptr;                      // since the call began
    bool (*asks)(void* self) = nullptr;                           // calling thread only, often: whether to stop
    bool (*shows)(void* self, int32_t lane, int32_t iteration, double error) = nullptr;  // calling thread only, between iterations
    void (*share)(void* self, int32_t pieces, Piece f, void* context) = nullptr;
    void* (*allocate)(size_t bytes) = nullptr;                    // aligned to 64 bytes, or null
    void (*release)(void* memory) = nullptr;
    int32_t halted = -1;                                          // a Status once the call has to end
};

struct Sketch {  // V ≈ U Zᵀ for orthonormal U (m, p), by rows, and ‖V − U Zᵀ‖²
    int32_t p = 1, powers = 1;
    uint64_t seed = 0;
    double *U = nullptr, *Z = nullptr;
    double lost = 0;
    Status status = Status::converged;
};

struct Core {  // what an instruction set offers
    Flaw (*sketch)(const Matrix& matrix, Sketch& sketch, const Rules& rules, Host& host);
    Flaw (*run)(const Matrix* matrices, int32_t n_matrices, Lane* lanes, int32_t n_lanes, const Rules& rules, Host& host,
                int32_t* flawed);
};

}  // namespace factormer
