/* A whole greedy step of one text: its tree through the model, the path that the model itself would have
   chosen, the rows of that path where they belong, and the tokens of the next tree.

   Python reads the few numbers that were chosen. In Python and torch, the work between the products of a
   small model would take as long as they do.

   N nodes. */

#include "model.h"

/* ``path`` leads to the deepest node to which every step is the model's choice, the first of several.
   Returns that node. */
static num follow(Greedy *step) {
  num last = 0;
  uint8_t *alive = step->work; /* nothing else is there yet */
  alive[0] = 1;
  for (num node = 1; node < step->nodes; node++) {
    num parent = step->parents[node];
    alive[node] = alive[parent] && step->tokens[node] == step->choices[parent];
    if (alive[node] && step->depths[node] > step->depths[last]) last = node;
  }
  for (num node = last; node >= 0; node = step->parents[node]) step->path[step->depths[node]] = node;
  step->accepted = step->depths[last] + 1;
  return last;
}

/* Returns 0, 1 where other programs delayed a thread, or −1 for a token outside the vocabulary. */
num greedy_step(Greedy *step) {
  const Model *model = step->model;
  const Part *own = step->batch->part;
  double begun = seconds_now();
  memcpy(step->tokens, step->next, (size_t)step->nodes * sizeof *step->tokens);
  memcpy(step->logp, step->next_logp, (size_t)step->nodes * sizeof *step->logp);
  for (num node = 0; node < step->nodes; node++) step->positions[node] = step->position + step->depths[node];
  step->batch->choices = step->choices;
  num delayed = forward(model, step->batch);
  if (delayed < 0) return delayed;
  double verified = seconds_now();
  num last = follow(step), row = wide(model->head_size) * size_of(model->kind);
  keep_rows(own->keys, own->values, model->layers * model->key_heads, row, own->slots, own->length,
            step->path, step->accepted);
  double accepted = seconds_now();
  if (step->heads)
    delayed |=
        run_heads(step->heads, step->levels, row_of(step->batch->hidden, model->kind, model->hidden, last), 1,
                  step->ranks, step->guesses, step->guesses_logp, step->work, step->batch->threads);
  for (num node = 0; node < step->nodes; node++) {
    num guess = step->places[node] - 1;
    step->next[node] = guess < 0 ? step->choices[last] : step->guesses[guess];
    step->next_logp[node] = guess < 0 ? 0.0f : step->guesses_logp[guess];
  }
  step->verify = verified - begun, step->propose = seconds_now() - accepted;
  return delayed;
}
