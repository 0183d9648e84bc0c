// Where a key goes: typed as its columns have it, or as a hash.

import { Refused, explain } from "./api.js";
import { make, percent, rows, sentence, version } from "./text.js";

const MOST = 24; // places that are listed

export class Explain {
  constructor(stream) {
    this.stream = stream;
    this.types = null;
    const choice = (value, text, checked) => make("label", { class: "choice" },
      make("input", { type: "radio", name: "by", value, checked, onchange: () => this.choose(value) }), ` ${text}`);
    this.columns = make("div", { class: "columns" });
    this.typed = make("input", { id: "types", autocomplete: "off", spellcheck: "false", value: "string", oninput: () => this.retype() });
    this.typing = make("div", { class: "field" }, make("label", { for: "types" }, "Type of each column, as Spark names it"), this.typed);
    this.keyed = make("div", {}, this.typing, this.columns);
    this.hash = make("input", { id: "hash", autocomplete: "off", spellcheck: "false", placeholder: "signed, unsigned or 0x…" });
    this.hashed = make("div", { class: "field", hidden: true }, make("label", { for: "hash" }, "Hash: what xxhash64 of the key returns"), this.hash);
    this.answer = make("div", { class: "answer", role: "status" });
    this.form = make("form", { onsubmit: (event) => this.submit(event) },
      make("fieldset", {}, make("legend", {}, "By"), choice("key", "key", true), choice("hash", "hash", false)),
      this.keyed, this.hashed, make("button", { type: "submit", class: "main" }, "Explain"));
    this.element = make("section", { class: "card", "aria-labelledby": "explain" },
      make("h2", { id: "explain" }, "Where does a key go?"), make("div", { class: "pair" }, this.form, this.answer));
  }

  /** The key types that the stream says it has. */
  show(types) {
    if (this.types && this.types.join() === types.join()) return;
    this.types = types;
    this.typing.hidden = types.length > 0;
    this.fields(types.length ? types : this.given());
  }

  given() {
    return this.typed.value.split(/,(?![^(]*\))/).map((type) => type.trim()).filter(Boolean);
  }

  retype() {
    this.fields(this.given());
  }

  fields(types) {
    this.inputs = types.map((type, at) => {
      const id = `column-${at}`;
      const value = make("input", { id, autocomplete: "off", spellcheck: "false" });
      const nothing = make("input", { id: `null-${at}`, type: "checkbox", onchange: () => { value.disabled = nothing.checked; } });
      const name = types.length > 1 ? `Column ${at + 1} (${type})` : `Key (${type})`;
      const field = make("div", { class: "field" }, make("label", { for: id }, name),
        make("div", { class: "beside" }, value, make("label", { class: "choice" }, nothing, " null")));
      return { value, nothing, field };
    });
    this.columns.replaceChildren(...this.inputs.map(({ field }) => field));
  }

  choose(by) {
    this.keyed.hidden = by !== "key";
    this.hashed.hidden = by !== "hash";
  }

  /** As if the hash had been typed in. */
  of(hash) {
    this.form.elements.by.value = "hash";
    this.choose("hash");
    this.hash.value = hash;
    this.form.requestSubmit();
    this.element.scrollIntoView({ block: "nearest" });
  }

  asked() {
    if (this.form.elements.by.value === "hash") return { hash: this.hash.value.trim() };
    const key = this.inputs.map(({ value, nothing }) => (nothing.checked ? null : value.value));
    return this.types?.length ? { key } : { key, types: this.given() };
  }

  async submit(event) {
    event.preventDefault();
    try {
      this.tell(await explain(this.stream, this.asked()));
    } catch (why) {
      if (!(why instanceof Refused)) throw why;
      const said = why.status === 0 ? `The service cannot be reached: ${why.message}.` : why.message;
      this.answer.replaceChildren(make("p", { class: "wrong" }, said));
    }
  }

  tell(found) {
    const { fragments } = found;
    const split = fragments.length > 1;
    const where = split ? `It is split over ${rows(fragments.length)} partitions` : `It goes to partition ${fragments[0].partition}`;
    const heavy = found.hot ? `A hot key with ${percent(found.share)} of all rows (${rows(found.rows)}).` : "Not a hot key.";
    const parts = [make("p", { class: "where" }, `${where}.`), make("p", {}, `${heavy} ${sentence(found.reason)}`)];
    if (split) {
      const largest = [...fragments].sort((one, other) => other.share - one.share);
      const items = largest.slice(0, MOST).map(({ partition, share }) => make("li", {}, `partition ${partition}: ${percent(share)}`));
      if (largest.length > MOST) items.push(make("li", {}, `and ${rows(largest.length - MOST)} more`));
      parts.push(make("ul", { class: "places" }, ...items));
    }
    parts.push(make("p", { class: "muted small" }, `hash ${found.hash}, plan ${version(found.version)}`));
    this.answer.replaceChildren(...parts);
  }
}
