/* A forward of some rows through a Llama-like model on any processor.

   Weights lie in panels of sixteen outputs, [output / 16][input / 2][16][2] in bfloat16 and 8 bits and
   [output / 16][input][16] in float32, and rows of numbers lie one behind the other. A product adds
   weight · input for the inputs in rising order into one sum for each row and output. Instruction sets and the
   number of rows decide which sums are held in registers together, never the order of one. Everything else is
   computed row by row. So a node of a tree has the bits of its token alone, whatever runs with it.

   Where weights have 8 bits, a row of inputs becomes whole numbers of 14 bits or fewer by a unit of its own,
   and sums are exact whatever their order. Between products all numbers have the model's kind.

   N rows, d hidden size, H query heads, G key-value heads, D head size, m inner size of the MLP, V vocabulary.
   A row of n numbers takes wide(n) places, the last of which are 0. structures.py has the same structures. */

#ifndef MEDUSA_MODEL_H
#define MEDUSA_MODEL_H

#include "threads.h"

enum { BF16, F32, INT8 }; /* kinds of numbers */

typedef struct {
  num kind, inputs, outputs;
  const void *panels;  /* of wide(inputs) and wide(outputs), aligned to 64 bytes */
  const float *bias;   /* [wide(outputs)], or absent */
  const float *scales; /* [wide(outputs)], of weights in 8 bits, else absent */
} Linear;

typedef struct {
  const float *before_attention, *query_norm, *key_norm, *before_mlp; /* the heads' norms may be absent */
  const float *of_embedding; /* EAGLE-3's: qkv reads the normed embedding before the normed x; else absent */
  Linear qkv, out, gate_up, down; /* panels of gate and up by turns */
  num rotates, window;            /* a row sees keys less than ``window`` positions before it, 0: all */
} Layer;

typedef struct {
  num kind, hidden, inner, query_heads, key_heads, head_size, rotated, layers, vocabulary;
  float scale, epsilon, head_epsilon;
  const Layer *layer;
  const void *embedding; /* [V][d], or absent: the weights of the LM head are read */
  const float *last_norm;
  Linear head;
} Model;

typedef struct { /* a sequence: its rows stand behind ``length`` of its cache */
  num rows, length, slots, columns;
  void *keys, *values; /* [layers][G][slots][wide(D)], in the model's kind of numbers */
  const num *depths;   /* [rows], positions behind ``length`` */
  const uint8_t *seen; /* [rows][columns], of the last keys; all rows see the keys before them */
} Part;

typedef struct {
  num rows, parts, threads, kept;
  const num *tokens, *positions, *place; /* [N]: ids; rows of cos and sin; the row of the logits, or −1 */
  const float *cos, *sin;                /* [positions][rotated], sin with its first half negated */
  const Part *part;
  const void *features;     /* [N][d] that x begins with, or absent: embeddings */
  uint8_t *work;            /* of work_bytes() */
  void *logits, *hidden;    /* [kept][outputs], and [N][d] after the last norm or absent */
  void **states, **queries; /* by layer, or absent: [N][d] before it, [N][H · D] in it */
  num *choices;             /* [kept], the first of the largest logits of each row, or absent */
} Batch;

typedef struct { /* K Medusa heads of L blocks */
  num heads, blocks, hidden, vocabulary, kind;
  const Linear *block, *last; /* [K][L], [K] */
} Heads;

typedef struct { /* a whole greedy step of one text */
  const Model *model;
  Batch *batch;                       /* of one part, whose tokens and positions are written here */
  const Heads *heads;                 /* absent where trees are roots */
  num nodes, levels, ranks, position; /* guesses of so many levels; where the root stands */
  num accepted;                       /* nodes of the path, written */
  const num *parents, *depths;        /* [N], parents first; −1: the root's */
  const num *places;                  /* [N]: 0: the root, else 1 + number of the guess in [levels][ranks] */
  num *tokens, *positions, *choices, *next, *path; /* [N]; choices: after each node; next: tokens */
  float *logp, *next_logp;                         /* [N], of the tokens */
  num *guesses;
  float *guesses_logp;
  uint8_t *work;          /* of run_heads() */
  double verify, propose; /* seconds */
} Greedy;

