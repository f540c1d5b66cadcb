/* Causal attention over a paged KV cache, read where it lies: no copy of keys or values is made.
 *
 * A block holds WIDTH positions. Keys lie as [block][kv head][dim][WIDTH], so that a block is a panel of `tile`; values as
 * [block][kv head][WIDTH][dim]. Scores are taken SPAN positions at a time, counted from the sequence's begin, with a running softmax:
 * what a query comes to depends on its own position and sequence alone. Positions beyond it count exactly nothing.
 */
#pragma once

#include <string.h>

#include "matrix.h"

enum { SPAN = 128 };

typedef struct {
    long heads, kv_heads, dim;
    float scale;
} Heads;

/* Consecutive queries of one sequence: `count` rows from `row` on, positions `start`.., blocks in `table`. */
typedef struct {
    int64_t row, start, count, table;
} Queries;

/* Floats that a thread needs, for `rows` queries of one head each. */
static long attention_scratch(const Heads *h, long rows) { return rows * (2 * h->dim + SPAN + 2); }

static float softened(float *scores, long seen, float most) {
    vector sum = {};
    for (long j = 0; j < seen; j += LANES) {
        const vector weight = exponential(read(scores + j) - most);
        write(scores + j, weight);
        sum += weight;
    }
    return total(sum);
}

/* For the query heads of one kv head. `q` and `out` are [rows][heads][dim], with `q_step` and `out_step` floats a row. */
static void attend(const Heads *h, const Queries *queries, const int64_t *tables, long kv_head, const stored *keys,
                   const stored *values, long window, const float *q, long q_step, float *out, long out_step, float *scratch) {
    const long dim = h->dim, groups = h->heads / h->kv_heads, rows = queries->count * groups, block_size = h->kv_heads * dim * WIDTH;
    const int64_t *table = tables + queries->table;
    float *own = scratch, *sums = own + rows * dim, *scores = sums + rows * dim, *most = scores + rows * SPAN, *weight = most + rows;
    for (long row = 0; row < rows; row++) {
        const float *from = q + (queries->row + row / groups) * q_step + (kv_head * groups + row % groups) * dim;
        for (long d = 0; d < dim; d++) own[row * dim + d] = from[d] * h->scale;
        most[row] = -INFINITY;
        weight[row] = 0;
    }
    memset(sums, 0, sizeof *sums * rows * dim);
    const long end = queries->start + queries->count;
    const long begin = window && queries->start - window + 1 > 0 ? (queries->start - window + 1) / SPAN * SPAN : 0;
    for (long at = begin; at < end; at += SPAN) {
        const long count = end - at < SPAN ? end - at : SPAN, blocks = (count + WIDTH - 1) / WIDTH, seen = blocks * WIDTH;
        for (long b = 0; b < blocks; b++) {
            const stored *block = keys + table[at / WIDTH + b] * block_size + kv_head * dim * WIDTH;
            multiply(own, dim, block, WIDTH, dim, scores + b * WIDTH, SPAN, rows, 0);
        }
        for (long row = 0; row < rows; row++) {
            float *mine = scores + row * SPAN;
            const long place = queries->start + row / groups - at;
            const long first = window ? place - window + 1 : 0, last = place + 1;
            for (long j = 0; j < first && j < seen; j++) mine[j] = -INFINITY;
            for (long j = last < 0 ? 0 : last; j < seen; j++) mine[j] = -INFINITY;
            vector top = (vector){} + most[row];
            for (long j = 0; j < seen; j += LANES) {
                const vector score = read(mine + j);
                top = pick(score > top, score, top);
            }
            const float before = most[row], now = largest(top);
            /* Nothing seen so far: any number will do. */
            const float base = now == -INFINITY ? 0 : now;
            const float factor = exponential((vector){} + (before - base))[0];
            most[row] = now;
            weight[row] = weight[row] * factor + softened(mine, seen, base);
            if (factor != 1)
                for (long d = 0; d < dim; d += LANES) write(sums + row * dim + d, read(sums + row * dim + d) * factor);
        }
        for (long b = 0; b < blocks; b++) {
            const stored *block = values + table[at / WIDTH + b] * block_size + kv_head * dim * WIDTH;
            const long depth = count - b * WIDTH < WIDTH ? count - b * WIDTH : WIDTH;
            for (long d = 0; d < dim; d += WIDTH)
                multiply(scores + b * WIDTH, SPAN, block + d, dim, depth, sums + d, dim, rows, 1);
        }
    }
    for (long row = 0; row < rows; row++) {
        float *to = out + (queries->row + row / groups) * out_step + (kv_head * groups + row % groups) * dim;
        for (long d = 0; d < dim; d++) to[d] = sums[row * dim + d] / weight[row];
    }
}
