/* Threads that run one function together, phase by phase. The tasks of a phase are handed out one by one, so a thread that the
 * machine holds up delays no more than its own task.
 */
#pragma once

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>

enum { SPINS = 4000 };

typedef struct Team Team;
typedef void (*Work)(Team *team, int id, void *about);

struct Team {
    int size;
    atomic_long next;   /* task of this phase */
    atomic_int arrived; /* at the phase's end */
    atomic_int phase;
    pthread_mutex_t busy; /* while a call runs */
    pthread_mutex_t lock; /* of what follows */
    pthread_cond_t called;
    long calls;
    Work work;
    void *about;
};

typedef struct {
    Team *team;
    int id;
} Member;

static inline void pause_briefly(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* The next task of `count`, or one beyond. */
static inline long take(Team *team) { return atomic_fetch_add_explicit(&team->next, 1, memory_order_relaxed); }

#define EACH(task, team, count) for (long task = take(team); task < (count); task = take(team))

/* Waits until all have come here; then the next phase begins. */
static void together(Team *team) {
    const int phase = atomic_load_explicit(&team->phase, memory_order_relaxed);
    if (atomic_fetch_add_explicit(&team->arrived, 1, memory_order_acq_rel) == team->size - 1) {
        atomic_store_explicit(&team->arrived, 0, memory_order_relaxed);
        atomic_store_explicit(&team->next, 0, memory_order_relaxed);
        atomic_store_explicit(&team->phase, phase + 1, memory_order_release);
        return;
    }
    /* Phases are short. But whoever is missing may need this very core, so it is given up after a while. */
    for (long spins = 0; atomic_load_explicit(&team->phase, memory_order_acquire) == phase; spins++) {
        if (spins < SPINS) pause_briefly();
        else sched_yield();
    }
}

static void *member(void *given) {
    Member own = *(Member *)given;
    free(given);
    for (long seen = 0;;) {
        pthread_mutex_lock(&own.team->lock);
        while (own.team->calls == seen) pthread_cond_wait(&own.team->called, &own.team->lock);
        seen = own.team->calls;
        pthread_mutex_unlock(&own.team->lock);
        own.team->work(own.team, own.id, own.team->about);
        together(own.team);
    }
    return NULL;
}

/* Whoever calls `run` is its first member. NULL where the system gives no memory or no thread. Lives as long as the process. */
static Team *team_of(int size) {
    Team *team = calloc(1, sizeof *team);
    if (!team) return NULL;
    pthread_mutex_init(&team->busy, NULL);
    pthread_mutex_init(&team->lock, NULL);
    pthread_cond_init(&team->called, NULL);
    team->size = 1;
    for (int id = 1; id < size; id++) {
        pthread_t thread;
        Member *own = malloc(sizeof *own);
        if (!own) return NULL;
        *own = (Member){team, id};
        if (pthread_create(&thread, NULL, member, own)) return NULL;
        pthread_detach(thread);
        team->size++;
    }
    return team;
}

/* Calls from several threads wait for each other. */
static void run(Team *team, Work work, void *about) {
    pthread_mutex_lock(&team->busy);
    pthread_mutex_lock(&team->lock);
    team->work = work;
    team->about = about;
    team->calls++;
    pthread_cond_broadcast(&team->called);
    pthread_mutex_unlock(&team->lock);
    work(team, 0, about);
    together(team);
    pthread_mutex_unlock(&team->busy);
}
