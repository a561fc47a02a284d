/* Attention of the rows of a batch over their caches.

   Up to sixteen queries of a key-value head are a block, packed as a panel of weights is: keys are multiplied
   with it as rows are with weights. Then each query has a lane: its largest score, its weights
   2^(score − largest), their sum, and the sums of weight · value are made key by key in the order of the
   slots. A key that a row does not see has weight 0, which changes no sum, so it does not matter where such
   keys lie. */

#include "model.h"

#if WIDTH == 16
#define TOGETHER 8 /* queries whose sums are in registers together */
#else
#define TOGETHER 4
#endif

typedef struct { /* up to sixteen queries that read the same keys */
  const Model *model;
  const Part *part;
  num window, group;               /* sliding window of the layer; index of the key head */
  num first, count;                /* index of the first query, number of queries */
  num row;                         /* first row of the part in the batch */
  num begin, end;                  /* keys that one of them sees at all */
  num rows[LANES];                 /* row of the part by lane; lanes without a query repeat the last one */
  const void *keys, *values;       /* [slots][wide(D)] */
  void *queries;                   /* packed */
  float *scores;                   /* [keys][16] */
} QueryBlock;

static int sees(const QueryBlock *block, num row, num slot) {
  const Part *part = block->part;
  num column = slot - (part->length + part->rows - part->columns);
  num depth = slot < part->length ? slot - part->length : part->depths[slot - part->length];
  if (block->window && part->depths[row] - depth >= block->window) return 0;
  return column < 0 || part->seen[row * part->columns + column];
}

static int anyone_sees(const QueryBlock *block, num slot) {
  for (num lane = 0; lane < block->count; lane++)
    if (sees(block, block->rows[lane], slot)) return 1;
  return 0;
}

static num queries_for(const Model *model) { return model->query_heads / model->key_heads; }

static num blocks_of(const Model *model, const Part *part) {
  return (part->rows * queries_for(model) + LANES - 1) / LANES;
}

static QueryBlock block_of(const Model *model, const Batch *batch, num layer, num p, num row, num task) {
  const Part *part = batch->part + p;
  num each = queries_for(model), D = wide(model->head_size), blocks = blocks_of(model, part);
  num group = task / blocks, first = task % blocks * LANES;
  num head = (layer * model->key_heads + group) * part->slots;
  QueryBlock block = {.model = model,
                      .part = part,
                      .window = model->layer[layer].window,
                      .group = group,
                      .first = first,
                      .count = min(LANES, part->rows * each - first),
                      .row = row,
                      .end = part->length + part->rows,
                      .keys = row_of(part->keys, model->kind, D, head),
                      .values = row_of(part->values, model->kind, D, head)};
  for (num lane = 0; lane < LANES; lane++) block.rows[lane] = (first + min(lane, block.count - 1)) / each;
  if (block.window) {
    num least = part->depths[block.rows[0]];
    for (num lane = 1; lane < LANES; lane++) least = min(least, part->depths[block.rows[lane]]);
    block.begin = max(0, min(part->length, part->length + least - block.window + 1));
  }
  while (block.end > block.begin + 1 && !anyone_sees(&block, block.end - 1)) block.end--;
  return block;
}

/* Queries, scaled, as a panel of weights. */
static void pack_queries(const QueryBlock *block, const float *qkv) {
  const Model *model = block->model;
  num D = model->head_size, each = queries_for(model);
  num stride = wide((model->query_heads + 2 * model->key_heads) * D);
  memset(block->queries, 0, (size_t)(LANES * wide(D) * size_of(model->kind)));
  for (num lane = 0; lane < block->count; lane++) {
    num query = block->first + lane, head = block->group * each + query % each;
    const float *from = qkv + (block->row + query / each) * stride + head * D;
    for (num i = 0; i < D; i++) {
      float scaled = from[i] * (model->scale * LOG2_E);
      if (model->kind == F32) ((float *)block->queries)[place_in_panel(F32, i, lane)] = scaled;
      else ((bf16 *)block->queries)[place_in_panel(BF16, i, lane)] = narrowed(scaled);
    }
  }
}

/* Scores of some keys, −∞ for those that are not seen. Returns the largest of each lane. */
static vec score(const QueryBlock *block, num from, num until) {
  const Part *part = block->part;
  num D = wide(block->model->head_size), kind = block->model->kind;
  vec largest = all_lanes(-INFINITY);
  if (from >= until) return largest;
  multiply(kind, block->queries, 1, row_of(block->keys, kind, D, from), D, D, until - from,
           block->scores + from * LANES, LANES);
  num first_masked = block->window ? block->begin : part->length + part->rows - part->columns;
  for (num key = max(from, first_masked); key < until; key++)
    for (num lane = 0; lane < LANES; lane++)
      if (!sees(block, block->rows[lane], key)) block->scores[key * LANES + lane] = -INFINITY;
  for (num key = from; key < until; key++) largest = larger(load(block->scores + key * LANES), largest);
  return largest;
}

