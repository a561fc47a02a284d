/* Attention of the rows of a batch over their caches: each sum over the keys in their order. */

#include "model.h"

#define LOG2_E 1.44269504f /* for weights that are powers of two */
#define QUERIES 8          /* that are multiplied with the same keys at once */
#define FEWEST 16          /* queries of a task */
#define SCORED 64          /* keys of a task */
#define NEAR 128           /* value rows that stay in the first cache while several queries read them */
#define CLOSE                                                                                                \
  512 /* keys whose weights stay in the second cache from where they are made to where they are read */

static vec inverse_length(const float *x, num size, float floor) {
  vec sum[4];
  for (int i = 0; i < 4; i++) sum[i] = _mm512_setzero_ps();
  for (num i = 0; i < size; i++) {
    vec value = _mm512_load_ps(x + i * LANES);
    sum[i % 4] = _mm512_fmadd_ps(value, value, sum[i % 4]);
  }
  vec all = _mm512_add_ps(_mm512_add_ps(sum[0], sum[1]), _mm512_add_ps(sum[2], sum[3]));
  return _mm512_div_ps(_mm512_set1_ps(1.0f), _mm512_sqrt_ps(_mm512_add_ps(all, _mm512_set1_ps(floor))));
}

static vec normed(const float *x, const float *weight, num i, vec by) {
  return _mm512_mul_ps(_mm512_mul_ps(_mm512_load_ps(x + i * LANES), by), _mm512_set1_ps(weight[i]));
}

/* RMS norm of the rows of each block, as pairs that lie ``stride`` features apart. */
void norm(const float *x, const float *weight, num size, float floor, uint32_t *pairs, num stride, num blocks,
          Worker worker) {
  for (num block = worker.thread; block < blocks; block += worker.threads) {
    const float *rows = x + block * size * LANES;
    uint32_t *to = pairs + block * stride / 2 * LANES;
    vec by = inverse_length(rows, size, floor);
    for (num i = 0; i < size; i += 2)
      _mm512_store_si512(to + i / 2 * LANES,
                         paired(normed(rows, weight, i, by), normed(rows, weight, i + 1, by)));
  }
}

/* The numbers of a head of a block: normed where the model does that, and turned by their positions. */
static void turn(const Model *model, const float *norm_weight, int rotates, float *x, const float *cos,
                 const float *sin) {
  num half = model->rotated / 2;
  if (norm_weight) {
    vec by = inverse_length(x, model->head_size, model->head_floor);
    for (num i = 0; i < model->head_size; i++) _mm512_store_ps(x + i * LANES, normed(x, norm_weight, i, by));
  }
  for (num i = 0; rotates && i < half; i++) {
    num j = i + half;
    vec a = _mm512_load_ps(x + i * LANES), b = _mm512_load_ps(x + j * LANES);
    vec first = _mm512_mul_ps(a, _mm512_load_ps(cos + i * LANES));
    vec second = _mm512_mul_ps(b, _mm512_load_ps(cos + j * LANES));
    _mm512_store_ps(x + i * LANES, _mm512_fmadd_ps(b, _mm512_load_ps(sin + i * LANES), first));
    _mm512_store_ps(x + j * LANES, _mm512_fmadd_ps(a, _mm512_load_ps(sin + j * LANES), second));
  }
}

/* Keys are columns of the cache and values rows of it; for AMX it is the other way round. */
static void keep(const Model *model, const Batch *batch, num layer, num group, int is_value, const float *x,
                 num block) {
  num D = model->head_size, first = 0;
  for (num p = 0; p < batch->parts; first += batch->part[p].rows, p++) {
    const Part *part = batch->part + p;
    num from = most(first, block * LANES), end = least(first + part->rows, (block + 1) * LANES);
    num head = layer * model->key_heads + group;
    for (num row = from; row < end; row++) {
      num slot = part->length + row - first;
      const float *numbers = x + row % LANES;
      if (model->tiled && is_value) {
        bf16 *to = (bf16 *)part->values + (head * part->slots + slot / PLACES * PLACES) * D + slot % PLACES;
        for (num i = 0; i < D; i++) to[i * PLACES] = narrowed(numbers[i * LANES]);
      } else if (model->tiled) {
        bf16 *to = (bf16 *)part->keys + (head * part->slots + slot) * D;
        for (num i = 0; i < D; i++) to[i] = narrowed(numbers[i * LANES]);
      } else if (is_value) {
        float *to = (float *)part->values + (head * part->slots + slot) * (D + ONES);
        for (num i = 0; i < D; i++) to[i] = numbers[i * LANES];
      } else {
        float *to = (float *)part->keys + head * D * part->slots + slot;
        for (num i = 0; i < D; i++) to[i * part->slots] = numbers[i * LANES];
      }
    }
  }
}

