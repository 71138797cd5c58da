// Markdown's blocks: paragraphs, headings, lists, quotes, fenced code, tables, rules. A small set, read forgivingly:
// models write lists with too little indentation, and while an answer streams, its last block is never whole.

import { inline, write } from "./inline.js";

const MAX_DEPTH = 8;
const FENCE = /^\s*(`{3,}|~{3,})\s*([^`\s]*)[^`]*$/;
const HEADING = /^ {0,3}(#{1,6})(?:\s+|$)/;
const RULE = /^ {0,3}(?:(?:\*[ \t]*){3,}|(?:-[ \t]*){3,}|(?:_[ \t]*){3,})$/;
const QUOTE = /^ {0,3}> ?/;
const ITEM = /^([ \t]*)([-*+]|\d{1,9}[.)])(?:[ \t]+|$)/;
const DELIMITERS = /^\s*\|?(?:\s*:?-+:?\s*\|)+(?:\s*:?-+:?\s*)?$/;

/** A part of the page that shows a growing markdown text. Blocks that have not changed are left alone. */
export class Markdown {
  /** @param {HTMLElement} root where the blocks go */
  constructor(root) {
    this.root = root;
    this.done = [];
  }

  /** Shows `source`; `tokens` are its pieces in order, with `start` and `end` in it. */
  update(source, tokens) {
    const lines = split(source);
    const blocks = parse(lines, 0);
    const keep = [];
    for (const block of blocks) {
      const last = lines[block.to - 1];
      const from = lines[block.from].at;
      keep.push({ block, from, text: source.slice(from, last.at + last.text.length) });
    }
    let same = 0;
    const equal = (a, b) => a && b && a.from === b.from && a.text === b.text;
    while (same < keep.length && equal(keep[same], this.done[same])) same += 1;
    while (this.root.childNodes.length > same) this.root.lastChild.remove();
    for (const { block } of keep.slice(same)) block.build(this.root, tokens, false);
    this.done = keep.map(({ from, text }) => ({ from, text }));
  }
}

function split(source) {
  const lines = [];
  let at = 0;
  for (const text of source.split("\n")) {
    lines.push({ text: text.replace(/\r$/, ""), at });
    at += text.length + 1;
  }
  return lines;
}

const KINDS = [fence, heading, rule, quote, table, list];

/** The blocks of these lines: `from` a line up to, without it, `to`. `build(parent, tokens, tight)` adds one element. */
function parse(lines, depth) {
  const blocks = [];
  for (let i = 0; i < lines.length; ) {
    if (blank(lines[i])) {
      i += 1;
      continue;
    }
    let block = null;
    for (const kind of depth < MAX_DEPTH ? KINDS : []) block ??= kind(lines, i, depth);
    block ??= paragraph(lines, i);
    blocks.push({ from: i, ...block });
    i = block.to;
  }
  return blocks;
}

const blank = (line) => line.text.trim() === "";
const cut = (line, n) => ({ text: line.text.slice(n), at: line.at + n });

/** How far a line is indented; a tab goes to the next multiple of four. */
function indent(line) {
  let width = 0;
  for (const c of line.text) {
    if (c === " ") width += 1;
    else if (c === "\t") width += 4 - (width % 4);
    else break;
  }
  return width;
}

/** Without up to `width` of its indentation. */
function dedent(line, width) {
  let n = 0;
  while (n < line.text.length && /[ \t]/.test(line.text[n]) && indent({ text: line.text.slice(0, n + 1) }) <= width) n += 1;
  return cut(line, n);
}

function trimmed(line) {
  const start = line.text.length - line.text.trimStart().length;
  return { text: line.text.trim(), at: line.at + start };
}

/** Whether a paragraph ends before this line. */
function interrupts(lines, i) {
  const { text } = lines[i];
  const item = ITEM.exec(text);
  const begins = item && item[0].length < text.length && (!/\d/.test(item[2]) || /^1[.)]/.test(item[2]));
  return begins || FENCE.test(text) || HEADING.test(text) || RULE.test(text) || QUOTE.test(text) || isTable(lines, i);
}

function paragraph(lines, i) {
  let to = i + 1;
  while (to < lines.length && !blank(lines[to]) && !interrupts(lines, to)) to += 1;
  const own = lines.slice(i, to).map(trimmed);
  const build = (parent, tokens, tight) => inline(tight ? parent : child(parent, "p"), own, tokens);
  return { to, build };
}

function heading(lines, i) {
  const found = HEADING.exec(lines[i].text);
  if (!found) return null;
  const line = trimmed(cut(lines[i], found[0].length));
  line.text = line.text.replace(/(?:^|\s+)#+$/, "");
  // The page has headings of its own above these.
  const level = Math.min(6, found[1].length + 2);
  const build = (parent, tokens) => inline(child(parent, `h${level}`), [line], tokens);
  return { to: i + 1, build };
}

function rule(lines, i) {
  if (!RULE.test(lines[i].text)) return null;
  return { to: i + 1, build: (parent) => child(parent, "hr") };
}

function quote(lines, i, depth) {
  let to = i;
  const own = [];
  for (; to < lines.length; to += 1) {
    const found = QUOTE.exec(lines[to].text);
    if (!found) break;
    own.push(cut(lines[to], found[0].length));
  }
  if (to === i) return null;
  const inner = parse(own, depth + 1);
  return { to, build: (parent, tokens) => buildAll(child(parent, "blockquote"), inner, tokens) };
}

function fence(lines, i) {
  const found = FENCE.exec(lines[i].text);
  if (!found) return null;
  const [, mark, language] = found;
  const width = indent(lines[i]);
  const own = [];
  let to = i + 1;
  for (; to < lines.length; to += 1) {
    const end = lines[to].text.trim();
    if (end.length >= mark.length && end === mark[0].repeat(end.length)) break;
    own.push(dedent(lines[to], width));
  }
  const build = (parent, tokens) => {
    const box = child(parent, "div", "code");
    const bar = child(box, "div", "bar");
    child(bar, "span").append(language);
    const copy = child(bar, "button", "quiet copy-code");
    copy.type = "button";
    copy.append("Copy");
    copy.setAttribute("aria-label", "Copy this code");
    const pre = child(box, "pre");
    pre.tabIndex = 0; // so that wide code can be scrolled by keys
    const code = child(pre, "code");
    own.forEach((line, n) => {
      const last = n + 1 === own.length;
      write(code, line.text, line.at, tokens);
      if (!last) code.append("\n");
    });
  };
  return { to: Math.min(to + 1, lines.length), build };
}

function list(lines, i, depth) {
  const first = ITEM.exec(lines[i].text);
  if (!first) return null;
  const outer = indent(lines[i]);
  const ordered = /\d/.test(first[2]);
  const items = [];
  let loose = false;
  let to = i;
  while (to < lines.length) {
    const mark = ITEM.exec(lines[to].text);
    const mine = mark && /\d/.test(mark[2]) === ordered && indent(lines[to]) < outer + 2;
    if (!mine || RULE.test(lines[to].text)) break;
    const item = takeItem(lines, to, mark, outer);
    items.push(parse(item.lines, depth + 1));
    let next = item.to;
    while (next < lines.length && blank(lines[next])) next += 1;
    const more = next < lines.length && ITEM.test(lines[next].text);
    loose ||= item.loose || (more && next > item.to);
    to = item.to;
    if (!more) break;
    to = next;
  }
  // Blank lines before something else are not the list's.
  while (blank(lines[to - 1])) to -= 1;
  const build = (parent, tokens) => {
    const element = child(parent, ordered ? "ol" : "ul");
    if (ordered) element.start = Number.parseInt(first[2], 10);
    for (const item of items) buildAll(child(element, "li"), item, tokens, !loose);
  };
  return { to, build };
}

/** The lines of one item, without their indentation. */
function takeItem(lines, i, mark, outer) {
  const own = [cut(lines[i], mark[0].length)];
  const inner = outer + mark[2].length + 1;
  let to = i + 1;
  let afterBlank = false;
  let loose = false;
  for (let j = to; j < lines.length; j += 1) {
    if (blank(lines[j])) {
      afterBlank = true;
      own.push(lines[j]);
      continue;
    }
    const within = indent(lines[j]) >= Math.min(inner, outer + 2);
    const goesOn = !afterBlank && !ITEM.test(lines[j].text) && !interrupts(lines, j);
    if (!within && !goesOn) break;
    loose ||= afterBlank;
    afterBlank = false;
    own.push(dedent(lines[j], inner));
    to = j + 1;
  }
  return { lines: own.slice(0, to - i), to, loose };
}

function isTable(lines, i) {
  const next = lines[i + 1];
  return lines[i].text.includes("|") && next && DELIMITERS.test(next.text);
}

function table(lines, i) {
  if (!isTable(lines, i)) return null;
  const sides = cells(lines[i + 1]).map(({ text }) => {
    const [left, right] = [text.startsWith(":"), text.endsWith(":")];
    return right ? (left ? "center" : "right") : "left";
  });
  let to = i + 2;
  while (to < lines.length && !blank(lines[to]) && lines[to].text.includes("|")) to += 1;
  const head = cells(lines[i]);
  const rows = lines.slice(i + 2, to).map(cells);
  const build = (parent, tokens) => {
    const box = child(parent, "div", "table");
    box.tabIndex = 0; // a wide one scrolls
    const element = child(box, "table");
    const row = (section, tag, texts) => {
      const tr = child(section, "tr");
      head.forEach((_, n) => {
        const cell = child(tr, tag, sides[n] ?? "left");
        if (texts[n]) inline(cell, [texts[n]], tokens);
      });
    };
    row(child(element, "thead"), "th", head);
    const body = child(element, "tbody");
    for (const texts of rows) row(body, "td", texts);
  };
  return { to, build };
}

/** A row's cells; a bar behind a backslash or inside code parts nothing. */
function cells(row) {
  const line = trimmed(row);
  const out = [];
  let from = line.text.startsWith("|") ? 1 : 0;
  let inCode = false;
  const put = (to) => out.push(trimmed({ text: line.text.slice(from, to), at: line.at + from }));
  for (let i = from; i < line.text.length; i += 1) {
    if (line.text[i] === "\\") i += 1;
    else if (line.text[i] === "`") inCode = !inCode;
    else if (line.text[i] === "|" && !inCode) {
      put(i);
      from = i + 1;
    }
  }
  if (from < line.text.length) put(line.text.length);
  return out;
}

function buildAll(parent, blocks, tokens, tight = false) {
  for (const block of blocks) block.build(parent, tokens, tight);
}

function child(parent, tag, name) {
  const element = document.createElement(tag);
  if (name) element.className = name;
  parent.append(element);
  return element;
}
