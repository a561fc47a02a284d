/* Medusa heads on the hidden states of a few texts: blocks of x + SiLU(W x + b), then an LM head.

   LM heads may have 8 bits, since guesses need not be exact: the model verifies them. Then hidden states become
   whole numbers too, so that sums are exact whatever their order.

   K heads, L blocks, d hidden size, V vocabulary, B texts. */

#include "model.h"

typedef struct {
  const Heads *heads;
  num asked, rows, count;
  const void *hidden; /* [B][d] */
  num *tokens;        /* [asked][B][count], the best first */
  float *logp;        /* their log-probabilities, likewise */
  float *x, *result, *units, *logits;
  void *inputs;
} Guesses;

/* The row becomes the input of a product. */
static void make_inputs(const Guesses *guesses, num row, num kind) {
  num width = wide(guesses->heads->hidden);
  const float *x = guesses->x + row * width;
  void *to = (void *)row_of(guesses->inputs, kind, width, row);
  if (kind == INT8) guesses->units[row] = round_row(to, x, F32, width);
  else
    for (num i = 0; i < width; i += LANES) put(to, kind, i, load(x + i));
}

/* x is the hidden state at first, then it grows by SiLU(result) after each block. */
static void step(const Guesses *guesses, num block, Worker worker) {
  const Heads *heads = guesses->heads;
  num d = heads->hidden, width = wide(d);
  for (num row = worker.index; row < guesses->asked * guesses->rows; row += worker.count) {
    float *x = guesses->x + row * width;
    const float *result = guesses->result + row * width;
    for (num i = 0; block == 0 && i < width; i++)
      x[i] = i < d ? number_of(guesses->hidden, heads->kind, row % guesses->rows * d + i) : 0.0f;
    for (num i = 0; block > 0 && i < width; i += LANES) store(x + i, load(x + i) + silu(load(result + i)));
    make_inputs(guesses, row, block < heads->blocks ? heads->kind : heads->last->kind);
  }
}

/* The ``count`` largest logits of a row, the largest first, and their log-probabilities. */
static void find_best(float *logits, num V, num count, num *tokens, float *logp) {
  for (num i = 0; i < count; i++) logp[i] = -INFINITY, tokens[i] = 0;
  for (num token = 0; token < V; token++) {
    num place = count - 1;
    if (!(logits[token] > logp[place])) continue;
    for (; place > 0 && logp[place - 1] < logits[token]; place--)
      logp[place] = logp[place - 1], tokens[place] = tokens[place - 1];
    logp[place] = logits[token], tokens[place] = token;
  }
  const float top = logp[0];
  vec sum = all_lanes(0.0f);
  for (num token = V; token < wide(V); token++) logits[token] = -INFINITY;
  for (num token = 0; token < V; token += LANES)
    sum = sum + power_of_two((load(logits + token) - top) * LOG2_E);
  float all = top + logf(sum_of(sum));
  for (num i = 0; i < count; i++) logp[i] -= all;
}

static void guess(const void *what, Worker worker) {
  const Guesses *guesses = what;
  const Heads *heads = guesses->heads;
  num width = wide(heads->hidden), rows = guesses->rows, V = heads->vocabulary, kind = heads->kind;
  uint8_t before[64];
  begin_tiles(before);
  step(guesses, 0, worker);
  for (num block = 0; block < heads->blocks; block++) {
    wait_for_all(worker);
    for (num head = 0; head < guesses->asked; head++)
      product(heads->block + head * heads->blocks + block, row_of(guesses->inputs, kind, width, head * rows),
              rows, (Output){STORE, kind, guesses->result + head * rows * width, 0}, worker);
    wait_for_all(worker);
    step(guesses, block + 1, worker);
  }
  wait_for_all(worker);
  for (num head = 0; head < guesses->asked; head++)
    product(heads->last + head, row_of(guesses->inputs, heads->last->kind, width, head * rows), rows,
            (Output){STORE, kind, guesses->logits + head * rows * wide(V), guesses->units + head * rows},
            worker);
  end_tiles(before);
  wait_for_all(worker);
  for (num row = worker.index; row < guesses->asked * rows; row += worker.count)
    find_best(guesses->logits + row * wide(V), V, guesses->count, guesses->tokens + row * guesses->count,
              guesses->logp + row * guesses->count);
}

static num lay_out(const Heads *heads, num asked, num rows, uint8_t *memory, Guesses *guesses) {
  num all = asked * rows, width = wide(heads->hidden), used = 0;
  num sizes[] = {all * width * 4, all * width * 4, all * 4, all * wide(heads->vocabulary) * 4,
                 (all + LANES) * width * 4}; /* AMX reads sixteen rows */
  void **parts[] = {(void **)&guesses->x, (void **)&guesses->result, (void **)&guesses->units,
                    (void **)&guesses->logits, &guesses->inputs};
  for (int i = 0; i < 5; used += (sizes[i] + 63) / 64 * 64, i++) *parts[i] = memory + used;
  return used;
}

num heads_bytes(const Heads *heads, num asked, num rows) {
  Guesses guesses;
  return lay_out(heads, asked, rows, 0, &guesses);
}

num run_heads(const Heads *heads, num asked, const void *hidden, num rows, num count, num *tokens,
              float *logp, uint8_t *work, num threads) {
  Guesses guesses = {.heads = heads,
                     .asked = asked,
                     .rows = rows,
                     .count = count,
                     .hidden = hidden,
                     .tokens = tokens,
                     .logp = logp};
  lay_out(heads, asked, rows, work, &guesses);
  return run_together(threads, guess, &guesses);
}