void turn_and_keep(const Model *model, const Batch *batch, num number, Work work, Worker worker) {
  const Layer *layer = model->layer + number;
  num H = model->query_heads, G = model->key_heads, D = model->head_size, heads = H + 2 * G;
  for (num task = worker.thread; task < blocks_of(batch->rows) * heads; task += worker.threads) {
    num block = task / heads, head = task % heads;
    float *x = work.qkv + task * D * LANES;
    const float *cos = work.cos + block * model->rotated * LANES,
                *sin = work.sin + block * model->rotated * LANES;
    if (head < H + G)
      turn(model, head < H ? layer->query_norm : layer->key_norm, layer->rotates != 0, x, cos, sin);
    for (num row = block * LANES; head < H && row < least((block + 1) * LANES, batch->rows); row++) {
      num place = (row * H + head) * D;
      for (num i = 0; i < D; i++) {
        float number = x[i * LANES + row % LANES] * model->scale;
        if (model->tiled) ((bf16 *)work.queries)[place + i] = narrowed(number * LOG2_E);
        else work.queries[place + i] = number;
      }
    }
    if (head >= H) keep(model, batch, number, (head - H) % G, head >= H + G, x, block);
  }
}

typedef struct { /* what attention reads of a part, for the rows that are looked at now */
  const Part *part;
  num first;   /* row of the batch that the part begins with */
  num begin;   /* row of the part that is looked at first */
  num queries; /* of each group: H / G for each row */
  num keys, stride;
  float *scores; /* [G][queries][stride] */
} View;

/* Returns where the scores of the next part lie. */
static float *look(const Model *model, const Batch *batch, num p, num first, num begin, float *scores,
                   View *view) {
  const Part *part = batch->part + p;
  num rows = most(0, least(batch->rows_at_once, part->rows - begin));
  num keys = part->length + part->rows, queries = rows * (model->query_heads / model->key_heads);
  *view = (View){part, first, begin, queries, keys, whole(keys), scores};
  return scores + model->key_heads * queries * view->stride;
}

/* Which query of the batch, [N][H], is number ``query`` of a group of a part. */
static num place_of(const Model *model, View view, num group, num query) {
  num each = model->query_heads / model->key_heads;
  return (view.first + view.begin + query / each) * model->query_heads + group * each + query % each;
}

/* Scores of the queries from ``begin`` to ``end`` on two vectors of keys. */
static void score(const Model *model, Work work, View view, num layer, num group, num begin, num end,
                  num key) {
  num D = model->head_size, slots = view.part->slots;
  const float *keys = (const float *)view.part->keys + (layer * model->key_heads + group) * D * slots + key;
  __mmask16 low = mask_of(view.keys - key), high = mask_of(view.keys - key - LANES);
  for (num query = begin; query < end; query += QUERIES) {
    num count = least(QUERIES, end - query);
    const float *numbers[QUERIES];
    vec sum[QUERIES][2];
    for (int q = 0; q < QUERIES; q++) {
      numbers[q] = work.queries + place_of(model, view, group, query + least(q, count - 1)) * D;
      sum[q][0] = sum[q][1] = _mm512_setzero_ps();
    }
    for (num i = 0; i < D; i++) {
      vec a = _mm512_maskz_loadu_ps(low, keys + i * slots),
          b = _mm512_maskz_loadu_ps(high, keys + i * slots + LANES);
      for (int q = 0; q < QUERIES; q++) {
        vec x = _mm512_set1_ps(numbers[q][i]);
        sum[q][0] = _mm512_fmadd_ps(x, a, sum[q][0]);
        sum[q][1] = _mm512_fmadd_ps(x, b, sum[q][1]);
      }
    }
    float *to = view.scores + (group * view.queries + query) * view.stride + key;
    for (int q = 0; q < QUERIES; q++) { /* all of them, so that sums stay in registers */
      _mm512_mask_storeu_ps(to + q * view.stride, q < count ? low : 0, sum[q][0]);
      _mm512_mask_storeu_ps(to + q * view.stride + LANES, q < count ? high : 0, sum[q][1]);
    }
  }
}

