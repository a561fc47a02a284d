/* The forward itself: threads meet after each part of a layer. */

#include "model.h"

/* [B][size] as rows of bfloat16. */
static void write_rows(const float *from, num stride, num size, bf16 *to, num rows, Worker worker) {
  for (num row = worker.thread; row < rows; row += worker.threads)
    for (num i = 0; i < size; i++) {
      vec value = _mm512_set1_ps(from[(row / LANES * stride + i) * LANES + row % LANES]);
      to[row * size + i] = (bf16)_mm256_extract_epi16((__m256i)_mm512_cvtneps_pbh(value), 0);
    }
}

/* Inputs of the product for queries, keys and values. */
static num inputs_of(const Model *model) { return model->hidden * (model->layer->of_embedding ? 2 : 1); }

/* The embeddings of the rows, or what else x begins with, and cos and sin of their positions: 0, 1 and 0 in
   lanes without a row. */
static void embed(const Model *model, const Batch *batch, Work work, Worker worker) {
  num d = model->hidden, width = model->rotated, first, end;
  for (num row = 0; row < blocks_of(batch->rows) * LANES; row++) {
    num block = row / LANES, lane = row % LANES, real = row < batch->rows;
    const bf16 *from = model->embedding + (real ? batch->tokens[row] * d : 0);
    const bf16 *given = batch->features ? batch->features + (real ? row * d : 0) : from;
    float *x = work.x + block * d * LANES + lane, *embedded = work.embedded + block * d * LANES + lane;
    share(d / LANES, worker, &first, &end); /* features, so that threads write no line of memory together */
    for (num i = first * LANES; i < end * LANES; i++) x[i * LANES] = real ? widened(given[i]) : 0.0f;
    for (num i = first * LANES; model->layer->of_embedding && i < end * LANES; i++)
      embedded[i * LANES] = real ? widened(from[i]) : 0.0f;
    float *cos = work.cos + block * width * LANES + lane, *sin = work.sin + block * width * LANES + lane;
    num place = real ? batch->positions[row] * width : 0;
    share(width, worker, &first, &end);
    for (num i = first; i < end; i++) {
      cos[i * LANES] = real ? batch->cos[place + i] : 1.0f;
      sin[i * LANES] = real ? batch->sin[place + i] : 0.0f;
    }
  }
}

static num work_of(const Model *model, num rows, uint8_t *memory, Work *work) {
  num blocks = blocks_of(rows) * LANES * (num)sizeof(float), H = model->query_heads, D = model->head_size;
  num sizes[] = {blocks * model->hidden,
                 blocks * (H + 2 * model->key_heads) * D,
                 blocks * model->rotated,
                 blocks * model->rotated,
                 blocks * H * D,
                 blocks * H * (D + ONES),
                 model->layer->of_embedding ? blocks * model->hidden : 0,
                 blocks * most(inputs_of(model), H * D) / 2,
                 blocks * model->inner / 2};
  void **parts[] = {(void **)&work->x,        (void **)&work->qkv,     (void **)&work->cos,
                    (void **)&work->sin,      (void **)&work->queries, (void **)&work->sums,
                    (void **)&work->embedded, (void **)&work->pairs,   (void **)&work->inner};
  num used = 0;
  for (int i = 0; i < 9; used += sizes[i], i++) *parts[i] = memory ? memory + used : 0;
  return used;
}

num work_bytes(const Model *model, num rows) {
  Work work;
  return work_of(model, rows, 0, &work);
}

