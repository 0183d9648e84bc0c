// The service's REST verbs: with the token that was typed in, if any, and the entity tags of what is shown.

const TOKEN = "unskew-token";
const PATIENCE = 8000; // ms

/** An answer that is none: ``status`` 0 where there was nobody to answer. */
export class Refused extends Error {
  constructor(status, said) {
    super(said);
    this.status = status;
  }
}

export const token = {
  get: () => sessionStorage.getItem(TOKEN),
  set: (text) => sessionStorage.setItem(TOKEN, text),
  /** Whether it could be one: what is sent in a header has no other letters. */
  fits: (text) => /^[\x21-\x7e]+$/.test(text),
  forget: () => sessionStorage.removeItem(TOKEN),
};

/** What was found, with its tag; ``found`` is null where it is what the caller has. An answer may also be cut off, or be
 * of something between here and the service. */
async function send(path, options = {}) {
  const headers = { accept: "application/json", ...options.headers };
  if (token.get()) headers.authorization = `Bearer ${token.get()}`;
  let answer;
  let found = null;
  try {
    answer = await fetch(path, { ...options, headers, cache: "no-store", signal: AbortSignal.timeout(PATIENCE) });
    if (answer.ok) found = await answer.json();
  } catch (why) {
    const said = { TimeoutError: "no answer in time", SyntaxError: "an answer that is none of the service's" };
    throw new Refused(0, said[why.name] ?? "no connection");
  }
  if (answer.ok || answer.status === 304) return { found, tag: answer.headers.get("etag") };
  const problem = await answer.json().catch(() => ({}));
  throw new Refused(answer.status, problem.detail ?? answer.statusText);
}

/** What a path has, or null while that is what it had when it was asked last. */
export class Watched {
  constructor(path) {
    this.path = path;
    this.tag = null;
  }

  async ask() {
    const { found, tag } = await send(this.path, this.tag ? { headers: { "if-none-match": this.tag } } : {});
    if (found) this.tag = tag;
    return found;
  }
}

const of = (stream) => `v1/streams/${encodeURIComponent(stream)}`;

export const overview = (stream) => new Watched(`${of(stream)}/overview`);
export const scale = async (stream) => (await send(`${of(stream)}/scale`)).found;
export const page = (after, limit) => new Watched(`v1/overview?limit=${limit}&after=${encodeURIComponent(after)}`);

export async function explain(stream, asked) {
  const options = { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(asked) };
  return (await send(`${of(stream)}/explain`, options)).found;
}
