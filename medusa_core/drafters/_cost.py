"""What drafts without weights compute on a large model.

The leading underscore keeps this module out of the list of drafters.
"""

from __future__ import annotations

from typing import Any

from medusa_core.hardware.operators import Product, Work
from medusa_core.hardware.shapes import ModelShape

NOTHING = f"{__name__}:nothing"


def nothing(shape: ModelShape, settings: Any, plain: Work) -> list[Product]:
    """No matrix product: the host reads the text's own tokens."""
    return []
