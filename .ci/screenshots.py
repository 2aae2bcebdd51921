"""Take the pictures of the pages in docs/: `python .ci/screenshots.py [--url http://127.0.0.1:3000] [name ...]`.

Needs chromium and pngquant, and a UI in the state that docs/tour.md leaves behind; `failing` wants it while the check
of the tour is red.
"""

import argparse
import base64
import json
import shutil
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from websockets.sync.client import connect

IMAGES = Path(__file__).parents[1] / "docs" / "images"
SECONDS = 60
SETTLE_SECONDS = 3  # after a page has its text: pictures and plots come last


@dataclass(frozen=True)
class Page:
    """A page of the UI.

    Attributes:
        path: Its address.
        text: A string on it once it is loaded.
        click: The text of a button or a link to click then, which is moved to the top.
        size: Its width and height in pixels.
    """

    path: str
    text: str
    click: str = ""
    size: tuple[int, int] = (1400, 900)


PAGES = {
    "asset-graph": Page(
        "/locations/__repository__@tidemill/asset-groups/ads", "frequency_alerts", size=(1600, 1400)
    ),
    "ticks": Page("/locations/__repository__@tidemill/sensors/ads__backlog", "ads__backlog"),
    "plots": Page("/assets/ads/impressions?view=overview", "Plots", "Plots"),
    "checks": Page("/assets/ads/unique_impressions?view=checks", "Execution history"),
    "failing": Page("/assets/ads/attribution?view=checks", "Execution history", "exactly_once"),
}


def main() -> None:
    """Take the pictures that the arguments name, or all of them."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("names", nargs="*", metavar="name", help=", ".join(PAGES))
    arguments.add_argument("--url", default="http://127.0.0.1:3000")
    options = arguments.parse_args()
    with tempfile.TemporaryDirectory() as profile:
        flags = ["--headless", "--no-sandbox", "--hide-scrollbars", "--window-size=1400,900"]
        flags += ["--remote-debugging-port=0", f"--user-data-dir={profile}"]
        browser = subprocess.Popen(
            [shutil.which("chromium") or "chromium", *flags], stderr=subprocess.DEVNULL
        )
        try:
            for name in options.names or PAGES:
                picture = IMAGES / f"{name}.png"
                picture.write_bytes(taken(Path(profile), options.url, PAGES[name]))
                pngquant = shutil.which("pngquant") or "pngquant"
                subprocess.run([pngquant, "--force", "--ext", ".png", "64", str(picture)], check=True)
                print(f"{picture}: {picture.stat().st_size / 1000:.0f} kB")
        finally:
            browser.terminate()
            browser.wait()


def taken(profile: Path, url: str, page: Page) -> bytes:
    """Return the picture of a page in a tab of its own."""
    port_file = profile / "DevToolsActivePort"
    _wait_for(port_file.exists)
    port = port_file.read_text(encoding="utf-8").splitlines()[0]
    request = urllib.request.Request(f"http://127.0.0.1:{port}/json/new?{url}{page.path}", method="PUT")
    with urllib.request.urlopen(request) as answer:  # noqa: S310 - our own browser
        address = json.load(answer)["webSocketDebuggerUrl"]
    with connect(address, max_size=None) as tab:

        def call(method: str, **parameters: object) -> dict[str, dict[str, str]]:
            tab.send(json.dumps({"id": 1, "method": method, "params": parameters}))
            return json.loads(tab.recv())["result"]

        def value(script: str) -> object:
            return call("Runtime.evaluate", expression=script)["result"].get("value")

        width, height = page.size
        call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )
        _wait_for(lambda: value(f"document.body.innerText.includes({json.dumps(page.text)})"))
        if page.click:
            value(
                "const clicked = [...document.querySelectorAll('button, a, div')].findLast(one => "
                f"one.innerText.trim() === {json.dumps(page.click)}); "
                "clicked.click(); clicked.scrollIntoView(true)"
            )
        time.sleep(SETTLE_SECONDS)
        return base64.b64decode(call("Page.captureScreenshot", format="png")["data"])


def _wait_for(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + SECONDS
    while not condition():
        if time.monotonic() > deadline:
            raise SystemExit(f"The page has not what it should have after {SECONDS} s.")
        time.sleep(0.2)


if __name__ == "__main__":
    main()
