/* Products of rows with weights in panels. Weights are read once, in the order of memory, which is what takes
   the time where the rows are few. */

#include "model.h"

#define LARGEST_LEVEL 8191 /* of an input as a whole number */
#define CHUNK 8 /* panels that are multiplied with all rows before the next ones are read */
/* Bytes between the weights that are multiplied and those that are asked for. */
#define AHEAD (WIDTH < 16 ? 4096 : 2048)
#define AT_ONCE 512 /* inputs that become floats together, where the processor multiplies no bf16 */
#ifdef __AMX_BF16__
#define BLOCK 16 /* rows whose sums wait for what happens to them next */
#else
#define BLOCK 24
#endif

/* Bytes of a weight; a number of a row of inputs has size_of(). */
static num weight_size(num kind) { return kind == INT8 ? 1 : size_of(kind); }

/* A row as whole numbers, so few that no sum of them with weights in 8 bits overflows. Returns what 1 stands
   for, which is a NaN where a number of the row is infinite or none. */
float round_row(int16_t *to, const void *row, num kind, num width) {
  const num level = min(LARGEST_LEVEL, INT32_MAX / (127 * width));
  vec tops = all_lanes(1e-30f), broken = all_lanes(0.0f);
  for (num i = 0; i < width; i += LANES) {
    vec x = get(row, kind, i);
    tops = larger(larger(x, -x), tops), broken = broken + x * 0.0f;
  }
  float top = tops[0];
  for (int lane = 1; lane < LANES; lane++) top = fmaxf(top, tops[lane]);
  vec by = all_lanes((float)level / top);
  for (num i = 0; i < width; i += LANES) narrow_whole(to + i, get(row, kind, i) * by);
  return top / (float)level + sum_of(broken);
}

/* Sums of R rows with P panels of so many ``lines``, [R][stride of the sums], added to the ones that are there if
   there are ``more``. All R·P sums stay in registers. Of a line's inputs and weights, the smaller set is loaded
   once and kept too; the other is read one at a time. */
