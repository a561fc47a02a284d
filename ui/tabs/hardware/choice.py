"""Which model and which device the charts are about, for all parts of the tab."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import gradio as gr

from medusa_core.errors import MedusaError
from medusa_core.hardware.devices import THIS, Device, find_device, known_devices
from medusa_core.hardware.shapes import ModelShape, find_shape, known_shapes, shape_of_config
from ui.components.events import DRAWS
from ui.components.views import TextLine
from ui.records.settings import Selection
from ui.runs.session import Session

if TYPE_CHECKING:
    from medusa_core.hardware.this_machine import Machine

LOADED = "loaded"
DTYPE, NUMBER_BYTES = "bfloat16", 2
MOST_BATCH, MOST_CANDIDATES, MOST_CONTEXT = 128, 256, 32_768
CONTEXT = 1024  # default of the slider


@dataclass(frozen=True)
class Choice:
    """The controls above all parts, and the state that measuring this machine fills."""

    model: gr.Dropdown
    device: gr.Dropdown
    selection: gr.State
    machine: gr.State
    dark: gr.Checkbox


@dataclass(frozen=True)
class Chosen:
    """What a drawing is about."""

    shape: ModelShape
    device: Device
    selection: Selection
    dark: bool


def build_choice(selection: gr.State) -> Choice:
    with gr.Row():
        model, device = menus(
            "hardware", [("the loaded model", LOADED)], [("this machine, once measured", THIS)]
        )
    return Choice(model, device, selection, gr.State(), gr.Checkbox(visible=False))


def menus(
    name: str, models: Sequence[tuple[str, str]] = (), devices: Sequence[tuple[str, str]] = ()
) -> tuple[gr.Dropdown, gr.Dropdown]:
    """Menus of the known shapes and devices, and of further entries."""
    titles = [(device.title, known) for known, device in known_devices().items()]
    model = gr.Dropdown(
        [*known_shapes(), *models], value="llama-7b", label="Shape of the model", elem_id=f"{name}-model",
        info="or type a size, such as 3 B", allow_custom_value=True, min_width=200,
    )  # fmt: skip
    device = gr.Dropdown(
        [*titles, *devices], value="a100", label="Device", elem_id=f"{name}-device",
        info="or type its limits, such as 900 GB/s, 120 TFLOP/s", allow_custom_value=True, min_width=200,
    )  # fmt: skip
    return model, device


def connect_drawing(
    session: Session,
    choice: Choice,
    draw: Callable[..., tuple[Any, ...]],
    triggers: Sequence[Any],
    own: Sequence[Any],
    words: TextLine,
    outputs: Sequence[Any],
) -> None:
    """``draw(chosen, *own)`` gives values for the words and the outputs; the words report a bad setting.

    Pure formulas, so nothing waits for the engine.
    """

    def answer(model: str, device: str, machine: Machine | None, mine: Selection, *values: Any) -> Any:
        *settings, dark = values
        try:
            shape = shape_named(session, mine, model)
            return draw(Chosen(shape, device_named(device, machine, shape), mine, dark), *settings)
        except MedusaError as error:
            return str(error), *(gr.skip() for _ in outputs)

    changed = [choice.model.input, choice.device.input, choice.machine.change]
    inputs = [choice.model, choice.device, choice.machine, choice.selection, *own, choice.dark]
    gr.on([*triggers, *changed], answer, inputs, [words, *outputs], **DRAWS)


def shape_named(session: Session, selection: Selection, name: str) -> ModelShape:
    """The shape that a menu's entry stands for. Raises MedusaError."""
    if name != LOADED:
        return find_shape(name)
    engine = session.models.at_hand(selection)
    if engine is None:
        raise MedusaError("no model is loaded yet: run it once in Watch, or choose a shape from the list")
    return shape_of_config(engine.target.config, engine.info.base)


def device_named(name: str, machine: Machine | None, shape: ModelShape) -> Device:
    """The device that a menu's entry stands for. Raises MedusaError."""
    if name != THIS:
        return find_device(name)
    if machine is None:
        raise MedusaError("this machine has not been measured yet: press Measure under Measured here")
    return machine.device(DTYPE, NUMBER_BYTES * shape.read_parameters)


def work_sliders(name: str, *, candidates: int | None = None) -> list[gr.Slider]:
    sliders = [
        gr.Slider(1, MOST_BATCH, value=1, step=1, label="Batch", info="texts at once",
                  elem_id=f"{name}-batch", min_width=220)
    ]  # fmt: skip
    if candidates is not None:
        sliders.append(
            gr.Slider(1, MOST_CANDIDATES, value=candidates, step=1, label="Candidates",
                      info="tokens verified at once; 1 is plain decoding", elem_id=f"{name}-tokens",
                      min_width=220)
        )  # fmt: skip
    sliders.append(
        gr.Slider(16, MOST_CONTEXT, value=CONTEXT, step=16, label="Context", info="tokens of the text",
                  elem_id=f"{name}-context", min_width=220)
    )  # fmt: skip
    return sliders
