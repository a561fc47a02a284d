/* Attention by AMX over a cache in bfloat16: sixteen queries of a group, the lanes of a view, at a time.

   Scores are products like any other: keys are the weights and queries the rows. The order of the terms of a
   sum over values shows in its bits, though: AMX adds up the even and the odd of 32, and in a tree the ancestors
   of a node lie at other slots than in a text. So it sums blocks of 32 places of the text that lie before all
   nodes that a row could see in a tree, a span of blocks at a time, by weights against the largest of the span,
   which any thread may do. The recent keys behind them come one by one at the end, where the weight 0 of an
   unseen key changes nothing. */

#include "model.h"

#define KEYS PLACES /* of a block */
#define SPAN 256    /* keys */
#define RECENT 64   /* no tree is deeper */
#define TILES 4     /* of sixteen keys, or of sixteen numbers of a head, that are summed at once */
#define VIEWS 8     /* that are looked through together, while a span is in the cache */

#ifdef __AMX_BF16__

typedef struct { /* sixteen queries of a group, and what they see */
  const Part *part;
  num row, group;            /* of the batch, that the part begins with */
  num first, lanes;          /* queries: H / G for each row of the part */
  num first_row, rows;       /* of the part, which the lanes belong to */
  __mmask16 lanes_of[LANES]; /* each row's */
  num end;                   /* of the keys that any lane sees */
  num least, most;           /* of the lanes' first recent keys */
  __m512i border;            /* those, by lane */
  float *largest;            /* [spans][lane]: of the scores of keys that are not recent */
  float *sums;               /* [spans][D + 1][lane]: their values by their weights, and the weights */
  float *recent;             /* [keys from ``least`` on][lane]: scores of recent ones */
} View;

static num spans_to(num key) { return (key + SPAN - 1) / SPAN; }

/* Numbers that a view writes down. */
static num room_of(const Model *model, num rows, num keys) {
  return (spans_to(keys) * (model->head_size + 2) + RECENT + 2 * KEYS + rows) * LANES;
}

num tile_room(const Model *model, num rows, num keys, num threads) {
  return VIEWS * threads * room_of(model, rows, keys);
}

/* Which lanes see a key. */
static __mmask16 seeing(const View *view, num key) {
  const Part *part = view->part;
  num column = key - (part->length + part->rows - part->columns);
  const uint8_t *seen = part->seen + view->first_row * part->columns + column;
  __mmask16 mask = 0;
  if (column < 0) return mask_of(LANES);
  for (num row = 0; row < view->rows; row++) mask |= seen[row * part->columns] ? view->lanes_of[row] : 0;
  return mask;
}

static View look(const Model *model, const Part *part, num row, num group, num first, float *room) {
  num keys = part->length + part->rows, spans = spans_to(keys), D = model->head_size;
  num each = model->query_heads / model->key_heads, lane = 0;
  int32_t border[LANES];
  View view = {.part = part, .row = row, .group = group, .first = first, .end = keys, .least = keys};
  view.largest = room;
  view.sums = room + spans * LANES;
  view.recent = view.sums + spans * (D + 1) * LANES;
  view.lanes = least(LANES, part->rows * each - first);
  view.first_row = first / each;
  for (num query = first; lane < view.lanes; view.rows++) {
    num own = view.first_row + view.rows, until = least((own + 1) * each - first, view.lanes);
    num place = part->length + part->depths[own], from = most(0, place / KEYS * KEYS - RECENT);
    view.lanes_of[view.rows] = (__mmask16)(mask_of(until) & ~mask_of(query - first));
    view.least = least(view.least, from);
    view.most = most(view.most, from);
    for (; lane < until; lane++, query++) border[lane] = (int32_t)from;
  }
  for (; lane < LANES; lane++) border[lane] = (int32_t)view.most;
  view.border = _mm512_loadu_si512(border);
  while (view.end > part->length + 1 && !seeing(&view, view.end - 1)) view.end--;
  return view;
}

/* To which lanes a key is not recent. */
static __mmask16 older(const View *view, num key) {
  return _mm512_cmpgt_epi32_mask(view->border, _mm512_set1_epi32((int)key));
}

/* Where the numbers of each lane's query lie, in an array [rows][H][size of a head]. */
static void find_queries(const Model *model, const View *view, num *row, num *head) {
  num each = model->query_heads / model->key_heads, query = view->first;
  for (num lane = 0; lane < view->lanes; lane++, query++) {
    row[lane] = view->row + query / each;
    head[lane] = view->group * each + query % each;
  }
}

