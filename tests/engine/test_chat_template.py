"""Chat templates are rendered as transformers renders them, and one that does not end is ended."""

from __future__ import annotations

import os
import threading
from time import monotonic, sleep

import pytest
import tiny
from training_text import CHATML, embedded_tokenizer

from medusa_core.engine.chat import Conversation, Message
from medusa_core.errors import MedusaError
from medusa_core.text import chat_template
from medusa_core.text.chat_template import Renderer, chat_ids, render_chat

TURNS = [
    {"role": "system", "content": "Be <b>brief</b> & “kind”."},
    {"role": "user", "content": "How much is 2 + 2?\n\tünïcödé 😀"},
    {"role": "assistant", "content": "Four.  "},
    {"role": "user", "content": "Sure?"},
]
TEMPLATES = {
    "ChatML": CHATML,
    "blocks and blanks": """{%- set ns = namespace(found=false, count=0) %}
{% for m in messages %}
  {%- if m.role == 'system' and not ns.found %}{% set ns.found = true %}[{{ m['content'] | trim }}]
  {%- elif m['role'] == 'user' %}
    {{- '<u>' + m.content | upper }}
  {%- else %}{% generation %}{% set own = 1 %}{{ m.content.strip() }}{% endgeneration %}{{ own is defined }}
  {%- endif %}{% set ns.count = ns.count + 1 %}
  {% if loop.last and add_generation_prompt %}<a>{% endif %}
{% endfor %} {{ ns.count }}
""",
    "loop controls": "{% for m in messages %}{% if loop.index == 3 %}{% break %}{% endif %}{{ m.role }};"
    "{% endfor %}",
    "JSON": "{{ messages | tojson }}{{ messages[0] | tojson(indent=2) }}{{ dict(a=1) | tojson }}",
    "special tokens": "{{ eos_token }}{{ bos_token }}{% if tools %}T{% endif %}{{ documents is none }}",
    "macros": "{% macro f(x, n=2) %}{{ x * n }}{% endmacro %}{{ f('ab') }}{{ messages[::-1][0].content }}",
    "a year": "{{ strftime_now('%Y') }}",
    "filters": "{{ messages[1:] | length }}{{ x is defined }}{{ messages | map(attribute='role') | list }}",
}


def with_template(template):
    tokenizer = tiny.tiny_tokenizer(end_token=23)
    tokenizer.chat_template = template
    return tokenizer


@pytest.mark.sample
@pytest.mark.parametrize("answer_next", [False, True])
@pytest.mark.parametrize("name", TEMPLATES)
def test_the_text_is_that_of_transformers(name, answer_next):
    tokenizer = with_template(TEMPLATES[name])
    expected = tokenizer.apply_chat_template(TURNS, tokenize=False, add_generation_prompt=answer_next)
    assert render_chat(tokenizer, TURNS, answer_next=answer_next) == expected


def test_the_ids_are_those_of_transformers():
    tokenizer = embedded_tokenizer()
    turns = TURNS[1:]
    expected = tokenizer.apply_chat_template(turns, add_generation_prompt=True, return_dict=False)
    assert chat_ids(tokenizer, turns) == expected


