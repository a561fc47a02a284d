"""A long run that lives in a folder: begun there, or gone on with from what is there."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter
from typing import Any, cast

import torch

from medusa_core.acceptance import rule_settings
from medusa_core.config import GenerationConfig
from medusa_core.decoding import Step, check_prompt
from medusa_core.drafters import draft_of, drafter_settings
from medusa_core.engine import Engine
from medusa_core.errors import MedusaError, shortened
from medusa_core.longrun.folder import OTHER_FOLDER, End, Memory, RunFolder
from medusa_core.longrun.memory import PeakMemory, RunMemory, run_memory
from medusa_core.longrun.segments import SEGMENT, decode_segments
from medusa_core.text.stopping import text_before_stop
from medusa_core.training.folder_lock import locked_folder
from medusa_core.trees.tree import Topology

_SAMPLED = 64  # numbers of each tensor that are looked at
TREE = "tree"


class SavedRun:
    """One run in its folder. ``known`` tokens were there already, ``totals`` counts them too."""

    def __init__(
        self, engine: Engine, prompt: Sequence[int], config: GenerationConfig, files: RunFolder
    ) -> None:
        """Raises MedusaError: for a prompt or a cache that does not fit, other settings, damaged files."""
        check_prompt(prompt, engine.target)
        self.notes: list[str] = []  # messages to the user on how the run goes on
        self._engine, self._prompt, self._files = engine, list(prompt), files
        begun = files.begun()
        if begun is not None:
            config = with_tree_of(config, begun["settings"])
        self.config = config
        about = json.loads(json.dumps(identity(engine, prompt, config)))
        self.memory: RunMemory = run_memory(engine, len(prompt), config)
        if begun is not None:
            _require_same(about, begun, files.folder)
            self.notes += _other_surroundings(surroundings(engine), begun["surroundings"])
            files.resume(config.max_new_tokens)
        if files.end is None:
            self.memory.require()
        if begun is None:
            files.begin(about | {"surroundings": surroundings(engine)})
        self.tokens = list(files.tokens)  # all so far
        self.known = len(self.tokens)
        self.totals = files.totals.copy()
        if files.end is not None:  # a kill may have come before the text was written
            files.write_text(self.text)

    @property
    def end(self) -> End | None:
        """How the run ended, None while it has not."""
        return self._files.end

    @property
    def text(self) -> str:
        """The text so far, cut before the end-of-text token or a stop string."""
        ended = self.end is not None and self.end.finish_reason == "eos"
        tokens = self.tokens[:-1] if ended else self.tokens
        return text_before_stop(self._engine.decode_text(tokens), self.config.stop)

    def steps(self) -> Generator[Step, None, None]:
        """Decode the rest; a segment is on disk before its last step is yielded. Raises MedusaError."""
        if self.end is not None:
            return
        engine, files, totals = self._engine, self._files, self.totals
        self._warm_up()
        peak = PeakMemory(engine.target.output_device)
        state = engine.new_state(len(self._prompt), self.config)
        marked, last = totals.copy(), perf_counter()
        for step in decode_segments(engine, self._prompt, self.config, state, files.tokens):
            now = perf_counter()
            at_once = totals.tokens % SEGMENT == 0  # before the step a segment was read
            totals.add(step, max(0.0, now - last - step.ms.total / 1000) if at_once else 0.0)
            self.tokens += step.emitted
            grown, end = peak.grown(), None
            if step.finish_reason is not None:
                memory = Memory(
                    **vars(self.memory),
                    drafter_cache=state.nbytes - state.cache.nbytes,
                    estimated=self.memory.total,
                    measured=self.memory.weights + grown,
                )
                end = End(finish_reason=cast("Any", step.finish_reason), memory=memory)
            if totals.tokens % SEGMENT == 0 or end is not None:
                part = totals.since(marked)
                record = part.rates() | {"read_seconds": round(part.reading, 4), "peak_bytes": grown}
                files.append(self.tokens[marked.tokens :], totals, record, end)
                marked = totals.copy()
            if end is not None:
                files.write_text(self.text)
            yield step
            last = perf_counter()

    def _warm_up(self) -> None:
        """Run a segment and a few steps, so that libraries' kernels and buffers do not count as the run's."""
        rows = min(SEGMENT, self._engine.target.context // 2)
        text = (self._prompt * -(-rows // len(self._prompt)))[:rows]
        for _ in self._engine.stream(text, self.config.changed(max_new_tokens=2)):
            pass

    def stop(self) -> None:
        """Write the text so far, for a run that is broken off."""
        if self.end is None:
            self._files.write_text(self.text)

    def result(self) -> dict[str, Any]:
        """What has come of the run so far, as JSON: a trace's output with what a long run has beside it."""
        totals, end = self.totals, self.end
        return {
            "text": self.text,
            "token_ids": self.tokens,
            "finish_reason": "cancelled" if end is None else end.finish_reason,
            "new_tokens": len(self.tokens),
            "steps": totals.steps,
            "seconds": round(totals.seconds, 4),
            "read_seconds": round(totals.reading, 4),
            **totals.rates(),
            **({} if end is None else {"memory": end.memory.model_dump()}),
        }