/* The queries' numbers in pairs, as a product reads its rows. */
static void gather(const Model *model, const View *view, Work work, uint32_t *to) {
  num D = model->head_size, row[LANES], head[LANES];
  find_queries(model, view, row, head);
  memset(to, 0, (size_t)(D / 2 * LANES) * sizeof *to);
  for (num lane = 0; lane < view->lanes; lane++) {
    const bf16 *query = (const bf16 *)work.queries + (row[lane] * model->query_heads + head[lane]) * D;
    for (num i = 0; i < D / 2; i++) memcpy(to + i * LANES + lane, query + 2 * i, sizeof *to);
  }
}

/* Scores [keys][lane] of a span, −∞ for what a lane does not see. */
static void score(const Model *model, const View *view, const bf16 *keys, const uint32_t *queries, num first,
                  float *scores) {
  num D = model->head_size, bytes = D * (num)sizeof(bf16), until = least(first + SPAN, view->end);
  num seen = view->part->length + view->part->rows - view->part->columns;
  for (num key = first; key < until; key += TILES * LANES) {
    const bf16 *from = keys + key * D;
    float *to = scores + (key - first) * LANES;
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (num i = 0; i < D; i += 32) {
      _tile_loadd(4, queries + i / 2 * LANES, 64);
      _tile_loadd(5, from + i, bytes);
      _tile_dpbf16ps(0, 5, 4);
      _tile_loadd(6, from + LANES * D + i, bytes);
      _tile_dpbf16ps(1, 6, 4);
      _tile_loadd(7, from + 2 * LANES * D + i, bytes);
      _tile_dpbf16ps(2, 7, 4);
      _tile_loadd(5, from + 3 * LANES * D + i, bytes);
      _tile_dpbf16ps(3, 5, 4);
    }
    _tile_stored(0, to, 64);
    _tile_stored(1, to + LANES * LANES, 64);
    _tile_stored(2, to + 2 * LANES * LANES, 64);
    _tile_stored(3, to + 3 * LANES * LANES, 64);
  }
  for (num key = most(first, seen); key < (until + KEYS - 1) / KEYS * KEYS; key++) {
    float *own = scores + (key - first) * LANES;
    __mmask16 mask = key < until ? seeing(view, key) : 0;
    _mm512_store_ps(own, _mm512_mask_loadu_ps(_mm512_set1_ps(-INFINITY), mask, own));
  }
}

/* Some tiles of sixteen numbers of a head: their sums over blocks of keys. */
static void mix_blocks(const bf16 *values, num size, const uint32_t *pairs, num blocks, num tiles,
                       float *to) {
  num block_size = size * KEYS, tile_size = LANES * KEYS;
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  for (num block = 0; block < blocks; block++, values += block_size, pairs += KEYS / 2 * LANES) {
    _tile_loadd(4, pairs, 64);
    _tile_loadd(5, values, 64);
    _tile_dpbf16ps(0, 5, 4);
    if (tiles > 1) {
      _tile_loadd(6, values + tile_size, 64);
      _tile_dpbf16ps(1, 6, 4);
    }
    if (tiles > 2) {
      _tile_loadd(7, values + 2 * tile_size, 64);
      _tile_dpbf16ps(2, 7, 4);
    }
    if (tiles > 3) {
      _tile_loadd(5, values + 3 * tile_size, 64);
      _tile_dpbf16ps(3, 5, 4);
    }
  }
  _tile_stored(0, to, 64);
  if (tiles > 1) _tile_stored(1, to + LANES * LANES, 64);
  if (tiles > 2) _tile_stored(2, to + 2 * LANES * LANES, 64);
  if (tiles > 3) _tile_stored(3, to + 3 * LANES * LANES, 64);
}

/* Pairs of weights of blocks of keys against the largest score, and the sum of the weights; 0 where a key is
   recent to a lane. */
static void weigh(const View *view, const float *scores, num first, num blocks, uint32_t *pairs,
                  float *sums) {
  vec several[4], sum = _mm512_setzero_ps();
  for (int i = 0; i < 4; i++) several[i] = _mm512_set1_ps(-INFINITY);
  for (num block = 0; block < blocks; block++) {
    __mmask16 old = older(view, first + block * KEYS);
    for (num i = 0; i < KEYS; i++) {
      vec own = _mm512_load_ps(scores + (block * KEYS + i) * LANES);
      several[i % 4] = _mm512_mask_max_ps(several[i % 4], old, several[i % 4], own);
    }
  }
  vec largest = _mm512_max_ps(_mm512_max_ps(several[0], several[1]), _mm512_max_ps(several[2], several[3]));
  _mm512_store_ps(view->largest + first / SPAN * LANES, largest);
  for (num block = 0; block < blocks; block++) {
    __mmask16 old = older(view, first + block * KEYS);
    for (num i = block * KEYS; i < (block + 1) * KEYS; i += 2) {
      vec a = power_of_two(_mm512_sub_ps(_mm512_load_ps(scores + i * LANES), largest), old);
      vec b = power_of_two(_mm512_sub_ps(_mm512_load_ps(scores + (i + 1) * LANES), largest), old);
      sum = _mm512_add_ps(_mm512_add_ps(sum, a), b);
      _mm512_store_si512(pairs + i / 2 * LANES, paired(a, b));
    }
  }
  _mm512_store_ps(sums, sum);
}

