/* One step of a decoder of the Llama kind: RMSNorm, rotary positions, grouped-query attention over a paged cache, gated SiLU layers.
 *
 * Called by `network.py`, whose structures mirror these. Every row of every phase is computed for itself, so a sequence's logits are
 * the same bits alone, in parts, and in any company.
 */
#include "attention.h"

typedef struct {
    Matrix qkv, o, gate_up, down;
    const float *norm_before, *norm_between; /* [hidden] */
    const float *q_norm, *k_norm;            /* [dim], or NULL */
    stored *keys, *values;                   /* of the cache */
    long window;                             /* positions that a query sees, itself included; 0: all */
} Layer;

typedef struct {
    long hidden, inner, layers;
    Heads heads;
    float epsilon;
    const Layer *layer;
    const float *norm; /* the last one */
    Matrix head;
} Model;

typedef struct {
    long rows, kept, groups;
    float *x;                /* [rows][hidden]: embeddings, overwritten */
    const float *cos, *sin;  /* [rows][dim] */
    const int64_t *slots;    /* [rows]: block * WIDTH + place in the block */
    const Queries *queries;  /* [groups] */
    const int64_t *tables;
    const int64_t *keeps;    /* [kept]: rows whose logits are wanted */
    float *logits;           /* [kept][head.out, filled up to whole panels] */
    float *buffer;           /* `buffer_size` floats */
} Step;

static long most_rows(const Step *s, const Heads *h) {
    long most = 0;
    for (long i = 0; i < s->groups; i++) most = s->queries[i].count > most ? s->queries[i].count : most;
    return most * (h->heads / h->kv_heads);
}

static long columns(const Heads *h) { return (h->heads + 2 * h->kv_heads) * h->dim; }
static long whole(long count) { return (count + WIDTH - 1) / WIDTH * WIDTH; }

/* How many floats a step works in. */
long tandem_buffer_size(const Model *m, const Step *s, int threads) {
    return s->rows * (whole(m->hidden) + columns(&m->heads) + m->heads.heads * m->heads.dim + whole(m->inner)) +
           threads * attention_scratch(&m->heads, most_rows(s, &m->heads));
}

static void normalise(const float *x, const float *weight, long size, float epsilon, float *y) {
    vector squares = {};
    for (long i = 0; i < size; i += LANES) squares += read(x + i) * read(x + i);
    const float scale = 1.0f / sqrtf(total(squares) / size + epsilon);
    for (long i = 0; i < size; i += LANES) write(y + i, read(x + i) * scale * read(weight + i));
}

/* Turns pairs (i, i + dim / 2) by the position's angles. */
static void rotate(float *head, const float *cos, const float *sin, long dim) {
    for (long i = 0, half = dim / 2; i < half; i++) {
        const float low = head[i], high = head[half + i];
        head[i] = low * cos[i] - high * sin[i];
        head[half + i] = high * cos[half + i] + low * sin[half + i];
    }
}

/* Queries are turned where they lie, keys and values go into the cache. */
static void place(const Model *m, const Layer *layer, const Step *s, long row, float *qkv) {
    const Heads *h = &m->heads;
    const long dim = h->dim;
    float *q = qkv + row * columns(h), *k = q + h->heads * dim, *v = k + h->kv_heads * dim;
    for (long head = 0; head < h->heads + h->kv_heads; head++) {
        const float *norm = head < h->heads ? layer->q_norm : layer->k_norm;
        if (norm) normalise(q + head * dim, norm, dim, m->epsilon, q + head * dim);
        rotate(q + head * dim, s->cos + row * dim, s->sin + row * dim, dim);
    }
    const long block = s->slots[row] / WIDTH, at = s->slots[row] % WIDTH;
    for (long head = 0; head < h->kv_heads; head++) {
        const long start = (block * h->kv_heads + head) * dim * WIDTH;
        for (long d = 0; d < dim; d++) {
            layer->keys[start + d * WIDTH + at] = narrow(k[head * dim + d]);
            layer->values[start + at * dim + d] = narrow(v[head * dim + d]);
        }
    }
}

typedef struct {
    const Model *model;
    const Step *step;
} Job;

static void compute(Team *team, int id, void *about) {
    const Model *m = ((Job *)about)->model;
    const Step *s = ((Job *)about)->step;
    const Heads *h = &m->heads;
    const long rows = s->rows, hidden = m->hidden, wide = columns(h), mixed = h->heads * h->dim, inner = whole(m->inner);
    float *x = s->x, *normed = s->buffer, *qkv = normed + rows * whole(hidden), *attended = qkv + rows * wide;
    float *gated = attended + rows * mixed, *scratch = gated + rows * inner + id * attention_scratch(h, most_rows(s, h));
    for (const Layer *layer = m->layer; layer < m->layer + m->layers; layer++) {
        EACH(row, team, rows) normalise(x + row * hidden, layer->norm_before, hidden, m->epsilon, normed + row * hidden);
        together(team);
        linear(team, &layer->qkv, normed, hidden, rows, qkv, wide, PLAIN);
        EACH(row, team, rows) place(m, layer, s, row, qkv);
        together(team);
        EACH(task, team, s->groups * h->kv_heads)
            attend(h, s->queries + task / h->kv_heads, s->tables, task % h->kv_heads, layer->keys, layer->values, layer->window, qkv,
                   wide, attended, mixed, scratch);
        together(team);
        linear(team, &layer->o, attended, mixed, rows, x, hidden, ADDED);
        EACH(row, team, rows) normalise(x + row * hidden, layer->norm_between, hidden, m->epsilon, normed + row * hidden);
        together(team);
        linear(team, &layer->gate_up, normed, hidden, rows, gated, inner, GATED);
        linear(team, &layer->down, gated, inner, rows, x, hidden, ADDED);
    }
    EACH(task, team, s->kept) normalise(x + s->keeps[task] * hidden, m->norm, hidden, m->epsilon, normed + task * hidden);
    together(team);
    linear(team, &m->head, normed, hidden, s->kept, s->logits, whole(m->head.out), PLAIN);
}

void *tandem_team(int threads) { return team_of(threads); }

void tandem_step(Team *team, const Model *model, const Step *step) {
    Job job = {model, step};
    run(team, compute, &job);
}

/* `weight` [rows][depth] as panels, the last one filled up with zeros. */
void tandem_pack(const stored *weight, long rows, long depth, stored *panels) {
    for (long panel = 0; panel * WIDTH < rows; panel++)
        for (long k = 0; k < depth; k++)
            for (long j = 0; j < WIDTH; j++) {
                const long row = panel * WIDTH + j;
                panels[(panel * depth + k) * WIDTH + j] = row < rows ? weight[row * depth + k] : 0;
            }
}
