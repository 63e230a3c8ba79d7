// The random numbers of `generators/randomness.py`.
#pragma once

#include <cstdint>

namespace metagen {

enum class Purpose : std::uint64_t { SAMPLE, ACCEPT, RESIDUAL };

// Candidates of one place that random numbers tell apart (`MOST_DRAFTS`).
constexpr std::uint64_t CANDIDATES = 64;

inline std::uint64_t mix(std::uint64_t x) {
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    return x ^ (x >> 31);
}

// In [0, 1), for the token `index` (from 1) of a block that begins at a position: `speculation.block.numbers`.
inline double number(std::uint64_t seed, std::uint64_t position, std::uint64_t index, Purpose purpose) {
    constexpr std::uint64_t golden = 0x9E3779B97F4A7C15u;
    const std::uint64_t place = (position + index - 1) * 2 + 1;
    const std::uint64_t detail = index * CANDIDATES * 8 + static_cast<std::uint64_t>(purpose);
    const std::uint64_t state = mix(mix(seed + golden) ^ mix(place * golden + mix(detail + golden)));
    return static_cast<double>(state >> 11) * 0x1p-53;
}

}  // namespace metagen
