/* Attention of the rows of a batch over their caches.

   Up to sixteen queries of a key-value head are a panel, with which keys are multiplied as rows are with
   weights. Then each query has a lane: its largest score, its weights 2^(score − largest), their sum, and the
   sums of weight · value are made key by key in the order of the slots. A key that a row does not see has
   weight 0, which changes no sum, so it does not matter where such keys lie. */

#include "model.h"

#define LOG2_E 1.44269504f /* weights are powers of two */
#if WIDTH == 16
#define TOGETHER 8 /* queries whose sums are in registers together */
#else
#define TOGETHER 4
#endif

typedef struct { /* up to sixteen queries that read the same keys */
  const Model *model;
  const Part *part;
  num window, group; /* sliding window of the layer; index of the key head */
  num first, count;  /* index of the first query, number of queries */
  num row;                         /* first row of the part in the batch */
  num begin, end;                  /* keys that one of them sees at all */
  num rows[LANES];                 /* row of the part by lane; lanes without a query repeat the last one */
  const void *keys, *values;       /* [slots][wide(D)] */
  void *queries;                   /* packed */
  float *scores;                   /* [keys][16] */
} Panel;

static int sees(const Panel *panel, num row, num slot) {
  const Part *part = panel->part;
  num column = slot - (part->length + part->rows - part->columns);
  num depth = slot < part->length ? slot - part->length : part->depths[slot - part->length];
  if (panel->window && part->depths[row] - depth >= panel->window) return 0;
  return column < 0 || part->seen[row * part->columns + column];
}

static int anyone_sees(const Panel *panel, num slot) {
  for (num lane = 0; lane < panel->count; lane++)
    if (sees(panel, panel->rows[lane], slot)) return 1;
  return 0;
}

static num queries_for(const Model *model) { return model->query_heads / model->key_heads; }

static num panels_of(const Model *model, const Part *part) {
  return (part->rows * queries_for(model) + LANES - 1) / LANES;
}

static Panel panel_of(const Model *model, const Batch *batch, num layer, num p, num row, num task) {
  const Part *part = batch->part + p;
  num each = queries_for(model), D = wide(model->head_size), panels = panels_of(model, part);
  num group = task / panels, first = task % panels * LANES;
  num head = (layer * model->key_heads + group) * part->slots;
  Panel panel = {.model = model,
                 .part = part,
                 .window = model->layer[layer].window,
                 .group = group,
                 .first = first,
                 .count = min(LANES, part->rows * each - first),
                 .row = row,
                 .end = part->length + part->rows,
                 .keys = row_of(part->keys, model->kind, D, head),
                 .values = row_of(part->values, model->kind, D, head)};
  for (num lane = 0; lane < LANES; lane++) panel.rows[lane] = (first + min(lane, panel.count - 1)) / each;
  if (panel.window) {
    num least = part->depths[panel.rows[0]];
    for (num lane = 1; lane < LANES; lane++) least = min(least, part->depths[panel.rows[lane]]);
    panel.begin = max(0, min(part->length, part->length + least - panel.window + 1));
  }
  while (panel.end > panel.begin + 1 && !anyone_sees(&panel, panel.end - 1)) panel.end--;
  return panel;
}

/* Queries, scaled, as a panel of weights. */
static void pack_queries(const Panel *panel, const float *qkv) {
  const Model *model = panel->model;
  num D = model->head_size, each = queries_for(model);
  num stride = wide((model->query_heads + 2 * model->key_heads) * D);
  memset(panel->queries, 0, (size_t)(LANES * wide(D) * size_of(model->kind)));
  for (num lane = 0; lane < panel->count; lane++) {
    num query = panel->first + lane, head = panel->group * each + query % each;
    const float *from = qkv + (panel->row + query / each) * stride + head * D;
    for (num i = 0; i < D; i++) {
      float scaled = from[i] * (model->scale * LOG2_E);
      if (model->kind == F32) ((float *)panel->queries)[place_in_panel(F32, i, lane)] = scaled;
      else ((bf16 *)panel->queries)[place_in_panel(BF16, i, lane)] = narrowed(scaled);
    }
  }
}

