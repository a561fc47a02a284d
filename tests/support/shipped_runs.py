"""The recorded runs that the page opens with, read once for all tests, which do not change them."""

from __future__ import annotations

from functools import cache

from ui.records import examples

recordings = cache(examples.recordings)
