"""The report's page: its texts and styles, without links to other files. ``report`` fills in each ``{{name}}``."""

from __future__ import annotations

from unskew.cli.html_document import document

__all__ = ["PAGE"]

_STYLES = """
:root { color-scheme: light dark; --page: #fbfaf7; --card: #ffffff; --ink: #1c2330; --faint: #626c7c; --line: #d9dce2;
  --hash: #d2762b; --unskew: #0b8577; --agents: #7652d6; --good: #0b7a53; --wrong: #c02626; }
@media (prefers-color-scheme: dark) { :root { --page: #11151c; --card: #181d26; --ink: #e8ebf1; --faint: #9aa5b6;
  --line: #343c4a; --hash: #ef9a52; --unskew: #37c4b0; --agents: #ad90ff; --good: #4fd39a; --wrong: #ff7b7b; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink); font: 16px/1.55 system-ui, sans-serif; }
main { max-width: 980px; margin: 0 auto; padding: 40px 20px 80px; }
h1 { font-size: 32px; line-height: 1.2; margin: 0 0 12px; letter-spacing: -0.01em; }
h2 { font-size: 20px; margin: 0 0 6px; }
p { margin: 0 0 12px; max-width: 88ch; }
.lead { font-size: 18px; color: var(--faint); }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(200px, 1fr)); gap: 14px; margin: 26px 0; }
.tile, section { background: var(--card); border: 1px solid var(--line); border-radius: 12px; padding: 18px 20px; }
.tile b { display: block; font-size: 30px; line-height: 1.2; color: var(--unskew); }
.tile span { display: block; font-weight: 600; }
.tile small { color: var(--faint); }
.tile.wrong b, .wrong { color: var(--wrong); font-weight: 600; }
.good { color: var(--good); font-weight: 600; }
section { margin: 18px 0; }
svg { width: 100%; height: auto; display: block; }
svg text { font-family: inherit; }
.wide { overflow-x: auto; margin: 8px 0 12px; }
table { border-collapse: collapse; font-size: 14px; width: 100%; font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: 6px 16px 6px 0; border-bottom: 1px solid var(--line); vertical-align: top; }
th { color: var(--faint); font-weight: 600; }
td:nth-child(-n+2), td.figure { white-space: nowrap; } th.figure, td.figure { text-align: right; }
code { font: 12px ui-monospace, monospace; overflow-wrap: anywhere; }
ul { margin: 0; padding-left: 20px; max-width: 80ch; }
li { margin: 4px 0; }
.h { color: var(--hash); font-weight: 600; } .u { color: var(--unskew); font-weight: 600; }
footer { color: var(--faint); font-size: 14px; margin-top: 24px; }
"""

_BODY = """
<main>
<h1>One hot key, one long task</h1>
<p class="lead">{{lead}}</p>
<div class="tiles">
{{tiles}}
</div>

<section><h2>Rows of each partition, batch {{bad}}</h2>
<p>{{bad_note}}</p>
{{loads}}</section>

<section><h2>How long each batch took</h2>
<p>A batch is over when its last task is. The full colour is the longest task, which placement decides; the pale part
is Spark's own: starting tasks, moving rows, merging. <span class="u">unskew</span>'s time has everything in it, also
counting the keys and making the plan for the next batch. {{lost}}</p>
{{times}}</section>

<section><h2>Imbalance over time</h2>
<p>Rows of the fullest partition over its fair share: 1 is perfect. A batch is counted first
where that would have been cheaper so far; in a shaded batch other keys had become hot and its plan was for the old
ones. One batch later it fits again. The dashed line is unskew's other half: two agents that decide row by row and
need no batch to plan from. They spread the few hottest keys only; what is just below stays where hashing puts it.</p>
{{imbalance}}</section>

<section><h2>How often the agents talk: DSYNC over time</h2>
<p>{{dsync_note}}</p>
{{dsync}}</section>

<section><h2>What the agents have learned: the Q-table</h2>
<p>The newest table of the service, one row for each key that the agents have split: the higher the number, the better
the partition for it. Where load is even, all are worth much the same. Shaded: the partition holds rows of the key now;
a dot: not tried of late.</p>
{{q_table}}</section>

<section><h2>Hot keys, and why they go where they go</h2>
{{hot}}</section>

<section><h2>Are the results the same?</h2>
<p>A plan decides where rows go, and must never decide what comes out. Spark compared what both sides wrote with each
other and with the stream itself: of each key the number of rows, the sum of their amounts, and the sum of their ids,
which would show a row that is lost while another is doubled.</p>
{{proof}}</section>

<section><h2>Every batch</h2>
{{batches}}</section>

<section><h2>How it was measured, and what it does not show</h2>
<ul>
<li><span class="h">hash</span> is <code>df.repartition({{partitions}}, key)</code>,
<span class="u">unskew</span> is <code>Unskew.repartition(df, key, plan, spread)</code>. Both read the same files and
then run the same Python function and the same merge, in the same session: {{cores}} cores, a slot for each of
{{partitions}} tasks. Which one goes first alternates.</li>
<li>Adaptive execution (AQE) is on for both. It does not help hash here: it splits partitions by their bytes, and only
in joins and rebalances, and a hot key's rows are few bytes and much work.</li>
<li>Each row costs {{wait}} µs of waiting, as a call to another system would. That is why {{partitions}} tasks can run
at once on few cores, and why the longest task decides. Work that only computes needs as many cores as partitions.</li>
<li>In <span class="u">unskew</span>'s time: the histogram of the batch by Spark (two slots that both sides have and
only this needs), the plan by the service, routing, and the merge of split keys. The agents run beside both sides.</li>
<li>The job is one whose state per key can be merged. Splitting keys made {{states}} more states to merge here.</li>
<li>For <code>count</code>, <code>sum</code> or <code>avg</code> in SQL leave it to Spark: it combines before it
shuffles, and unskew advises so. Where keys are near uniform hashing is as good.</li>
<li>Start-up and one round of warm-up are not in these times. The stream is made up, from seed {{seed}}.</li>
</ul></section>

<footer>unskew demo, Spark {{spark}}, {{seconds}} seconds in all.</footer>
</main>
"""

PAGE = document("unskew demo", _STYLES, _BODY)
