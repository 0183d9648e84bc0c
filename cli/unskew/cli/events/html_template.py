"""The page of ``unskew events --html``: its texts and styles, without links to other files or scripts."""

from __future__ import annotations

from unskew.cli.html_document import document

__all__ = ["PAGE"]

_STYLES = """
:root { color-scheme: light dark; --page: #fbfaf7; --card: #ffffff; --ink: #1c2330; --faint: #5a6474; --line: #d9dce2;
  --over: #b45309; --task: #8fa3bf; --even: #0b6e63; }
@media (prefers-color-scheme: dark) { :root { --page: #11151c; --card: #181d26; --ink: #e8ebf1; --faint: #a5b0c0;
  --line: #343c4a; --over: #f0a45d; --task: #5f7592; --even: #37c4b0; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink); font: 16px/1.5 system-ui, sans-serif; }
main { max-width: 1000px; margin: 0 auto; padding: 32px 16px 64px; }
h1 { font-size: 28px; line-height: 1.2; margin: 0 0 8px; }
h2 { font-size: 18px; margin: 0 0 4px; overflow-wrap: anywhere; }
p { margin: 0 0 10px; max-width: 90ch; overflow-wrap: anywhere; }
.faint { color: var(--faint); }
section { background: var(--card); border: 1px solid var(--line); border-radius: 10px; padding: 16px 18px;
  margin: 16px 0; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: 14px; width: 100%; font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: 5px 14px 5px 0; border-bottom: 1px solid var(--line); vertical-align: top; }
th { color: var(--faint); font-weight: 600; }
td.figure, th.figure { text-align: right; white-space: nowrap; }
a { color: inherit; }
svg { width: 100%; height: auto; display: block; }
svg text { font: 12px system-ui, sans-serif; fill: var(--faint); }
.task { fill: var(--task); } .over { fill: var(--over); } .even { stroke: var(--even); stroke-width: 2; }
svg text.level { fill: var(--even); }
pre { font: 13px/1.5 ui-monospace, monospace; margin: 0 0 10px; white-space: pre-wrap; overflow-wrap: anywhere; }
dl { margin: 0; } dt { color: var(--faint); } dd { margin: 0 0 8px; overflow-wrap: anywhere; }
"""

_BODY = """
<main>
<h1>Stages that wait for their longest task</h1>
<p>{{heading}}.</p>
<p class="faint">{{bound}}</p>
<section><h2>All stages</h2>
<div class="wide" tabindex="0" role="region" aria-label="All stages">{{table}}</div>{{left_out}}</section>
{{stages}}
{{unread}}
</main>
"""

PAGE = document("unskew events", _STYLES, _BODY, "default-src 'none'; style-src 'unsafe-inline'")
