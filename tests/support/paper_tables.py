"""Operational intensities that the paper prints of Llama-33B, by candidates: 1, 16, 32 and so on to 112."""

from __future__ import annotations

LINEAR = ("1.00", "15.95", "31.79", "47.53", "63.17", "78.70", "94.14", "109.47")  # table 8, batch 1
ATTENTION = ("0.99", "14.03", "24.98", "33.76", "40.96", "46.97", "52.07", "56.44")  # table 6, 1024 positions
