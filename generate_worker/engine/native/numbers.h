/* Vectors as wide as the processor's, and the two kinds of stored numbers: float32, or bfloat16 with -DBFLOAT16. All arithmetic is
 * float32. Vector extensions of GCC and Clang, so the same source serves x86 and ARM.
 */
#pragma once

#include <math.h>
#include <stdint.h>

#ifndef LANES
#if defined(__AVX512F__)
#define LANES 16
#elif defined(__AVX2__)
#define LANES 8
#else
#define LANES 4
#endif
#endif

#define ROWS (LANES == 16 ? 12 : 6) /* of a tile: as many sums as the registers hold beside the operands */

#define WIDTH 16 /* columns of a panel, and positions of a block of the KV cache */
#define VECTORS (WIDTH / LANES)

typedef float vector __attribute__((vector_size(4 * LANES)));
typedef int32_t integers __attribute__((vector_size(4 * LANES)));
typedef float loose_vector __attribute__((vector_size(4 * LANES), aligned(4), may_alias));

static inline vector read(const float *at) { return *(const loose_vector *)at; }
static inline void write(float *at, vector value) { *(loose_vector *)at = value; }

/* Lane by lane: `yes` where the condition holds (all bits set), else `no`. */
static inline vector pick(integers condition, vector yes, vector no) {
    return (vector)(((integers)yes & condition) | ((integers)no & ~condition));
}

#ifdef BFLOAT16

typedef uint16_t stored;
typedef uint32_t words __attribute__((vector_size(4 * LANES)));
typedef uint16_t halves __attribute__((vector_size(2 * LANES)));
typedef uint16_t loose_halves __attribute__((vector_size(2 * LANES), aligned(2), may_alias));

static inline vector widen(const stored *at) {
    return (vector)(__builtin_convertvector((halves)*(const loose_halves *)at, words) << 16);
}

/* To the nearest, ties to even; a NaN stays one. */
static inline stored narrow(float value) {
    union {
        float number;
        uint32_t bits;
    } u = {value};
    if (value != value) return 0x7fc0;
    return (stored)((u.bits + 0x7fff + ((u.bits >> 16) & 1)) >> 16);
}

#else

typedef float stored;
static inline vector widen(const stored *at) { return read(at); }
static inline stored narrow(float value) { return value; }

#endif

/* e to the power of each, to some 1e-7 of it: 2^n times a polynomial over [-ln 2 / 2, ln 2 / 2]. Exactly 0 from -87 down, minus
 * infinity included; no more than e^88; NaN for NaN. */
static inline vector exponential(vector x) {
    const vector capped = pick(x > 88.0f, (vector){} + 88.0f, x);
    const vector bounded = pick(capped < -87.0f, (vector){} - 87.0f, capped);
    const vector shifted = bounded * 1.44269504f + 12582912.0f; /* 1.5 * 2^23: rounds to an integer, in the low bits */
    const vector n = shifted - 12582912.0f;
    const vector r = (bounded - n * 0.693359375f) + n * 2.12194440e-4f;
    vector p = r * 1.9875691500e-4f + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = (p * r) * r + r + 1.0f;
    const integers power = ((integers)shifted - 0x4b400000 + 127) << 23;
    return pick(capped < -87.0f, (vector){}, p * (vector)power);
}

/* Lanes are added in the order of their places. */
static inline float total(vector values) {
    float sum = 0;
    for (int lane = 0; lane < LANES; lane++) sum += values[lane];
    return sum;
}

static inline float largest(vector values) {
    float most = values[0];
    for (int lane = 1; lane < LANES; lane++) most = values[lane] > most ? values[lane] : most;
    return most;
}
