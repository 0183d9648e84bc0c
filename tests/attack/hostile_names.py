"""Names that are meant to be read as something else: as another line, a tag, a path, a colour of the terminal."""

from __future__ import annotations

__all__ = ["IDENTITIES", "NAMES"]

NAMES = {
    "newline": "clicks\n2026-01-01 INFO forged",
    "return": "clicks\r\nx-forged: 1",
    "null": "clicks\x00x",
    "colour": "\x1b[31mclicks\x1b[0m\x07",
    "c1": "clicks\x9b31m",
    "quotes": 'clicks"} 1\nunskew_forged{x="\'',
    "backslash": "clicks\\\\\\n",
    "tag": "<script>alert(1)</script><img src=x onerror=alert(1)>",
    "entity": "&lt;script&gt;&#x27;",
    "template": "${alert(1)}{{7*7}}%s%n{0}",
    "proto": "__proto__",
    "constructor": "constructor",
    "up": "../../etc/passwd",
    "dots": "..",
    "encoded": "%2e%2e%2f%00",
    "braces": "{clicks}:m",
    "glob": "*",
    "alike": "сliсks",
    "wide": "ｃｌｉｃｋｓ",
    "right to left": "clicks\u202egnp.exe",
    "joined": "cli\u200dcks",
    "separator": "clicks\u2028forged",
    "surrogate": "\ud83d",
    "astral": "💥" * 50,
    "long": "x" * 100_000,
    "empty": "",
    "space": " ",
}
"""What each stands for, and the name. ``__proto__``, ``constructor`` are names that a stream may have."""

IDENTITIES = tuple(
    NAMES[name] for name in ("newline", "colour", "quotes", "tag", "proto", "up", "braces", "right to left", "astral")
)
"""Of those who may do everything: whoever writes the tokens file is trusted with it, but may have copied a name."""