/* A span: what is not recent is summed, the scores of what is recent are kept. */
static void mix(const Model *model, const View *view, const bf16 *values, const float *scores, num first) {
  num D = model->head_size, until = least(first + SPAN, view->end);
  num blocks = (least(first + SPAN, view->most) - first) / KEYS;
  float *sums = view->sums + first / SPAN * (D + 1) * LANES;
  uint32_t pairs[SPAN / 2 * LANES] __attribute__((aligned(64)));
  if (blocks > 0) {
    weigh(view, scores, first, blocks, pairs, sums + D * LANES);
    for (num d = 0; d < D; d += TILES * LANES)
      mix_blocks(values + first * D + d * KEYS, D, pairs, blocks, least(TILES, (D - d) / LANES),
                 sums + d * LANES);
  }
  for (num key = most(first, view->least); key < until; key++)
    _mm512_store_ps(view->recent + (key - view->least) * LANES,
                    _mm512_load_ps(scores + (key - first) * LANES));
}

/* Sixteen numbers of a head: the recent keys are added, in their order. */
static void mix_recent(const View *view, const bf16 *values, num size, vec *sum) {
  float wide[LANES][KEYS] __attribute__((aligned(64)));
  for (num key = view->least; key < view->end; key += KEYS) {
    const bf16 *block = values + key * size;
    for (int d = 0; d < LANES; d++)
      for (int half = 0; half < KEYS; half += LANES) {
        __m512i bits = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(block + d * KEYS + half)));
        _mm512_store_si512(wide[d] + half, _mm512_slli_epi32(bits, 16));
      }
    for (num i = 0; i < least(KEYS, view->end - key); i++) {
      vec weight = _mm512_load_ps(view->recent + (key + i - view->least) * LANES);
      for (int d = 0; d < LANES; d++) sum[d] = _mm512_fmadd_ps(weight, _mm512_set1_ps(wide[d][i]), sum[d]);
    }
  }
}

/* Scores of recent keys become weights, and those of spans get the same measure; the sum of all weights. */
static vec weigh_all(const View *view, num size) {
  num spans = spans_to(view->most), stride = (size + 1) * LANES;
  vec largest = _mm512_set1_ps(-INFINITY), whole = _mm512_setzero_ps();
  for (num span = 0; span < spans; span++)
    largest = _mm512_max_ps(largest, _mm512_load_ps(view->largest + span * LANES));
  for (num key = view->least; key < view->end; key++)
    largest = _mm512_max_ps(largest, _mm512_load_ps(view->recent + (key - view->least) * LANES));
  for (num span = 0; span < spans; span++) {
    float *own = view->largest + span * LANES;
    vec by = power_of_two(_mm512_sub_ps(_mm512_load_ps(own), largest), mask_of(LANES));
    whole = _mm512_fmadd_ps(by, _mm512_load_ps(view->sums + span * stride + size * LANES), whole);
    _mm512_store_ps(own, by);
  }
  for (num key = view->least; key < view->end; key++) {
    float *own = view->recent + (key - view->least) * LANES;
    vec weight = power_of_two(_mm512_sub_ps(_mm512_load_ps(own), largest), (__mmask16)~older(view, key));
    whole = _mm512_add_ps(whole, weight);
    _mm512_store_ps(own, weight);
  }
  return whole;
}

