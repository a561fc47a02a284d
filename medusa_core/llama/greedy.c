/* A whole greedy step of one text: its tree through the model, the path that the model itself would have
   chosen, the rows of that path where they belong, and the tokens of the next tree.

   Python reads the few numbers that were chosen. Made in Python and torch, what stands between the products of
   a small model takes as long as they do.

   N nodes; structures.py has the same structure. */

#include "model.h"

typedef struct {
  const Model *model;
  Batch *batch;                       /* of one part, whose tokens and positions are written here */
  const Heads *heads;                 /* absent where trees are roots */
  num nodes, levels, ranks, position; /* guesses of so many levels; where the root stands */
  const num *parents, *depths;        /* [N], parents first; −1: the root's */
  const num *places;                  /* [N]: 0: the root, else 1 + number of the guess in [levels][ranks] */
  num *tokens, *positions, *choices, *next, *path; /* [N]; choices: after each node; next: tokens */
  float *logp, *next_logp;                         /* [N], of the tokens */
  num *guesses;
  float *guesses_logp;
  uint8_t *work;          /* of run_heads() */
  double verify, propose; /* seconds */
} Greedy;

/* The deepest node to which every step is the model's choice, the first of several; ``path`` leads to it.
   Returns its depth. */
static num follow(const Greedy *step) {
  num last = 0;
  uint8_t *alive = step->work; /* nothing else is there yet */
  alive[0] = 1;
  for (num node = 1; node < step->nodes; node++) {
    num parent = step->parents[node];
    alive[node] = alive[parent] && step->tokens[node] == step->choices[parent];
    if (alive[node] && step->depths[node] > step->depths[last]) last = node;
  }
  for (num node = last; node >= 0; node = step->parents[node]) step->path[step->depths[node]] = node;
  return step->depths[last];
}

/* 0, 1 where other programs delayed a thread, or −1 for a token outside the vocabulary. */
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
  num depth = follow(step), last = step->path[depth], row = wide(model->head_size) * size_of(model->kind);
  keep_rows(own->keys, own->values, model->layers * model->key_heads, row, own->slots, own->length,
            step->path, depth + 1);
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

/* For Python, which has the same structures; −1 after the last one. */
num size_of_structure(num index) {
  const num sizes[] = {sizeof(Linear), sizeof(Layer), sizeof(Model), sizeof(Part),
                       sizeof(Batch),  sizeof(Heads), sizeof(Greedy)};
  return index < (num)(sizeof sizes / sizeof *sizes) ? sizes[index] : -1;
}
