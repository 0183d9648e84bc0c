// Round figures for the axes of charts.

/** Round values from 0 up to at least ``most``, about ``many`` of them. */
export function steps(most, many = 4) {
  if (!(most > 0)) return [0, 1];
  const rough = most / many;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((by) => by * power).find((by) => by >= rough * 0.999);
  const found = [];
  for (let at = 0; at <= Math.ceil(most / step - 1e-9); at += 1) found.push(at * step);
  return found;
}

const SPANS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400];

/** Round times in a span, in seconds since 1970, by the clock of this place. */
export function times(from, to, many) {
  const rough = (to - from) / many;
  const step = SPANS.find((span) => span >= rough) ?? Math.ceil(rough / 86400) * 86400;
  const shift = new Date(from * 1000).getTimezoneOffset() * 60;
  const found = [];
  for (let at = Math.ceil((from - shift) / step) * step + shift; at <= to; at += step) found.push(at);
  return { found, precise: step < 60 };
}
