"""Why decoding is fast or slow on a machine: formulas of operators, devices, caches and the gain of Medusa.

Pure arithmetic without torch, but for ``this_machine``, which measures. Paper Appendix G; Shazeer 2019 for
the key-value cache.

b batch · q tokens a sequence reads in a step · s positions it attends to · h hidden size · i MLP's inner size
n query heads · g key-value heads · d head size · L layers · V vocabulary · e bytes of a number
Imports: no other room.
"""