/* The whole sums by their denominators, as the pairs that the next product reads. */
static void finish(const Model *model, const View *view, const bf16 *values, Work work) {
  num D = model->head_size, stride = (D + 1) * LANES, row[LANES], head[LANES];
  vec whole = weigh_all(view, D), sum[LANES];
  uint32_t *to[LANES], pairs[LANES];
  find_queries(model, view, row, head);
  for (num lane = 0; lane < view->lanes; lane++)
    to[lane] = work.pairs + (row[lane] / LANES * model->query_heads + head[lane]) * D / 2 * LANES +
               row[lane] % LANES;
  for (num d = 0; d < D; d += LANES) {
    for (int i = 0; i < LANES; i++) sum[i] = _mm512_setzero_ps();
    for (num span = 0; span < spans_to(view->most); span++) {
      vec by = _mm512_load_ps(view->largest + span * LANES);
      const float *own = view->sums + span * stride + d * LANES;
      for (int i = 0; i < LANES; i++) sum[i] = _mm512_fmadd_ps(by, _mm512_load_ps(own + i * LANES), sum[i]);
    }
    mix_recent(view, values + d * KEYS, D, sum);
    for (int i = 0; i < LANES; i += 2) {
      _mm512_storeu_si512(pairs, paired(_mm512_div_ps(sum[i], whole), _mm512_div_ps(sum[i + 1], whole)));
      for (num lane = 0; lane < view->lanes; lane++) to[lane][(d + i) / 2 * LANES] = pairs[lane];
    }
  }
}

/* The first or second stage of views of one group, or both (−1). Threads share each stage. */
static void attend_views(const Model *model, const View *view, num views, num layer, int stage, Work work,
                         num thread, num threads) {
  num D = model->head_size, slots = view->part->slots, first, end, last = 0;
  num place = (layer * model->key_heads + view->group) * slots * D;
  const bf16 *keys = (const bf16 *)view->part->keys + place,
             *values = (const bf16 *)view->part->values + place;
  uint32_t queries[VIEWS][D / 2 * LANES] __attribute__((aligned(64)));
  float scores[SPAN * LANES] __attribute__((aligned(64)));
  if (stage != 1) {
    for (num i = 0; i < views; i++) {
      last = most(last, view[i].end);
      gather(model, view + i, work, queries[i]);
    }
    share(spans_to(last), (Worker){(int)thread, (int)threads, 1, 0}, &first, &end);
    for (num key = first * SPAN; key < end * SPAN; key += SPAN)
      for (num i = 0; i < views; i++) {
        if (key >= view[i].end) continue;
        score(model, view + i, keys, queries[i], key, scores);
        mix(model, view + i, values, scores, key);
      }
  }
  for (num i = thread; stage != 0 && i < views; i += threads) finish(model, view + i, values, work);
}

/* A thread takes the views of whole groups, so that it alone reads their keys and values. Where there are too
   few groups, threads share the spans of a long text, and of a short one each takes some views. */
void attend_by_tiles(const Model *model, const Batch *batch, num layer, Work work, Worker worker) {
  num each = model->query_heads / model->key_heads, threads = worker.threads;
  num views = 0, longest = 0, rows = 0, groups = batch->parts * model->key_heads;
  for (num p = 0; p < batch->parts; p++) {
    const Part *part = batch->part + p;
    views += model->key_heads * blocks_of(part->rows * each);
    longest = most(longest, part->length + part->rows);
    rows = most(rows, part->rows);
  }
  int by_group = groups % threads == 0 || groups >= 4 * threads;
  int shared = !by_group && longest > SPAN && views <= VIEWS * threads;
  num some = by_group || shared ? VIEWS : most(1, least(VIEWS, views / threads));
  num room = room_of(model, rows, longest);
  for (int stage = 0; stage < (shared ? 2 : 1); stage++) {
    num task = 0, row = 0, number = 0;
    for (num p = 0; p < batch->parts; row += batch->part[p].rows, p++)
      for (num group = 0; group < model->key_heads; group++)
        for (num first = 0, of = batch->part[p].rows * each; first < of; first += some * LANES, task++) {
          num count = least(some, blocks_of(of - first)), own = shared ? number : worker.thread * VIEWS;
          num taker = (by_group ? p * model->key_heads + group : task) % threads;
          View view[VIEWS];
          number += count;
          if (!shared && taker != worker.thread) continue;
          for (num i = 0; i < count; i++)
            view[i] =
                look(model, batch->part + p, row, group, first + i * LANES, batch->scores + (own + i) * room);
          if (shared) attend_views(model, view, count, layer, stage, work, worker.thread, threads);
          else attend_views(model, view, count, layer, -1, work, 0, 1);
        }
    if (shared && stage == 0) meet(worker);
  }
}

#else
num tile_room(const Model *model, num rows, num keys, num threads) {
  (void)model, (void)rows, (void)keys;
  return threads;
}

void attend_by_tiles(const Model *model, const Batch *batch, num layer, Work work, Worker worker) {
  attend(model, batch, layer, work, worker); /* which is not reached: without AMX no cache is in bfloat16 */
}
#endif