/* Hides from one query what it does not see; the largest of the other scores. */
static float hide_unseen(const Model *model, View view, num group, num query) {
  num row = view.begin + query / (model->query_heads / model->key_heads), columns = view.part->columns;
  float *scores = view.scores + (group * view.queries + query) * view.stride,
        *own = scores + view.keys - columns;
  const uint8_t *seen = view.part->seen + row * columns;
  vec hide = _mm512_set1_ps(-INFINITY), largest = hide;
  for (num other = 0; other < columns; other += LANES) {
    __mmask16 real = mask_of(columns - other);
    __mmask16 hidden =
        _mm_mask_cmpeq_epi8_mask(real, _mm_maskz_loadu_epi8(real, seen + other), _mm_setzero_si128());
    _mm512_mask_storeu_ps(own + other, hidden, hide);
  }
  _mm512_mask_storeu_ps(scores + view.keys, mask_of(view.stride - view.keys), hide);
  for (num key = 0; key < view.stride; key += LANES)
    largest = _mm512_max_ps(largest, _mm512_load_ps(scores + key));
  return _mm512_reduce_max_ps(largest);
}

/* Scores of one query from key ``first`` to ``end`` become e^(score − largest), 0 for what is hidden. */
static void weigh(View view, num group, num query, float largest, num first, num end) {
  float *scores = view.scores + (group * view.queries + query) * view.stride;
  vec below = _mm512_set1_ps(largest);
  for (num key = first; key < end; key += LANES)
    _mm512_store_ps(scores + key, exponential(_mm512_sub_ps(_mm512_load_ps(scores + key), below)));
}

/* Adds w · v of the keys from ``from`` to ``until`` in their order, for some queries and two vectors of columns. */
static void mix(const Model *model, Work work, View view, num layer, num group, num begin, num end,
                num column, num from, num until) {
  num D = model->head_size, wide = D + ONES;
  int two = column + LANES < wide;
  const float *all = (const float *)view.part->values +
                     (layer * model->key_heads + group) * view.part->slots * wide + column;
  for (num first = from; first < until; first += NEAR)
    for (num query = begin; query < end; query += QUERIES) {
      num count = least(QUERIES, end - query);
      const float *weights[QUERIES], *values = all + first * wide;
      float *to[QUERIES];
      vec sum[QUERIES][2];
      for (int q = 0; q < QUERIES; q++) {
        num own = query + least(q, count - 1);
        weights[q] = view.scores + (group * view.queries + own) * view.stride;
        to[q] = work.sums + place_of(model, view, group, own) * wide + column;
        sum[q][0] = first ? _mm512_loadu_ps(to[q]) : _mm512_setzero_ps();
        sum[q][1] = first && two ? _mm512_loadu_ps(to[q] + LANES) : _mm512_setzero_ps();
      }
      for (num key = first; key < least(first + NEAR, until); key++, values += wide) {
        vec a = _mm512_loadu_ps(values), b = two ? _mm512_loadu_ps(values + LANES) : a;
        for (int q = 0; q < QUERIES; q++) {
          vec weight = _mm512_set1_ps(weights[q][key]);
          sum[q][0] = _mm512_fmadd_ps(weight, a, sum[q][0]);
          sum[q][1] = _mm512_fmadd_ps(weight, b, sum[q][1]);
        }
      }
      for (int q = 0; q < QUERIES; q++) {
        _mm512_storeu_ps(to[q], sum[q][0]);
        if (two) _mm512_storeu_ps(to[q] + LANES, sum[q][1]);
      }
    }
}

