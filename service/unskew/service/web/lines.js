// Lines over time. A series may hold its value until the next ("steps"), or go from point to point.

import { steps, times } from "./axis.js";
import { clock, make } from "./text.js";

const PAD = { left: 52, right: 12, top: 12, bottom: 26 };
const near = (number) => Math.round(number * 100) / 100;

/** ``series``: name (its class), points of ``at`` and ``value``, ``steps``. ``marks``: ``at`` and a text. */
export class Lines {
  constructor({ label, height = 190, least = 0, unit = String }) {
    Object.assign(this, { height, least, unit });
    this.grid = make("svg:g", { class: "grid" });
    this.drawn = make("svg:g");
    this.svg = make("svg:svg", { role: "img", "aria-label": label, height }, this.grid, this.drawn);
    this.label = label;
    this.element = make("div", { class: "lines" }, this.svg);
    this.series = [];
    this.marks = [];
    new ResizeObserver(() => this.draw()).observe(this.element);
  }

  show(series, marks, span, said) {
    this.series = series.map((one) => ({ ...one, points: one.points.filter((point) => point.value !== null) }));
    this.marks = marks;
    this.span = span;
    this.svg.setAttribute("aria-label", `${this.label}. ${said}`);
    this.draw();
  }

  draw() {
    const width = this.element.clientWidth;
    if (!this.span || width <= PAD.left + PAD.right) return;
    const [from, to] = this.span;
    const points = this.series.flatMap((one) => one.points);
    const ticks = steps(points.reduce((top, point) => Math.max(top, point.value), this.least), 3);
    const top = ticks[ticks.length - 1];
    const x = (at) => near(PAD.left + ((at - from) / (to - from)) * (width - PAD.left - PAD.right));
    const y = (value) => near(this.height - PAD.bottom - (value / top) * (this.height - PAD.top - PAD.bottom));
    this.svg.setAttribute("viewBox", `0 0 ${width} ${this.height}`);
    this.svg.setAttribute("width", width);
    this.axes(width, ticks, x, y);
    this.drawn.replaceChildren(...this.series.flatMap((one) => this.line(one, x, y)));
  }

  axes(width, ticks, x, y) {
    const lines = ticks.flatMap((tick) => [
      make("svg:line", { x1: PAD.left, x2: width - PAD.right, y1: y(tick), y2: y(tick), class: tick ? "" : "base" }),
      make("svg:text", { x: PAD.left - 8, y: y(tick) + 4, class: "end" }, this.unit(tick)),
    ]);
    const { found, precise } = times(this.span[0], this.span[1], Math.max(2, Math.floor(width / 130)));
    for (const at of found) {
      if (x(at) < width - 24) lines.push(make("svg:text", { x: x(at), y: this.height - 8, class: "middle" }, clock(at, precise)));
    }
    for (const mark of this.marks) {
      lines.push(make("svg:line", { x1: x(mark.at), x2: x(mark.at), y1: y(0) - 7, y2: y(0), class: "mark" },
        make("svg:title", {}, mark.text)));
    }
    this.grid.replaceChildren(...lines);
  }

  line({ name, points, steps: held }, x, y) {
    if (!points.length) return [];
    const along = points.map((point, at) => {
      if (!at) return `M${x(point.at)},${y(point.value)}`;
      return held ? `H${x(point.at)}V${y(point.value)}` : `L${x(point.at)},${y(point.value)}`;
    });
    const last = points[points.length - 1];
    if (held) along.push(`H${x(this.span[1])}`);
    return [
      make("svg:path", { class: `line ${name}`, d: along.join("") }),
      make("svg:circle", { class: `end-of ${name}`, cx: held ? x(this.span[1]) : x(last.at), cy: y(last.value), r: 3.5 }),
    ];
  }
}
