/* Products of a block of rows with weights: sixteen outputs and sixteen rows at a time, by AMX where there is
   that. Weights are read once, in the order of memory, which is what takes the time. */

#include "model.h"
#include <sys/syscall.h>
#include <unistd.h>

#ifdef __AMX_BF16__
typedef struct {
  uint8_t palette, start, unused[14];
  uint16_t bytes[16];
  uint8_t rows[16];
} TileShapes;

num tiles_allowed(void) {
  const long request_permission = 0x1023, tile_data = 18;
  return syscall(SYS_arch_prctl, request_permission, tile_data) == 0;
}

/* Other libraries use the tiles of a thread too and expect the shapes that they have set. */
void begin_tiles(Worker worker, uint8_t before[64]) {
  TileShapes shapes = {.palette = 1};
  if (!worker.tiles) return;
  for (int tile = 0; tile < 8; tile++) shapes.bytes[tile] = 64, shapes.rows[tile] = LANES;
  __asm__ volatile("" : : "r"(&shapes) : "memory"); /* compilers think that few of its bytes are read */
  _tile_storeconfig(before);
  _tile_loadconfig(&shapes);
}

void end_tiles(Worker worker, const uint8_t before[64]) {
  if (!worker.tiles) return;
  __asm__ volatile("" : : "r"(before) : "memory");
  _tile_loadconfig(before);
}

/* Asks for the lines of sixteen numbers of each of sixteen rows, in the order of memory. */
static inline void fetch(const bf16 *from) {
  for (int line = 0; line < LANES; line++) _mm_prefetch((const char *)(from + 32 * line), _MM_HINT_T1);
}

/* Two times sixteen outputs of a block of rows, the even and the odd thirty-twos of inputs apart. Meanwhile
   the weights that lie ``ahead`` numbers further on are asked for. */
static void sums_by_tiles(const bf16 *first, const bf16 *second, const uint32_t *pairs, num inputs, num ahead,
                          vec *sums) {
  float part[4][LANES * LANES] __attribute__((aligned(64)));
  num bytes = inputs * (num)sizeof(bf16);
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  for (num i = 0; i < inputs; i += 64) {
    const bf16 *next = first + ahead + LANES * i, *other = second + ahead + LANES * i;
    _tile_loadd(6, pairs + i / 2 * LANES, 64);
    _tile_loadd(4, first + i, bytes);
    fetch(next);
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(5, second + i, bytes);
    fetch(next + 32 * LANES);
    _tile_dpbf16ps(1, 5, 6);
    if (i + 32 == inputs) break;
    _tile_loadd(7, pairs + (i / 2 + 16) * LANES, 64);
    _tile_loadd(4, first + i + 32, bytes);
    fetch(other);
    _tile_dpbf16ps(2, 4, 7);
    _tile_loadd(5, second + i + 32, bytes);
    fetch(other + 32 * LANES);
    _tile_dpbf16ps(3, 5, 7);
  }
  _tile_stored(0, part[0], 64);
  _tile_stored(1, part[1], 64);
  _tile_stored(2, part[2], 64);
  _tile_stored(3, part[3], 64);
  for (int o = 0; o < LANES; o++) {
    sums[o] = _mm512_add_ps(_mm512_load_ps(part[0] + o * LANES), _mm512_load_ps(part[2] + o * LANES));
    sums[LANES + o] = _mm512_add_ps(_mm512_load_ps(part[1] + o * LANES), _mm512_load_ps(part[3] + o * LANES));
  }
}
#else
num tiles_allowed(void) { return 0; }
void begin_tiles(Worker worker, uint8_t before[64]) { (void)worker, (void)before; }
void end_tiles(Worker worker, const uint8_t before[64]) { (void)worker, (void)before; }
#endif

/* The same sixteen at a time, by the dot products of AVX-512. */
static void sums_by_vectors(const bf16 *weight, const uint32_t *pairs, num inputs, vec *sums) {
  vec sum[LANES];
  for (int o = 0; o < LANES; o++) sum[o] = _mm512_setzero_ps();
  for (num i = 0; i < inputs / 2; i++) {
    __m512bh x = (__m512bh)_mm512_load_si512(pairs + i * LANES);
    for (int o = 0; o < LANES; o++) {
      uint32_t pair;
      memcpy(&pair, weight + o * inputs + 2 * i, sizeof pair);
      sum[o] = _mm512_dpbf16_ps(sum[o], (__m512bh)_mm512_set1_epi32((int)pair), x);
    }
  }
  memcpy(sums, sum, sizeof sum);
}