/* Sums by their denominators, as the pairs that the next product reads. */
static void divide(const Model *model, const Batch *batch, Work work, Worker worker) {
  num H = model->query_heads, D = model->head_size, wide = D + ONES;
  for (num task = worker.thread; task < blocks_of(batch->rows) * H; task += worker.threads) {
    num first = task / H * LANES, head = task % H;
    for (num row = first; row < least(first + LANES, batch->rows); row++) {
      const float *sums = work.sums + (row * H + head) * wide;
      uint32_t *to = work.pairs + task * D / 2 * LANES + row % LANES, pairs[LANES / 2];
      for (num i = 0; i < D; i += LANES) {
        vec by = _mm512_div_ps(_mm512_loadu_ps(sums + i), _mm512_set1_ps(sums[D]));
        _mm256_storeu_si256((__m256i *)pairs, (__m256i)_mm512_cvtneps_pbh(by));
        for (int pair = 0; pair < LANES / 2; pair++, to += LANES) *to = pairs[pair];
      }
    }
  }
}

/* Of each group's queries a thread takes ``some``, from their scores to their sums. */
static void attend_by_queries(const Model *model, Work work, View view, num layer, num some, num *task,
                              Worker worker) {
  for (num group = 0; group < model->key_heads; group++)
    for (num begin = 0; begin < view.queries; begin += some) {
      num end = least(begin + some, view.queries);
      if ((*task)++ % worker.threads != worker.thread) continue;
      for (num key = 0; key < view.keys; key += 2 * LANES)
        score(model, work, view, layer, group, begin, end, key);
      float largest[end - begin];
      for (num query = begin; query < end; query++)
        largest[query - begin] = hide_unseen(model, view, group, query);
      for (num first = 0; first < view.keys; first += CLOSE) {
        num until = least(first + CLOSE, view.keys);
        for (num query = begin; query < end; query++)
          weigh(view, group, query, largest[query - begin], first, until);
        for (num column = 0; column < model->head_size + ONES; column += 2 * LANES)
          mix(model, work, view, layer, group, begin, end, column, first, until);
      }
    }
}

/* One of three stages, each after the one before, for which few queries are parted by keys and by columns. */
static void attend_in_stages(const Model *model, Work work, View view, num layer, int stage, num *task,
                             Worker worker) {
  num tasks = view.queries;
  if (stage == 0) tasks = (view.keys + SCORED - 1) / SCORED;
  if (stage == 2) tasks = (model->head_size + ONES + 2 * LANES - 1) / (2 * LANES);
  for (num group = 0; group < (view.queries ? model->key_heads : 0); group++)
    for (num i = 0; i < tasks; i++) {
      if ((*task)++ % worker.threads != worker.thread) continue;
      for (num key = i * SCORED; stage == 0 && key < least((i + 1) * SCORED, view.keys); key += 2 * LANES)
        score(model, work, view, layer, group, 0, view.queries, key);
      if (stage == 1) weigh(view, group, i, hide_unseen(model, view, group, i), 0, view.keys);
      if (stage == 2) mix(model, work, view, layer, group, 0, view.queries, i * 2 * LANES, 0, view.keys);
    }
}

/* Tasks of ``some`` queries that the rows looked at together make. */
static num tasks_of(const Model *model, const Batch *batch, num some) {
  num tasks = 0, each = model->query_heads / model->key_heads;
  for (num p = 0; p < batch->parts; p++)
    tasks += (least(batch->part[p].rows, batch->rows_at_once) * each + some - 1) / some;
  return tasks * model->key_heads;
}

void attend(const Model *model, const Batch *batch, num layer, Work work, Worker worker) {
  num longest = 0, each = model->query_heads / model->key_heads;
  for (num p = 0; p < batch->parts; p++) longest = most(longest, batch->part[p].rows);
  /* As many as leave a task for each thread, since all of them read the keys once together. */
  num share = least(longest, batch->rows_at_once) * each / worker.threads;
  num some = most(FEWEST, (share + QUERIES - 1) / QUERIES * QUERIES);
  int stages = tasks_of(model, batch, some) >= worker.threads ? 1 : 3;
  for (num begin = 0; begin < longest; begin += batch->rows_at_once)
    for (int stage = 0; stage < stages; stage++) {
      num task = 0, first = 0;
      float *scores = batch->scores;
      for (num p = 0; p < batch->parts; first += batch->part[p].rows, p++) {
        View view;
        scores = look(model, batch, p, first, begin, scores, &view);
        if (stages == 1) attend_by_queries(model, work, view, layer, some, &task, worker);
        else attend_in_stages(model, work, view, layer, stage, &task, worker);
      }
      meet(worker);
    }
  divide(model, batch, work, worker);
}
