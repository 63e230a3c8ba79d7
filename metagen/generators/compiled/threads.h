// Threads that share the work of a step.
#pragma once

#include <ATen/Parallel.h>
#include <omp.h>

#include <algorithm>
#include <cstdint>

namespace metagen {

using std::int64_t;

// Numbers that are worth a second thread: what one thread goes through in some 5 µs.
constexpr int64_t GRAIN = 1 << 15;

// Products of a step that are worth a second thread: with fewer, threads wait for each other longer than they work.
constexpr int64_t SHARED = 1'500'000'000;

// The number of threads that this thread was told. When a thread first shares work from this library, torch replaces the
// number by the newest that any thread was told: so let it, and set the number again.
inline int told_threads() {
    const int told = omp_get_max_threads();
    at::internal::lazy_init_num_threads();
    if (omp_get_max_threads() != told) at::set_num_threads(told);
    return told;
}

// One thread, for as long as it lives, where a step is small.
class Threads {
  public:
    explicit Threads(int64_t products) : before_(told_threads()) {
        if (products < SHARED) omp_set_num_threads(1);
    }
    ~Threads() { omp_set_num_threads(before_); }
    Threads(const Threads&) = delete;
    Threads& operator=(const Threads&) = delete;

  private:
    int before_;
};

template <typename Each>
void for_all(int64_t n, int64_t numbers, const Each& each) {
    told_threads();
    at::parallel_for(0, n, std::max<int64_t>(1, GRAIN / std::max<int64_t>(numbers, 1)), [&](int64_t from, int64_t to) {
        for (int64_t i = from; i < to; ++i) each(i);
    });
}

}  // namespace metagen
