/* The forward itself: norms, rotations and residual sums are made row by row. */

#include "model.h"

#define FEW 4 /* rows that every thread norms for itself, which takes less time than a barrier */

static num inputs_of(const Model *model) { return model->hidden * (model->of_embedding ? 2 : 1); }
static num heads_of(const Model *model) { return model->query_heads + 2 * model->key_heads; }

/* 1 / √(mean x² + ε) */
static float inverse_length(const float *x, num size, float epsilon) {
  vec sum = all_lanes(0.0f);
  num whole = size / LANES * LANES;
  for (num i = 0; i < whole; i += LANES) sum = sum + load(x + i) * load(x + i);
  float all = sum_of(sum);
  for (num i = whole; i < size; i++) all += x[i] * x[i];
  return 1.0f / sqrtf(all / (float)size + epsilon);
}

/* RMS norm of a row whose padding is 0, written with its padding; without a weight the row as it is. */
static void norm(const float *x, const float *weight, num size, float epsilon, void *to, num kind, num at) {
  vec by = all_lanes(weight ? inverse_length(x, size, epsilon) : 1);
  for (num i = 0; i < wide(size); i += LANES) {
    vec scaled = load(x + i) * by;
    if (weight) scaled *= load(weight + i);
    put(to, kind, at + i, scaled);
  }
}

/* A number of a token's embedding. */
static float embedding_of(const Model *model, num token, num i) {
  const Linear *head = &model->head;
  num panel = token / LANES * LANES * wide(model->hidden);
  num at = panel + place_in_panel(head->kind, i, token % LANES);
  if (model->embedding) return number_of(model->embedding, model->kind, token * model->hidden + i);
  if (head->kind == INT8) return (float)((const int8 *)head->panels)[at] * head->scales[token];
  return number_of(head->panels, head->kind, at);
}

/* Set the initial x: embeddings, or what is given in their place. */
static void embed(const Model *model, const Batch *batch, Work work, Worker worker) {
  num d = model->hidden, width = wide(d), kind = model->kind, mixed = model->query_heads * model->head_size;
  for (num row = worker.index; row < batch->rows; row += worker.count) {
    void *attended = (void *)row_of(work.attended, kind, wide(mixed), row);
    memset(attended, 0, (size_t)(wide(mixed) * size_of(kind))); /* its padding stays so */
    float *x = work.x + row * width, *embedded = model->of_embedding ? work.embedded + row * width : x;
    memset(x, 0, (size_t)width * sizeof *x);
    memset(embedded, 0, (size_t)width * sizeof *x);
    for (num i = 0; i < d; i++) embedded[i] = embedding_of(model, batch->tokens[row], i);
    for (num i = 0; batch->features && i < d; i++) x[i] = number_of(batch->features, kind, row * d + i);
  }
}

/* Pairs (i, i + half) of the first numbers of a head turned by their angles. */
static void rotate(float *x, const float *cos, const float *sin, num rotated) {
  num half = rotated / 2;
  for (num i = 0; i < half; i++) {
    float a = x[i], b = x[i + half];
    x[i] = a * cos[i] + b * sin[i];
    x[i + half] = b * cos[i + half] + a * sin[i + half];
  }
}

static void norm_head(float *x, const float *weight, num size, float epsilon) {
  float by = inverse_length(x, size, epsilon);
  for (num i = 0; i < size; i++) x[i] = x[i] * by * weight[i];
}

/* Write a head's numbers into a row of the cache, with its padding. */
static void write_to_cache(const Model *model, const Part *part, void *rows, num layer, num group, num slot,
                           const float *x) {
  num D = model->head_size, line = (layer * model->key_heads + group) * part->slots + slot;
  void *to = (void *)row_of(rows, model->kind, wide(D), line);
  memset(to, 0, (size_t)(wide(D) * size_of(model->kind)));
  put_row(to, model->kind, x, D);
}

/* Norms and rotations of queries and keys; keys and values go into the cache. */
static void turn(const Model *model, const Batch *batch, num number, Work work, Worker worker) {
  const Layer *layer = model->layer + number;
  num H = model->query_heads, G = model->key_heads, D = model->head_size, first = 0, p = 0;
  for (num row = 0; row < batch->rows; row++) {
    while (row >= first + batch->part[p].rows) first += batch->part[p++].rows;
    const Part *part = batch->part + p;
    num place = batch->positions[row] * model->rotated, slot = part->length + row - first;
    for (num head = 0; head < heads_of(model); head++) {
      if ((row * heads_of(model) + head) % worker.count != worker.index) continue;
      float *x = work.qkv + row * wide(heads_of(model) * D) + head * D;
      const float *weight = head < H ? layer->query_norm : head < H + G ? layer->key_norm : 0;
      if (weight) norm_head(x, weight, D, model->head_epsilon);
      if (layer->rotates && head < H + G) rotate(x, batch->cos + place, batch->sin + place, model->rotated);
      if (head >= H + G) write_to_cache(model, part, part->values, number, head - H - G, slot, x);
      else if (head >= H) write_to_cache(model, part, part->keys, number, head - H, slot, x);
      else if (batch->queries)
        put_row((uint8_t *)batch->queries[number] + (row * H + head) * D * size_of(model->kind), model->kind,
                x, D);
    }
  }
}

