// The load of each partition: plain hashing beside the plan, and what was observed. Each is drawn over its own mean, for
// they are of different rows: so the highest bar is the imbalance, and 1 is even.
//
// One path for each of the three, however many partitions there are. Where a partition has room for two bars they stand
// side by side; where not, both are outlines, one over the other. The chart is a slider for keyboards and screen readers:
// it walks along the partitions and says what each has. The same numbers are in the table below it.

import { steps } from "./axis.js";
import { make, rows, write } from "./text.js";
import { folded } from "./table.js";

const HEIGHT = 280;
const PAD = { left: 52, right: 8, top: 10, bottom: 26 };
const ROOM = 7; // pixels of a partition, from which on two bars fit

const near = (number) => Math.round(number * 100) / 100;

/** Over the mean of all. */
function relative(loads) {
  const sum = loads.reduce((all, load) => all + load, 0);
  return sum ? loads.map((load) => (load * loads.length) / sum) : [];
}

/** Bars of this width, each so far into its partition. */
function standing(loads, { x, y, step }, into, width) {
  return loads.map((load, at) => `M${near(x(at) + into * step)},${y(0)}V${near(y(load))}h${near(width * step)}V${y(0)}z`).join("");
}

/** One outline over all partitions. */
function outline(loads, { x, y, step }) {
  return `M${near(x(0))},${y(0)}${loads.map((load, at) => `V${near(y(load))}H${near(x(at) + step)}`).join("")}V${y(0)}z`;
}

/** A mark at the height of each. */
function marks(loads, { x, y, step }) {
  const inset = step >= ROOM ? step * 0.06 : 0;
  return loads.map((load, at) => `M${near(x(at) + inset)},${near(y(load))}h${near(step - 2 * inset)}`).join("");
}

export class Bars {
  constructor() {
    this.at = 0;
    this.moved = false;
    this.series = this.drawn = { hash: [], plan: [], observed: [] };
    const path = (name) => make("svg:path", { class: `series ${name}` });
    this.paths = { hash: path("hash"), plan: path("plan"), observed: path("observed") };
    this.grid = make("svg:g", { class: "grid" });
    this.mean = make("svg:line", { class: "mean" });
    this.cursor = make("svg:rect", { class: "cursor", y: PAD.top, height: HEIGHT - PAD.top - PAD.bottom });
    this.svg = make("svg:svg", { "aria-hidden": "true", focusable: "false", height: HEIGHT }, this.cursor, this.grid,
      this.paths.hash, this.paths.plan, this.mean, this.paths.observed);
    this.slider = make("div", {
      class: "bars", role: "slider", tabindex: "0", "aria-label": "Load per partition: use the arrow keys",
      "aria-orientation": "horizontal", "aria-valuemin": "0",
      onkeydown: (event) => this.key(event), onpointermove: (event) => this.point(event),
    }, this.svg);
    this.told = make("p", { class: "told", "aria-hidden": "true" }, "Point at a partition, or walk along with the arrow keys.");
    this.table = folded("The loads as a table", {
      caption: "Rows per partition",
      columns: [
        { name: "Partition", number: true, text: (row) => String(row.at) },
        { name: "Plain hash", number: true, text: (row) => row.hash },
        { name: "Plan", number: true, text: (row) => row.plan },
        { name: "Observed", number: true, text: (row) => row.observed },
      ],
    });
    this.element = make("div", {}, this.slider, this.told, this.table.element);
    new ResizeObserver(() => this.draw()).observe(this.slider);
  }

  show(series) {
    this.series = series;
    const { hash, plan, observed } = series;
    this.drawn = { hash: relative(hash), plan: relative(plan), observed: relative(observed) };
    this.many = Math.max(plan.length, hash.length, observed.length);
    this.at = Math.max(0, Math.min(this.at, this.many - 1));
    this.table.show(() => Array.from({ length: this.many }, (_, at) => ({
      at, hash: this.cell(hash, at), plan: this.cell(plan, at), observed: this.cell(observed, at),
    })));
    this.draw();
  }

  cell(loads, at) {
    return at < loads.length ? rows(loads[at]) : "–";
  }

