/* Vectors. This is the only file that knows instruction sets: a ``reg`` is what a register holds, 16, 8 or 4
   numbers, and a ``vec`` is sixteen numbers in as many registers as that takes. */

#ifndef MEDUSA_SIMD_H
#define MEDUSA_SIMD_H

#include "structures.h"
#include <math.h>
#include <string.h>
#if defined __x86_64__
#include <immintrin.h>
#elif defined __ARM_NEON
#include <arm_neon.h>
#endif

#define LANES 16
#if defined __AVX512F__
#define WIDTH 16
#elif defined __AVX2__
#define WIDTH 8
#else
#define WIDTH 4
#endif
#define PARTS (LANES / WIDTH) /* registers of a line of sixteen */
#define LOG2_E 1.44269504f    /* e^x is 2^(x · LOG2_E) */

#ifdef __clang__
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif
#define VECTOR(TYPE, BYTES) TYPE __attribute__((vector_size(BYTES), may_alias))
#define LOOSE(TYPE, BYTES, ALIGNED) TYPE __attribute__((vector_size(BYTES), aligned(ALIGNED), may_alias))

typedef uint16_t bf16;
typedef float f32;
typedef int8_t int8;
typedef VECTOR(float, 64) vec;
typedef LOOSE(float, 64, 4) loose_vec;
typedef VECTOR(uint32_t, 64) bits;
typedef VECTOR(int32_t, 64) mask; /* −1: yes, 0: no */
typedef LOOSE(uint16_t, 32, 2) halves;
typedef VECTOR(float, 4 * WIDTH) reg;
typedef LOOSE(float, 4 * WIDTH, 4) loose_reg;
typedef VECTOR(uint32_t, 4 * WIDTH) bits_reg;
typedef VECTOR(int32_t, 4 * WIDTH) int_reg;

/* a · b + sum, rounded once where the processor can do that. */
static inline reg multiply_add(reg a, reg b, reg sum) {
#if defined __AVX512F__
  return _mm512_fmadd_ps(a, b, sum);
#elif defined __AVX2__ && defined __FMA__
  return _mm256_fmadd_ps(a, b, sum);
#elif defined __ARM_NEON
  return vfmaq_f32(sum, a, b);
#else
  return a * b + sum;
#endif
}

static inline reg every(float x) { return x - (reg){0}; }

/* Called by a spinning thread, to leave the processor to the other thread of its core. */
static inline void relax(void) {
#if defined __x86_64__
  _mm_pause();
#elif defined __aarch64__
  __asm__ volatile("yield");
#endif
}

/* Two neighbouring inputs of 16 bits. */
static inline int pair_at(const void *x) {
  int pair;
  memcpy(&pair, x, sizeof pair);
  return pair;
}

/* Products of three kinds of weights. For each: what a register of a panel's line holds (``load``), an input
   or a pair of inputs in every lane (``spread``), and sum + weights · inputs (``dot``). */

typedef float f32_input;
typedef reg f32_sum;
typedef reg f32_weights;
typedef reg f32_inputs;
#define f32_STEP 1  /* inputs of a line */
#define f32_TURNS 1 /* in which the inputs of a line are multiplied one after the other */
static inline reg f32_load(const f32 *line, int turn) {
  (void)turn;
  return *(const reg *)line;
}
static inline reg f32_spread(const float *x) { return every(*x); }
static inline reg f32_dot(reg sum, reg weights, reg x) { return multiply_add(weights, x, sum); }
static inline reg f32_total(reg sum) { return sum; }

#define bf16_STEP 2
typedef reg bf16_sum;
static inline reg bf16_total(reg sum) { return sum; }
#if defined __AVX512BF16__
#define bf16_TURNS 1
typedef bf16 bf16_input;
typedef __m512bh bf16_weights, bf16_inputs;
static inline __m512bh bf16_load(const bf16 *line, int turn) {
  (void)turn;
  return (__m512bh)_mm512_load_si512(line);
}
static inline __m512bh bf16_spread(const bf16 *x) { return (__m512bh)_mm512_set1_epi32(pair_at(x)); }
static inline reg bf16_dot(reg sum, __m512bh weights, __m512bh x) {
  return _mm512_dpbf16_ps(sum, weights, x);
}
#elif defined __ARM_FEATURE_BF16_VECTOR_ARITHMETIC
#define bf16_TURNS 1
typedef bf16 bf16_input;
typedef bfloat16x8_t bf16_weights, bf16_inputs;
static inline bfloat16x8_t bf16_load(const bf16 *line, int turn) {
  (void)turn;
  return vld1q_bf16((const bfloat16_t *)line);
}
static inline bfloat16x8_t bf16_spread(const bf16 *x) {
  return vreinterpretq_bf16_s32(vdupq_n_s32(pair_at(x)));
}
static inline reg bf16_dot(reg sum, bfloat16x8_t weights, bfloat16x8_t x) {
  return vbfdotq_f32(sum, weights, x);
}
#else /* a bf16 is the upper half of a float; inputs are floats already, and of a pair the first comes first */
#define bf16_TURNS 2
typedef float bf16_input;
typedef reg bf16_weights, bf16_inputs;
static inline reg bf16_load(const bf16 *line, int turn) {
  bits_reg pairs = *(const bits_reg *)line;
  return turn ? (reg)(pairs & 0xffff0000u) : (reg)(pairs << 16);
}
static inline reg bf16_spread(const float *x) { return every(*x); }
static inline reg bf16_dot(reg sum, reg weights, reg x) { return multiply_add(weights, x, sum); }
#endif

