"""Compiling C: once, kept where nobody else can write, and every broken compiler or folder done without."""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from served import wait_until

from medusa_core.llama import compile_c
from medusa_core.llama.compile_c import CompilerError, NoLibraryError, Recipe, open_library

CC = shutil.which("cc")
NOBODY = 65534
SOURCE = "long answer(void) { return ANSWER; }"

pytestmark = pytest.mark.skipif(CC is None, reason="there is no C compiler")
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")


def recipe_in(folder):
    (folder / "tiny.c").write_text(SOURCE)
    return Recipe(
        title="the tiny library", sources=[folder / "tiny.c"],
        flags=("-O0", "-shared", "-fPIC", "-DANSWER=42"), machine="", functions=["answer"],
    )  # fmt: skip


@pytest.fixture
def recipe(tmp_path):
    (tmp_path / "sources").mkdir()
    return recipe_in(tmp_path / "sources")


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "cache"


@pytest.fixture
def compiler(tmp_path, monkeypatch):
    """Makes a shell script the compiler, with $OUT as the file to make; gives what counts its runs."""
    (tmp_path / "bin").mkdir()
    script, runs = tmp_path / "bin" / "cc", tmp_path / "runs"
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=os.pathsep)

    def install(body):
        runs.write_text("")
        out = 'for word; do test "$last" = -o && OUT=$word; last=$word; done'
        script.write_text(f"#!/bin/sh\necho run >> {runs}\n{out}\n{body}\n")
        script.chmod(0o755)
        return lambda: len(runs.read_text().splitlines())

    return install


def answer_of(library):
    return library.answer()


def test_a_library_is_compiled_once_and_found_again(recipe, folder, compiler):
    runs = compiler(f'exec {CC} "$@"')
    assert answer_of(open_library(recipe, folder)) == answer_of(open_library(recipe, folder)) == 42
    assert runs() == 1
    (path,) = folder.iterdir()
    assert stat.S_IMODE(path.stat().st_mode) == stat.S_IMODE(folder.stat().st_mode) == 0o700
    other = replace(recipe, flags=(*recipe.flags, "-UANSWER", "-DANSWER=43"))
    assert answer_of(open_library(other, folder)) == 43
    assert len(list(folder.iterdir())) == runs() == 2


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (r"printf 'note\n\377\376 error: caf\351\n' >&2; exit 1", "fails: \ufffd\ufffd error: caf\ufffd"),
        ("exit 1", "fails: it printed nothing"),
        ("exit 0", "made no library: No such file"),
        ("mkfifo $OUT", "made no library: It is a named pipe"),
        ("mkdir $OUT", "made no library: Is a directory"),
        ("ln -s /dev/zero $OUT", "made no library: It is a device"),
        ("true > $OUT", "cannot be loaded"),
        ("echo hello > $OUT", "cannot be loaded"),
        (f"echo 'int other;' | {CC} -x c - -shared -o $OUT", "no function answer"),
    ],
)  # fmt: skip
def test_what_a_broken_compiler_makes_is_refused_and_not_kept(body, message, recipe, folder, compiler):
    compiler(body)
    with pytest.raises(CompilerError, match=message) as error:
        open_library(recipe, folder)
    assert "\n" not in str(error.value)
    assert list(folder.iterdir()) == []
    compiler(f'exec {CC} "$@"')  # another compiler at the same path
    assert answer_of(open_library(recipe, folder)) == 42


def test_a_compiler_that_cannot_be_run_is_refused(recipe, folder, compiler, tmp_path, monkeypatch):
    compiler("")
    (tmp_path / "bin" / "cc").write_bytes(b"\x7fELF of another machine")
    with pytest.raises(CompilerError, match="cannot be run"):
        open_library(recipe, folder)
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    with pytest.raises(NoLibraryError, match="there is no C compiler"):
        open_library(recipe, folder)


def test_a_compiler_that_hangs_is_ended_with_what_it_has_started(
    recipe, folder, compiler, tmp_path, monkeypatch, caplog
):
    monkeypatch.setattr(compile_c, "_SECONDS", 0.5)
    compiler(f"sleep 1000 &\necho $! > {tmp_path}/pid\nwait")
    with pytest.raises(CompilerError, match=r"longer than 0\.5 seconds"):
        open_library(recipe, folder)
    assert caplog.messages == ["Compiling the tiny library for this processor"]
    status = Path(f"/proc/{(tmp_path / 'pid').read_text().strip()}/stat")
    wait_until(lambda: not status.exists() or status.read_text().split()[2] in "ZX")


