"""``python -m tools.make_model.family``: the embedded family, from the base's last tokens to its drafters.

Each stage is a command of the project and resumes where it was interrupted; a finished one is skipped. All
drafters learn from the same texts and the same number of tokens. With ``--gpu`` drafters are trained, and
texts written, side by side, for which CUDA's MPS should run. Results lie below ``--out``, and the texts that
the first stage makes in ``made`` below ``--data-root``.
"""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path

from medusa_core.cli.main import OneLineParser, exit_code_of
from medusa_core.errors import MedusaError
from medusa_core.files import project_folder

_BASE_TOKENS = 40_000_000
_KEPT_TOKENS = 9_830_400
_SUMS_TOKENS = 1_638_400
_REPEATS_TOKENS = 1_310_720
_ADAPTER_TOKENS = 3_600_000
_DRAFTER_TOKENS = 16_384_000
_ANSWERS = 19_200
_RECIPE = "tools/make_model/goes_on.json"
_KEEPS = "tools/make_model/keeps.json"
_TEMPERATURES = {"cold": "0 --seed 1", "warm": "0.7 --seed 2"}
_MUON = "--optimizer muon --learning-rate 0.001 --matrix-learning-rate"
_DRAFTERS = {  # the recipe of each with its own flags
    "medusa": "medusa1 --learning-rate 0.002",
    "hydra": f"hydra --heads 3 --lm-head base {_MUON} 0.01",
    "hydra-prefix": f"hydra --heads 3 --lm-head base --prefix {_MUON} 0.01",
    "eagle3": f"eagle3 {_MUON} 0.004 --norm-before-residual --matrix-decay 1",
    "mtp": f"mtp {_MUON} 0.01",
    "block": f"block {_MUON} 0.01",
    "tokenswift": "tokenswift",
}
_BASE = (
    "--start assets/model --tokenizer assets/model/tokenizer.json --context 8192 "
    "--matrix-learning-rate 0.002 --learning-rate 0.001 --weight-decay 0.1 --decay-share 0.6"
)
# The model that learned sums forgot stories: the mean of both, held to what both say, has the best of each.
_KEPT = (
    "--tokenizer assets/model/tokenizer.json --context 8192 --accumulate 2 --matrix-learning-rate 0.001 "
    "--learning-rate 0.0005 --weight-decay 0 --warmup-steps 8 --decay-share 0.75"
)
# A base that repeats sentences is its own teacher of the rest: rates are small, and the pairs weigh little.
_REPEATS = (
    "--tokenizer assets/model/tokenizer.json --context 8192 --accumulate 2 --matrix-learning-rate 0.0004 "
    "--learning-rate 0.0002 --weight-decay 0 --warmup-steps 5 --decay-share 0.6 --pair-weight 0.06"
)
# Heads and adapter together on the base's own texts, with the adapter merged: one base for all.
_MEDUSA2 = (
    "--base-name embedded --start assets/model/heads --teacher self "
    "--learning-rate 0.0025 --backbone-learning-rate 0.0007 --head-weight 0.1 --no-lora-lm-head "
    "--lora-dropout 0 --save merged"
)
_DRAFT_MODEL = (
    "--recipe assets/model/drafters/draft_model/recipe.json --tokenizer assets/model/tokenizer.json "
    "--layers 2 --hidden-size 160 --intermediate-size 448 --attention-heads 5 --kv-heads 1 "
    "--context 8192 --rotary-base 100000 --long-share 0"
)


@dataclass(frozen=True)
class Sizes:
    """Flags that suit the device, such as the tokens of a step or the texts of a batch."""

    base: str
    kept: str
    repeats: str
    heads: str
    draft_model: str
    answers: str


_CPU = Sizes(
    base="--batch-tokens 16384 --accumulate 2 --compile",
    kept="--batch-tokens 8192",
    repeats="--batch-tokens 16384",
    heads="--batch-tokens 4096 --compile",
    draft_model="--batch-tokens 8192 --compile",
    answers="--answer-batch 160",
)
# The sizes of runs on an H200, with nothing compiled.
_GPU = Sizes(
    base="--batch-tokens 65536 --warmup-steps 25",
    kept="--batch-tokens 32768",
    repeats="--batch-tokens 16384",
    heads="--batch-tokens 16384",
    draft_model="--batch-tokens 16384",
    answers="--answer-batch 9600",
)


