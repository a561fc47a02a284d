/* Vectors of sixteen numbers, which are sixteen rows or a part of one, and how threads share work. */

#ifndef MEDUSA_VECTORS_H
#define MEDUSA_VECTORS_H

#include <immintrin.h>
#include <math.h>
#include <omp.h>
#include <sched.h>
#include <stdint.h>
#include <string.h>

#define LANES 16
#define LATE 1e-3 /* seconds */
#define PART 0.2  /* of a call */

typedef uint16_t bf16;
typedef int64_t num;
typedef __m512 vec;

typedef struct {
  int arrived, round;
  double begun, waited; /* when the call began, and the longest that a thread has waited for another */
} Meeting;

typedef struct {
  int thread, threads, tiles;
  Meeting *meeting;
} Worker;

/* All threads of a region wait here for each other. One that waits longer than parts of a step take lets other
   programs run: theirs may be the processor that the last thread needs, and OpenMP's own barrier would spin
   until the system takes it away, for milliseconds each time. */
static inline void meet(Worker worker) {
  const int patience = 1000; /* pauses: some 50 microseconds */
  Meeting *meeting = worker.meeting;
  int round = __atomic_load_n(&meeting->round, __ATOMIC_RELAXED);
  if (__atomic_add_fetch(&meeting->arrived, 1, __ATOMIC_ACQ_REL) == worker.threads) {
    meeting->arrived = 0;
    __atomic_store_n(&meeting->round, round + 1, __ATOMIC_RELEASE);
    return;
  }
  double since = 0.0, waited = 0.0;
  for (int times = 0; __atomic_load_n(&meeting->round, __ATOMIC_ACQUIRE) == round; times++) {
    if (times < patience) {
      _mm_pause();
      continue;
    }
    sched_yield();
    if (times == patience) since = omp_get_wtime();
    else waited = omp_get_wtime() - since;
  }
  double longest;
  __atomic_load(&meeting->waited, &longest, __ATOMIC_RELAXED);
  while (waited > longest && !__atomic_compare_exchange(&meeting->waited, &longest, &waited, 1,
                                                        __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
  }
}

static inline Meeting meeting_now(void) { return (Meeting){0, 0, omp_get_wtime(), 0.0}; }

/* Whether a thread kept the others waiting for a good part of the call, as where other programs use the
   processors, and not just since its share of the work was a little larger. */
static inline int was_late(const Meeting *meeting) {
  return meeting->waited > LATE && meeting->waited > PART * (omp_get_wtime() - meeting->begun);
}

static inline num most(num a, num b) { return a > b ? a : b; }
static inline num least(num a, num b) { return a < b ? a : b; }
static inline num blocks_of(num rows) { return (rows + LANES - 1) / LANES; }
static inline num whole(num keys) { return (keys + LANES - 1) / LANES * LANES; }
static inline __mmask16 mask_of(num count) { return (__mmask16)((1u << most(0, least(LANES, count))) - 1); }

/* The tasks of a thread, which lie beside each other. */
static inline void share(num tasks, Worker worker, num *first, num *end) {
  *first = tasks * worker.thread / worker.threads;
  *end = tasks * (worker.thread + 1) / worker.threads;
}

static inline float widened(bf16 value) {
  uint32_t bits = (uint32_t)value << 16;
  float wide;
  memcpy(&wide, &bits, sizeof wide);
  return wide;
}

/* Sixteen of them, zeros behind the ``left`` ones that there are. */
static inline vec widened_all(const bf16 *from, num left) {
  __m256i bits = _mm256_maskz_loadu_epi16(mask_of(left), from);
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
}

/* To the nearest, of two as near the even one. */
static inline bf16 narrowed(float value) {
  return (bf16)_mm_extract_epi16((__m128i)_mm_cvtneps_pbh(_mm_set_ss(value)), 0);
}

/* Two features of sixteen rows as pairs of bfloat16. */
static inline __m512i paired(vec first, vec second) {
  const __m512i by_turns = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23,
                                            7, 22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
  return _mm512_permutexvar_epi16(by_turns, (__m512i)_mm512_cvtne2ps_pbh(second, first));
}

/* e^x to the last bit but one, 0 for x < −87 and so exactly for what a row does not see. */
static inline vec exponential(vec x) {
  __mmask16 normal = _mm512_cmp_ps_mask(x, _mm512_set1_ps(-87.0f), _CMP_GE_OQ); /* results below are slow */
  vec n = _mm512_roundscale_ps(_mm512_mul_ps(x, _mm512_set1_ps(1.44269504f)), _MM_FROUND_TO_NEAREST_INT);
  vec r = _mm512_fnmadd_ps(n, _mm512_set1_ps(0.693359375f), x);
  r = _mm512_fnmadd_ps(n, _mm512_set1_ps(-2.12194440e-4f), r);
  vec sum = _mm512_set1_ps(1.0f / 5040);
  const float terms[] = {1.0f / 720, 1.0f / 120, 1.0f / 24, 1.0f / 6, 0.5f, 1.0f, 1.0f};
  for (int i = 0; i < 7; i++) sum = _mm512_fmadd_ps(sum, r, _mm512_set1_ps(terms[i]));
  return _mm512_maskz_scalef_ps(normal, sum, n);
}

/* 2^x in some lanes, to a millionth; 0 in the others, and exactly 0 for x < −126 and so for −∞. */
static inline vec power_of_two(vec x, __mmask16 lanes) {
  lanes = _mm512_mask_cmp_ps_mask(lanes, x, _mm512_set1_ps(-126.0f), _CMP_GE_OQ);
  vec n = _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT), r = _mm512_sub_ps(x, n);
  vec sum = _mm512_set1_ps(1.3264600e-3f);
  sum = _mm512_fmadd_ps(sum, r, _mm512_set1_ps(9.6714600e-3f));
  sum = _mm512_fmadd_ps(sum, r, _mm512_set1_ps(5.5507340e-2f));
  sum = _mm512_fmadd_ps(sum, r, _mm512_set1_ps(2.4022243e-1f));
  sum = _mm512_fmadd_ps(sum, r, _mm512_set1_ps(6.9314698e-1f));
  sum = _mm512_fmadd_ps(sum, r, _mm512_set1_ps(1.0f));
  return _mm512_maskz_scalef_ps(lanes, sum, n);
}

/* x / (1 + e^−x) */
static inline vec silu(vec x) {
  vec below = _mm512_add_ps(_mm512_set1_ps(1.0f), exponential(_mm512_sub_ps(_mm512_setzero_ps(), x)));
  return _mm512_div_ps(x, below);
}

#endif
