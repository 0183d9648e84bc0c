// A table of which one page is in the document. Its rows are written over, not made anew: who is at a button stays there.

import { make, rows as counted, write } from "./text.js";

const kind = (column) => (column.number ? "number" : column.kept ? "kept" : null);

/**
 * ``columns``: name, ``text(row)`` or ``fill(cell, row)``; ``number`` for figures, ``kept`` together on one line.
 * ``caption`` says what it is.
 */
export class Table {
  constructor({ caption, columns, size = 25, empty = "Nothing yet." }) {
    this.columns = columns;
    this.size = size;
    this.empty = empty;
    this.rows = [];
    this.from = 0;
    const heads = columns.map((column) => make("th", { scope: "col", class: kind(column) }, column.name));
    this.body = make("tbody");
    this.none = make("p", { class: "muted" }, empty);
    this.scroll = make("div", { class: "scroll", role: "group", "aria-label": caption, tabindex: "0" },
      make("table", {}, make("caption", { class: "unseen" }, caption), make("thead", {}, make("tr", {}, ...heads)), this.body));
    this.back = make("button", { type: "button", onclick: () => this.turn(-1) }, "Previous");
    this.on = make("button", { type: "button", onclick: () => this.turn(1) }, "Next");
    this.where = make("span", { class: "muted", "aria-live": "polite" });
    this.pages = make("nav", { class: "pages", "aria-label": `Pages of: ${caption}` }, this.back, this.where, this.on);
    this.element = make("div", { class: "paged" }, this.scroll, this.none, this.pages);
  }

  turn(by) {
    this.from += by * this.size;
    this.draw();
    if (by < 0 && this.back.disabled) this.on.focus();
    if (by > 0 && this.on.disabled) this.back.focus();
  }

  show(rows) {
    this.rows = rows;
    this.draw();
  }

  draw() {
    const { rows, size } = this;
    this.from = Math.max(0, Math.min(this.from, Math.floor((rows.length - 1) / size) * size));
    const shown = rows.slice(this.from, this.from + size);
    while (this.body.rows.length > shown.length) this.body.deleteRow(-1);
    while (this.body.rows.length < shown.length) this.body.append(this.line());
    shown.forEach((row, at) => this.fill(this.body.rows[at], row));
    this.none.hidden = rows.length > 0;
    this.scroll.hidden = rows.length === 0;
    this.pages.hidden = rows.length <= size;
    this.back.disabled = this.from === 0;
    this.on.disabled = this.from + size >= rows.length;
    write(this.where, `${counted(this.from + 1)} to ${counted(this.from + shown.length)} of ${counted(rows.length)}`);
  }

  line() {
    const cells = this.columns.map((column, at) =>
      make(at === 0 ? "th" : "td", { scope: at === 0 ? "row" : null, class: kind(column) }));
    return make("tr", {}, ...cells);
  }

  fill(line, row) {
    this.columns.forEach((column, at) => {
      if (column.fill) column.fill(line.cells[at], row);
      else write(line.cells[at], column.text(row));
    });
  }
}

/** A table behind a summary: made and kept up only while it is open. */
export function folded(title, options) {
  const table = new Table(options);
  let rows = () => [];
  const element = make("details", { class: "folded", ontoggle: () => element.open && table.show(rows()) },
    make("summary", {}, title), table.element);
  const show = (found) => {
    rows = found;
    if (element.open) table.show(rows());
  };
  return { element, show };
}
