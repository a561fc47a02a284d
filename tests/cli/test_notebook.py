"""The notebook in docs runs from top to bottom, and shows a run's replay inline."""

from __future__ import annotations

import pytest
from paths import ROOT

nbformat = pytest.importorskip("nbformat")
nbclient = pytest.importorskip("nbclient")
pytest.importorskip("ipykernel")

FILE = ROOT / "docs" / "notebook.ipynb"
PATIENCE = 120  # seconds that a cell may take


@pytest.fixture(scope="module")
def executed(tmp_path_factory):
    """The cells with their outputs, from a kernel that starts in an empty folder."""
    notebook = nbformat.read(FILE, as_version=4)
    folder = tmp_path_factory.mktemp("notebook")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(ROOT))
        nbclient.NotebookClient(
            notebook, timeout=PATIENCE, kernel_name="python3", resources={"metadata": {"path": str(folder)}}
        ).execute()
    return notebook.cells


def said(cells, source):
    """The outputs of the cell that holds ``source``, and what they print."""
    (cell,) = [cell for cell in cells if cell.cell_type == "code" and source in cell.source]
    return cell.outputs, "".join(output.get("text", "") for output in cell.outputs)


@pytest.mark.slow
def test_the_replay_of_a_run_stands_in_the_notebook(executed):
    outputs, _ = said(executed, "trace=True")
    (frame,) = [output.data["text/html"] for output in outputs if "data" in output]
    assert frame.startswith('<iframe srcdoc="')
    assert "mountDecodeView" in frame


@pytest.mark.slow
def test_every_drafter_writes_the_same_text(executed):
    _, lines = said(executed, "exact.methods()")
    assert lines.count("the same text") == len(lines.splitlines()) > 5


def test_the_file_holds_no_outputs():
    """They would be read as figures of this machine, and differ with every run."""
    cells = nbformat.read(FILE, as_version=4).cells
    assert [cell for cell in cells if cell.get("outputs") or cell.get("execution_count")] == []
