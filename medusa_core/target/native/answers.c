/* What the model says after some nodes, for a trace: its likeliest tokens, and log Z and entropy at several
   temperatures. Rows are independent of each other.

   R rows, V vocabulary, H temperatures. */

#include "model.h"

#define FLUSH 0x8040 /* numbers below 1e-38 count as 0: a processor is a hundred times slower with them */

/* ln x of normal numbers above 0, to about the last bit. */
static inline vec logarithm(vec x) {
  vec one = _mm512_set1_ps(1.0f), m = _mm512_getmant_ps(x, _MM_MANT_NORM_p75_1p5, _MM_MANT_SIGN_src);
  vec e = _mm512_getexp_ps(x), r = _mm512_sub_ps(m, one), below = _mm512_add_ps(m, one);
  e = _mm512_mask_add_ps(e, _mm512_cmp_ps_mask(m, one, _CMP_LT_OQ), e, one);
  vec inverse = _mm512_rcp14_ps(below);
  inverse = _mm512_mul_ps(inverse, _mm512_fnmadd_ps(below, inverse, _mm512_set1_ps(2.0f)));
  vec s = _mm512_mul_ps(r, inverse), square = _mm512_mul_ps(s, s); /* ln m = 2 artanh s */
  vec sum = _mm512_set1_ps(2.0f / 9);
  const float terms[] = {2.0f / 7, 2.0f / 5, 2.0f / 3, 2.0f};
  for (int i = 0; i < 4; i++) sum = _mm512_fmadd_ps(sum, square, _mm512_set1_ps(terms[i]));
  return _mm512_fmadd_ps(e, _mm512_set1_ps(0.693147181f), _mm512_mul_ps(s, sum));
}

/* The ``count`` largest logits of a row, first the largest. */
static void find_largest(const bf16 *logits, num V, num count, num *tokens, float *found) {
  for (num i = 0; i < count; i++) found[i] = -INFINITY, tokens[i] = 0;
  for (num first = 0; first < V; first += LANES) {
    vec values = widened_all(logits + first, V - first), lowest = _mm512_set1_ps(found[count - 1]);
    uint32_t above = _mm512_mask_cmp_ps_mask(mask_of(V - first), values, lowest, _CMP_GT_OQ);
    for (; above; above &= above - 1) {
      num token = first + __builtin_ctz(above), place = count - 1;
      float value = widened(logits[token]);
      if (value <= found[count - 1]) continue;
      for (; place > 0 && found[place - 1] < value; place--)
        found[place] = found[place - 1], tokens[place] = tokens[place - 1];
      found[place] = value, tokens[place] = token;
    }
  }
}

/* The weights e^((logit − largest) / heat) of a row, or the squares of those that are there; their sum. */
static float weigh(const bf16 *logits, num V, float largest, float heat, int halves, float *weights) {
  vec top = _mm512_set1_ps(largest), scale = _mm512_set1_ps(1.0f / heat), sum = _mm512_setzero_ps();
  for (num first = 0; first < V; first += LANES) {
    vec weight = _mm512_load_ps(weights + first);
    if (halves) weight = _mm512_mul_ps(weight, weight);
    else
      weight = exponential(_mm512_mul_ps(_mm512_sub_ps(widened_all(logits + first, V - first), top), scale));
    weight = _mm512_maskz_mov_ps(mask_of(V - first), weight);
    _mm512_store_ps(weights + first, weight);
    sum = _mm512_add_ps(sum, weight);
  }
  return _mm512_reduce_add_ps(sum);
}

/* Σ weight · ln(weight + guard) */
static float weighed_logarithms(const float *weights, num V, float guard) {
  vec sum = _mm512_setzero_ps();
  for (num first = 0; first < V; first += LANES) {
    vec weight = _mm512_load_ps(weights + first);
    sum = _mm512_fmadd_ps(weight, logarithm(_mm512_add_ps(weight, _mm512_set1_ps(guard))), sum);
  }
  return _mm512_reduce_add_ps(sum);
}

static void answer(const Answers *asked, num row, float *weights) {
  num V = asked->vocabulary, count = asked->count;
  const bf16 *logits = asked->logits + row * V;
  float *gaps = asked->gaps + row * count;
  find_largest(logits, V, count, asked->tokens + row * count, gaps);
  float largest = asked->largest[row] = gaps[0];
  for (num i = 0; i < count; i++) gaps[i] -= largest;
  for (num i = 0; i < asked->heats; i++) {
    float total = weigh(logits, V, largest, asked->heat[i], asked->halves[i], weights);
    float log_z = asked->log_z[row * asked->heats + i] = logf(total);
    /* −Σ p ln(p + guard) with p = weight / total */
    asked->entropy[row * asked->heats + i] =
        log_z - weighed_logarithms(weights, V, asked->guard * total) / total;
  }
}

/* Returns 1 where a thread was late, else 0. */
num run_answers(const Answers *asked) {
  Meeting meeting = meeting_now();
#pragma omp parallel num_threads((int)asked->threads)
  {
    Worker worker = {omp_get_thread_num(), omp_get_num_threads(), 0, &meeting};
    uint32_t before = _mm_getcsr();
    _mm_setcsr(before | FLUSH);
    float *weights = asked->work + worker.thread * whole(asked->vocabulary);
    for (num row = worker.thread; row < asked->rows; row += worker.threads) answer(asked, row, weights);
    _mm_setcsr(before);
    meet(worker);
  }
  return was_late(&meeting);
}
