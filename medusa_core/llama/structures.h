/* What Python and the C share; structures.py reads it.

   N rows, d hidden size, H query heads, G key-value heads, D head size, m inner size of the MLP, V vocabulary.
   A row of n numbers takes wide(n) places, the last of which are 0. */

#ifndef MEDUSA_STRUCTURES_H
#define MEDUSA_STRUCTURES_H

#include <stdint.h>

typedef int64_t num;
enum { BF16, F32, INT8 }; /* kinds of numbers */

typedef struct {
  num kind, inputs, outputs;
  const void *panels;  /* of wide(inputs) and wide(outputs), aligned to 64 bytes */
  const float *bias;   /* [wide(outputs)], or absent */
  const float *scales; /* [wide(outputs)], of weights in 8 bits, else absent */
} Linear;

typedef struct {
  const float *before_attention, *query_norm, *key_norm, *before_mlp; /* all but the last may be absent */
  Linear qkv, out, gate_up, down; /* panels of gate and up by turns */
  num rotates, window;            /* a row sees keys less than ``window`` positions before it, 0: all */
} Layer;

typedef struct {
  num kind, hidden, inner, query_heads, key_heads, head_size, rotated, layers, vocabulary;
  float scale, epsilon, head_epsilon;
  const Layer *layer;
  const void *embedding;     /* [V][d], or absent: the weights of the LM head are read */
  const float *of_embedding; /* EAGLE-3's: qkv reads the normed embedding before the normed x; else absent */
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

/* Functions that Python calls. Those that run on several threads return 1 where other programs delayed one of
   them, else 0; a forward returns −1 for a token outside the vocabulary. */

num usable(void); /* whether the system allows the instruction set */
num run_product(const Linear *linear, const void *x, num rows, void *result, const float *units, num threads);
num work_bytes(const Model *model, num rows, num keys, num threads);
num forward(const Model *model, const Batch *batch);
num keep_rows(uint8_t *keys, uint8_t *values, num lines, num row_bytes, num slots, num start, const num *kept,
              num count);
num heads_bytes(const Heads *heads, num asked, num rows);
num run_heads(const Heads *heads, num asked, const void *hidden, num rows, num count, num *tokens, float *logp,
              uint8_t *work, num threads);
num greedy_step(Greedy *step);

#endif
