/* The pool behind ``run_together``: threads that wait for a job, spinning at first and then asleep. */

#include "threads.h"
#include <pthread.h>

#define SPIN_SECONDS 2e-4 /* about the time between two steps of decoding */
#define MAX_THREADS 0xffff

static struct {
  pthread_mutex_t in_use; /* by one call; another at the same time runs alone */
  pthread_mutex_t lock;
  pthread_cond_t wake;
  num members; /* threads beside the calling one */
  num running; /* members that have not left the job */
  num job;     /* jobs so far · (MAX_THREADS + 1) + threads of this job: one number, so that both change together */
  Job *function;
  const void *what;
  Barrier barrier;
} pool = {
    .in_use = PTHREAD_MUTEX_INITIALIZER, .lock = PTHREAD_MUTEX_INITIALIZER, .wake = PTHREAD_COND_INITIALIZER};

static num next_job(num last) {
  double since = seconds_now();
  num job;
  while (seconds_now() - since < SPIN_SECONDS)
    for (int times = 0; times < 64; times++, relax())
      if ((job = __atomic_load_n(&pool.job, __ATOMIC_ACQUIRE)) != last) return job;
  pthread_mutex_lock(&pool.lock);
  while ((job = pool.job) == last) pthread_cond_wait(&pool.wake, &pool.lock);
  pthread_mutex_unlock(&pool.lock);
  return job;
}

static void take_part(num index, num threads) {
  Worker worker = {index, threads, &pool.barrier};
  pool.function(pool.what, worker);
  wait_for_all(worker);
}

static void *member(void *index) {
  for (num job = 0;;) {
    job = next_job(job);
    if ((num)(intptr_t)index >= (job & MAX_THREADS)) continue; /* an older job may be seen here too */
    take_part((num)(intptr_t)index, job & MAX_THREADS);
    __atomic_sub_fetch(&pool.running, 1, __ATOMIC_RELEASE);
  }
  return 0;
}

/* Returns how many threads there are, at most as many as are wanted. */
static num grow_to(num threads) {
  pthread_attr_t detached;
  pthread_attr_init(&detached);
  pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
  for (; pool.members + 1 < threads; pool.members++) {
    pthread_t created;
    if (pthread_create(&created, &detached, member, (void *)(intptr_t)(pool.members + 1))) break;
  }
  pthread_attr_destroy(&detached);
  return pool.members + 1 < threads ? pool.members + 1 : threads;
}

/* A forked process has none of the threads. */
static void forget_threads(void) {
  pool.members = pool.running = 0;
  pool.job = 0; /* else a new thread takes part in the last job of the parent */
  pthread_mutex_init(&pool.in_use, 0);
  pthread_mutex_init(&pool.lock, 0);
  pthread_cond_init(&pool.wake, 0);
}

static void watch_forks(void) { pthread_atfork(0, 0, forget_threads); }

num run_together(num threads, Job *function, const void *what) {
  if (threads > MAX_THREADS) threads = MAX_THREADS;
  static pthread_once_t watching = PTHREAD_ONCE_INIT;
  pthread_once(&watching, watch_forks);
  if (threads < 2 || pthread_mutex_trylock(&pool.in_use)) {
    Barrier alone = {0};
    function(what, (Worker){0, 1, &alone});
    return 0;
  }
  double begun = seconds_now();
  pthread_mutex_lock(&pool.lock);
  threads = grow_to(threads);
  pool.barrier = (Barrier){0};
  pool.function = function, pool.what = what, pool.running = threads - 1;
  __atomic_store_n(&pool.job, (pool.job | MAX_THREADS) + 1 + threads, __ATOMIC_RELEASE);
  pthread_cond_broadcast(&pool.wake);
  pthread_mutex_unlock(&pool.lock);
  take_part(0, threads);
  while (__atomic_load_n(&pool.running, __ATOMIC_ACQUIRE)) relax(); /* they have passed the last barrier */
  double longest = pool.barrier.longest_wait;
  pthread_mutex_unlock(&pool.in_use);
  return longest > CONTENDED_SECONDS && longest > CONTENDED_FRACTION * (seconds_now() - begun);
}
