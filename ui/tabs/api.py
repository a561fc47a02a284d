"""Named endpoints for programs: gradio_client, other languages, and tools of an MCP client.

They run like the page's own runs, in the same queue, on the model that the app was started with. Their inputs
pass the checks of the page's controls and name no file and no model.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from typing import Any, TypeVar

import gradio as gr

from medusa_core.config import AUTO_METHOD
from medusa_core.drafters import auto_method, require_weights
from medusa_core.errors import MedusaError
from ui.components.events import page_under_way
from ui.records.lanes import PLAIN_METHOD, SecondLane
from ui.records.outside import outside_defaults, outside_kinds, require_prompt, settings_from_outside
from ui.records.settings import RunSettings
from ui.records.updates import StopFlag, Update
from ui.runs.compare import CompareRequest, MeasuredUpdate
from ui.runs.decode import DecodeRequest
from ui.runs.session import Session
from ui.serving.runner import Request

MOST_REPETITIONS = 3
RESULT = ("text", "token_ids", "finish_reason", "new_tokens", "steps", "tokens_per_step", "tokens_per_second",
          "seconds")  # fmt: skip
Answer = dict[str, Any]
Ended = TypeVar("Ended", bound=Update)


def build(session: Session) -> None:

    def decode(prompt: Any, settings: RunSettings, page: str) -> Answer:
        """Continue a text: its tokens, steps and rates."""
        return _figures(_finished(session, DecodeRequest(prompt, settings), page, Update).trace)

    def trace(prompt: Any, settings: RunSettings, page: str) -> Answer:
        """Continue a text: the whole trace, with the tree and the reasons of each step."""
        record = _finished(session, DecodeRequest(prompt, settings), page, Update).run_record
        assert record is not None  # it comes with the trace
        return record.packed()

    def compare(
        prompt: Any, settings: RunSettings, page: str, against: Any = PLAIN_METHOD, repetitions: Any = 1
    ) -> Answer:
        """Time two methods on one text, and say whether their outputs are equal."""
        if type(repetitions) is not int or not 1 <= repetitions <= MOST_REPETITIONS:
            raise MedusaError(f"repetitions is {repetitions!r:.40}: choose 1 to {MOST_REPETITIONS}")
        try:
            other = _with_weights(session, settings_from_outside({"method": against}))
        except MedusaError as error:
            raise MedusaError(f"against: {error}") from error
        request = CompareRequest(prompt, settings, repetitions, SecondLane(method=other.method, copies=False))
        measured = _finished(session, request, page, MeasuredUpdate)
        runs = {name: _figures(run) for name, run in measured.medians.items()}
        for name, speeds in measured.speeds.items():
            runs[name]["tokens_per_second_of_runs"] = speeds
        return {"runs": runs, "outputs": measured.verdict}

    for act in (decode, trace, compare):
        _endpoint(session, act)


def _endpoint(session: Session, act: Callable[..., Answer]) -> None:
    """Publish `act(prompt, settings, page, *extra)` under its name, a run's settings as its parameters."""
    _, _, _, *own = inspect.signature(act).parameters.values()
    defaults, extra = outside_defaults(), {one.name: one.default for one in own}

    def call(prompt: Any, *values: Any) -> Answer:
        *given, request = values
        settings, rest = given[: len(defaults)], given[len(defaults) :]
        try:
            require_prompt(prompt)
            named = dict(zip(defaults, settings, strict=True))
            own = settings_from_outside(named, most_tokens=session.policy.most_tokens)
            return act(prompt, _with_weights(session, own), request.session_hash or "", *rest)
        except MedusaError as error:
            raise gr.Error(str(error), print_exception=False) from error

    kinds = {**outside_kinds(), **{key: type(value) for key, value in extra.items()}}
    place = inspect.Parameter.POSITIONAL_OR_KEYWORD
    parameters = [inspect.Parameter("prompt", place, annotation=str)]
    parameters += [
        inspect.Parameter(key, place, default=value, annotation=kinds[key])
        for key, value in (defaults | extra).items()
    ]
    parameters.append(inspect.Parameter("request", place, default=None, annotation=gr.Request))
    # gradio reads name and description from the function, and names, kinds and defaults of the parameters.
    call.__name__, call.__doc__ = act.__name__, act.__doc__
    call.__annotations__ = {"prompt": str, **kinds, "request": gr.Request, "return": Answer}
    call.__signature__ = inspect.Signature(parameters, return_annotation=Answer)  # type: ignore[attr-defined]
    made = gr.api(call, concurrency_id="engine", concurrency_limit=1)
    for number, parameter in zip(made["inputs"], parameters, strict=False):  # the request is not an input
        page_under_way().blocks[number].label = parameter.name  # type: ignore[union-attr]  # gradio's is "4th"


def _with_weights(session: Session, settings: RunSettings) -> RunSettings:
    """The settings with the drafter that "auto" means on the page's model.

    Raises MedusaError where a method's weights are missing: a program reads no badge that says so.
    """
    session.load_own()
    there = session.drafts_at_hand(settings.selection)
    name = auto_method(there) if settings.method == AUTO_METHOD else settings.method
    require_weights(name, there)
    return replace(settings, method=name)


def _finished(session: Session, request: Request, page: str, kind: type[Ended]) -> Ended:
    """The update that ends a run. Raises MedusaError, in the page's words, if it ends otherwise."""
    flag, ended, words = StopFlag(), None, ""
    session.channel.belongs(flag, page)  # a client that leaves ends its run
    with closing(session.run(request, flag)) as updates:
        for update in updates:
            words = update.status or words
            if update.problem:
                raise MedusaError(words)
            if isinstance(update, kind) and (kind is not Update or update.trace is not None):
                ended = update
    if ended is None:
        raise MedusaError(words or "the run did not finish: try again")
    return ended


def _figures(trace: dict[str, Any] | None) -> Answer:
    if trace is None or not trace["steps"]:
        raise MedusaError("the run was ended before its first step: try again with fewer tokens")
    return {name: trace["output"][name] for name in RESULT}