/* Scores of some keys, −∞ for those that are not seen. Returns the largest of each lane. */
static vec score(const Panel *panel, num from, num until) {
  const Part *part = panel->part;
  num D = wide(panel->model->head_size), kind = panel->model->kind;
  vec largest = all_lanes(-INFINITY);
  if (from >= until) return largest;
  multiply(kind, panel->queries, 1, row_of(panel->keys, kind, D, from), D, D, until - from,
           panel->scores + from * LANES, LANES);
  num first_masked = panel->window ? panel->begin : part->length + part->rows - part->columns;
  for (num key = max(from, first_masked); key < until; key++)
    for (num lane = 0; lane < LANES; lane++)
      if (!sees(panel, panel->rows[lane], key)) panel->scores[key * LANES + lane] = -INFINITY;
  for (num key = from; key < until; key++) largest = larger(load(panel->scores + key * LANES), largest);
  return largest;
}

static void weigh(const Panel *panel, num from, num until, vec largest) {
  for (num key = from; key < until; key++) {
    float *own = panel->scores + key * LANES;
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

static num columns_of(const Panel *panel) { return (panel->model->head_size + LANES - 1) / LANES; }

/* ``mix`` is split into tasks: TOGETHER queries times sixteen columns of the values. */
static num tasks_of(const Panel *panel) {
  return (panel->count + TOGETHER - 1) / TOGETHER * columns_of(panel);
}

static void mix(const Panel *panel, num first, num end, void *attended) {
  const Model *model = panel->model;
  num D = model->head_size, each = queries_for(model), kind = model->kind;
  num width = wide(model->query_heads * D), keys = panel->end - panel->begin;
  float sums[TOGETHER * LANES] __attribute__((aligned(64)));
  const float *weights = panel->scores + panel->begin * LANES;
  vec total = all_lanes(0.0f);
  for (num key = 0; first < end && key < keys; key++) total = total + load(weights + key * LANES);
  for (num task = first; task < end; task++) {
    num lane = task / columns_of(panel) * TOGETHER, column = task % columns_of(panel) * LANES;
    const void *values = (const uint8_t *)panel->values + (panel->begin * wide(D) + column) * size_of(kind);
    (kind == F32 ? f32_mix : bf16_mix)(weights + lane, values, wide(D), keys, sums);
    for (num own = lane; own < min(lane + TOGETHER, panel->count); own++) {
      num query = panel->first + own, head = panel->group * each + query % each;
      void *to = (void *)row_of(attended, kind, width, panel->row + query / each);
      put_some(to, kind, head * D + column, load(sums + (own - lane) * LANES) / total[own], D - column);
    }
  }
}

/* One of three stages of a panel that all threads share; ``largest`` has a vector for each of them. */
static void share_panel(const Panel *panel, int stage, Work work, vec *largest, Worker worker) {
  num first, end;
  share(stage < 2 ? panel->end - panel->begin : tasks_of(panel), worker, &first, &end);
  num from = panel->begin + first, until = panel->begin + end;
  if (stage == 0) {
    pack_queries(panel, work.qkv);
    largest[worker.index] = score(panel, from, until);
  }
  if (stage == 1) {
    vec all = largest[0];
    for (num thread = 1; thread < worker.count; thread++) all = larger(largest[thread], all);
    weigh(panel, from, until, all);
  }
  if (stage == 2) mix(panel, first, end, work.attended);
}

/* A thread takes whole panels where there are enough for all, otherwise all of them share each panel. */
void attend(const Model *model, const Batch *batch, num layer, Work work, Worker worker) {
  num panels = 0, task = 0, row = 0;
  for (num p = 0; p < batch->parts; p++) panels += panels_of(model, batch->part + p) * model->key_heads;
  int stages = panels >= worker.count || worker.count == 1 ? 1 : 3;
  for (int stage = 0; stage < stages; stage++, task = 0, row = 0) {
    if (stage) wait_for_all(worker);
    for (num p = 0; p < batch->parts; row += batch->part[p].rows, p++)
      for (num own = 0; own < panels_of(model, batch->part + p) * model->key_heads; own++, task++) {
        if (stages == 1 && task % worker.count != worker.index) continue;
        Panel panel = panel_of(model, batch, layer, p, row, own);
        num place = stages == 1 ? worker.index : task;
        panel.queries = work.queries + worker.index * LANES * wide(model->head_size);
        panel.scores = work.scores + place * work.keys * LANES;
        if (stages == 3) {
          share_panel(&panel, stage, work, work.largest + task * worker.count, worker);
          continue;
        }
        pack_queries(&panel, work.qkv);
        weigh(&panel, panel.begin, panel.end, score(&panel, panel.begin, panel.end));
        mix(&panel, 0, tasks_of(&panel), work.attended);
      }
  }
}