#define TILE(KIND, R, P)                                                                                     \
  static void KIND##_##R##x##P(const void *panels, num lines, const void *inputs, num stride, num steps,     \
                               float *sums, num sums_stride, int more) {                                     \
    const KIND##_input *x = inputs;                                                                          \
    const num line = LANES * KIND##_STEP;                                                                    \
    KIND##_sum sum[R][(P) * PARTS];                                                                          \
    memset(sum, 0, sizeof sum);                                                                              \
    for (int r = 0; KIND##_TURNS > 1 && more && r < R; r++)                                                  \
      UNROLL for (int p = 0; p < (P) * PARTS; p++) sum[r][p] =                                               \
          (KIND##_sum) * (const loose_reg *)(sums + r * sums_stride + p * WIDTH);                            \
    for (num i = 0; i < steps; i++) {                                                                        \
      for (num p = 0; (WIDTH < 16 || R > 1) && p < (P); p++)                                                 \
        __builtin_prefetch((const uint8_t *)((const KIND *)panels + (p * lines + i) * line) + AHEAD);        \
      UNROLL for (int turn = 0; turn < KIND##_TURNS; turn++) {                                               \
        const KIND *own = (const KIND *)panels + i * line;                                                   \
        const KIND##_input *from = x + i * KIND##_STEP + turn;                                               \
        if (WIDTH < 16 && R < (P) * PARTS) {                                                                 \
          KIND##_inputs spread[R];                                                                           \
          UNROLL for (int r = 0; r < R; r++) spread[r] = KIND##_spread(from + r * stride);                   \
          UNROLL for (int p = 0; p < (P) * PARTS; p++) {                                                     \
            KIND##_weights w =                                                                               \
                KIND##_load(own + p / PARTS * lines * line + p % PARTS * line / PARTS, turn);                \
            UNROLL for (int r = 0; r < R; r++) sum[r][p] = KIND##_dot(sum[r][p], w, spread[r]);              \
          }                                                                                                  \
          continue;                                                                                          \
        }                                                                                                    \
        KIND##_weights w[(P) * PARTS];                                                                       \
        UNROLL for (int p = 0; p < (P) * PARTS; p++) w[p] =                                                  \
            KIND##_load(own + p / PARTS * lines * line + p % PARTS * line / PARTS, turn);                    \
        UNROLL for (int r = 0; r < R; r++) {                                                                 \
          KIND##_inputs spread = KIND##_spread(from + r * stride);                                           \
          UNROLL for (int p = 0; p < (P) * PARTS; p++) sum[r][p] = KIND##_dot(sum[r][p], w[p], spread);      \
        }                                                                                                    \
      }                                                                                                      \
    }                                                                                                        \
    for (int r = 0; r < R; r++)                                                                              \
      for (int p = 0; p < (P) * PARTS; p++)                                                                  \
        *(loose_reg *)(sums + r * sums_stride + p * WIDTH) = KIND##_total(sum[r][p]);                        \
  }

/* As many sums as there are registers for. */
#define MOST_TOGETHER 6 /* rows */
#if WIDTH == 16
#define SHAPES(DO, KIND)                                                                                     \
  DO(KIND, 6, 4)                                                                                             \
  DO(KIND, 6, 2) DO(KIND, 6, 1) DO(KIND, 5, 4) DO(KIND, 5, 2) DO(KIND, 5, 1) DO(KIND, 4, 4) DO(KIND, 4, 2)   \
      DO(KIND, 4, 1) DO(KIND, 3, 8) DO(KIND, 3, 2) DO(KIND, 3, 1) DO(KIND, 2, 8) DO(KIND, 2, 2)              \
          DO(KIND, 2, 1) DO(KIND, 1, 8) DO(KIND, 1, 2) DO(KIND, 1, 1)
#else
#define SHAPES(DO, KIND)                                                                                     \
  DO(KIND, 6, 1)                                                                                             \
  DO(KIND, 5, 1) DO(KIND, 4, 1) DO(KIND, 3, 1) DO(KIND, 2, 2) DO(KIND, 2, 1) DO(KIND, 1, 4) DO(KIND, 1, 2)   \
      DO(KIND, 1, 1)
#endif
SHAPES(TILE, bf16)
SHAPES(TILE, f32)
SHAPES(TILE, int8)

typedef struct {
  num rows, panels;
  void (*run)(const void *panels, num lines, const void *inputs, num stride, num steps, float *sums,
              num sums_stride, int more);
} Shape;

#define SHAPE(KIND, R, P) {R, P, KIND##_##R##x##P},
static const Shape bf16_shapes[] = {SHAPES(SHAPE, bf16)}, f32_shapes[] = {SHAPES(SHAPE, f32)},
                   int8_shapes[] = {SHAPES(SHAPE, int8)};

/* sums [rows][stride of the sums] of rows of x with ``count`` panels. */
void multiply(num kind, const void *panels, num count, const void *x, num stride, num inputs, num rows,
              float *sums, num sums_stride) {
  const Shape *first = kind == BF16 ? bf16_shapes : kind == F32 ? f32_shapes : int8_shapes;
  num step = kind == F32 ? 1 : 2, line = LANES * weight_size(kind); /* of an input */
  int widens = kind == BF16 && bf16_TURNS > 1;
  float floats[MOST_TOGETHER * AT_ONCE];
  for (num row = 0; row < rows; row += first->rows) {
    while (first->rows > rows - row) first++;
    for (num from = 0, some; from < inputs; from += some) {
      some = widens ? min(AT_ONCE, inputs - from) : inputs;
      const void *own = row_of(x, kind, stride, row);
      for (num r = 0; widens && r < first->rows; r++)
        for (num i = 0; i < some; i += LANES)
          store(floats + r * AT_ONCE + i, widened((const bf16 *)own + r * stride + from + i));
      const Shape *shape = first;
      for (num panel = 0; panel < count; panel += shape->panels) {
        while (shape->panels > count - panel) shape++;
        shape->run((const uint8_t *)panels + (panel * inputs + from) * line, inputs / step,
                   widens ? floats : own, widens ? AT_ONCE : stride, some / step,
                   sums + row * sums_stride + panel * LANES, sums_stride, from > 0);
      }
    }
  }
}

#ifdef __AMX_BF16__
#include <sys/syscall.h>
#include <unistd.h>

typedef struct {
  uint8_t palette, start, unused[14];
  uint16_t bytes[16];
  uint8_t rows[16];
} TileShapes;

num usable(void) {
  const long request_permission = 0x1023, tile_data = 18;
  return syscall(SYS_arch_prctl, request_permission, tile_data) == 0;
}

/* Other libraries use the tiles of a thread too and expect the shapes that they have set. */
void begin_tiles(uint8_t before[64]) {
  TileShapes shapes = {.palette = 1};
  for (int tile = 0; tile < 8; tile++) shapes.bytes[tile] = 64, shapes.rows[tile] = 16;
  __asm__ volatile("" : : "r"(&shapes) : "memory"); /* compilers think that few of its bytes are read */
  _tile_storeconfig(before);
  _tile_loadconfig(&shapes);
}

void end_tiles(const uint8_t before[64]) {
  __asm__ volatile("" : : "r"(before) : "memory");
  _tile_loadconfig(before);
}

/* Sixteen rows, also where there are fewer: buffers end with a multiple of sixteen. A panel is a tile as it
   lies, thirty-two inputs at a time. */
static void multiply_block(const Linear *linear, const void *panels, num count, const void *x, num rows,
                           float *sums, num sums_stride) {
  num inputs = wide(linear->inputs);
  if (linear->kind != BF16) {
    multiply(linear->kind, panels, count, x, inputs, inputs, rows, sums, sums_stride);
    return;
  }
  for (num panel = 0; panel < count; panel += 2) {
    const bf16 *first = (const bf16 *)panels + panel * LANES * inputs, *second = first + LANES * inputs;
    float *to = sums + panel * LANES;
    _tile_zero(0);
    _tile_zero(1);
    for (num i = 0; i < inputs; i += 32) {
      _tile_loadd(2, (const bf16 *)x + i, inputs * (num)sizeof(bf16));
      _tile_loadd(3, first + i * LANES, 64);
      _tile_loadd(4, second + i * LANES, 64);
      _tile_dpbf16ps(0, 2, 3);
      _tile_dpbf16ps(1, 2, 4);
    }
    _tile_stored(0, to, sums_stride * (num)sizeof(float));
    _tile_stored(1, to + LANES, sums_stride * (num)sizeof(float));
  }
}
#else
num usable(void) { return 1; }
void begin_tiles(uint8_t before[64]) { (void)before; }
void end_tiles(const uint8_t before[64]) { (void)before; }

static void multiply_block(const Linear *linear, const void *panels, num count, const void *x, num rows,
                           float *sums, num sums_stride) {
  num inputs = wide(linear->inputs);
  multiply(linear->kind, panels, count, x, inputs, inputs, rows, sums, sums_stride);
}
#endif

/* Sixteen sums with scales and bias, ``output`` being the first of them. */
static vec scaled(const Linear *linear, const float *sums, num output, num row, Output to) {
  vec x = load(sums);
  if (linear->scales) x = x * load(linear->scales + output) * to.units[row];
  if (linear->bias) x = x + load(linear->bias + output);
  return x;
}

/* Sums of a row from a panel on become outputs. */
static void finish(const Linear *linear, const float *sums, num first, num count, num row, Output to) {
  num outputs = wide(linear->outputs);
  for (num panel = 0; panel < count; panel++) {
    num output = (first + panel) * LANES;
    vec x = scaled(linear, sums + panel * LANES, output, row, to);
    float *own = (float *)to.rows + row * outputs + output;
    if (to.how == STORE) store(own, x);
    if (to.how == ADD) store(own, load(own) + x);
    if (to.how == GATE && panel % 2 == 0) {
      vec up = scaled(linear, sums + (panel + 1) * LANES, output + LANES, row, to);
      put((void *)row_of(to.rows, to.kind, wide(linear->outputs / 2), row), to.kind, output / 2,
          silu(x) * up);
    }
    if (to.how == ROUND)
      put_some((void *)row_of(to.rows, to.kind, linear->outputs, row), to.kind, output, x,
               linear->outputs - output);
  }
}

/* All threads together, each a part of the outputs; they do not wait for each other at the end. */
void product(const Linear *linear, const void *x, num rows, Output to, Worker worker) {
  float sums[BLOCK * CHUNK * LANES] __attribute__((aligned(64)));
  num inputs = wide(linear->inputs), each = inputs * LANES * weight_size(linear->kind), first, end;
  share(wide(linear->outputs) / (2 * LANES), worker, &first, &end); /* pairs, such as of gate and up */
  for (num panel = 2 * first; panel < 2 * end; panel += CHUNK) {
    num count = min(CHUNK, 2 * end - panel);
    const uint8_t *panels = (const uint8_t *)linear->panels + panel * each;
    for (num row = 0; row < rows; row += BLOCK) {
      num some = min(BLOCK, rows - row);
      multiply_block(linear, panels, count, row_of(x, linear->kind, inputs, row), some, sums, CHUNK * LANES);
      for (num own = 0; own < some; own++)
        finish(linear, sums + own * CHUNK * LANES, panel, count, row + own, to);
    }
  }
}

typedef struct {
  const Linear *linear;
  const void *x;
  num rows;
  Output to;
} Multiplication;

static void run_multiplication(const void *what, Worker worker) {
  const Multiplication *own = what;
  uint8_t before[64];
  begin_tiles(before);
  product(own->linear, own->x, own->rows, own->to, worker);
  end_tiles(before);
}

/* A product by itself: rows x [rows][wide(inputs)] into [rows][outputs], both in the kind of the weights. For
   those in 8 bits x are whole numbers with ``units``, and the result is in float32. */
num run_product(const Linear *linear, const void *x, num rows, void *result, const float *units,
                num threads) {
  Multiplication own = {linear, x, rows, {ROUND, linear->kind == INT8 ? F32 : linear->kind, result, units}};
  return run_together(threads, run_multiplication, &own);
}
