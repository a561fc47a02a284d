/* Medusa heads with LM heads in 8 bits, on the hidden states of a few texts.

   head = blocks of x + SiLU(W x + b), then an LM head. Guesses need not be exact, as the model verifies them.

   K heads, L blocks, d hidden size, V vocabulary, B texts. */

#include "model.h"

#define AHEAD 4     /* rows of an LM head that are asked for before they are read */
#define LEVELS 8191 /* of a hidden state: sums of 16,000 products with 8 bits fit into 32 */

/* The hidden states of all heads and the pairs of them: of the first input for all heads, or + SiLU(result). */
static void step(const Heads *heads, const bf16 *hidden, num rows, float *x, const float *result,
                 uint32_t *pairs, Worker worker) {
  num d = heads->hidden, first, end;
  share(heads->heads * d / 2, worker, &first, &end);
  for (num pair = first; pair < end; pair++) {
    float *at = x + 2 * pair * LANES;
    vec values[2];
    for (int i = 0; i < 2; i++) {
      float given[LANES] = {0};
      for (num row = 0; hidden && row < rows; row++)
        given[row] = widened(hidden[row * d + (2 * pair + i) % d]);
      values[i] = hidden ? _mm512_loadu_ps(given)
                         : _mm512_add_ps(_mm512_load_ps(at + i * LANES),
                                         silu(_mm512_load_ps(result + (2 * pair + i) * LANES)));
      _mm512_store_ps(at + i * LANES, values[i]);
    }
    _mm512_store_si512(pairs + pair * LANES, paired(values[0], values[1]));
  }
}

/* The hidden states by row as whole numbers of fourteen bits, [K][B][d], and what one of them stands for. */
static void rounded(num d, num asked, num rows, const float *x, int16_t *numbers, float *unit,
                    Worker worker) {
  for (num at = worker.thread; at < asked * rows; at += worker.threads) {
    const float *from = x + at / rows * d * LANES + at % rows;
    float largest = 1e-30f;
    for (num i = 0; i < d; i++) largest = fmaxf(largest, fabsf(from[i * LANES]));
    unit[at] = largest / LEVELS;
    float each = LEVELS / largest;
    for (num i = 0; i < d; i++) numbers[at * d + i] = (int16_t)lrintf(from[i * LANES] * each);
  }
}

/* Logits [K][B][V] by weights of 8 bits, of which each row has a scale. */
static void last(const Heads *heads, num asked, num rows, const int16_t *x, const float *unit, float *logits,
                 Worker worker) {
  num d = heads->hidden, V = heads->vocabulary, first, end;
  share(asked * V, worker, &first, &end);
  for (num task = first; task < end; task++) {
    num head = task / V, token = task % V;
    const int8_t *weight = heads->last[head] + token * d;
    for (num i = 0; i < d; i += 64) _mm_prefetch((const char *)(weight + AHEAD * d + i), _MM_HINT_T0);
    for (num row = 0; row < rows; row++) {
      num at = head * rows + row;
      __m512i sum = _mm512_setzero_si512();
      for (num i = 0; i < d; i += 2 * LANES) {
        __m512i w = _mm512_cvtepi8_epi16(_mm256_loadu_si256((const __m256i *)(weight + i)));
        sum = _mm512_dpwssd_epi32(sum, w, _mm512_loadu_si512(x + at * d + i));
      }
      float all = _mm512_reduce_add_ps(_mm512_cvtepi32_ps(sum));
      logits[at * V + token] = all * unit[at] * widened(heads->scale[head][token]);
    }
  }
}

/* The ``count`` largest of the logits of a row, first the largest, and their log-probabilities. */
static void best(const float *logits, num V, num count, num *tokens, float *logp) {
  vec sum = _mm512_setzero_ps();
  for (num i = 0; i < count; i++) logp[i] = -INFINITY, tokens[i] = 0;
  for (num first = 0; first < V; first += LANES) {
    vec lowest = _mm512_set1_ps(logp[count - 1]);
    for (uint32_t above = _mm512_cmp_ps_mask(_mm512_loadu_ps(logits + first), lowest, _CMP_GT_OQ); above;
         above &= above - 1) {
      num token = first + __builtin_ctz(above), place = count - 1;
      if (logits[token] <= logp[count - 1]) continue;
      for (; place > 0 && logp[place - 1] < logits[token]; place--)
        logp[place] = logp[place - 1], tokens[place] = tokens[place - 1];
      logp[place] = logits[token], tokens[place] = token;
    }
  }
  vec largest = _mm512_set1_ps(logp[0]);
  for (num first = 0; first < V; first += LANES)
    sum = _mm512_add_ps(sum, exponential(_mm512_sub_ps(_mm512_loadu_ps(logits + first), largest)));
  float all = logp[0] + logf(_mm512_reduce_add_ps(sum));
  for (num i = 0; i < count; i++) logp[i] -= all;
}

num heads_bytes(const Heads *heads, num rows) {
  num features = heads->heads * heads->hidden, each = sizeof(float);
  return LANES * (2 * features * each + features * each / 2 + heads->heads * each) +
         heads->heads * rows * (heads->hidden * (num)sizeof(int16_t) + heads->vocabulary * each);
}

/* The ``count`` best guesses of each of the first ``asked`` heads for up to LANES texts, [asked][rows][count].
   Returns 1 where a thread was late, else 0. */
num run_heads(const Heads *heads, num asked, const bf16 *hidden, num rows, num count, num *tokens,
              float *logp, float *work, num threads) {
  num d = heads->hidden, features = heads->heads * d;
  float *x = work, *result = x + features * LANES, *unit = result + features * LANES;
  uint32_t *pairs = (uint32_t *)(unit + heads->heads * LANES);
  float *logits = (float *)(pairs + features / 2 * LANES);
  int16_t *numbers = (int16_t *)(logits + heads->heads * rows * heads->vocabulary);
  Heads own = *heads;
  own.heads = asked;
  Meeting meeting = meeting_now();
#pragma omp parallel num_threads((int)threads)
  {
    Worker worker = {omp_get_thread_num(), omp_get_num_threads(), heads->tiles != 0, &meeting};
    uint8_t before[64];
    begin_tiles(worker, before);
    step(&own, hidden, rows, x, 0, pairs, worker);
    meet(worker);
    for (num block = 0; block < heads->blocks; block++) {
      for (num head = 0; head < asked; head++) {
        num at = head * heads->blocks + block;
        Linear linear = {heads->weight + at * d * d, heads->bias + at * d};
        product(linear, d, d, pairs + head * d / 2 * LANES, result + head * d * LANES, 1, 0, worker);
      }
      meet(worker);
      step(&own, 0, rows, x, result, pairs, worker);
      meet(worker);
    }
    end_tiles(worker, before);
    rounded(d, asked, rows, x, numbers, unit, worker);
    meet(worker);
    last(heads, asked, rows, numbers, unit, logits, worker);
    meet(worker);
    for (num at = worker.thread; at < asked * rows; at += worker.threads)
      best(logits + at * heads->vocabulary, heads->vocabulary, count, tokens + at * count, logp + at * count);
  }
  return was_late(&meeting);
}
