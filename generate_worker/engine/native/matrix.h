/* Matrix products whose every sum is one chain, in the order of its terms: a row comes out the same, to the last bit, however many
 * rows are computed with it, by whichever thread.
 *
 * A weight matrix [out, in] lies as panels of WIDTH outputs: [out / WIDTH][in][WIDTH], filled up with zeros.
 */
#pragma once

#include "numbers.h"
#include "team.h"

/* `rows` rows of `left` [rows][depth] times `right` [depth][WIDTH], of stored numbers or wide ones, into `sums` [rows][WIDTH], or on
 * top of what is there. */
static inline __attribute__((always_inline)) void tile(const float *left, long left_step, const void *right, long right_step,
                                                       const int wide, long depth, float *sums, long sums_step, const int rows,
                                                       const int on_top) {
    vector sum[ROWS][VECTORS];
    for (int row = 0; row < rows; row++)
        for (int v = 0; v < VECTORS; v++) sum[row][v] = on_top ? read(sums + row * sums_step + v * LANES) : (vector){};
    for (long k = 0; k < depth; k++) {
        vector column[VECTORS];
        for (int v = 0; v < VECTORS; v++) {
            const long at = k * right_step + v * LANES;
            column[v] = wide ? read((const float *)right + at) : widen((const stored *)right + at);
        }
        for (int row = 0; row < rows; row++)
            for (int v = 0; v < VECTORS; v++) sum[row][v] += left[row * left_step + k] * column[v];
    }
    for (int row = 0; row < rows; row++)
        for (int v = 0; v < VECTORS; v++) write(sums + row * sums_step + v * LANES, sum[row][v]);
}

#define TILE(count)                                                                                                              \
    case count: tile(left, left_step, right, right_step, wide, depth, sums, sums_step, count, on_top); break

static inline __attribute__((always_inline)) void tiles(const float *left, long left_step, const void *right, long right_step,
                                                        const int wide, long depth, float *sums, long sums_step, long rows,
                                                        const int on_top) {
    for (; rows >= ROWS; rows -= ROWS, left += ROWS * left_step, sums += ROWS * sums_step)
        tile(left, left_step, right, right_step, wide, depth, sums, sums_step, ROWS, on_top);
    switch (rows) {
        TILE(1);
        TILE(2);
        TILE(3);
        TILE(4);
        TILE(5);
#if LANES == 16
        TILE(6);
        TILE(7);
        TILE(8);
        TILE(9);
        TILE(10);
        TILE(11);
#endif
    }
}

enum {
    BAND = 48,  /* rows of a task: they stay in the second-level cache, whatever ROWS is */
    DEPTH = 256 /* terms at a time: a panel of them stays in the first-level cache */
};

/* Any number of rows, DEPTH terms at most. Stored numbers are widened once for all rows where several tiles need them. */
static void multiply(const float *left, long left_step, const stored *right, long right_step, long depth, float *sums,
                     long sums_step, long rows, int on_top) {
#ifdef BFLOAT16
    if (rows > ROWS) {
        float wide[DEPTH * WIDTH];
        for (long k = 0; k < depth; k++)
            for (int v = 0; v < WIDTH; v += LANES) write(wide + k * WIDTH + v, widen(right + k * right_step + v));
        if (on_top) tiles(left, left_step, wide, WIDTH, 1, depth, sums, sums_step, rows, 1);
        else tiles(left, left_step, wide, WIDTH, 1, depth, sums, sums_step, rows, 0);
        return;
    }
#endif
    if (on_top) tiles(left, left_step, right, right_step, 0, depth, sums, sums_step, rows, 1);
    else tiles(left, left_step, right, right_step, 0, depth, sums, sums_step, rows, 0);
}

typedef struct {
    const stored *panels;
    const float *bias; /* or NULL */
    long in, out;
} Matrix;

typedef enum {
    PLAIN, /* y = x w + bias */
    ADDED, /* y += x w */
    GATED, /* y = silu(x gate) * (x up): the panels of both lie in turns, and `out` counts them together */
} Outcome;

static void panel_times(const Matrix *m, long panel, const float *x, long x_step, long rows, float *sums) {
    const stored *at = m->panels + panel * m->in * WIDTH;
    for (long k = 0; k < m->in; k += DEPTH) {
        const long depth = m->in - k < DEPTH ? m->in - k : DEPTH;
        multiply(x + k, x_step, at + k * WIDTH, WIDTH, depth, sums, WIDTH, rows, k > 0);
    }
}

/* `x` [rows][x_step] -> `y` [rows][y_step], whose rows have room for whole panels. A phase of its own. */
static void linear(Team *team, const Matrix *m, const float *x, long x_step, long rows, float *y, long y_step, Outcome outcome) {
    const long each = outcome == GATED ? 2 : 1;
    const long strips = (m->out + each * WIDTH - 1) / (each * WIDTH);
    const long bands = (rows + BAND - 1) / BAND;
    float sums[BAND * WIDTH], others[BAND * WIDTH];
    EACH(task, team, strips * bands) {
        const long first = task / strips * BAND, strip = task % strips;
        const long count = rows - first < BAND ? rows - first : BAND;
        const float *in = x + first * x_step;
        float *out = y + first * y_step + strip * WIDTH;
        panel_times(m, strip * each, in, x_step, count, sums);
        if (outcome == GATED) panel_times(m, strip * each + 1, in, x_step, count, others);
        for (long row = 0; row < count; row++) {
            for (int v = 0; v < WIDTH; v += LANES) {
                vector value = read(sums + row * WIDTH + v);
                if (outcome == GATED) value = value / (1.0f + exponential(-value)) * read(others + row * WIDTH + v);
                if (outcome == ADDED) value = read(out + row * y_step + v) + value;
                if (m->bias) value += read(m->bias + strip * WIDTH + v);
                write(out + row * y_step + v, value);
            }
        }
    }
    together(team);
}
