// One stream: its load, its hot keys, how it went, and what is advised.

import { overview, scale } from "./api.js";
import { Bars } from "./bars.js";
import { Explain } from "./explain.js";
import { Lines } from "./lines.js";
import { Table, folded } from "./table.js";
import { clock, make, partitions, percent, ratio, rows, seconds, sentence, short, version, write } from "./text.js";

const ZONES = ["not known yet", "too many tasks", "as it should be", "too few tasks"];
const BY_HAND = "no agents: plans are made from what jobs report";

function tile(name, kind = "") {
  const figure = make("p", { class: `figure ${kind}` }, "–");
  const about = make("p", { class: "muted small" });
  return { figure, about, element: make("div", { class: "tile" }, make("h2", {}, name), figure, about) };
}

function share(cell, row) {
  if (!cell.firstChild) cell.append(make("span"), make("progress", { max: "1", "aria-hidden": "true" }));
  write(cell.firstChild, percent(row.share));
  cell.lastChild.value = row.share;
}

/** "12", or "3 (40.0 %), 7 (31.2 %) and 5 more". */
function places({ fragments, places: many }) {
  if (many === 1) return String(fragments[0].partition);
  const named = fragments.slice(0, 3).map(({ partition, share: part }) => `${partition} (${percent(part)})`);
  const rest = many - named.length;
  return named.join(", ") + (rest > 0 ? ` and ${rows(rest)} more` : "");
}

export class Stream {
  constructor(name) {
    this.name = this.title = name;
    this.pause = 2_000;
    this.watched = overview(name);
    this.bars = new Bars();
    this.explain = new Explain(name);
    this.tiles = {
      hash: tile("Plain hash", "hash"), plan: tile("Plan", "plan"), observed: tile("Observed"),
      scale: tile("Tasks advised", "words"), agents: tile("Learning", "words"),
    };
    this.about = make("p", { class: "lead" });
    this.why = make("p", { class: "why" });
    this.way = make("p", { class: "muted way" });
    this.heavy = make("p", { class: "muted" });
    this.hot = new Table({
      caption: "Hot keys",
      size: 12,
      empty: "No key has a route of its own.",
      columns: [
        { name: "Key hash", fill: (cell, row) => this.asking(cell, row) },
        { name: "Share", number: true, fill: share },
        { name: "Rows", number: true, text: (row) => rows(row.rows) },
        { name: "Partitions", kept: true, text: places },
        { name: "Why", text: (row) => row.reason },
      ],
    });
    this.even = new Lines({ label: "Imbalance over time", least: 1.2, unit: (value) => value.toFixed(1) });
    this.paces = new Lines({ label: "DSYNC over time", height: 130, unit: seconds });
    this.told = this.tables();
    this.element = this.layout();
  }

  asking(cell, row) {
    const button = cell.firstChild ?? cell.appendChild(make("button", {
      type: "button", class: "as-link", onclick: () => this.explain.of(button.dataset.hash),
    }));
    write(button, row.hash);
    button.dataset.hash = row.hash;
    button.setAttribute("aria-label", `Explain key hash ${row.hash}`);
  }

  tables() {
    return {
      plans: folded("Plans as a table", {
        caption: "Plans, the latest first",
        size: 10,
        columns: [
          { name: "When", text: (row) => clock(row.at) },
          { name: "Version", number: true, text: (row) => version(row.version) },
          { name: "For batch", number: true, text: (row) => (row.batch === null ? "–" : rows(row.batch)) },
          { name: "Hash", number: true, text: (row) => ratio(row.by_hash) },
          { name: "Plan", number: true, text: (row) => ratio(row.imbalance) },
          { name: "Moved", number: true, text: (row) => percent(row.moved_rows) },
          { name: "Way advised", text: (row) => row.way || "–" },
          { name: "Why", text: (row) => `${row.outcome}: ${row.reason}` },
        ],
      }),
      batches: folded("Batches as a table", {
        caption: "Batches, the latest first",
        size: 10,
        columns: [
          { name: "When", text: (row) => clock(row.at) },
          { name: "Batch", number: true, text: (row) => rows(row.batch) },
          { name: "Rows", number: true, text: (row) => rows(row.rows) },
          { name: "Imbalance", number: true, text: (row) => ratio(row.imbalance) },
          { name: "Took", number: true, text: (row) => (row.seconds ? seconds(row.seconds) : "–") },
          { name: "By plan", number: true, text: (row) => version(row.version) },
          { name: "From", text: (row) => row.source || "several" },
        ],
      }),
      rounds: folded("Rounds as a table", {
        caption: "Rounds, the latest first",
        size: 10,
        columns: [
          { name: "When", text: (row) => clock(row.at) },
          { name: "Round", number: true, text: (row) => rows(row.epoch) },
          { name: "Reports", number: true, text: (row) => rows(row.reports) },
          { name: "DSYNC", number: true, text: (row) => seconds(row.dsync_seconds) },
          { name: "Took", number: true, text: (row) => seconds(row.seconds) },
          { name: "Ended", text: (row) => row.outcome },
        ],
      }),
    };
  }

