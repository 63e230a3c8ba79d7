// Sixteen numbers at a time, in float32 whatever the format in memory.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

namespace metagen {

using std::int64_t;

constexpr int64_t LANES = 16;
typedef float Floats __attribute__((vector_size(64)));
typedef std::uint32_t Words __attribute__((vector_size(64)));
typedef std::int32_t Whole __attribute__((vector_size(64)));
typedef std::uint16_t Halves __attribute__((vector_size(32)));

struct BFloat16 {
    std::uint16_t bits;
};

inline Floats load(const float* from) {
    Floats x;
    std::memcpy(&x, from, sizeof x);
    return x;
}

inline Floats load(const BFloat16* from) {
    Halves x;
    std::memcpy(&x, from, sizeof x);
    return (Floats)(__builtin_convertvector(x, Words) << 16);
}

inline void store(float* to, Floats x) { std::memcpy(to, &x, sizeof x); }

// To the nearest, the even one of two; NaN stays NaN.
inline void store(BFloat16* to, Floats x) {
    const Words bits = (Words)x;
    const Words rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    const Halves out = __builtin_convertvector((x != x) ? (Words{} + 0x7fc0u) : rounded, Halves);
    std::memcpy(to, &out, sizeof out);
}

template <typename T>
inline Floats rounded(Floats x) {
    if constexpr (std::is_same_v<T, float>) {
        return x;
    } else {
        T kept[LANES];
        store(kept, x);
        return load(kept);
    }
}

inline Floats all(float x) { return Floats{} + x; }

inline float sum(Floats x) {
    float parts[LANES];
    store(parts, x);
    for (int step = LANES / 2; step; step /= 2)
        for (int i = 0; i < step; ++i) parts[i] += parts[i + step];
    return parts[0];
}

inline float largest(Floats x) {
    float parts[LANES];
    store(parts, x);
    for (int step = LANES / 2; step; step /= 2)
        for (int i = 0; i < step; ++i) parts[i] = parts[i + step] > parts[i] ? parts[i + step] : parts[i];
    return parts[0];
}

inline bool any(Whole x) {
    std::int32_t parts[LANES], found = 0;
    std::memcpy(parts, &x, sizeof x);
    for (const std::int32_t part : parts) found |= part;
    return found;
}

// e^x within 2 units in the last place, and 0 below -87; NaN stays NaN.
inline Floats exponential(Floats x) {
    const Whole tiny = x < all(-87.0f);
    const Floats bounded = tiny ? all(-87.0f) : (x > all(88.0f) ? all(88.0f) : x);
    const Floats magic = all(12582912.0f);
    const Floats shifted = bounded * all(1.44269504f) + magic;
    const Floats turns = shifted - magic;
    const Floats r = (bounded - turns * all(0.693359375f)) - turns * all(-2.12194440e-4f);
    Floats p = all(1.9875691500e-4f);
    p = p * r + all(1.3981999507e-3f);
    p = p * r + all(8.3334519073e-3f);
    p = p * r + all(4.1665795894e-2f);
    p = p * r + all(1.6666665459e-1f);
    p = p * r + all(5.0000001201e-1f);
    p = p * r * r + r + all(1.0f);
    const Words power = (((Words)shifted - (Words)magic) + 127u) << 23;
    return tiny ? Floats{} : p * (Floats)power;
}

// Lanes by number: those of a, and from LANES on those of b. Each compiler has a function of its own for it.
template <int... number>
inline Floats shuffle(Floats a, Floats b) {
#ifdef __clang__
    return __builtin_shufflevector(a, b, number...);
#else
    return __builtin_shuffle(a, b, Whole{number...});
#endif
}

// Lane i of the result is the sum of the lanes of x[i].
inline Floats sums(const Floats x[LANES]) {
    Floats a[8], b[4], c[2];
    for (int i = 0; i < 8; ++i)
        a[i] = shuffle<0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23>(x[i], x[i + 8]) +
               shuffle<8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31>(x[i], x[i + 8]);
    for (int i = 0; i < 4; ++i)
        b[i] = shuffle<0, 1, 2, 3, 16, 17, 18, 19, 8, 9, 10, 11, 24, 25, 26, 27>(a[i], a[i + 4]) +
               shuffle<4, 5, 6, 7, 20, 21, 22, 23, 12, 13, 14, 15, 28, 29, 30, 31>(a[i], a[i + 4]);
    for (int i = 0; i < 2; ++i)
        c[i] = shuffle<0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29>(b[i], b[i + 2]) +
               shuffle<2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31>(b[i], b[i + 2]);
    return shuffle<0, 16, 2, 18, 4, 20, 6, 22, 8, 24, 10, 26, 12, 28, 14, 30>(c[0], c[1]) +
           shuffle<1, 17, 3, 19, 5, 21, 7, 23, 9, 25, 11, 27, 13, 29, 15, 31>(c[0], c[1]);
}

}  // namespace metagen
