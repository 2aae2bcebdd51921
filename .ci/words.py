"""Find words that Tidemill's code, messages and pages do not use, and print what to write instead.

`make lint` runs it over every Python and Markdown file of the repository; with arguments it reads only those.
"""

import re
import subprocess
import sys
from pathlib import Path

# Whole words and phrases, in any case. A word inside an identifier such as `test_a_word` does not count.
INSTEAD = {
    r"mend(s|ed|ing)?": "fix",
    r"anew": "again; recreated",
    r"for ever": "forever, permanently",
    r"of ours": "our, Tidemill's",
    r"(?<![.])(tells?|told)": "report, raise, state; distinguish",
    r"look(s|ed|ing)? (at|into)|a look": "check, inspect, read, view",
    r"without a word": "silently",
    r"(gives?|giving|gave|given) out": "emit",
    r"cannot be had": "is not available",
    r"wakes?|woken?|awake": "trigger",
    r"beside it": "next to it",
    r"comes? to NULL": "evaluates to NULL",
    r"excepted": "except",
    r"br(eaks?|oke|oken) off|goes on|go on": "stop, abort, interrupt; continue",
    r"(?<![/\"])gone(?!\.)": "missing; no longer exists",
    r"at the most": "at most",
    r"tr(y|ies|ied) (it )?again": "retry",
    r"nothing is to be done|is to be done": "no action is needed",
    r"(landing|a|the|another|other|which|whose|this|that|every|one|same|unknown) places?": (
        "path, folder, binding, target, location"
    ),
    r"texts|a text(?! (file|column|source|record))": "string, line",
    r"(one|two|once|twice|files|rows|records|lines|commits|tasks|change|jvm|session|process) a "
    r"(micro-batch|batch|stream|report|version|run|feed|file|record|line|process|core|ad|second)": "per",
    r"(?<![.,])1 (batches|rows|files|streams|records|messages|versions|seconds|findings)": "the singular",
}
# Words that name how a value was obtained and not the value.
NAMES = r"found|each|seen|said|told|meant|place"
VARIABLE = re.compile(rf"^\s*({NAMES})(: [^=]+)? = |\bfor ({NAMES}) in\b|\b({NAMES}) := |\bas ({NAMES}):")
PHRASES = [(re.compile(rf"\b({words})\b", re.IGNORECASE), use) for words, use in INSTEAD.items()]


def faults(path: Path) -> list[str]:
    """Return one line for each phrase of a file that has a better one."""
    lines = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        lines += [
            f"{path}:{number}: {match[0]!r}: write {use}"
            for pattern, use in PHRASES
            for match in pattern.finditer(line)
        ]
        if path.suffix == ".py" and (match := VARIABLE.search(line)):
            lines.append(f"{path}:{number}: {match[0].strip()!r}: name the thing itself")
    return lines


def tracked() -> list[Path]:
    """Return the Python and Markdown files of the repository, without this one."""
    listed = subprocess.run(["git", "ls-files", "*.py", "*.md"], capture_output=True, text=True, check=True)  # noqa: S607
    paths = [Path(name) for name in listed.stdout.splitlines()]
    return [path for path in paths if path.exists() and path.name != Path(__file__).name]


if __name__ == "__main__":
    problems = [line for path in [Path(name) for name in sys.argv[1:]] or tracked() for line in faults(path)]
    print("\n".join(problems) or "No banned words.")
    sys.exit(bool(problems))
