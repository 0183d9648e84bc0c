// The list of streams: what each is, and how even its load is.

import { page } from "./api.js";
import { Table } from "./table.js";
import { make, ratio, rows, version, write } from "./text.js";

const LIMIT = 200; // of a request
const PAGES = 10;

export const address = (stream) => `#/streams/${encodeURIComponent(stream)}`;

function named(cell, { stream }) {
  const link = cell.firstChild ?? cell.appendChild(make("a"));
  write(link, stream.name);
  link.href = address(stream.name);
}

export class List {
  constructor() {
    this.title = "Streams";
    this.asked = [];
    this.pages = [];
    this.filter = make("input", { id: "filter", type: "search", autocomplete: "off", spellcheck: "false", oninput: () => this.draw() });
    this.count = make("p", { class: "muted", role: "status" });
    this.table = new Table({
      caption: "Streams",
      size: 50,
      empty: "No stream here. Put one: PUT v1/streams/name, or let a job begin.",
      columns: [
        { name: "Stream", fill: named },
        { name: "Policy", text: ({ stream }) => stream.spec.policy },
        { name: "Partitions", number: true, text: ({ stream }) => rows(stream.spec.partitions) },
        { name: "Version", number: true, text: ({ stream }) => version(stream.version) },
        { name: "Imbalance by hash", number: true, text: (row) => ratio(row.by_hash) },
        { name: "by plan", number: true, text: (row) => ratio(row.planned) },
        { name: "observed", number: true, text: (row) => ratio(row.observed) },
        { name: "Agents", number: true, text: ({ stream }) => rows(stream.agents) },
      ],
    });
    this.element = make("div", {},
      make("div", { class: "head" }, make("h1", { tabindex: "-1" }, "Streams"),
        make("div", { class: "field" }, make("label", { for: "filter" }, "Filter"), this.filter)),
      this.count, make("div", { class: "card flush" }, this.table.element),
      make("p", { class: "muted small" }, "Imbalance is the rows of the fullest partition over the mean: 1.00 is even."));
  }

  /** A line costs the service some look-ups: of many it is asked less often. */
  get pause() {
    return this.pages.flatMap((one) => one.streams).length > 50 ? 10_000 : 2_000;
  }

  /** All pages of the list; drawn anew if any of them is another. */
  async ask() {
    let news = false;
    let after = "";
    for (let at = 0; at < PAGES; at += 1) {
      const wanted = page(after, LIMIT);
      if (this.asked[at]?.path !== wanted.path) this.asked[at] = wanted;
      const found = await this.asked[at].ask();
      if (found) {
        this.pages[at] = found;
        news = true;
      }
      after = this.pages[at].next;
      if (!after) {
        this.asked.length = this.pages.length = at + 1;
        break;
      }
    }
    this.more = after !== "";
    if (news) this.draw();
  }

  draw() {
    const all = this.pages.flatMap((one) => one.streams);
    const wanted = this.filter.value.trim().toLowerCase();
    const found = all.filter(({ stream }) => `${stream.name} ${stream.spec.policy}`.toLowerCase().includes(wanted));
    this.table.empty = all.length ? "No stream matches the filter." : this.table.empty;
    write(this.table.none, all.length ? "No stream matches the filter." : this.table.empty);
    this.table.show(found);
    const first = this.more ? "the first " : "";
    write(this.count, wanted ? `${rows(found.length)} of ${first}${rows(all.length)}` : `${first}${rows(all.length)} streams`);
  }

  close() {}
}