typedef struct {             /* where a call works */
  float *x, *embedded, *qkv; /* [N][d], [N][d] where a layer reads it, [N][(H + 2 G) D] */
  uint8_t *normed;           /* [N][inputs], of each thread its own where the rows are few */
  void *attended, *inner;    /* [N][H · D], [N][m] */
  float *queries, *scores;   /* [threads][16][D], [threads][keys][16] */
  vec *largest;              /* [threads][threads] */
  int16_t *whole;            /* [N][inputs] for weights in 8 bits, of each thread its own as ``normed`` */
  float *units;              /* [N], of these */
  num keys, rows, copies, normed_size, whole_size;
} Work;

typedef struct { /* where the rows of a product go, and what happens to them on the way */
  enum { STORE, ADD, GATE, ROUND } how; /* ROUND: into rows without padding */
  num kind;                             /* dtype of the output where it is not float */
  void *rows;
  const float *units; /* of each row of inputs in 8 bits */
} Output;

static inline num max(num a, num b) { return a > b ? a : b; }
static inline num min(num a, num b) { return a < b ? a : b; }
static inline num wide(num count) { return (count + 31) / 32 * 32; }
static inline num size_of(num kind) { return kind == F32 ? 4 : 2; }

static inline const void *row_of(const void *rows, num kind, num width, num row) {
  return (const uint8_t *)rows + row * width * size_of(kind);
}

static inline vec get(const void *row, num kind, num at) {
  return kind == F32 ? load((const float *)row + at) : widened((const bf16 *)row + at);
}

static inline float number_of(const void *row, num kind, num at) {
  return kind == F32 ? ((const float *)row)[at] : widened_one(((const bf16 *)row)[at]);
}

static inline void put(void *row, num kind, num at, vec x) {
  if (kind == F32) store((float *)row + at, x);
  else narrow((bf16 *)row + at, x);
}

/* The first ``count`` numbers of a vector. */
static inline void put_some(void *row, num kind, num at, vec x, num count) {
  float numbers[LANES];
  if (count >= LANES) {
    put(row, kind, at, x);
    return;
  }
  put(numbers, kind, 0, x);
  if (count > 0) memcpy((uint8_t *)row + at * size_of(kind), numbers, (size_t)(count * size_of(kind)));
}

/* ``count`` numbers of a row of floats into a row of another kind, without padding. */
static inline void put_row(void *to, num kind, const float *from, num count) {
  num whole = count / LANES * LANES;
  float rest[LANES] = {0};
  for (num i = 0; i < whole; i += LANES) put(to, kind, i, load(from + i));
  memcpy(rest, from + whole, (size_t)(count - whole) * sizeof *rest);
  put_some(to, kind, whole, load(rest), count - whole);
}

/* products.c */
float round_row(int16_t *to, const void *row, num kind, num width);
void begin_tiles(uint8_t before[64]);
void end_tiles(const uint8_t before[64]);
void multiply(num kind, const void *panels, num count, const void *x, num stride, num inputs, num rows,
              float *sums, num sums_stride);
void product(const Linear *linear, const void *x, num rows, Output to, Worker worker);

/* attention.c */
void attend(const Model *model, const Batch *batch, num layer, Work work, Worker worker);

/* heads.c: 1 where other programs delayed a thread, else 0 */
num run_heads(const Heads *heads, num asked, const void *hidden, num rows, num count, num *tokens,
              float *logp, uint8_t *work, num threads);

/* forward.c: 0, 1 where other programs delayed a thread, or −1 for a token outside the vocabulary */
num work_bytes(const Model *model, num rows, num keys, num threads);
num forward(const Model *model, const Batch *batch);
num keep_rows(uint8_t *keys, uint8_t *values, num lines, num row_bytes, num slots, num start, const num *kept,
              num count);

#endif