static void weigh(const QueryBlock *block, num from, num until, vec largest) {
  for (num key = from; key < until; key++) {
    float *own = block->scores + key * LANES;
    store(own, power_of_two(load(own) - largest));
  }
}

/* Sums of weight · value of some queries and sixteen columns, key by key. */
#define MIX(KIND)                                                                                            \
  static void KIND##_mix(const float *weights, const void *values, num stride, num keys, float *sums) {      \
    reg sum[TOGETHER][PARTS];                                                                                \
    memset(sum, 0, sizeof sum);                                                                              \
    for (num key = 0; key < keys; key++) {                                                                   \
      reg value[PARTS];                                                                                      \
      UNROLL for (int p = 0; p < PARTS; p++) value[p] =                                                      \
          KIND##_values((const KIND *)values + key * stride + p * WIDTH);                                    \
      UNROLL for (int query = 0; query < TOGETHER; query++) {                                                \
        reg weight = every(weights[key * LANES + query]);                                                    \
        UNROLL for (int p = 0; p < PARTS; p++) sum[query][p] =                                               \
            multiply_add(value[p], weight, sum[query][p]);                                                   \
      }                                                                                                      \
    }                                                                                                        \
    memcpy(sums, sum, sizeof sum);                                                                           \
  }
MIX(bf16)
MIX(f32)

static num columns_of(const QueryBlock *block) { return (block->model->head_size + LANES - 1) / LANES; }

/* ``mix`` is split into tasks: TOGETHER queries times sixteen columns of the values. */
static num tasks_of(const QueryBlock *block) {
  return (block->count + TOGETHER - 1) / TOGETHER * columns_of(block);
}

static void mix(const QueryBlock *block, num first, num end, void *attended) {
  const Model *model = block->model;
  num D = model->head_size, each = queries_for(model), kind = model->kind;
  num width = wide(model->query_heads * D), keys = block->end - block->begin;
  float sums[TOGETHER * LANES] __attribute__((aligned(64)));
  const float *weights = block->scores + block->begin * LANES;
  vec total = all_lanes(0.0f);
  for (num key = 0; first < end && key < keys; key++) total = total + load(weights + key * LANES);
  for (num task = first; task < end; task++) {
    num lane = task / columns_of(block) * TOGETHER, column = task % columns_of(block) * LANES;
    const void *values = (const uint8_t *)block->values + (block->begin * wide(D) + column) * size_of(kind);
    (kind == F32 ? f32_mix : bf16_mix)(weights + lane, values, wide(D), keys, sums);
    for (num own = lane; own < min(lane + TOGETHER, block->count); own++) {
      num query = block->first + own, head = block->group * each + query % each;
      void *to = (void *)row_of(attended, kind, width, block->row + query / each);
      put_some(to, kind, head * D + column, load(sums + (own - lane) * LANES) / total[own], D - column);
    }
  }
}

/* One of three stages of a block that all threads share; ``largest`` has a vector for each of them. */
static void share_block(const QueryBlock *block, int stage, Work work, vec *largest, Worker worker) {
  num first, end;
  share(stage < 2 ? block->end - block->begin : tasks_of(block), worker, &first, &end);
  num from = block->begin + first, until = block->begin + end;
  if (stage == 0) {
    pack_queries(block, work.qkv);
    largest[worker.index] = score(block, from, until);
  }
  if (stage == 1) {
    vec all = largest[0];
    for (num thread = 1; thread < worker.count; thread++) all = larger(largest[thread], all);
    weigh(block, from, until, all);
  }
  if (stage == 2) mix(block, first, end, work.attended);
}

/* A thread takes whole blocks where there are enough for all, otherwise all of them share each block. */
void attend(const Model *model, const Batch *batch, num layer, Work work, Worker worker) {
  num blocks = 0, task = 0, row = 0;
  for (num p = 0; p < batch->parts; p++) blocks += blocks_of(model, batch->part + p) * model->key_heads;
  int stages = blocks >= worker.count || worker.count == 1 ? 1 : 3;
  for (int stage = 0; stage < stages; stage++, task = 0, row = 0) {
    if (stage) wait_for_all(worker);
    for (num p = 0; p < batch->parts; row += batch->part[p].rows, p++)
      for (num own = 0; own < blocks_of(model, batch->part + p) * model->key_heads; own++, task++) {
        if (stages == 1 && task % worker.count != worker.index) continue;
        QueryBlock block = block_of(model, batch, layer, p, row, own);
        num place = stages == 1 ? worker.index : task;
        block.queries = work.queries + worker.index * LANES * wide(model->head_size);
        block.scores = work.scores + place * work.keys * LANES;
        if (stages == 3) {
          share_block(&block, stage, work, work.largest + task * worker.count, worker);
          continue;
        }
        pack_queries(&block, work.qkv);
        weigh(&block, block.begin, block.end, score(&block, block.begin, block.end));
        mix(&block, 0, tasks_of(&block), work.attended);
      }
  }
}
