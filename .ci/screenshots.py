"""Take the pictures of the pages in docs/: `python .ci/screenshots.py [--url http://127.0.0.1:3000] [name ...]`.

Needs chromium and pngquant, and a UI in the state that docs/tour.md leaves behind; `failing` wants it while the check
of the tour is red.
"""

import argparse
import shutil
import subprocess
from pathlib import Path

IMAGES = Path(__file__).parents[1] / "docs" / "images"
PAGES = {
    "ticks": "/locations/__repository__@tidemill/sensors/ads__backlog",
    "plots": "/assets/ads/impressions?view=plots",
    "checks": "/assets/ads/unique_impressions?view=checks",
    "failing": "/assets/ads/user_sessions?view=checks&checkDetail=exactly_once",
}
LOAD_MILLISECONDS = 20_000  # of the page's own clock, which runs faster than a real one


def main() -> None:
    """Take the pictures that the arguments name, or all of them."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("names", nargs="*", metavar="name", help=", ".join(PAGES))
    arguments.add_argument("--url", default="http://127.0.0.1:3000")
    options = arguments.parse_args()
    for name in options.names or PAGES:
        picture = IMAGES / f"{name}.png"
        take(f"{options.url}{PAGES[name]}", picture)
        print(f"{picture}: {picture.stat().st_size / 1000:.0f} kB")


def take(address: str, picture: Path) -> None:
    """Write what a page shows, in at most 64 colors."""
    flags = ["--headless", "--no-sandbox", "--hide-scrollbars", "--window-size=1400,900"]
    flags += [f"--virtual-time-budget={LOAD_MILLISECONDS}", f"--screenshot={picture}"]
    subprocess.run(
        [shutil.which("chromium") or "chromium", *flags, address],
        check=True,
        capture_output=True,
        timeout=180,
    )
    subprocess.run(
        [shutil.which("pngquant") or "pngquant", "--force", "--ext", ".png", "64", str(picture)], check=True
    )


if __name__ == "__main__":
    main()