static void write_states(const Model *model, const Batch *batch, num layer, Work work, Worker worker) {
  num d = model->hidden;
  for (num row = worker.index; batch->states && batch->states[layer] && row < batch->rows;
       row += worker.count)
    put_row((void *)row_of(batch->states[layer], model->kind, d, row), model->kind, work.x + row * wide(d),
            d);
}

/* Norms of all rows, for the product that comes next. Returns where they are. */
static void *norm_rows(const Model *model, const Batch *batch, const float *embedding_weight,
                       const float *weight, Work work, Worker worker) {
  num d = model->hidden, width = wide(embedding_weight ? 2 * d : d), each = batch->rows <= FEW;
  uint8_t *normed = work.normed + (each ? worker.index * work.normed_size : 0);
  for (num row = each ? 0 : worker.index; row < batch->rows; row += each ? 1 : worker.count) {
    void *to = (void *)row_of(normed, model->kind, width, row);
    const float *x = work.x + row * wide(d);
    if (embedding_weight) {
      float *own = work.embedded + row * wide(d);
      norm(own, embedding_weight, d, model->epsilon, to, model->kind, 0);
    }
    norm(x, weight, d, model->epsilon, to, model->kind, embedding_weight ? d : 0);
  }
  if (!each) wait_for_all(worker);
  return normed;
}

/* A product of rows in the model's kind of numbers, which weights in 8 bits take as whole ones. */
static void multiply_rows(const Linear *linear, const void *x, num rows, Output to, Work work,
                          Worker worker) {
  if (linear->kind == INT8) {
    num width = wide(linear->inputs), each = work.copies > 1, copy = each ? worker.index : 0;
    int16_t *whole = work.whole + copy * work.whole_size;
    float *units = work.units + copy * work.rows;
    for (num row = each ? 0 : worker.index; row < rows; row += each ? 1 : worker.count)
      units[row] = round_row(whole + row * width, row_of(x, to.kind, width, row), to.kind, width);
    if (!each) wait_for_all(worker);
    x = whole, to.units = units;
  }
  product(linear, x, rows, to, worker);
}

static void run_layer(const Model *model, const Batch *batch, num number, Work work, Worker worker) {
  const Layer *layer = model->layer + number;
  num rows = batch->rows, kind = model->kind;
  write_states(model, batch, number, work, worker);
  const void *normed = norm_rows(model, batch, model->of_embedding, layer->before_attention, work, worker);
  multiply_rows(&layer->qkv, normed, rows, (Output){STORE, kind, work.qkv, 0}, work, worker);
  wait_for_all(worker);
  turn(model, batch, number, work, worker);
  wait_for_all(worker);
  attend(model, batch, number, work, worker);
  wait_for_all(worker);
  multiply_rows(&layer->out, work.attended, rows, (Output){ADD, kind, work.x, 0}, work, worker);
  wait_for_all(worker);
  normed = norm_rows(model, batch, 0, layer->before_mlp, work, worker);
  multiply_rows(&layer->gate_up, normed, rows, (Output){GATE, kind, work.inner, 0}, work, worker);
  wait_for_all(worker);
  multiply_rows(&layer->down, work.inner, rows, (Output){ADD, kind, work.x, 0}, work, worker);
  wait_for_all(worker);
}

/* The place of the first largest number or, where there is one, of the first NaN, as in torch. */
static num argmax(const void *row, num kind, num count) {
  const num part = 16 * LANES;
  num best = 0;
  float largest = number_of(row, kind, 0);
  for (num first = 0; first < count; first += part) {
    num end = min(first + part, count), i = first;
    vec top = all_lanes(-INFINITY);
    mask broken = {0};
    for (; i + LANES <= end; i += LANES) {
      vec x = get(row, kind, i);
      top = larger(x, top), broken |= x != x;
    }
    int several = 0, any = i < end;
    for (int lane = 0; lane < LANES; lane++) several |= top[lane] > largest, any |= broken[lane];
    if (!several && !any) continue;
    for (i = first; i < end; i++) {
      float x = number_of(row, kind, i);
      if (x != x) return i;
      if (x > largest) largest = x, best = i;
    }
  }
  return best;
}