@dataclass(frozen=True)
class Stage:
    """A Python module with its arguments; without a module the stage joins the texts.

    Stages of a group do not depend on one another.
    """

    name: str
    module: str = ""
    arguments: tuple[str, ...] = ()
    group: str = ""

    @property
    def command(self) -> str:
        """The command line, for the log."""
        return shlex.join([self.module, *self.arguments]) if self.module else "the texts of all temperatures"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the stages that have not finished; return the exit code."""
    parser = OneLineParser(
        prog="python -m tools.make_model.family", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--data-root", type=Path, required=True, help="writable folder that holds corpus")
    parser.add_argument(
        "--out", type=Path, default=Path("runs/family"), help="folder of all runs [%(default)s]"
    )
    parser.add_argument("--only", default="", help="comma-separated names of stages; default: all")
    parser.add_argument("--scale", type=float, default=1.0, help="share of all tokens, to try the order [1]")
    parser.add_argument(
        "--gpu",
        action="store_true",
        help="larger batches, nothing compiled; texts are written and drafters trained side by side",
    )
    parser.add_argument("--list", action="store_true", help="print the stages and do nothing")
    args = parser.parse_args(arguments)

    def run() -> None:
        sizes = _GPU if args.gpu else _CPU
        stages = {stage.name: stage for stage in stages_of(args.out, args.data_root, args.scale, sizes)}
        wanted = args.only.split(",") if args.only else list(stages)
        if unknown := [name for name in wanted if name not in stages]:
            raise MedusaError(f"there is no stage {unknown[0]!r}: use some of {', '.join(stages)}")
        chosen = [stage for name, stage in stages.items() if name in wanted]
        for _, group in groupby(chosen, key=lambda stage: (args.gpu and stage.group) or stage.name):
            together = list(group)
            for stage in together:
                print(
                    f"{stage.name}: {'finished' if _mark(stage, args.out).exists() else stage.command}",
                    flush=True,
                )
            if not args.list:
                with ThreadPoolExecutor(len(together)) as pool:
                    list(pool.map(lambda stage: _finish(stage, args.out), together))

    return exit_code_of(run)


def _mark(stage: Stage, out: Path) -> Path:
    """A file that exists once the stage has finished."""
    return out / "done" / stage.name


def _finish(stage: Stage, out: Path) -> None:
    """Run it unless it has finished. Raises MedusaError where its command did not end well."""
    if _mark(stage, out).exists():
        return
    if not stage.module:
        _join_texts(out)
    elif code := subprocess.call(
        [sys.executable, "-m", stage.module, *stage.arguments], cwd=project_folder()
    ):
        raise MedusaError(f"the stage {stage.name} ended with code {code}: run the command again to go on")
    _mark(stage, out).parent.mkdir(parents=True, exist_ok=True)
    _mark(stage, out).touch()


def stages_of(out: Path, data: Path, scale: float, sizes: Sizes = _CPU) -> Iterator[Stage]:
    """All stages in their order, with runs below ``out`` and texts from ``data``."""
    out, data = out.absolute(), data.absolute()

    def stage(name: str, module: str, flags: str, tokens: int = 0, **folders: Path) -> Stage:
        places = [
            word for flag, place in folders.items() for word in (f"--{flag.replace('_', '-')}", str(place))
        ]
        budget = ["--tokens", str(max(16_384, round(tokens * scale) // 16_384 * 16_384))] if tokens else []
        return Stage(name, module, (*shlex.split(flags), *places, *budget))

    def texts(name: str, model: Path, temperature: str) -> Stage:
        flags = f"train self-distill --train nothing --recipe {_RECIPE} --temperature {temperature} "
        flags += f"{sizes.answers} --answers {max(32, round(_ANSWERS * scale))}"
        written = stage(name, "medusa_core", flags, model=model, data_root=data, out=out / name)
        return replace(written, group="texts" if name in _TEMPERATURES else "")

    base, repeating, model = (out / name / "model" for name in ("kept", "sums", "repeats"))
    yield stage("made", "tools.make_model.made_texts", "", data_root=data)
    flags = f"--recipe {_RECIPE} {_BASE} {sizes.base}"
    yield stage("base", "tools.make_model", flags, _BASE_TOKENS, data_root=data, out=out / "base")
    learned = out / "base" / "model"
    mean, both = (
        shlex.quote(form.format(learned)) for form in ("assets/model=0.35,{}=0.65", "assets/model,{}")
    )
    flags = f"--recipe {_KEEPS} {_KEPT} {sizes.kept} --start {mean} --teachers {both}"
    yield stage("kept", "tools.make_model", flags, _KEPT_TOKENS, data_root=data, out=out / "kept")
    yield texts("own", base, "0.3")
    folders = {"model": base, "data": out / "own" / "answers", "out": out / "medusa2"}
    flags = f"train medusa2 {_MEDUSA2} {sizes.heads}"
    yield stage("medusa2", "medusa_core", flags, _ADAPTER_TOKENS, **folders)
    # The joint stage costs a few sums; the base that relearns them is held to what the joint one says.
    joint = out / "medusa2" / "model"
    flags = f"--recipe {_KEEPS} {_KEPT} {sizes.kept}"
    folders = {"start": joint, "teachers": joint, "data_root": data, "out": out / "sums"}
    yield stage("sums", "tools.make_model", flags, _SUMS_TOKENS, **folders)
    yield texts("greedy", repeating, "0 --seed 3")
    pairs = out / "pairs.jsonl"
    folders = {"model": repeating, "answers": out / "greedy" / "answers", "out": pairs}
    yield stage("pairs", "tools.make_model.repeats", "", 0, **folders)
    folders = {"start": repeating, "teachers": repeating, "pairs": pairs, "data_root": data}
    flags = f"--recipe {_KEEPS} {_REPEATS} {sizes.repeats}"
    yield stage("repeats", "tools.make_model", flags, _REPEATS_TOKENS, out=out / "repeats", **folders)
    for name, temperature in _TEMPERATURES.items():
        yield texts(name, model, temperature)
    yield Stage("answers")
    for name, own in _DRAFTERS.items():
        flags = f"train {own} --base-name embedded {sizes.heads}"
        folders = {"model": model, "data": out / "answers", "out": out / name}
        folders |= {"start": joint / "heads"} if name == "medusa" else {}
        yield replace(stage(name, "medusa_core", flags, _DRAFTER_TOKENS, **folders), group="drafters")
    folders = {"data_root": out, "out": out / "draft_model"}
    flags = f"{_DRAFT_MODEL} {sizes.draft_model}"
    trained = stage("draft_model", "tools.make_model", flags, _DRAFTER_TOKENS, **folders)
    yield replace(trained, group="drafters")


def _join_texts(out: Path) -> None:
    """One file per kind of text, with all temperatures."""
    (out / "answers").mkdir(exist_ok=True)
    for kind in sorted((out / next(iter(_TEMPERATURES)) / "answers").glob("*.jsonl")):
        texts = (out / name / "answers" / kind.name for name in _TEMPERATURES)
        joined = "".join(text.read_text(encoding="utf-8") for text in texts if text.is_file())
        (out / "answers" / kind.name).write_text(joined, encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
