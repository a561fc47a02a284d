/* A forward of some rows through a Llama-like model on any processor.

   Weights lie in panels of sixteen outputs, [output / 16][input / 2][16][2] in bfloat16 and 8 bits and
   [output / 16][input][16] in float32, and rows of numbers lie one behind the other. A product adds
   weight · input for the inputs in rising order into one sum for each row and output. Instruction sets and the
   number of rows decide which sums are held in registers together, never the order of one. Everything else is
   computed row by row. So a node of a tree has the bits of its token alone, whatever runs with it.

   Where weights have 8 bits, a row of inputs becomes whole numbers of 14 bits or fewer by a unit of its own,
   and sums are exact whatever their order. Between products all numbers have the model's kind. */

#ifndef MEDUSA_MODEL_H
#define MEDUSA_MODEL_H

#include "structures.h"
#include "threads.h"

typedef struct {             /* the working memory of a call */
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
/* Bytes of a number of a row; rows beside 8-bit weights are of 16 bits. */
static inline num size_of(num kind) { return kind == F32 ? 4 : 2; }

/* Where an input's weight stands in a panel. */
static inline num place_in_panel(num kind, num input, num lane) {
  return kind == F32 ? input * LANES + lane : input / 2 * 2 * LANES + lane * 2 + input % 2;
}

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

#endif