typedef int16_t int8_input;
typedef int_reg int8_sum;
#define int8_STEP 2
#define int8_TURNS 1
static inline reg int8_total(int_reg sum) { return __builtin_convertvector(sum, reg); }
#if defined __AVX512BW__
typedef __m512i int8_weights, int8_inputs;
static inline __m512i int8_load(const int8 *line, int turn) {
  (void)turn;
  return _mm512_cvtepi8_epi16(_mm256_load_si256((const __m256i *)line));
}
static inline __m512i int8_spread(const int16_t *x) { return _mm512_set1_epi32(pair_at(x)); }
static inline int_reg int8_dot(int_reg sum, __m512i weights, __m512i x) {
#ifdef __AVX512VNNI__
  return (int_reg)_mm512_dpwssd_epi32((__m512i)sum, weights, x);
#else
  return sum + (int_reg)_mm512_madd_epi16(weights, x);
#endif
}
#elif WIDTH == 8
typedef __m256i int8_weights, int8_inputs;
static inline __m256i int8_load(const int8 *line, int turn) {
  (void)turn;
  return _mm256_cvtepi8_epi16(_mm_load_si128((const __m128i *)line));
}
static inline __m256i int8_spread(const int16_t *x) { return _mm256_set1_epi32(pair_at(x)); }
static inline int_reg int8_dot(int_reg sum, __m256i weights, __m256i x) {
  return sum + (int_reg)_mm256_madd_epi16(weights, x);
}
#else
typedef VECTOR(int16_t, 16) int8_weights;
typedef int8_weights int8_inputs;
static inline int8_weights int8_load(const int8 *line, int turn) {
  (void)turn;
  typedef LOOSE(int8, 8, 8) line_reg;
  return __builtin_convertvector(*(const line_reg *)line, int8_weights);
}
static inline int8_inputs int8_spread(const int16_t *x) { return (int8_inputs)(pair_at(x) - (int_reg){0}); }
static inline int_reg int8_dot(int_reg sum, int8_weights w, int8_inputs x) {
#if defined __SSE2__
  return sum + (int_reg)_mm_madd_epi16((__m128i)w, (__m128i)x);
#else
  int32x4_t low = vmull_s16(vget_low_s16((int16x8_t)w), vget_low_s16((int16x8_t)x));
  return sum + (int_reg)vpaddq_s32(low, vmull_high_s16((int16x8_t)w, (int16x8_t)x));
#endif
}
#endif

/* Registers of a row of values, as floats. */
static inline reg f32_values(const f32 *from) { return *(const loose_reg *)from; }
static inline reg bf16_values(const bf16 *from) {
  typedef LOOSE(uint16_t, 2 * WIDTH, 2) half_reg;
  bits_reg wide = __builtin_convertvector(*(const half_reg *)from, bits_reg);
  return (reg)(wide << 16);
}

static inline vec load(const float *from) { return *(const loose_vec *)from; }
static inline void store(float *to, vec x) { *(loose_vec *)to = x; }
static inline vec all_lanes(float x) { return x - (vec){0}; }
static inline vec choose(mask yes, vec a, vec b) {
  return (vec)(((bits)a & (bits)yes) | ((bits)b & ~(bits)yes));
}
static inline vec larger(vec a, vec b) { return choose(a > b, a, b); }

static inline vec widened(const bf16 *from) {
  return (vec)(__builtin_convertvector(*(const halves *)from, bits) << 16);
}

static inline float widened_one(bf16 x) {
  uint32_t wide = (uint32_t)x << 16;
  float number;
  memcpy(&number, &wide, sizeof number);
  return number;
}

/* Round to the nearest, ties to even; a NaN stays one. */
static inline void narrow(bf16 *to, vec x) {
  bits b = (bits)x, rounded = (b + 0x7fff + ((b >> 16) & 1)) >> 16, broken = (bits)(x != x);
  *(halves *)to = __builtin_convertvector((rounded & ~broken) | (broken & 0x7fc0), halves);
}

/* Round to the nearest whole numbers of 16 bits: adding 1.5 · 2²³ leaves them in the last bits. */
static inline void narrow_whole(int16_t *to, vec x) {
  *(halves *)to = __builtin_convertvector((bits)(x + 12582912.0f), halves);
}

static inline bf16 narrowed(float x) {
  uint32_t b;
  memcpy(&b, &x, sizeof b);
  return x != x ? 0x7fc0 : (bf16)((b + 0x7fff + ((b >> 16) & 1)) >> 16);
}

/* The sum of all numbers, in one fixed order. */
static inline float sum_of(vec x) {
  for (int half = LANES / 2; half; half /= 2)
    for (int lane = 0; lane < half; lane++) x[lane] += x[lane + half];
  return x[0];
}

/* 2^x to the last bit but one, exactly 0 for x < −126 and so for −∞; for x < 127. */
static inline vec power_of_two(vec x) {
  const vec shift = all_lanes(12582912.0f); /* 1.5 · 2²³: adding it rounds to a whole number */
  mask normal = x >= -126.0f;
  x = choose(normal, x, all_lanes(0.0f));
  vec shifted = x + shift, r = x - (shifted - shift), sum = all_lanes(1.5252734e-5f);
  sum = sum * r + 1.5403530e-4f;
  sum = sum * r + 1.3333558e-3f;
  sum = sum * r + 9.6181291e-3f;
  sum = sum * r + 5.5504109e-2f;
  sum = sum * r + 2.4022651e-1f;
  sum = sum * r + 6.9314718e-1f;
  sum = sum * r + 1.0f;
  return (vec)(((bits)sum + ((bits)shifted << 23)) & (bits)normal);
}

/* x / (1 + e^−x) */
static inline vec silu(vec x) {
  vec power = x * -LOG2_E;
  return x / (1.0f + power_of_two(choose(power < 126.0f, power, all_lanes(126.0f))));
}

#endif
