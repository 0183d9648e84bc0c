"""An HTML document in one file: what the pages of the demo and of event logs have around their content."""

from __future__ import annotations

__all__ = ["document"]


def document(title: str, styles: str, body: str, policy: str = "") -> str:
    """``policy``: a Content-Security-Policy, which the browser then keeps."""
    guard = f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n' if policy else ""
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
{guard}<title>{title}</title>
<style>{styles}</style>
</head>
<body>{body}</body>
</html>
"""