FAULTS = {
    "a division by zero": ("{{ 1 // 0 }}", "division by zero|modulo by zero"),
    "itself": ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "calls itself without end"),
    "a range beyond reason": ("{% for i in range(10**9) %}{% endfor %}", "[Rr]ange too big"),
    "a number that is no float": ("{{ 10.0 ** 400 }}", "Result too large|out of range"),
    "what it raises": ("{{ raise_exception('no system prompt') }}", r"\(no system prompt\)"),
    "no template": ("{% for %}", "unexpected|Expected"),
    "an attribute of nothing": ("{{ messages[9].content.x }}", "has no|undefined"),
    "the way to Python": ("{{ ''.__class__.__mro__[1].__subclasses__() }}", "unsafe|undefined"),
    "a private name": ("{{ namespace(_x=1) }}", "'_x'"),
    "a text of gigabytes": ("{{ 'a' * 10**10 }}", "more than 1 GB of memory"),
    "no text": (5, "it is not a string"),
    "two of which none is chosen": ({"a": "x", "b": "y"}, "multiple chat templates"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_template_that_fails_says_why(name):
    template, why = FAULTS[name]
    with pytest.raises(MedusaError, match=why):
        render_chat(with_template(template), TURNS)


ENDLESS = {
    "one operation": "{{ 9 ** (9 ** 9) }}",
    "loops": "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
    "calls": "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}",
    "a text that doubles": "{% set ns = namespace(x='ab') %}{% for i in range(60) %}"
    "{% set ns.x = ns.x ~ ns.x %}{% endfor %}{{ ns.x }}",
    "a list of itself": "{% set ns = namespace(x=[1]) %}{% for i in range(60) %}"
    "{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x }}",
}


@pytest.fixture(scope="module")
def hasty():
    """A renderer that waits for one second, of all tests, since its process takes half a second to start."""
    return Renderer(seconds=1.0)


@pytest.mark.sample(1)
@pytest.mark.parametrize("name", ENDLESS)
def test_a_template_without_end_is_ended_in_any_thread(hasty, name):
    caught = []

    def work():
        try:
            hasty.render(ENDLESS[name], [], {})
        except ValueError as error:
            caught.append(str(error))

    thread = threading.Thread(target=work)
    started = monotonic()
    thread.start()
    thread.join(timeout=60)
    assert not thread.is_alive()
    assert monotonic() - started < 60
    assert caught[0] in {"it takes longer than 1 seconds", "it takes more than 1 GB of memory"}
    assert hasty.render("{{ x }}", [], {"x": "fine"}) == "fine"  # the next one is rendered as ever


def test_threads_get_their_own_texts(hasty):
    found = {}

    def work(number):
        found[number] = [hasty.render("{{ n }}:{{ i }}", [], {"n": number, "i": i}) for i in range(50)]

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {number: [f"{number}:{i}" for i in range(50)] for number in range(4)}


def test_the_process_ends_with_its_renderer():
    renderer = Renderer()
    renderer.render("", [], {})
    process = renderer._process
    del renderer
    assert process.poll() is not None


@pytest.mark.skipif(not hasattr(os, "getpgid"), reason="needs groups of processes")
def test_a_signal_to_the_terminal_s_group_leaves_the_process_alone_from_its_start(hasty):
    hasty.render("", [], {})
    assert os.getpgid(hasty._process.pid) != os.getpgid(0)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_fork_renders_with_a_process_of_its_own(hasty):
    hasty.render("", [], {})
    theirs = hasty._process.pid
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            text = hasty.render("{{ 'child' }}", [], {})
            os.write(write, f"{text} {hasty._process.pid != theirs}".encode())
            hasty._end()
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    assert os.read(read, 100) == b"child True"
    assert hasty.render("{{ 'parent' }}", [], {}) == "parent"
    assert hasty._process.pid == theirs


def test_a_conversation_with_an_endless_template_is_refused_in_one_line(hasty, model, monkeypatch):
    engine = tiny.build_engine(model, None)
    engine.tokenizer.chat_template = ENDLESS["loops"]
    monkeypatch.setattr(chat_template, "_renderer", lambda: hasty)
    with pytest.raises(MedusaError, match=r"template of tiny cannot write this \(it takes longer"):
        Conversation(engine, messages=[Message("user", "abc")])


def test_an_interrupted_request_leaves_no_answer_to_the_next(hasty, monkeypatch):
    hasty.render("", [], {})

    class Interrupted:
        def readline(self):
            sleep(0.2)  # the answer is there, and nobody has read it
            raise KeyboardInterrupt

        def close(self):
            pass

    monkeypatch.setattr(hasty._process, "stdout", Interrupted())
    with pytest.raises(KeyboardInterrupt):
        hasty.render("{{ 'old' }}", [], {})
    assert hasty.render("{{ 'new' }}", [], {}) == "new"
