"""Makes the film that the README shows: ``python tests/support/record_film.py`` from the repository root.

It opens the app with the embedded model in a headless Chromium, runs an example of the page and saves the
Share menu's own film of its first steps. Needs playwright and a chromium on the path. Every version of the
file stays in the repository's history, so renew it only when the film looks different.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from launching import launch  # noqa: E402

from medusa_core.config import LoadConfig  # noqa: E402
from ui.runs.session import Session  # noqa: E402
from ui.tabs.layout import (  # noqa: E402
    build_page,
    gradio_theme,
    page_css,
)

EXAMPLE = "Story: the lost kite"
STEPS = 6
LARGEST = 1_500_000  # bytes, for readers of the README on a slow connection


def main() -> int:
    """Write the file and print its size; 1 when it is too large."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=ROOT / "assets" / "images" / "film.gif")
    parser.add_argument("--example", default=EXAMPLE, help="a button of the page (default: %(default)s)")
    parser.add_argument("--steps", type=int, default=STEPS, help="default: %(default)s")
    flags = parser.parse_args()
    os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"
    page = build_page(Session(LoadConfig()))
    address = launch(page, theme=gradio_theme(), css=page_css(), footer_links=[], run_history=False)
    with sync_playwright() as manager:
        browser = manager.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        film(browser.new_page(viewport={"width": 1440, "height": 900}), address, flags)
        browser.close()
    page.close(verbose=False)
    size = flags.out.stat().st_size
    print(f"{flags.out}: {size / 1e6:.2f} MB, at most {LARGEST / 1e6:.1f}")
    return int(size > LARGEST)


def film(page: Any, address: str, flags: argparse.Namespace) -> None:
    """Run the example and save the film of its first steps."""
    page.add_init_script("localStorage.setItem('medusa-opening', 'seen')")
    page.goto(address)
    page.wait_for_selector("#decode-view .mdv-node")
    page.get_by_label("Examples, settings").check()
    page.get_by_role("button", name=flags.example).click()
    page.locator("#decode-run").click()
    # The embedded model's run may be over before the page is seen to be live.
    page.wait_for_selector("#decode-status :text('tokens in')", timeout=120_000)
    page.wait_for_selector("#decode-view .mdv-badges :text('finished')")
    page.click("#decode-view .mdv-shareopen")
    page.fill("[aria-label='Last step of the film']", str(flags.steps))
    with page.expect_download() as download:
        page.click("[data-share=film]")
    download.value.save_as(flags.out)


if __name__ == "__main__":
    sys.exit(main())
