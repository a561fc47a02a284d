"""What a fit found, in words: the verdict, what to try when nothing was gained, the result's card.

Every number comes from the fit's own files.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from medusa_core.checkpoints.names import ACCURACIES_NAME, TREE_NAME
from medusa_core.errors import MedusaError, counted
from medusa_core.training.fit.plan import Plan
from medusa_core.training.fit.settings import FitConfig
from medusa_core.training.run_folder import read_record

REPORT = "report.json"
_FEW_TOKENS = 1.3  # tokens per step below which the heads, not the machine, are the bottleneck


@dataclass(frozen=True)
class Card:
    """Lines of each part; a part without lines is left out."""

    title: str
    summary: Sequence[str]
    commands: Sequence[str]
    training: Sequence[str]
    accuracy: str  # text over which ``accuracies`` were counted
    accuracies: Sequence[Sequence[float]]
    tree: str
    speed: Sequence[str]

    def text(self) -> str:
        """The card as Markdown."""
        parts = {
            "Use": ("```bash", *self.commands, "```"),
            "Training": self.training,
            "Accuracy": tuple(self._accuracy()),
            "Speed": self.speed,
        }
        lines = [f"# {self.title}", *(("", *self.summary) if self.summary else ())]
        for name, part in parts.items():
            if part:
                lines += ["", f"## {name}", "", *part]
        return "\n".join(lines) + "\n"

    def _accuracy(self) -> Iterator[str]:
        if self.accuracies:
            yield f"How often each head's guess of a rank is the base's own next token, {self.accuracy}."
            yield from ("", "| head | 1st guess | 2nd | 3rd |", "|---|---|---|---|")
            for head, row in enumerate(self.accuracies, start=1):
                yield f"| {head} | " + " | ".join(f"{share:.3f}" for share in row[:3]) + " |"
            yield ""
        yield self.tree


def tree_line(nodes: int, depth: int, expected_length: float, *, timed: bool = True) -> str:
    """A line on the tree beside heads, its size chosen by step times if any were ``timed``."""
    why = "the best size for the step times measured on this machine" if timed else "no size was timed"
    size = f"{counted(nodes, 'node')} with the root, depth {depth}"
    return f"Tree: {size}, {expected_length:.2f} tokens per step expected; {why}."


def use_commands(flags: str) -> list[str]:
    """How heads are used, by the flags that name them."""
    return [f'python -m medusa_core generate "Once upon a time" {flags}', f"python app.py {flags}"]


def make_report(config: FitConfig, plan: Plan, fitted: Path, measured: dict, training: dict) -> dict:
    """The record of a fit, as ``report.json`` holds it."""
    accuracies, tree = (
        _part(fitted / name, keys)
        for name, keys in ((ACCURACIES_NAME, ("accuracies", "positions")), (TREE_NAME, ("expected_length",)))
    )
    speeds = measured["measured"]["methods"]["medusa"]
    return {
        **measured,
        "recipe": config.recipe,
        "training": training
        | {"answer_temperature": config.temperature, "learning_rate": plan.learning_rate},
        "accuracies": accuracies["accuracies"],
        "positions": accuracies["positions"],
        "tree": measured["tree"] | {"expected_length": tree["expected_length"]},
        "gained": speeds["speedup"] > 1,
        "verdict": verdict(measured),
        "advice": list(advice(config, measured)),
        "commands": commands(config, fitted),
    }


def _part(file: Path, keys: tuple[str, ...]) -> dict:
    """What the calibration wrote. Raises MedusaError where it was damaged since."""
    record = read_record(file)
    if missing := [key for key in keys if key not in record]:
        raise MedusaError(f"{file} has no {missing[0]!r}: choose another --out")
    return record


def verdict(measured: dict) -> str:
    """One sentence: what was gained, or that nothing was."""
    record = measured["measured"]
    speeds = record["methods"]["medusa"]
    low, high = speeds["speedup_range"]
    figures = (
        f"{speeds['tokens_per_step']:.2f} tokens per step (fresh heads "
        f"{record['fresh_tokens_per_step']:.2f}) at {speeds['overhead']:.2f} times the time of a step"
    )
    if speeds["speedup"] > 1:
        return (
            f"{speeds['speedup']:.2f} times as fast as plain decoding ({low:.2f} to {high:.2f}): {figures}."
        )
    return (
        f"Nothing was gained: {speeds['speedup']:.2f} times the speed of plain decoding ({low:.2f} to "
        f"{high:.2f}): {figures}."
    )


def advice(config: FitConfig, measured: dict) -> Iterator[str]:
    """What to try where nothing was gained."""
    speeds = measured["measured"]["methods"]["medusa"]
    if speeds["speedup"] > 1:
        return
    if speeds["tokens_per_step"] < _FEW_TOKENS:
        yield f"The heads guess too little yet: give them more time, --minutes {4 * config.minutes:g}."
        if not config.prompts:
            yield "Give --prompts like those you will ask: the heads then learn the text that matters."
        if not config.joint:
            yield "Try --recipe medusa2: the base learns along and is easier to predict."
    if speeds["overhead"] > speeds["tokens_per_step"]:
        model = measured["model"]
        if model["device"] == "cpu" and model["dtype"] == "float32":
            yield (
                "In float32 on a CPU a step of many nodes costs many times one of plain decoding: use a CPU "
                "with bfloat16 instructions, or a GPU."
            )
        else:
            yield (
                "A step with a tree costs more than it brings here: Medusa gains where decoding waits for "
                "memory, so a larger model or a GPU gains more."
            )
    if config.share_lm_head:
        yield "Heads with LM heads of their own (without --share-lm-head) guess better."


def commands(config: FitConfig, fitted: Path) -> list[str]:
    """How to use the result."""
    flags = f"--heads {shlex.quote(str(fitted))}"
    if config.model:
        flags = f"--model {shlex.quote(config.model)} {flags}"
    return [*use_commands(flags), f"python -m medusa_core bench {flags}"]


def write_card(report: dict, fitted: Path) -> None:
    """``README.md`` and ``report.json`` into the folder of the result."""
    text = json.dumps(report, indent=2, ensure_ascii=False)
    (fitted / REPORT).write_text(text + "\n", encoding="utf-8")
    (fitted / "README.md").write_text(_card(report).text(), encoding="utf-8")


def _card(report: dict) -> Card:
    model, tree = report["model"], report["tree"]
    kind = "Medusa-2 heads and adapter" if report["recipe"] == "medusa2" else "Medusa-1 heads"
    advice = ("", *(f"- {advice}" for advice in report["advice"])) if report["advice"] else ()
    return Card(
        title=f"{kind} for {model['base']}",
        summary=[report["verdict"], *advice],
        commands=report["commands"],
        training=list(_training(report)),
        accuracy=f"over {report['positions']:,} positions of text after held-out prompts",
        accuracies=report["accuracies"],
        tree=tree_line(tree["nodes"], tree["depth"], tree["expected_length"]),
        speed=list(_speed(report)),
    )


def _training(report: dict) -> Iterator[str]:
    model, training = report["model"], report["training"]
    changed = (
        "The base is changed by the adapter in this folder, which is loaded with the heads."
        if report["recipe"] == "medusa2"
        else "The base is unchanged."
    )
    yield (
        f"{model['heads']} heads ({model['head_parameters']:,} parameters) for a base of "
        f"{model['parameters']:,}. {changed} They learned from {training['answers']:,} texts that the base "
        f"wrote at temperature {training['answer_temperature']:g} ({training['prompts']}), in "
        f"{training['tokens']:,} training tokens, at a peak rate of {training['learning_rate']:g}."
    )
    if loss := training.get("base_loss"):
        yield (
            f"Held-out loss of the base on such text: {loss['before']:.3f} before, {loss['after']:.3f} after."
        )


def _speed(report: dict) -> Iterator[str]:
    model, record = report["model"], report["measured"]
    yield (
        f"{record['settings']['prompts']} other held-out prompts, {record['settings']['max_new_tokens']} new "
        f"tokens, temperature 0, {record['settings']['runs']} interleaved rounds, {model['dtype']} on "
        f"{record['machine']['processor']} ({record['machine']['threads']} threads)."
    )
    yield from (
        "",
        "| | tokens/step | ms/step | tokens/s | overhead | speedup |",
        "|---|---|---|---|---|---|",
    )
    for name, label in (("none", "plain decoding"), ("medusa", "fitted heads")):
        m = record["methods"][name]
        yield (
            f"| {label} | {m['tokens_per_step']:.2f} | {m['step_ms']:.2f} | {m['tokens_per_second']:.1f} | "
            f"{m['overhead']:.2f} | {m['speedup']:.2f} |"
        )
    yield f"| fresh heads, same tree | {record['fresh_tokens_per_step']:.2f} | | | | |"
    yield from ("", equality(record))


def equality(record: dict) -> str:
    """Whether Medusa wrote what plain decoding writes."""
    exact = record["float32"]
    if "skipped" in exact:
        return f"Equality with plain decoding in float32 was not checked: {exact['skipped']}."
    return (
        f"In float32 {exact['identical_outputs']} outputs of {exact['max_new_tokens']} tokens are identical "
        "to plain decoding's."
    )
