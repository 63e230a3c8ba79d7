// Attention over keys and values where they lie, a part at a time.
//
// A softmax over parts is kept as its running maximum, its mass and the weighted sum of values.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

#include "lanes.h"

namespace metagen {

// Keys looked at before the running maximum is renewed.
constexpr int64_t TILE = 128;

// What one query has read so far: the largest score, the mass relative to it, and the sum of values [d].
struct Read {
    float top = -std::numeric_limits<float>::infinity();
    float mass = 0;
};

// Let Q queries read `n` keys and values (at most TILE) behind `before` others; query i sees sees[i] of all.
// queries, found: [Q, D * 16], the queries scaled.
template <typename T, int D, int Q>
void read_tile(
    const float* queries, Read* reads, float* found, const T* keys, const T* values, int64_t stride, int64_t n,
    int64_t before, const int64_t* sees
) {
    constexpr int64_t width = D * LANES;
    float scores[Q][TILE];
    for (int64_t first = 0; first < n; first += LANES) {
        const int64_t here = std::min(LANES, n - first);
        Floats parts[Q][LANES];
        for (int64_t k = 0; k < here; ++k) {
            const T* key = keys + (first + k) * stride;
            Floats dot[Q];
            for (int q = 0; q < Q; ++q) dot[q] = Floats{};
            for (int j = 0; j < D; ++j) {
                const Floats x = load(key + j * LANES);
                for (int q = 0; q < Q; ++q) dot[q] += x * load(queries + q * width + j * LANES);
            }
            for (int q = 0; q < Q; ++q) parts[q][k] = dot[q];
        }
        for (int q = 0; q < Q; ++q) {
            for (int64_t k = here; k < LANES; ++k) parts[q][k] = Floats{};
            store(&scores[q][first], sums(parts[q]));
        }
    }
    const int64_t whole = (n + LANES - 1) / LANES * LANES;
    for (int q = 0; q < Q; ++q) {
        const int64_t seen = std::clamp<int64_t>(sees[q] - before, 0, n);
        std::fill(scores[q] + seen, scores[q] + whole, -std::numeric_limits<float>::infinity());
        if (!seen) {
            std::fill(scores[q], scores[q] + whole, 0.0f);
            continue;
        }
        Floats tops = load(scores[q]);
        for (int64_t k = LANES; k < whole; k += LANES) {
            const Floats other = load(&scores[q][k]);
            tops = other > tops ? other : tops;
        }
        const float top = std::max(reads[q].top, largest(tops));
        Floats mass = {};
        for (int64_t k = 0; k < whole; k += LANES) {
            const Floats share = exponential(load(&scores[q][k]) - all(top));
            store(&scores[q][k], share);
            mass += share;
        }
        const float kept = reads[q].mass == 0 ? 0 : std::exp(reads[q].top - top);
        reads[q].top = top;
        reads[q].mass = reads[q].mass * kept + sum(mass);
        if (kept != 1)
            for (int j = 0; j < D; ++j) {
                float* at = found + q * width + j * LANES;
                store(at, load(at) * all(kept));
            }
    }
    Floats out[Q][D];
    for (int q = 0; q < Q; ++q)
        for (int j = 0; j < D; ++j) out[q][j] = load(found + q * width + j * LANES);
    for (int64_t k = 0; k < n; ++k) {
        Floats value[D];
        for (int j = 0; j < D; ++j) value[j] = load(values + k * stride + j * LANES);
        for (int q = 0; q < Q; ++q) {
            const Floats share = all(scores[q][k]);
            for (int j = 0; j < D; ++j) out[q][j] += share * value[j];
        }
    }
    for (int q = 0; q < Q; ++q)
        for (int j = 0; j < D; ++j) store(found + q * width + j * LANES, out[q][j]);
}

// Let queries read n keys and values, of which query i sees the first sees[i].
template <typename T, int D>
void read_keys(
    int64_t queries, const float* query, Read* reads, float* found, const T* keys, const T* values, int64_t stride,
    int64_t n, const int64_t* sees
) {
    constexpr int64_t width = D * LANES;
    for (int64_t first = 0; first < n; first += TILE) {
        const int64_t here = std::min(TILE, n - first);
        int64_t q = 0;
        const auto some = [&](auto count) {
            constexpr int Q = decltype(count)::value;
            read_tile<T, D, Q>(
                query + q * width, reads + q, found + q * width, keys + first * stride, values + first * stride, stride,
                here, first, sees + q
            );
            q += Q;
        };
        while (queries - q >= 4) some(std::integral_constant<int, 4>());
        if (queries - q == 3) some(std::integral_constant<int, 3>());
        if (queries - q == 2) some(std::integral_constant<int, 2>());
        if (queries - q == 1) some(std::integral_constant<int, 1>());
    }
}

}  // namespace metagen