  layout() {
    const key = (name, text) => make("li", {}, make("span", { class: `swatch ${name}`, "aria-hidden": "true" }), text);
    const legend = (...items) => make("ul", { class: "legend" }, ...items);
    this.pacing = make("div", {}, make("h3", {}, "DSYNC"), this.paces.element, this.told.rounds.element);
    return make("div", {},
      make("nav", { "aria-label": "Where you are" }, make("a", { class: "up", href: "#/" }, "All streams")),
      make("h1", { tabindex: "-1" }, this.name), this.about,
      make("section", { class: "tiles", "aria-label": "Imbalance and advice" }, ...Object.values(this.tiles).map((one) => one.element)),
      make("section", { class: "card", "aria-labelledby": "load" },
        make("div", { class: "head" }, make("h2", { id: "load" }, "Load per partition"),
          legend(key("hash", "plain hash"), key("plan", "plan"), key("observed", "observed"), key("mean", "the mean of each"))),
        this.why, this.way, this.bars.element),
      make("section", { class: "card", "aria-labelledby": "hot" },
        make("div", { class: "head" }, make("h2", { id: "hot" }, "Hot keys"), this.heavy), this.hot.element),
      this.explain.element,
      make("section", { class: "card", "aria-labelledby": "time" },
        make("div", { class: "head" }, make("h2", { id: "time" }, "Over time"),
          legend(key("hash line", "plain hash"), key("plan line", "plan"), key("observed line", "observed"), key("mark", "a new version"))),
        make("h3", {}, "Imbalance"), this.even.element, this.told.plans.element, this.told.batches.element, this.pacing));
  }

  // -- data

  async ask() {
    const found = await this.watched.ask();
    if (found) this.show(found);
    this.advise(await scale(this.name));
  }

  show(found) {
    const { stream, plan } = found;
    this.explain.show(stream.spec.key_types);
    this.head(found);
    this.loads(found);
    this.hot.show(plan?.hot ?? []);
    write(this.heavy, this.counted(plan));
    this.history(found);
    this.learning(found);
  }

  counted(plan) {
    if (!plan) return "";
    const all = `${rows(plan.hot_keys)} of ${short(plan.keys)} keys have a route of their own`;
    return plan.hot_keys > plan.hot.length ? `${all}; here are the heaviest ${rows(plan.hot.length)}.` : `${all}.`;
  }

  head({ stream, plan }) {
    const made = plan ? `plan ${version(plan.version)}, from ${short(plan.rows)} rows` : "no plan yet";
    write(this.about, `${stream.spec.policy} over ${partitions(stream.spec.partitions)}, ${made}`);
    this.about.title = plan?.version ?? "";
    write(this.why, plan ? sentence(plan.reason) : "Report a histogram and build a plan: then this shows what it does.");
  }

  loads({ plan, expected, observed }) {
    const { tiles } = this;
    write(tiles.hash.figure, ratio(expected?.hash_imbalance));
    write(tiles.hash.about, expected ? "the same rows by hash alone" : "not known");
    write(tiles.plan.figure, ratio(expected ? expected.plan_imbalance : plan?.imbalance));
    write(tiles.plan.about, plan?.batch === null || !plan ? "as predicted" : `as predicted for batch ${rows(plan.batch)}`);
    write(tiles.observed.figure, ratio(observed?.imbalance));
    write(tiles.observed.about, observed ? `batch ${rows(observed.batch)}${observed.version ? ` by ${version(observed.version)}` : ""}` : "no batch was reported");
    const loads = { hash: expected?.by_hash ?? [], plan: expected?.by_plan ?? plan?.loads ?? [] };
    this.bars.show({ ...loads, observed: observed?.loads ?? [] });
  }

  history({ plans, batches, rounds }) {
    const { way, way_reason: reason } = plans.at(-1) ?? {};
    write(this.way, way ? `Way advised: ${way}. ${sentence(reason)}` : "");
    const every = [...plans, ...batches, ...rounds].map((one) => one.at);
    const from = Math.min(...every);
    const span = every.length ? [from, Math.max(...every, from + 10)] : [Date.now() / 1000 - 60, Date.now() / 1000];
    const points = (list, of) => list.map((one) => ({ at: one.at, value: of(one) }));
    const marks = plans.filter((one) => one.outcome === "new").map((one) => ({ at: one.at, text: version(one.version) }));
    this.even.show([
      { name: "hash", steps: true, points: points(plans, (one) => one.by_hash) },
      { name: "plan", steps: true, points: points(plans, (one) => one.imbalance) },
      { name: "observed", points: points(batches, (one) => one.imbalance) },
    ], marks, span, this.summary(plans, batches));
    this.told.plans.show(() => [...plans].reverse());
    this.told.batches.show(() => [...batches].reverse());
    this.told.rounds.show(() => [...rounds].reverse());
    this.pacing.hidden = rounds.length === 0;
    if (rounds.length) {
      const paces = points(rounds, (one) => one.dsync_seconds);
      this.paces.show([{ name: "plan", steps: true, points: paces }], [], span, `Now ${seconds(paces.at(-1).value)}.`);
    }
  }

  summary(plans, batches) {
    const last = plans.at(-1);
    const seen = batches.at(-1);
    const said = last ? `Last plan: by hash ${ratio(last.by_hash)}, as planned ${ratio(last.imbalance)}.` : "No plan yet.";
    return seen ? `${said} Last batch: observed ${ratio(seen.imbalance)}.` : said;
  }

  learning({ stream, rounds }) {
    const { agents } = this.tiles;
    write(agents.figure, stream.agents || stream.epoch ? `${rows(stream.agents)} agent${stream.agents === 1 ? "" : "s"}` : "none");
    const last = rounds.at(-1);
    const how = last ? `, ${last.outcome} in ${seconds(last.seconds)}` : "";
    write(agents.about, stream.epoch ? `round ${rows(stream.epoch)}${how}; DSYNC ${seconds(stream.dsync_seconds)}` : BY_HAND);
  }

  advise(found) {
    const { figure, about } = this.tiles.scale;
    const maps = found.map_tasks ? `${rows(found.map_tasks)} map, ` : "";
    write(figure, `${maps}${rows(found.reduce_tasks)} reduce`);
    const zone = found.zone ? `zone ${found.zone}, ${ZONES[found.zone]}` : ZONES[0];
    write(about, `${zone}: ${found.reason}`);
  }

  close() {}
}
