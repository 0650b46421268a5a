// The core for one instruction set: this file is compiled once for each, with FACTORMER_SET naming it.
#include "lanes.hpp"

namespace factormer::FACTORMER_SET {
extern const Core core;
const Core core = {sketch, run};
}  // namespace factormer::FACTORMER_SET