def _damage(path):
    data = path.read_bytes()
    path.unlink()  # it is in use
    path.write_bytes(data[:100])
    path.chmod(0o700)


def _replace_by(make):
    def spoil(path):
        path.unlink()
        make(path)

    return spoil


@pytest.mark.parametrize(
    "spoil",
    [
        _damage,
        _replace_by(os.mkfifo),
        _replace_by(lambda path: path.symlink_to("/dev/zero")),
        _replace_by(lambda path: path.symlink_to("nothing")),
        lambda path: path.rename(path.with_name("x")) and path.symlink_to("x"),
        lambda path: path.chmod(0o720),
        lambda path: path.chmod(0o702),
        pytest.param(lambda path: os.chown(path, NOBODY, NOBODY), marks=as_root),
    ],
    ids=["damaged", "pipe", "device", "nowhere", "link", "group", "others", "owner"],
)  # fmt: skip
def test_a_file_that_cannot_be_trusted_is_compiled_anew(spoil, recipe, folder, compiler):
    runs = compiler(f'exec {CC} "$@"')
    open_library(recipe, folder)
    (path,) = folder.iterdir()
    spoil(path)
    assert answer_of(open_library(recipe, folder)) == 42
    assert runs() == 2
    assert answer_of(open_library(recipe, folder)) == 42
    assert runs() == 2


def test_another_library_under_a_name_of_ours_is_compiled_anew(recipe, folder):
    open_library(recipe, folder)
    (path,) = folder.iterdir()
    path.unlink()
    os.system(f"echo 'int other;' | {CC} -x c - -shared -o {path}")
    path.chmod(0o700)
    assert answer_of(open_library(recipe, folder)) == 42


def _file(path):
    path.write_text("a file")


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (_file, "File exists"),
        (os.mkfifo, "File exists"),
        (lambda path: path.symlink_to("/proc/nothing"), "File exists"),
        (lambda path: path.symlink_to("/proc/self/fdinfo"), ""),
        (lambda path: path.mkdir() or path.chmod(0o770), "other users may write to it"),
        (lambda path: path.mkdir() or path.chmod(0o1777), "other users may write to it"),
        pytest.param(
            lambda path: path.mkdir(0o700) or os.chown(path, NOBODY, NOBODY),
            f"it belongs to user {NOBODY}",
            marks=as_root,
        ),
    ],
    ids=["file", "pipe", "nowhere", "proc", "group", "others", "owner"],
)  # fmt: skip
def test_a_folder_that_cannot_be_used_is_done_without(make, reason, recipe, folder, compiler, caplog):
    runs = compiler(f'exec {CC} "$@"')
    make(folder)
    assert answer_of(open_library(recipe, folder)) == 42
    assert runs() == 1
    assert not folder.is_dir() or folder.is_symlink() or list(folder.iterdir()) == []
    _, line = caplog.messages
    assert line.startswith(
        f"Compiled the tiny library for this process alone, since it cannot be kept in {folder} ("
    )
    assert reason in line


def test_a_folder_in_the_librarys_place_is_done_without(recipe, folder, compiler):
    runs = compiler(f'exec {CC} "$@"')
    open_library(recipe, folder)
    (path,) = folder.iterdir()
    path.unlink()
    path.mkdir()
    assert answer_of(open_library(recipe, folder)) == 42
    assert runs() == 2


def _as_nobody(work):
    """What ``work`` returns, a string, in a process of another user."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            os.write(writing, work().encode())
        finally:
            os._exit(0)
    os.close(writing)
    with open(reading) as answers:
        text = answers.read()
    os.waitpid(child, 0)
    return text


@as_root
def test_another_user_uses_the_library_of_root_and_writes_nothing_there(compiler, caplog, monkeypatch):
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        place, folder = Path(name), Path(name) / "cache"
        place.chmod(0o755)
        folder.mkdir()
        recipe = recipe_in(place)
        monkeypatch.setattr(tempfile, "tempdir", "/tmp")

        def outcome():
            caplog.clear()
            return f"{answer_of(open_library(recipe, folder))} {caplog.messages}"

        assert "Compiled the tiny library for this process alone" in (found := _as_nobody(outcome))
        assert "Permission denied" in found
        assert list(folder.iterdir()) == []
        open_library(recipe, folder)
        next(folder.iterdir()).chmod(0o755)
        assert _as_nobody(outcome) == "42 []"
