// How many threads a call may use: what was set, else FACTORMER_NUM_THREADS; else OMP_NUM_THREADS, but no more than the processors
// that this process may run on, nor than its container's quota of processor time, rounded up.
#pragma once
#if defined(__linux__)
#include <sched.h>
#endif
#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>

namespace factormer {

inline constexpr int32_t most_threads = 256;

// The processors that a control group allows, from its file of quota and period; 0 if it does not say.
inline double quota_of(const std::string& folder) {
    std::string quota;
    double period = 0;
    if (std::ifstream both(folder + "/cpu.max"); both >> quota >> period) {
        if (quota != "max" && period > 0) return std::strtod(quota.c_str(), nullptr) / period;
        return 0;
    }
    double microseconds = 0;
    std::ifstream first(folder + "/cpu.cfs_quota_us"), second(folder + "/cpu.cfs_period_us");
    if (first >> microseconds && second >> period && microseconds > 0 && period > 0) return microseconds / period;
    return 0;
}

// The least quota of the control groups of this process; 0 if there is none.
inline double quota(const std::string& root = "", const std::string& groups = "/proc/self/cgroup") {
    double least = 0;
    auto see = [&](std::string folder) {
        double here = quota_of(root + folder);
        if (here > 0 && (least == 0 || here < least)) least = here;
    };
    std::ifstream lines(root + groups);
    for (std::string line; std::getline(lines, line);) {  // number:controllers:path
        size_t first = line.find(':'), second = line.find(':', first + 1);
        if (second == std::string::npos) continue;
        std::string controllers = line.substr(first + 1, second - first - 1), path = line.substr(second + 1);
        std::string mount = controllers.empty() ? "/sys/fs/cgroup" : "/sys/fs/cgroup/cpu";
        if (!controllers.empty() && ("," + controllers + ",").find(",cpu,") == std::string::npos) continue;
        for (; !path.empty(); path.resize(path.rfind('/'))) see(mount + (path == "/" ? "" : path));
        see(mount);
    }
    return least;
}

inline int32_t processors() {  // that this process may run on
    int32_t count = 0;
#if defined(__linux__)
    cpu_set_t allowed;
    if (sched_getaffinity(0, sizeof allowed, &allowed) == 0) count = CPU_COUNT(&allowed);
#endif
    if (count == 0) count = int32_t(std::thread::hardware_concurrency());
    static const double allowance = quota();
    if (allowance > 0 && std::ceil(allowance) < count) count = int32_t(std::ceil(allowance));
    return count < 1 ? 1 : count > most_threads ? most_threads : count;
}

// The number in an environment variable, the first of a list; 0 if there is none.
inline int32_t number_in(const char* name) {
    const char* text = std::getenv(name);
    if (!text) return 0;
    char* end = nullptr;
    long number = std::strtol(text, &end, 10);
    return end == text || number < 1 ? 0 : number > most_threads ? most_threads : int32_t(number);
}

inline std::atomic<int32_t> threads_set{0};

inline int32_t threads_of_environment() {
    int32_t asked = number_in("FACTORMER_NUM_THREADS");
    if (asked > 0) return asked;  // a number for this package alone is taken as it is, even above processors()
    asked = number_in("OMP_NUM_THREADS");
    int32_t most = processors();
    return asked > 0 && asked < most ? asked : most;
}

inline int32_t threads() {
    int32_t asked = threads_set.load();
    return asked > 0 ? asked : threads_of_environment();
}

// Set the number of threads of later calls. With 0, or with the number that the environment gives now, each call asks the environment again.
inline void set_threads(int32_t count) {
    count = count > most_threads ? most_threads : count;
    threads_set = count > 0 && count != threads_of_environment() ? count : 0;
}

}  // namespace factormer