/* The one or the other. */
static void two_sums(int tiles, const bf16 *first, const bf16 *second, const uint32_t *pairs, num inputs,
                     num ahead, vec *sums) {
#ifdef __AMX_BF16__
  if (tiles) {
    sums_by_tiles(first, second, pairs, inputs, ahead, sums);
    return;
  }
#else
  (void)tiles, (void)ahead;
#endif
  sums_by_vectors(first, pairs, inputs, sums);
  if (second != first) sums_by_vectors(second, pairs, inputs, sums + LANES);
}

static vec with_bias(vec sum, Linear linear, num output) {
  return linear.bias ? _mm512_add_ps(sum, _mm512_set1_ps(widened(linear.bias[output]))) : sum;
}

/* result [B][outputs] = or += weight · pairs. */
void product(Linear linear, num inputs, num outputs, const uint32_t *pairs, float *result, num blocks,
             int adds, Worker worker) {
  num first, end;
  vec sums[2 * LANES];
  share((outputs / LANES + 1) / 2, worker, &first, &end);
  for (num task = first; task < end; task++) {
    num output = 2 * LANES * task;
    int several = output + LANES < outputs;
    const bf16 *weight = linear.weight + output * inputs, *next = several ? weight + LANES * inputs : weight;
    num ahead = task + 1 < end ? 2 * LANES * inputs : 0;
    for (num block = 0; block < blocks; block++) {
      two_sums(worker.tiles, weight, next, pairs + block * inputs / 2 * LANES, inputs, block ? 0 : ahead,
               sums);
      float *to = result + (block * outputs + output) * LANES;
      for (int o = 0; o < (several ? 2 * LANES : LANES); o++, to += LANES) {
        vec sum = with_bias(sums[o], linear, output + o);
        _mm512_store_ps(to, adds ? _mm512_add_ps(_mm512_load_ps(to), sum) : sum);
      }
    }
  }
}

/* SiLU(gate) · up as pairs [B][inner / 2]. */
void gated(Linear linear, num inputs, num inner, const uint32_t *pairs, uint32_t *result, num blocks,
           Worker worker) {
  num first, end;
  vec sums[2 * LANES];
  share(inner / LANES, worker, &first, &end);
  for (num task = first; task < end; task++) {
    num output = LANES * task;
    const bf16 *gate = linear.weight + output * inputs, *up = gate + inner * inputs;
    num ahead = task + 1 < end ? LANES * inputs : 0;
    for (num block = 0; block < blocks; block++) {
      two_sums(worker.tiles, gate, up, pairs + block * inputs / 2 * LANES, inputs, block ? 0 : ahead, sums);
      for (int o = 0; o < LANES; o++) {
        vec g = with_bias(sums[o], linear, output + o);
        vec u = with_bias(sums[LANES + o], linear, inner + output + o);
        sums[o] = _mm512_mul_ps(silu(g), u);
      }
      uint32_t *to = result + (block * inner + output) / 2 * LANES;
      for (int o = 0; o < LANES; o += 2) _mm512_store_si512(to + o / 2 * LANES, paired(sums[o], sums[o + 1]));
    }
  }
}

/* Outputs in bfloat16 by row: [rows kept][outputs], of the rows with a place. */
void product_by_row(Linear linear, num inputs, num outputs, const uint32_t *pairs, bf16 *result, num rows,
                    const num *place, Worker worker) {
  const __m512i columns = _mm512_mullo_epi32(
      _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0), _mm512_set1_epi32(LANES));
  num first, end;
  vec sums[2 * LANES];
  share((outputs / LANES + 1) / 2, worker, &first, &end);
  for (num task = first; task < end; task++) {
    num output = 2 * LANES * task;
    int several = output + LANES < outputs;
    const bf16 *weight = linear.weight + output * inputs, *next = several ? weight + LANES * inputs : weight;
    num ahead = task + 1 < end ? 2 * LANES * inputs : 0;
    for (num block = 0; block < blocks_of(rows); block++) {
      num end_row = least(rows, (block + 1) * LANES), row = block * LANES;
      while (row < end_row && place && place[row] < 0) row++;
      if (row == end_row) continue;
      two_sums(worker.tiles, weight, next, pairs + block * inputs / 2 * LANES, inputs, block ? 0 : ahead,
               sums);
      for (int o = 0; o < (several ? 2 * LANES : LANES); o++)
        sums[o] = with_bias(sums[o], linear, output + o);
      for (; row < end_row; row++) {
        num to = place ? place[row] : row;
        if (to < 0) continue;
        for (int half = 0; half <= several; half++) {
          vec values = _mm512_i32gather_ps(columns, (float *)(sums + half * LANES) + row % LANES, 4);
          _mm256_storeu_si256((__m256i *)(result + to * outputs + output + half * LANES),
                              (__m256i)_mm512_cvtneps_pbh(values));
        }
      }
    }
  }
}
