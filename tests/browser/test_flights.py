"""A guess is one element through the phases of a step: it ends where each draws it, then in the text."""

from __future__ import annotations

import pytest
from view_trace import make_trace

from ui.components.decode_view import message_trace

pytestmark = pytest.mark.browser

TO_PHASE = """(phase) => {
  window.view.store.set({ phase });
  return new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
}"""
# How far each flight ends from the place that the phase draws for its node, and what it changes on the way.
FLIGHTS = """(where) => {
  const middle = (part) => {
    const box = part.getBoundingClientRect();
    return [box.left + box.width / 2, box.top + box.height / 2];
  };
  return [...document.querySelectorAll(".mdv-flight")].map((element) => {
    element.stamp ??= Math.random();
    const [flight] = element.getAnimations();
    const place = where && document.querySelector(`${where}[data-node="${element.dataset.flight}"]`);
    const keys = flight ? [...new Set(flight.effect.getKeyframes().flatMap(Object.keys))] : [];
    if (flight) flight.finish();
    const off = flight && place ? Math.hypot(...middle(place).map((at, i) => at - middle(element)[i])) : null;
    return { node: element.dataset.flight, stamp: element.stamp, off, keys };
  });
}"""
NOT_CHANGED = {"offset", "computedOffset", "easing", "composite"}  # keys of a keyframe beside properties


@pytest.fixture
def shown(view):
    view.evaluate("(text) => window.view.receive(text)", message_trace(1, "run", make_trace()))
    view.wait_for_selector(".mdv-node")
    return view


def test_a_guess_is_one_element_from_its_head_to_the_text(shown):
    seen = {}
    for phase, where in (
        ("propose", ".mdv-node"),
        ("layout", ".mdv-phasepic .mdv-kvcell"),
        ("mask", None),
        ("verify", ".mdv-phasepic .mdv-kvcell"),
        ("judge", ".mdv-node"),
        ("keep", ".mdv-phasepic .mdv-kvcell:not(.after)"),
        ("next", ".mdv-step.current .mdv-token"),
    ):
        shown.evaluate(TO_PHASE, phase)
        flights = {each["node"]: each for each in shown.evaluate(FLIGHTS, where)}
        assert len(flights) >= 11, phase  # the guesses; the root has no head that it is born under
        for node, flight in flights.items():
            assert seen.setdefault(node, flight["stamp"]) == flight["stamp"], phase
            assert set(flight["keys"]) - NOT_CHANGED <= {"transform", "opacity"}
        ends = [flight["off"] for flight in flights.values() if flight["off"] is not None]
        assert (where is None) or (ends and max(ends) < 3), phase


def test_a_step_forward_takes_what_was_kept_into_the_text(shown):
    shown.evaluate("window.view.store.goto(1)")
    shown.evaluate(TO_PHASE, None)
    flights = shown.evaluate(FLIGHTS, '.mdv-step[data-step="0"] .mdv-token')
    kept = [each for each in flights if each["off"] is not None]
    assert len(kept) == len(make_trace()["steps"][0]["path"])
    assert max(each["off"] for each in kept) < 3
    shown.wait_for_function("!document.querySelector('.mdv-flight')")


def test_nothing_flies_for_who_wants_no_motion(shown):
    shown.emulate_media(reduced_motion="reduce")
    shown.evaluate(TO_PHASE, "propose")
    shown.evaluate(TO_PHASE, "layout")
    assert shown.evaluate(FLIGHTS, None) == []
    shown.emulate_media(reduced_motion="no-preference")