@contextmanager
def saved_run(
    engine: Engine, prompt: Sequence[int], config: GenerationConfig, folder: Path
) -> Iterator[SavedRun]:
    """The run in ``folder``, begun now or gone on with, for this process alone. Raises MedusaError."""
    with locked_folder(folder, OTHER_FOLDER):
        yield SavedRun(engine, prompt, config, RunFolder(folder, engine.target.vocab_size))


def _require_same(now: dict[str, Any], begun: dict[str, Any], folder: Path) -> None:
    """Raise MedusaError that names the first thing in which this run differs from the one in the folder."""
    for part, words in (("model", "another model"), ("settings", "other settings")):
        before = begun[part]
        for name, value in now[part].items():
            # A run that began before there was a setting had what is its default now.
            usual = getattr(GenerationConfig, name, None) if part == "settings" else None
            if (was := before.get(name, usual)) != value:
                raise MedusaError(
                    f"the run in {folder} began with {words} ({name} {shortened(str(was), 40)}, now "
                    f"{shortened(str(value), 40)}): give what it began with or choose another --save"
                )
    if now["prompt"] != begun.get("prompt"):
        raise MedusaError(
            f"the run in {folder} began with another prompt: give the same or choose another --save"
        )


def _other_surroundings(now: dict[str, Any], before: dict[str, Any]) -> list[str]:
    """A line for each thing that may round otherwise than when the run began."""
    return [
        f"note: the run began with {name} {before[name]}, now it is {value}: near ties may fall otherwise"
        for name, value in now.items()
        if name in before and before[name] != value
    ]


def identity(engine: Engine, prompt: Sequence[int], config: GenerationConfig) -> dict[str, Any]:
    """What must be the same for a run to go on, as JSON."""
    with engine.target.held.lent() as model:  # a long run has no room for the weights twice
        weights = fingerprint(model.named_parameters())
    return {
        "model": {
            "weights": weights,
            "drafter": _drafter(engine, config),
            "dtype": engine.info.dtype,
            "device": torch.device(engine.info.device).type,
            "context": (engine.info.extended or f"{engine.target.context:,}").removeprefix("context "),
        },
        "settings": settings_of(engine, config),
        "prompt": list(prompt),
    }


def surroundings(engine: Engine) -> dict[str, Any]:
    """What may change the rounding: where it differs a run goes on, though perhaps with other tokens."""
    return {
        "torch": torch.__version__,
        "threads": engine.target.threads_used,
        "forward": engine.info.forward,
    }


def settings_of(engine: Engine, config: GenerationConfig) -> dict[str, Any]:
    """All settings but the number of tokens, which may grow; a tree that was chosen is written out."""
    found = dict(vars(config))
    del found["max_new_tokens"], found["options"]
    for settings in (rule_settings(config), drafter_settings(config, draft_of(engine.drafts, config))):
        found |= vars(settings)
    if (tree := engine.fixed_tree(config)) is not None:
        found[TREE] = tree
    return {name: value.choices if isinstance(value, Topology) else value for name, value in found.items()}


def with_tree_of(config: GenerationConfig, settings: Mapping[str, Any]) -> GenerationConfig:
    """A copy with the tree that was chosen when the run began: step times may choose another one today.

    Raises MedusaError when what stands there is no tree.
    """
    tree = settings.get(TREE)
    if not isinstance(tree, list) or config.options.get(TREE, "auto") != "auto":
        return config
    if not tree:
        raise MedusaError("the tree that the run began with is missing: choose another --save")
    try:
        return config.changed(tree=Topology.from_choices(tree))
    except MedusaError as error:
        raise MedusaError(
            f"the tree that the run began with is damaged ({error}): choose another --save"
        ) from error


def fingerprint(tensors: Iterable[tuple[str, torch.Tensor]]) -> str:
    """A hash of names, shapes and some numbers of each tensor: a fraction of a second also for large ones."""
    digest = hashlib.sha256()
    for name, tensor in tensors:
        digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}".encode())
        if tensor.device.type == "meta" or not tensor.numel():  # offloaded: its numbers are elsewhere
            continue
        rows = tensor.detach().reshape(-1)[:: max(1, tensor.numel() // _SAMPLED)][:_SAMPLED]
        digest.update(rows.float().cpu().numpy().tobytes())
    return digest.hexdigest()[:32]


def _drafter(engine: Engine, config: GenerationConfig) -> str | None:
    draft = draft_of(engine.drafts, config)
    if draft is None:
        return None
    return fingerprint((str(number), tensor) for number, tensor in enumerate(draft.tensors()))
