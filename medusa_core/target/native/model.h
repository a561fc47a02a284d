/* A forward of a few rows through a Llama-like model in bfloat16, compiled for the machine that runs it.

   Every number of a row depends on that row and on what it sees alone, never on how many rows run with it:
   rows lie in the lanes of vectors, which do not meet, each sum is made in one order, and a key that a row
   does not see has weight 0, which changes no sum. So a node of a tree has the bits of its token alone.

   Sixteen rows are a block. What belongs to a block lies as [feature][row], so that the sixteen rows' values
   of a feature are one vector. The input of a product lies as [feature / 2][row] pairs of bfloat16, as the
   instructions of AVX-512 BF16 and AMX want it, against weights as they are: [output][input], not packed.

   N rows, B blocks, d hidden size, H query heads, G key-value heads, D head size, m inner size of the MLP,
   V vocabulary; of Medusa heads K, with L blocks each. structures.py has the same structures for Python;
   layout_checks.c, which compile_c.py writes, compares the two. */

#ifndef MEDUSA_MODEL_H
#define MEDUSA_MODEL_H

#include "vectors.h"

#define PLACES 32 /* of the text, whose values lie beside each other for AMX */
#define ONES 16   /* columns of a value row behind its D numbers: a one and zeros */

typedef struct {
  const bf16 *weight, *bias;
} Linear; /* bias may be absent */

typedef struct {
  const float *before_attention, *query_norm, *key_norm, *before_mlp; /* those of heads may be absent */
  const float *of_embedding; /* EAGLE-3's: qkv reads the normed embedding before the normed x; else absent */
  Linear qkv, out, gate_up, down;
  num rotates;
} Layer;

typedef struct {
  num hidden, inner, query_heads, key_heads, head_size, rotated, layers, vocabulary, outputs, tiles,
      tiled; /* outputs of the LM head; whether products, and whether attention run on AMX */
  float scale, floor, head_floor; /* of norms: n · epsilon, as their weights have √n in them */
  const Layer *layer;
  const bf16 *embedding;
  const float *last_norm;
  Linear head;
} Model;

typedef struct { /* a sequence: its rows stand behind ``length`` of its cache */
  num rows, length, slots, columns;
  /* Float32, [layers][G][D][slots] and [layers][G][slots][D + ONES]. Where attention runs on AMX, bfloat16,
     [layers][G][slots][D] and [layers][G][slots / PLACES][D][PLACES]. */
  void *keys, *values;
  const num *depths;   /* [rows], behind ``length`` */
  const uint8_t *seen; /* [rows][columns], of the last keys; all rows see the keys before them */
} Part;

typedef struct {
  num rows, parts, threads, rows_at_once;
  const num *tokens, *positions, *place; /* [N]: ids; rows of cos and sin; the row of the logits, or −1 */
  const float *cos, *sin;                /* [positions][rotated] */
  const Part *part;
  const bf16 *features;     /* [N][d] that x begins with, or absent: embeddings */
  uint8_t *work;            /* of work_bytes() */
  float *scores;            /* of rows_at_once rows of each part: [G][rows · H / G][keys, in whole vectors];
                               where attention runs on AMX, of tile_room() */
  bf16 *logits, *hidden;    /* [rows kept][outputs], [N][d] after the last norm or absent */
  bf16 **states, **queries; /* by layer, or absent: [N][d] before it, [N][H · D] in it */
} Batch;

typedef struct {
  float *x, *qkv, *cos, *sin; /* [B][d], [B][(H + 2 G) D], [B][rotated] */
  float *queries, *sums;      /* [N][H][D], scaled, those for AMX in bfloat16; [N][H][D + ONES], the last with
                                 the denominators */
  float *embedded;            /* [B][d], where a layer reads it */
  uint32_t *pairs, *inner;    /* [B][max(inputs of qkv, H D) / 2], [B][m / 2] */
} Work;

typedef struct { /* Medusa heads */
  num heads, blocks, hidden, vocabulary, tiles;
  const bf16 *weight, *bias; /* [K][L][d][d], [K][L][d] */
  const int8_t *const *last; /* K times [V][d] */
  const bf16 *const *scale;  /* K times [V] */
} Heads;

typedef struct { /* a greedy step of one text; N nodes */
  const Model *model;
  Batch *batch;                       /* of one part, whose tokens and positions are written here */
  const Heads *heads;                 /* absent where trees are roots */
  num nodes, levels, ranks, position; /* guesses of so many levels; where the root stands */
  const num *parents, *depths;        /* [N], parents first; −1: the root's */
  const num *places;                  /* [N]: 0: the root, else 1 + number of the guess in [levels][ranks] */
  num *tokens, *positions, *choices, *next, *path; /* [N]; choices: behind each node; next: tokens */
  float *logp, *next_logp;                         /* [N], of the tokens */
  num *guesses;
  float *guesses_logp, *work; /* of run_heads() */
  double verify, propose;     /* seconds */
} Greedy;

typedef struct { /* what a trace holds of logits; R rows, V vocabulary, H temperatures */
  num rows, vocabulary, count, heats, threads;
  float guard;           /* inside the logarithm of the entropy */
  const bf16 *logits;    /* [R][V] */
  const float *heat;     /* [H], in the order in which they are computed */
  const uint8_t *halves; /* [H]: whether it is half of the one before */
  num *tokens;           /* [R][count], first the likeliest */
  float *gaps;           /* [R][count]: their logits below the largest one */
  float *largest;        /* [R] */
  float *log_z;          /* [R][H], of logits below the largest one */
  float *entropy;        /* [R][H], in nats */
  float *work;           /* [threads][V, in whole vectors] */
} Answers;

/* products.c: as the block of rows is multiplied, by all threads together, without a barrier at the end */
num tiles_allowed(void);
void begin_tiles(Worker worker, uint8_t before[64]);
void end_tiles(Worker worker, const uint8_t before[64]);
void product(Linear linear, num inputs, num outputs, const uint32_t *pairs, float *result, num blocks,
             int adds, Worker worker);
void gated(Linear linear, num inputs, num inner, const uint32_t *pairs, uint32_t *result, num blocks,
           Worker worker);
void product_by_row(Linear linear, num inputs, num outputs, const uint32_t *pairs, bf16 *result, num rows,
                    const num *place, Worker worker);

/* attention.c: norms, rotations and attention of the rows of a batch */
void norm(const float *x, const float *weight, num size, float floor, uint32_t *pairs, num stride, num blocks,
          Worker worker);
void turn_and_keep(const Model *model, const Batch *batch, num layer, Work work, Worker worker);
void attend(const Model *model, const Batch *batch, num layer, Work work, Worker worker);

/* tile_attention.c: the same by AMX */
num tile_room(const Model *model, num rows, num keys, num threads); /* floats */
void attend_by_tiles(const Model *model, const Batch *batch, num layer, Work work, Worker worker);

/* forward.c: 0, 1 where a thread was late, or −1 where a token is none of the vocabulary; the rows ``kept`` of
   the last write, moved behind ``start`` in a cache in float32 and in one for AMX */
num forward(const Model *model, const Batch *batch);
void keep_rows(float *keys, float *values, num lines, num size, num slots, num start, const num *kept,
               num count);
void keep_tiled_rows(bf16 *keys, bf16 *values, num lines, num size, num slots, num start, const num *kept,
                     num count);

/* heads.c: 1 where a thread was late */
num run_heads(const Heads *heads, num asked, const bf16 *hidden, num rows, num count, num *tokens,
              float *logp, float *work, num threads);

#endif