static void run_layers(const Model *model, const Batch *batch, Work work, Worker worker) {
  num d = model->hidden, D = model->head_size, H = model->query_heads, G = model->key_heads;
  num blocks = blocks_of(batch->rows), heads = H + 2 * G, inputs = inputs_of(model);
  embed(model, batch, work, worker);
  if (worker.thread == 0)
    memset(work.pairs, 0, sizeof(float) * (size_t)(blocks * LANES * most(inputs, H * D) / 2));
  meet(worker);
  for (num number = 0; number < model->layers; number++) {
    const Layer *layer = model->layer + number;
    if (batch->states && batch->states[number])
      write_rows(work.x, d, d, batch->states[number], batch->rows, worker);
    if (layer->of_embedding)
      norm(work.embedded, layer->of_embedding, d, model->floor, work.pairs, inputs, blocks, worker);
    norm(work.x, layer->before_attention, d, model->floor, work.pairs + (inputs - d) / 2 * LANES, inputs,
         blocks, worker);
    meet(worker);
    product(layer->qkv, inputs, heads * D, work.pairs, work.qkv, blocks, 0, worker);
    meet(worker);
    turn_and_keep(model, batch, number, work, worker);
    meet(worker);
    if (batch->queries && batch->queries[number])
      write_rows(work.qkv, heads * D, H * D, batch->queries[number], batch->rows, worker);
    if (model->tiled) attend_by_tiles(model, batch, number, work, worker);
    else attend(model, batch, number, work, worker);
    meet(worker);
    product(layer->out, H * D, d, work.pairs, work.x, blocks, 1, worker);
    meet(worker);
    norm(work.x, layer->before_mlp, d, model->floor, work.pairs, d, blocks, worker);
    meet(worker);
    gated(layer->gate_up, d, model->inner, work.pairs, work.inner, blocks, worker);
    meet(worker);
    product(layer->down, model->inner, d, work.inner, work.x, blocks, 1, worker);
    meet(worker);
  }
}

static void run_end(const Model *model, const Batch *batch, Work work, Worker worker) {
  num d = model->hidden;
  if (batch->states && batch->states[model->layers])
    write_rows(work.x, d, d, batch->states[model->layers], batch->rows, worker);
  norm(work.x, model->last_norm, d, model->floor, work.pairs, d, blocks_of(batch->rows), worker);
  meet(worker);
  for (num row = worker.thread; batch->hidden && row < batch->rows; row += worker.threads) {
    const uint32_t *from = work.pairs + row / LANES * d / 2 * LANES + row % LANES;
    for (num i = 0; i < d / 2; i++) memcpy(batch->hidden + row * d + 2 * i, from + i * LANES, sizeof *from);
  }
  product_by_row(model->head, d, model->outputs, work.pairs, batch->logits, batch->rows, batch->place,
                 worker);
}

/* 0, 1 where a thread was late, or −1 where a token is none of the vocabulary. */
num forward(const Model *model, const Batch *batch) {
  Work work;
  for (num row = 0; row < batch->rows; row++)
    if (batch->tokens[row] < 0 || batch->tokens[row] >= model->vocabulary) return -1;
  work_of(model, batch->rows, batch->work, &work);
  Meeting meeting = meeting_now();
#pragma omp parallel num_threads((int)batch->threads)
  {
    Worker worker = {omp_get_thread_num(), omp_get_num_threads(), model->tiles != 0, &meeting};
    uint8_t before[64];
    begin_tiles(worker, before);
    run_layers(model, batch, work, worker);
    run_end(model, batch, work, worker);
    end_tiles(worker, before);
    meet(worker);
  }
  return was_late(&meeting);
}

/* Keep the rows ``kept`` of the last write in the places behind ``start``, in all ``lines``: layers and heads.
   None of them moves to the right. */
void keep_rows(float *keys, float *values, num lines, num size, num slots, num start, const num *kept,
               num count) {
  num width = size + ONES;
  for (num column = 0; column < lines * size; column++) {
    float *own = keys + column * slots + start;
    for (num i = 0; i < count; i++) own[i] = own[kept[i]];
  }
  for (num line = 0; line < lines; line++) {
    float *own = values + (line * slots + start) * width;
    for (num i = 0; i < count; i++)
      if (kept[i] != i) memcpy(own + i * width, own + kept[i] * width, (size_t)width * sizeof(float));
  }
}

/* The same in a cache for AMX. */
void keep_tiled_rows(bf16 *keys, bf16 *values, num lines, num size, num slots, num start, const num *kept,
                     num count) {
  for (num line = 0; line < lines; line++, keys += slots * size, values += slots * size)
    for (num i = 0; i < count; i++) {
      num from = start + kept[i], to = start + i;
      if (from == to) continue;
      memcpy(keys + to * size, keys + from * size, (size_t)size * sizeof *keys);
      for (num d = 0; d < size; d++)
        values[(to / PLACES * size + d) * PLACES + to % PLACES] =
            values[(from / PLACES * size + d) * PLACES + from % PLACES];
    }
}
