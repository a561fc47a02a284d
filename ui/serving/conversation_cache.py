"""What models have read of the visitors' conversations: the caches that make the next reply start sooner.

Filed under the model they belong to and gone with it, so that a model that is put away leaves its memory.
Losing an entry costs time, never words: a conversation is read again from its messages.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from medusa_core.engine.chat import PromptCache
    from medusa_core.model.target import Target

MOST_CONVERSATIONS = 8
MOST_BYTES = 2 * 2**30  # of one model: a 7B model's cache of a full 4096 tokens takes this much


class ConversationCache:
    """A few conversations a model, by an id that cannot be guessed. Used on the engine's thread alone."""

    def __init__(self, most: int = MOST_CONVERSATIONS, most_bytes: int = MOST_BYTES) -> None:
        self._most = most
        self._most_bytes = most_bytes
        self._models: WeakKeyDictionary[Target, OrderedDict[str, PromptCache]] = WeakKeyDictionary()

    def get(self, target: Target, name: str) -> PromptCache:
        """What ``target`` has read under this id, or nothing read yet; others may be dropped for it."""
        from medusa_core.engine.chat import PromptCache  # noqa: PLC0415 - pulls in transformers

        kept = self._models.setdefault(target, OrderedDict())
        if name not in kept:
            kept[name] = PromptCache.nothing(target)
        kept.move_to_end(name)
        while len(kept) > self._most or (len(kept) > 1 and self._bytes(kept) > self._most_bytes):
            kept.popitem(last=False)
        return kept[name]

    def _bytes(self, kept: OrderedDict[str, PromptCache]) -> int:
        return sum(read.state.nbytes for read in kept.values())
