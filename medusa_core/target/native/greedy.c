/* A whole greedy step of one text: its tree through the model, the path that the model itself would have
   chosen, the rows of that path where they belong, and what the next tree is guessed to hold.

   Between steps Python reads what was chosen, a few numbers; step by step through Python and torch the parts
   between the products take half as long as the products.

   N nodes. */

#include "model.h"

/* The first of the largest, and where there is one the first NaN, as torch counts them. */
static num argmax(const bf16 *row, num count) {
  vec largest = _mm512_set1_ps(-INFINITY);
  __mmask16 broken = 0;
  for (num i = 0; i < count; i += LANES) {
    vec x = widened_all(row + i, LANES);
    broken |= _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
    largest = _mm512_max_ps(largest, x);
  }
  vec wanted = _mm512_set1_ps(_mm512_reduce_max_ps(largest));
  for (num i = 0; i < count; i += LANES) {
    vec x = widened_all(row + i, LANES);
    uint32_t found =
        broken ? _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q) : _mm512_cmp_ps_mask(x, wanted, _CMP_EQ_OQ);
    if (found) return i + __builtin_ctz(found);
  }
  return 0;
}

/* The deepest node of which all that lead to it are the model's choices; ``path`` is that to it. Returns its
   depth. */
static num follow(const Greedy *step) {
  num last = 0;
  uint8_t alive[most(1, step->nodes)]; /* the compiler warns of an empty array */
  alive[0] = 1;
  for (num node = 1; node < step->nodes; node++) {
    num parent = step->parents[node];
    alive[node] = alive[parent] && step->tokens[node] == step->choices[parent];
    if (alive[node] && step->depths[node] > step->depths[last]) last = node;
  }
  for (num node = last; node >= 0; node = step->parents[node]) step->path[step->depths[node]] = node;
  return step->depths[last];
}

static void keep(const Greedy *step, num count) {
  const Model *model = step->model;
  const Part *own = step->batch->part;
  num lines = model->layers * model->key_heads, size = model->head_size;
  if (model->tiled)
    keep_tiled_rows(own->keys, own->values, lines, size, own->slots, own->length, step->path, count);
  else keep_rows(own->keys, own->values, lines, size, own->slots, own->length, step->path, count);
}

/* 0, 1 where a thread was late, or −1 where a token is none of the vocabulary: the next tree's tokens become
   this one's, and those of the tree after it are guessed. */
num greedy_step(Greedy *step) {
  const Model *model = step->model;
  double begun = omp_get_wtime(), verified, accepted;
  num outputs = model->outputs, late;
  memcpy(step->tokens, step->next, (size_t)step->nodes * sizeof *step->tokens);
  memcpy(step->logp, step->next_logp, (size_t)step->nodes * sizeof *step->logp);
  for (num node = 0; node < step->nodes; node++) step->positions[node] = step->position + step->depths[node];
  late = forward(model, step->batch);
  if (late < 0) return late;
  verified = omp_get_wtime();
  for (num node = 0; node < step->nodes; node++)
    step->choices[node] = argmax(step->batch->logits + node * outputs, outputs);
  num depth = follow(step), last = step->path[depth];
  keep(step, depth + 1);
  accepted = omp_get_wtime();
  if (step->heads)
    late |= run_heads(step->heads, step->levels, step->batch->hidden + last * model->hidden, 1, step->ranks,
                      step->guesses, step->guesses_logp, step->work, step->batch->threads);
  for (num node = 0; node < step->nodes; node++) {
    num guess = step->places[node] - 1;
    step->next[node] = guess < 0 ? step->choices[last] : step->guesses[guess];
    step->next_logp[node] = guess < 0 ? 0.0f : step->guesses_logp[guess];
  }
  step->verify = verified - begun, step->propose = omp_get_wtime() - accepted;
  return late;
}
