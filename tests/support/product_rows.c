/* Products for a processor that Python's tests do not run on: a row by itself against the row in a batch, and both
   against sums in double precision. Prints the largest error; exits with 1 if bits differ, with 2 if a row
   of whole numbers is off by more than half a unit. */

#include "model.h"
#include <stdio.h>
#include <stdlib.h>

enum { INPUTS = 608, OUTPUTS = 160, ROWS = 64 };

static float weights[OUTPUTS][INPUTS], inputs[ROWS][INPUTS];

static float random_number(void) { return (float)rand() / (float)RAND_MAX - 0.5f; }

static float rounded(float x, num kind) {
  if (kind == INT8) return rintf(254.0f * x);
  bf16 narrow_x[LANES];
  narrow(narrow_x, all_lanes(x));
  return kind == F32 ? x : widened(narrow_x)[0];
}

static void write_number(void *to, num kind, num at, float x) {
  if (kind == INT8) ((int8 *)to)[at] = (int8)x;
  else put_some(to, kind, at, all_lanes(x), 1);
}

int main(void) {
  for (num kind = BF16; kind <= INT8; kind++) {
    num step = kind == F32 ? 1 : 2;
    uint8_t *panels = aligned_alloc(64, OUTPUTS * INPUTS * 4), *x = aligned_alloc(64, ROWS * INPUTS * 4);
    static float together[ROWS][OUTPUTS], alone[OUTPUTS];
    double error = 0;
    for (num o = 0; o < OUTPUTS; o++)
      for (num i = 0; i < INPUTS; i++) {
        weights[o][i] = rounded(random_number(), kind);
        num line = o / LANES * INPUTS / step + i / step;
        write_number(panels, kind, line * LANES * step + o % LANES * step + i % step, weights[o][i]);
      }
    for (num row = 0; row < ROWS; row++) {
      int16_t *whole = (int16_t *)x + row * INPUTS;
      for (num i = 0; i < INPUTS; i++) inputs[row][i] = random_number();
      float unit = kind == INT8 ? round_row(whole, inputs[row], F32, INPUTS) : 1.0f;
      for (num i = 0; i < INPUTS; i++) {
        float own = kind == INT8 ? whole[i] : rounded(inputs[row][i], kind);
        if (fabsf(own * unit - inputs[row][i]) > 0.501f * unit) return 2;
        if (kind != INT8) write_number(x, kind, row * INPUTS + i, own);
        inputs[row][i] = own;
      }
    }
    for (num rows = 1; rows <= ROWS; rows += rows < 26 ? 1 : 19) {
      multiply(kind, panels, OUTPUTS / LANES, x, INPUTS, INPUTS, rows, together[0], OUTPUTS);
      for (num row = 0; row < rows; row++) {
        multiply(kind, panels, OUTPUTS / LANES, row_of(x, kind, INPUTS, row), INPUTS, INPUTS, 1, alone, OUTPUTS);
        if (memcmp(alone, together[row], sizeof alone)) return 1;
        for (num o = 0; o < OUTPUTS; o++) {
          double wanted = 0;
          for (num i = 0; i < INPUTS; i++) wanted += (double)weights[o][i] * inputs[row][i];
          error = fmax(error, fabs(wanted - alone[o]) / (kind == INT8 ? 127.0 * 8191 * INPUTS : 1.0));
        }
      }
    }
    printf("%g\n", error);
  }
  return 0;
}
