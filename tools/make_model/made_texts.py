"""``python -m tools.make_model.made_texts``: write the sums, drills and chats that the base learns next."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from medusa_core.cli.main import OneLineParser
from medusa_core.training.examples import END_OF_TEXT, read_examples
from tools.make_model.story_chats import story_chats
from tools.make_model.sums import drills, sums

_SEED = 36
_STORIES = {"chats": "tinystories.txt", "chats_heldout": "tinystories_heldout.txt"}


def main() -> None:
    """Write ``sums.txt``, ``chats.txt`` and what is held out of them into the folder ``made``."""
    parser = OneLineParser(description=main.__doc__)
    parser.add_argument("--data-root", type=Path, required=True, help="folder that holds corpus")
    parser.add_argument("--sums", type=int, default=150_000, help="conversations with sums [150000]")
    parser.add_argument("--drills", type=int, default=12_000, help="columns of bare sums [12000]")
    args = parser.parse_args()
    folder = args.data_root / "made"
    folder.mkdir(exist_ok=True)
    _write(folder / "sums.txt", sums(_SEED, args.sums, heldout=False))
    _write(folder / "sums_heldout.txt", sums(_SEED, args.sums // 60, heldout=True))
    _write(folder / "drills.txt", drills(_SEED, args.drills))
    for name, file in _STORIES.items():
        stories = (example.text or "" for example in read_examples(args.data_root / "corpus" / file))
        _write(folder / f"{name}.txt", story_chats(stories, _SEED))


def _write(file: Path, documents: Iterable[str]) -> None:
    file.write_text(f"\n{END_OF_TEXT}\n".join(documents) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
