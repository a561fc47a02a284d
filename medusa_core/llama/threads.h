/* A team of threads that share the work of one call, and the barrier at which they wait for each other. */

#ifndef MEDUSA_THREADS_H
#define MEDUSA_THREADS_H

#include "simd.h"
#include <sched.h>
#include <time.h>

#define CONTENDED_SECONDS 1e-3
#define CONTENDED_FRACTION 0.2 /* share of a call's time */

typedef struct {
  int arrived, round;
  double longest_wait; /* seconds, of all barriers of a call */
} Barrier;

typedef struct {
  num index, count;
  Barrier *barrier;
} Worker;

typedef void Job(const void *what, Worker worker);

/* Run a job on so many threads, the calling one among them, and wait for all of them. Returns 1 where other
   programs kept a thread from its processor for a good part of the call, else 0. */
num run_together(num threads, Job *job, const void *what);

static inline double seconds_now(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Wait until all threads are here. After some 50 microseconds a waiting thread lets other programs run, since
   theirs may be the processor that the last thread needs: spinning on would last until the system takes the
   processor away, milliseconds each time. */
static inline void wait_for_all(Worker worker) {
  const int patience = 1000;
  Barrier *barrier = worker.barrier;
  int round = __atomic_load_n(&barrier->round, __ATOMIC_RELAXED);
  if (__atomic_add_fetch(&barrier->arrived, 1, __ATOMIC_ACQ_REL) == (int)worker.count) {
    __atomic_store_n(&barrier->arrived, 0, __ATOMIC_RELAXED);
    __atomic_store_n(&barrier->round, round + 1, __ATOMIC_RELEASE);
    return;
  }
  double since = 0.0, waited = 0.0, longest;
  for (int times = 0; __atomic_load_n(&barrier->round, __ATOMIC_ACQUIRE) == round;
       times += times < patience) {
    if (times < patience) {
      relax();
      if (times == patience - 1) since = seconds_now();
      continue;
    }
    sched_yield();
    waited = seconds_now() - since;
  }
  __atomic_load(&barrier->longest_wait, &longest, __ATOMIC_RELAXED);
  if (waited > longest) __atomic_store(&barrier->longest_wait, &waited, __ATOMIC_RELAXED);
}

/* A thread's share of the tasks, which are neighbours. */
static inline void share(num tasks, Worker worker, num *first, num *end) {
  *first = tasks * worker.index / worker.count;
  *end = tasks * (worker.index + 1) / worker.count;
}

#endif
