// Markdown inside a block: emphasis, code, links, line breaks.
//
// Nothing here makes markup of text: elements are created one by one and text goes in as text. Each piece of text is a
// slice of the source and knows where it lies there, so that it can be cut where the model's tokens meet.

const MAX_DEPTH = 10;
const MARKS = {
  "*": { 1: ["em"], 2: ["strong"], 3: ["em", "strong"] },
  _: { 1: ["em"], 2: ["strong"], 3: ["em", "strong"] },
  "~": { 2: ["del"] },
};
const SPACE = /\s/;
const WORD = /[\p{L}\p{N}_]/u;
const PUNCTUATION = /[!-/:-@[-`{-~]/;
// The target of a link and, perhaps, its title. Only these two schemes are links; all else stays text.
const TARGET = /\(\s*<?(https?:\/\/[^\s<>()]*(?:\([^\s<>()]*\)[^\s<>()]*)*)>?(?:\s+"[^"\n]*")?\s*\)/y;
const ANGLE = /<(https?:\/\/[^\s<>]+)>/y;
const BARE = /https?:\/\/[^\s<>"'`()[\]*]*[^\s<>"'`()[\]*.,;:!?_]/y;

/** A line of the source. @typedef {{text: string, at: number}} Line `at`: where in the source it begins */

/** Appends `text`, which begins at `at` in the source, cut into spans where tokens meet. */
export function write(parent, text, at, tokens) {
  const end = at + text.length;
  let i = firstWhere(tokens.length, (i) => tokens[i].end > at);
  let from = at;
  const put = (to) => text.slice(from - at, to - at);
  while (from < end) {
    const token = tokens[i];
    if (!token || token.start > from) {
      const to = token ? Math.min(end, token.start) : end;
      parent.append(put(to));
      from = to;
      continue;
    }
    const to = Math.min(end, token.end);
    const span = document.createElement("span");
    span.className = "token";
    span.dataset.token = i;
    span.append(put(to));
    parent.append(span);
    from = to;
    i += 1;
  }
}

/** The first index below `n` from which on `is` holds; `n`: none. */
function firstWhere(n, is) {
  let [low, high] = [0, n];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (is(middle)) high = middle;
    else low = middle + 1;
  }
  return low;
}

/** Appends what these lines say. @param {Line[]} lines */
export function inline(parent, lines, tokens) {
  const text = new Inline(lines, tokens);
  text.parse(parent, 0, text.text.length, { depth: 0, inLink: false });
}

class Inline {
  constructor(lines, tokens) {
    this.lines = lines;
    this.tokens = tokens;
    this.text = lines.map((l) => l.text).join("\n");
    // Where each line ends in the text: its newline's place.
    this.ends = [];
    for (const { text } of lines) this.ends.push((this.ends.at(-1) ?? -1) + 1 + text.length);
    // The last run of backticks of each length: where none follows, none is searched for.
    this.lastTicks = new Map();
    for (const m of this.text.matchAll(/`+/g)) this.lastTicks.set(m[0].length, m.index);
  }

  /** What lies between two places of the text, into `parent`. */
  parse(parent, from, to, inside) {
    const dead = new Set(); // marks that close nowhere in here
    let plain = from;
    for (let i = from; i < to; ) {
      const found = this.special(i, to, inside, dead);
      if (!found) {
        i += 1;
        continue;
      }
      this.plain(parent, plain, i);
      found.put(parent);
      i = plain = found.end;
    }
    this.plain(parent, plain, to);
  }

  /** What begins at `i`, if it is more than a letter: where it ends, and what puts it into the page. */
  special(i, to, inside, dead) {
    const c = this.text[i];
    if (c === "\\") return this.escape(i, to);
    if (c === "`") return this.code(i, to);
    if (inside.depth >= MAX_DEPTH) return null;
    if (c in MARKS) return this.emphasis(i, to, inside, dead);
    if (inside.inLink) return null;
    if (c === "[") return this.link(i, i, to, inside);
    if (c === "!" && this.text[i + 1] === "[") return this.link(i, i + 1, to, inside);
    if (c === "<") return this.url(ANGLE, i, to);
    if (c === "h" && !WORD.test(this.text[i - 1] ?? " ")) return this.url(BARE, i, to);
    return null;
  }

  escape(i, to) {
    if (i + 1 >= to || !PUNCTUATION.test(this.text[i + 1])) return null;
    return { end: i + 2, put: (parent) => this.plain(parent, i + 1, i + 2) };
  }

  code(i, to) {
    const n = this.run(i, to);
    const close = this.closingTicks(i, n, to);
    if (close < 0) return { end: i + n, put: (parent) => this.plain(parent, i, i + n) };
    let [from, end] = [i + n, close];
    const inner = this.text.slice(from, end);
    if (/^ .* $/s.test(inner) && inner.trim()) [from, end] = [from + 1, end - 1];
    return {
      end: close + n,
      put: (parent) => this.plain(child(parent, "code"), from, end, " "),
    };
  }

  /** Where the backticks at `i`, `n` of them, are closed; -1: nowhere. */
  closingTicks(i, n, to) {
    if ((this.lastTicks.get(n) ?? -1) <= i) return -1;
    for (let j = this.text.indexOf("`", i + n); j >= 0 && j < to; ) {
      const found = this.run(j, to);
      if (found === n) return j;
      j = this.text.indexOf("`", j + found);
    }
    return -1;
  }

  emphasis(i, to, inside, dead) {
    const c = this.text[i];
    const n = this.run(i, to);
    const asIs = { end: i + n, put: (parent) => this.plain(parent, i, i + n) };
    const opens = i + n < to && !SPACE.test(this.text[i + n]);
    if (!opens || (c === "_" && WORD.test(this.text[i - 1] ?? " "))) return asIs;
    for (const length of n === 3 ? [3, 1, 2] : [n]) {
      const tags = MARKS[c][length];
      if (!tags || dead.has(c.repeat(length))) continue;
      const close = this.closingMark(c, length, i + length, to);
      if (close < 0) {
        dead.add(c.repeat(length));
        continue;
      }
      const put = (parent) => {
        const inner = tags.reduce(child, parent);
        this.parse(inner, i + length, close, { ...inside, depth: inside.depth + 1 });
      };
      return { end: close + length, put };
    }
    return asIs;
  }

  closingMark(c, length, from, to) {
    for (let j = from; j < to; ) {
      const here = this.text[j];
      if (here === "\\") {
        j += 2;
      } else if (here === "`") {
        const n = this.run(j, to);
        const close = this.closingTicks(j, n, to);
        j = (close < 0 ? j : close) + n;
      } else if (here === c) {
        const n = this.run(j, to);
        const fits = n === length || (n === 3 && length < 3);
        const after = this.text[j + n] ?? " ";
        const closes = j > from && !SPACE.test(this.text[j - 1]) && !(c === "_" && WORD.test(after));
        if (fits && closes) return j + n - length;
        j += n;
      } else {
        j += 1;
      }
    }
    return -1;
  }

  /** `[words](target)`, from its bracket; an image is a link, too: nothing is fetched from elsewhere. */
  link(begin, bracket, to, inside) {
    let open = 0;
    let j = bracket;
    for (; j < Math.min(to, bracket + 1000); j += 1) {
      if (this.text[j] === "\\") j += 1;
      else if (this.text[j] === "[") open += 1;
      else if (this.text[j] === "]" && --open === 0) break;
    }
    if (open !== 0 || this.text[j + 1] !== "(") return null;
    TARGET.lastIndex = j + 1;
    const found = TARGET.exec(this.text);
    if (!found || TARGET.lastIndex > to) return null;
    const put = (parent) => {
      const a = anchor(parent, found[1]);
      const more = { depth: inside.depth + 1, inLink: true };
      if (j > bracket + 1) this.parse(a, bracket + 1, j, more);
      else a.append(found[1]);
    };
    return { end: TARGET.lastIndex, put };
  }

  url(pattern, i, to) {
    pattern.lastIndex = i;
    const found = pattern.exec(this.text);
    if (!found || pattern.lastIndex > to) return null;
    const url = found[1] ?? found[0];
    const from = i + found[0].indexOf(url);
    const put = (parent) => this.plain(anchor(parent, url), from, from + url.length);
    return { end: i + found[0].length, put };
  }

  /** How many of the same letter stand at `i`. */
  run(i, to) {
    let end = i;
    while (end < to && this.text[end] === this.text[i]) end += 1;
    return end - i;
  }

  /** Plain text between two places; a new line breaks it, as people mean it in a chat, or is `between`. */
  plain(parent, from, to, between) {
    for (let i = firstWhere(this.ends.length, (i) => this.ends[i] >= from); i < this.ends.length; i += 1) {
      const { text, at } = this.lines[i];
      const end = this.ends[i];
      const begin = end - text.length;
      const [a, b] = [Math.max(from, begin), Math.min(to, end)];
      if (a < b) write(parent, text.slice(a - begin, b - begin), at + a - begin, this.tokens);
      if (end >= to) return;
      parent.append(between ?? document.createElement("br"));
    }
  }
}

function child(parent, tag) {
  const element = document.createElement(tag);
  parent.append(element);
  return element;
}

function anchor(parent, url) {
  const a = child(parent, "a");
  a.href = url;
  a.target = "_blank";
  a.rel = "noopener noreferrer";
  return a;
}