/* The last norm of all rows, and the LM head on those that get logits. */
static void run_head(const Model *model, const Batch *batch, Work work, Worker worker) {
  num d = model->hidden, kind = model->kind;
  write_states(model, batch, model->layers, work, worker);
  for (num row = worker.index; row < batch->rows; row += worker.count) {
    num place = batch->place ? batch->place[row] : row;
    const float *x = work.x + row * wide(d);
    if (place >= 0)
      norm(x, model->last_norm, d, model->epsilon, (void *)row_of(work.normed, kind, wide(d), place), kind,
           0);
    if (batch->hidden) {
      float by = inverse_length(x, d, model->epsilon);
      void *to = (void *)row_of(batch->hidden, kind, d, row);
      for (num i = 0; i < d; i += LANES)
        put_some(to, kind, i, load(x + i) * all_lanes(by) * load(model->last_norm + i), d - i);
    }
  }
  wait_for_all(worker);
  multiply_rows(&model->head, work.normed, batch->kept, (Output){ROUND, kind, batch->logits, 0}, work,
                worker);
  if (!batch->choices) return;
  wait_for_all(worker);
  for (num row = worker.index; row < batch->kept; row += worker.count)
    batch->choices[row] =
        argmax(row_of(batch->logits, kind, model->head.outputs, row), kind, model->head.outputs);
}

/* The parts of the memory that a call works in. Rows come in multiples of sixteen, as AMX reads them. */
static num lay_out(const Model *model, num rows, num keys, num threads, uint8_t *memory, Work *work) {
  num size = size_of(model->kind), d = wide(model->hidden), inputs = wide(inputs_of(model));
  num H = model->query_heads, D = model->head_size, copies = rows <= FEW ? threads : 1, used = 0;
  num widest = model->head.kind == INT8 ? max(inputs, max(wide(H * D), wide(model->inner))) : 0;
  rows = (rows + LANES - 1) / LANES * LANES;
  work->keys = keys, work->rows = rows, work->copies = copies;
  work->normed_size = rows * inputs * size;
  work->whole_size = rows * widest;
  num sizes[] = {rows * d * 4,
                 model->of_embedding ? rows * d * 4 : 0,
                 rows * wide(heads_of(model) * D) * 4,
                 copies * work->normed_size,
                 rows * wide(H * D) * size,
                 rows * wide(model->inner) * size,
                 threads * LANES * wide(D) * 4,
                 threads * keys * LANES * 4,
                 threads * threads * LANES * 4,
                 copies * work->whole_size * 2,
                 copies * rows * 4};
  void **parts[] = {(void **)&work->x,       (void **)&work->embedded, (void **)&work->qkv,
                    (void **)&work->normed,  (void **)&work->attended, (void **)&work->inner,
                    (void **)&work->queries, (void **)&work->scores,   (void **)&work->largest,
                    (void **)&work->whole,   (void **)&work->units};
  for (int i = 0; i < 11; used += (sizes[i] + 63) / 64 * 64, i++) *parts[i] = memory + used;
  return used;
}

num work_bytes(const Model *model, num rows, num keys, num threads) {
  Work work;
  return lay_out(model, rows, keys, threads, 0, &work);
}

typedef struct {
  const Model *model;
  const Batch *batch;
  Work work;
} Run;

static void run_forward(const void *what, Worker worker) {
  const Run *run = what;
  uint8_t before[64];
  begin_tiles(before);
  embed(run->model, run->batch, run->work, worker);
  wait_for_all(worker);
  for (num layer = 0; layer < run->model->layers; layer++)
    run_layer(run->model, run->batch, layer, run->work, worker);
  run_head(run->model, run->batch, run->work, worker);
  end_tiles(before);
}

num forward(const Model *model, const Batch *batch) {
  Run run = {.model = model, .batch = batch};
  num keys = 0;
  for (num row = 0; row < batch->rows; row++)
    if (batch->tokens[row] < 0 || batch->tokens[row] >= model->vocabulary) return -1;
  for (num p = 0; p < batch->parts; p++) keys = max(keys, batch->part[p].length + batch->part[p].rows);
  lay_out(model, batch->rows, keys, batch->threads, batch->work, &run.work);
  return run_together(batch->threads, run_forward, &run);
}

/* Move the rows ``kept`` of the last write to the places behind ``start``; none of them moves to the right. */
num keep_rows(uint8_t *keys, uint8_t *values, num lines, num row_bytes, num slots, num start, const num *kept,
              num count) {
  for (num line = 0; line < 2 * lines; line++) {
    uint8_t *rows =
        (line < lines ? keys + line * slots * row_bytes : values + (line - lines) * slots * row_bytes);
    for (num i = 0; i < count; i++)
      if (kept[i] != i)
        memcpy(rows + (start + i) * row_bytes, rows + (start + kept[i]) * row_bytes, (size_t)row_bytes);
  }
  return 0;
}
