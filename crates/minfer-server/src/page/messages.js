// How messages look: what the user said, what the model said, what went wrong.
//
// A message: {role, text}; an answer also has {model, thinking, tokens, stats, end, error}. `tokens`: the pieces of the
// text, {start, end, said: [{token, p, top: [{token, p}]}]}; several are `said` where only together they make a letter.

import { Markdown } from "./markdown.js";

/** An element with a class and children. */
export function make(tag, name, ...children) {
  const element = document.createElement(tag);
  if (name) element.className = name;
  element.append(...children);
  return element;
}

function button(name, text, label) {
  const element = make("button", `quiet ${name}`, text);
  element.type = "button";
  if (label) element.setAttribute("aria-label", label);
  return element;
}

/** What the user said. */
export function user(message) {
  const article = make("article", "message user", make("div", "text", message.text));
  article.setAttribute("aria-label", "You");
  return article;
}

/** What the model says, as it says it. */
export class Answer {
  /** @param message the message shown; `update` shows what has become of it */
  constructor(message) {
    this.message = message;
    this.element = make("article", "message answer");
    this.element.setAttribute("aria-label", message.model || "Answer");
    this.thinking = make("div", "text");
    this.thoughts = make("details", "thinking", make("summary", "", "Thinking"), this.thinking);
    this.body = make("div", "markdown");
    this.body.tabIndex = 0;
    this.note = make("p", "note");
    this.error = make("div", "error");
    this.error.setAttribute("role", "alert");
    this.stats = make("span", "stats");
    this.copy = button("copy", "Copy", "Copy this answer");
    this.again = button("again", "Regenerate");
    this.footer = make("footer", "", this.copy, this.again, this.stats);
    this.element.append(this.thoughts, this.body, this.note, this.error, this.footer);
    this.markdown = new Markdown(this.body);
  }

  /** Shows the message; `progress` says what is being done, while something is; `last`: it can be made again. */
  update({ progress = null, last = false }) {
    const { text, thinking, tokens, stats, end, error } = this.message;
    this.element.setAttribute("aria-busy", String(progress !== null));
    this.element.classList.toggle("busy", progress !== null);
    this.thoughts.hidden = !thinking;
    if (thinking) this.thinking.textContent = thinking;
    this.body.hidden = !text;
    this.markdown.update(text, tokens ?? []);
    this.note.textContent = NOTES[end] ?? "";
    this.note.hidden = !NOTES[end];
    if (this.error.textContent !== (error ?? "")) this.error.textContent = error ?? "";
    this.error.hidden = !error;
    this.stats.textContent = progress ?? describe(stats);
    this.copy.hidden = progress !== null || !text;
    this.again.hidden = progress !== null || !last;
    this.again.textContent = error ? "Try again" : "Regenerate";
  }
}

const NOTES = {
  stopped: "Stopped.",
  length: "The answer was cut here: it reached the limit of tokens, or the context is full.",
};

/** A line of counts and times. */
function describe(stats) {
  if (!stats) return "";
  const parts = [];
  if (stats.rate) parts.push(`${stats.rate.toFixed(1)} tokens/s`);
  parts.push(stats.count === 1 ? "1 token" : `${stats.count} tokens`);
  if (stats.first) parts.push(`first after ${seconds(stats.first)}`);
  if (stats.prompt) parts.push(`prompt ${stats.prompt}${stats.cached ? `, ${stats.cached} cached` : ""}`);
  if (stats.seed !== undefined) parts.push(`seed ${stats.seed}`);
  return parts.join(" · ");
}

const seconds = (ms) => (ms < 1000 ? `${Math.round(ms)} ms` : `${(ms / 1000).toFixed(1)} s`);

/** Copies text, also where the page is not on a secure origin and has no clipboard of its own. */
export async function copy(text, button) {
  let done = true;
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const area = make("textarea", "offscreen");
    area.value = text;
    document.body.append(area);
    area.select();
    done = document.execCommand("copy");
    area.remove();
    button.focus();
  }
  const before = button.textContent;
  button.textContent = done ? "Copied" : "Not copied";
  button.disabled = true;
  setTimeout(() => {
    button.textContent = before;
    button.disabled = false;
  }, 1500);
}