  scale() {
    const width = this.slider.clientWidth;
    const most = Object.values(this.drawn).reduce((top, loads) => loads.reduce((high, load) => Math.max(high, load), top), 1);
    const ticks = steps(most);
    const top = ticks[ticks.length - 1];
    const step = (width - PAD.left - PAD.right) / Math.max(this.many, 1);
    return {
      width, ticks, step,
      x: (at) => PAD.left + at * step,
      y: (load) => near(HEIGHT - PAD.bottom - (load / top) * (HEIGHT - PAD.top - PAD.bottom)),
    };
  }

  draw() {
    const scale = this.scale();
    if (!this.many || scale.width <= PAD.left + PAD.right) return;
    this.on = scale;
    this.svg.setAttribute("viewBox", `0 0 ${scale.width} ${HEIGHT}`);
    this.svg.setAttribute("width", scale.width);
    this.axes(scale);
    const { hash, plan, observed } = this.drawn;
    const roomy = scale.step >= ROOM;
    const shapes = {
      hash: roomy ? standing(hash, scale, 0.1, 0.38) : outline(hash, scale),
      plan: roomy ? standing(plan, scale, 0.52, 0.38) : outline(plan, scale),
      observed: marks(observed, scale),
    };
    for (const [name, shape] of Object.entries(shapes)) {
      this.paths[name].setAttribute("d", this.drawn[name].length ? shape : "");
      this.paths[name].classList.toggle("outline", !roomy);
    }
    this.point_at();
  }

  axes(scale) {
    const { width, ticks, step, x, y } = scale;
    const lines = ticks.flatMap((tick) => [
      make("svg:line", { x1: PAD.left, x2: width - PAD.right, y1: y(tick), y2: y(tick), class: tick ? "" : "base" }),
      make("svg:text", { x: PAD.left - 8, y: y(tick) + 4, class: "end" }, `${tick}×`),
    ]);
    const every = [1, 2, 4, 5, 8, 10, 16, 20, 25, 50, 100, 200, 250, 500, 1000, 2000].find((by) => by * step >= 44) ?? 4000;
    for (let at = 0; at < this.many; at += every) {
      lines.push(make("svg:text", { x: near(x(at) + step / 2), y: HEIGHT - 8, class: "middle" }, String(at)));
    }
    this.grid.replaceChildren(...lines);
    for (const [name, value] of Object.entries({ x1: PAD.left, x2: width - PAD.right, y1: y(1), y2: y(1) })) {
      this.mean.setAttribute(name, value);
    }
  }

  // -- one partition

  point_at() {
    const { step, x } = this.on;
    this.cursor.setAttribute("x", near(x(this.at)));
    this.cursor.setAttribute("width", near(Math.max(step, 1.5)));
    const said = this.said();
    if (this.moved) write(this.told, said);
    this.slider.setAttribute("aria-valuemax", Math.max(this.many - 1, 0));
    this.slider.setAttribute("aria-valuenow", this.at);
    this.slider.setAttribute("aria-valuetext", said);
  }

  said() {
    const { hash, plan, observed } = this.series;
    const parts = [["hash", hash], ["plan", plan], ["observed", observed]]
      .filter(([, loads]) => this.at < loads.length)
      .map(([name, loads]) => `${name} ${rows(loads[this.at])}`);
    return `Partition ${this.at}: ${parts.join(", ")}`;
  }

  move(to) {
    this.at = Math.max(0, Math.min(to, this.many - 1));
    this.moved = true;
    this.point_at();
  }

  key(event) {
    const far = Math.max(1, Math.round(this.many / 10));
    const to = {
      ArrowRight: this.at + 1, ArrowUp: this.at + 1, ArrowLeft: this.at - 1, ArrowDown: this.at - 1,
      PageUp: this.at + far, PageDown: this.at - far, Home: 0, End: this.many - 1,
    }[event.key];
    if (to === undefined || event.altKey || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    this.move(to);
  }

  point(event) {
    if (!this.on) return;
    const left = event.clientX - this.slider.getBoundingClientRect().left;
    this.move(Math.floor((left - PAD.left) / this.on.step));
  }
}
