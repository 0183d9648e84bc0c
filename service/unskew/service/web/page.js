// Which view is shown, by the address; and the loop that keeps it up to date, whatever happens to the service.

import { Refused, token } from "./api.js";
import { List } from "./list.js";
import { Stream } from "./stream.js";
import { clock, make, write } from "./text.js";

const AGAIN = 2_000; // ms after a failure
const MISSING = 10_000;

const byId = (id) => document.getElementById(id);
const [main, banner, seen, pulse] = ["main", "banner", "seen", "pulse"].map(byId);
let view = null;
let timer = 0;
let last = null; // when the service answered last, in seconds since 1970

// -- how it stands

function say(text) {
  write(banner, text);
  banner.classList.toggle("shown", text !== "");
  pulse.classList.toggle("away", text !== "");
}

function answered() {
  last = Date.now() / 1000;
  write(seen, `live, ${clock(last)}`);
  byId("forget").hidden = !token.get();
  say("");
}

/** What went wrong, and after how many milliseconds to try again; null: not by itself. */
function failed(why) {
  byId("forget").hidden = !token.get();
  if (why.status === 401 || why.status === 403) {
    ask(why);
    return null;
  }
  if (why.status === 404) {
    say(`${why.message}.`);
    return MISSING;
  }
  const since = last === null ? "not seen yet" : `last seen ${clock(last)}`;
  const what = why.status === 0 ? "Not reachable" : `No answer (${why.message})`;
  write(seen, since);
  say(`${what}, ${since}. What is shown may be old; it goes on by itself.`);
  return AGAIN;
}

// -- the loop

async function turn(shown) {
  clearTimeout(timer);
  let pause = shown.pause;
  try {
    await shown.ask();
    if (shown !== view) return;
    answered();
  } catch (why) {
    if (shown !== view) return;
    if (!(why instanceof Refused)) reportError(why); // ours: seen in the console, and tried again all the same
    pause = why instanceof Refused ? failed(why) : AGAIN;
  }
  if (pause !== null && !document.hidden) timer = setTimeout(() => turn(shown), pause);
}

document.addEventListener("visibilitychange", () => {
  if (!document.hidden && view && main.contains(view.element)) turn(view); // not while a token is typed in
});

// -- views

/** The stream that the address names; empty: none. */
function named() {
  if (!location.hash.startsWith("#/streams/")) return "";
  const name = location.hash.slice("#/streams/".length);
  try {
    return decodeURIComponent(name);
  } catch {
    return name; // a "%" that was typed in
  }
}

function open() {
  const stream = named();
  const first = view === null;
  view = stream ? new Stream(stream) : new List();
  document.title = stream ? `${stream} · unskew` : "unskew";
  say("");
  main.replaceChildren(view.element);
  if (!first) main.querySelector("h1").focus();
  turn(view);
}

/** A token is needed, or another one. */
function ask(why) {
  write(seen, "no access");
  say("");
  const field = make("input", { id: "token", type: "password", autocomplete: "off", required: true });
  const said = why.status === 401
    ? token.get() ? "This token is not known here, or has expired." : "This service wants to know who asks."
    : `This token may not see that: ${why.message}.`;
  const told = make("p", { role: "alert" }, said);
  const form = make("form", { onsubmit: (event) => {
    event.preventDefault();
    const text = field.value.trim();
    if (!token.fits(text)) {
      write(told, "That is no token: it has letters or spaces that a token cannot have.");
      return;
    }
    token.set(text);
    open();
  } },
  make("div", { class: "field" }, make("label", { for: "token" }, "Token"), field),
  make("button", { type: "submit", class: "main" }, "Go on"));
  main.replaceChildren(make("section", { class: "card narrow", "aria-labelledby": "ask" },
    make("h1", { id: "ask", tabindex: "-1" }, "Who are you?"), told,
    make("p", { class: "muted small" }, "A reader's token is enough. It stays in this tab and is sent to this service only."), form));
  field.focus();
}

// -- the header

const THEMES = ["system", "light", "dark"];

function themed() {
  const { theme } = document.documentElement.dataset;
  write(byId("theme"), `Theme: ${theme ?? "system"}`);
}

byId("theme").addEventListener("click", () => {
  const now = document.documentElement.dataset.theme ?? "system";
  const next = THEMES[(THEMES.indexOf(now) + 1) % THEMES.length];
  if (next === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = next;
  localStorage.setItem("unskew-theme", next);
  themed();
});

byId("forget").addEventListener("click", () => {
  token.forget();
  byId("forget").hidden = true;
  open();
});

byId("skip").addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});

window.addEventListener("hashchange", open);
themed();
open();
