// Elements, and numbers and times as they are written everywhere on the page.

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const compact = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 3 });

/** An element with attributes (``on...``: listeners) and children. */
export function make(tag, attributes = {}, ...children) {
  const svg = tag.startsWith("svg:");
  const made = svg
    ? document.createElementNS("http://www.w3.org/2000/svg", tag.slice(4))
    : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value === true) made.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) made.setAttribute(name, value);
  }
  made.append(...children);
  return made;
}

/** Only where it is another: what has not changed is not touched, so nothing is read out again. */
export function write(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

export const rows = (number) => whole.format(number);
export const short = (number) => compact.format(number);
export const ratio = (number) => (number === null || number === undefined ? "–" : number.toFixed(2));

export function percent(share) {
  const value = share * 100;
  if (value === 0) return "0\u00a0%";
  if (value < 0.01) return "<\u00a00.01\u00a0%";
  return `${value >= 10 ? value.toFixed(1) : value.toFixed(2)}\u00a0%`;
}

export function seconds(value) {
  if (value >= 100) return `${Math.round(value)}\u00a0s`;
  if (value >= 1 || value === 0) return `${Number(value.toFixed(1))}\u00a0s`;
  return `${Math.round(value * 1000)}\u00a0ms`;
}

/** ``hh:mm:ss``, with the day where it is another than today. Takes seconds since 1970. */
export function clock(at, precise = true) {
  const date = new Date(at * 1000);
  const time = date.toLocaleTimeString("en-GB", precise ? {} : { hour: "2-digit", minute: "2-digit" });
  const today = new Date().toDateString() === date.toDateString();
  return today ? time : `${date.toLocaleDateString("en-GB", { day: "numeric", month: "short" })} ${time}`;
}

/** ``incarnation.number`` by its number. */
export const version = (text) => (text ? `v${text.split(".")[1]}` : "none");

/** A reason as the service gives it, as a sentence. */
export const sentence = (text) => `${text.charAt(0).toUpperCase()}${text.slice(1)}.`;

export function partitions(many) {
  return `${rows(many)} partition${many === 1 ? "" : "s"}`;
}
