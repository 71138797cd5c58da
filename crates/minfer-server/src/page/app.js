// The page at work: what is shown, what is asked, what comes back.

import * as alternatives from "./alternatives.js";
import * as history from "./history.js";
import { Answer, copy, make, user } from "./messages.js";
import * as settings from "./settings.js";
import { chat as ask, models } from "./stream.js";

const TOP = 5; // alternatives asked for with each token
const PAINT_MS = 40; // an answer is painted at most this often
const NEAR = 60; // pixels from the end within which the view follows the answer

const $ = (id) => document.getElementById(id);
const form = $("settings-form");
const narrow = matchMedia("(max-width: 760px)");

/** The conversation shown. */
let chat = fresh();
/** What is being generated: `{controller}`; null: nothing. */
let busy = null;
/** The answers shown, by their elements. */
const answers = new WeakMap();

function fresh() {
  return { id: Date.now().toString(36) + Math.random().toString(36).slice(2, 8), title: "", time: 0, messages: [] };
}

// ---- The conversation ----

/** Shows a conversation, or a new one. */
function open(id) {
  busy?.controller.abort();
  chat = (id && history.load(id)) || fresh();
  $("log").replaceChildren(...chat.messages.map(show));
  refresh();
  $("scroll").scrollTop = $("scroll").scrollHeight;
  if (!narrow.matches) $("input").focus();
}

function show(message) {
  if (message.role === "user") return user(message);
  const answer = new Answer(message);
  answers.set(answer.element, answer);
  answer.update({ last: message === chat.messages.at(-1) });
  return answer.element;
}

/** Brings all that depends on the conversation up to date. */
function refresh() {
  const known = chat.messages.length > 0;
  $("empty").hidden = known;
  document.title = chat.title ? `${chat.title} · minfer` : "minfer";
  $("send").hidden = busy !== null;
  $("stop").hidden = busy === null;
  listChats();
}

function remember() {
  chat.time = Date.now();
  if (!history.save(chat)) notice("There is no room left to keep this conversation: delete some of the others.");
  const hash = `#${chat.id}`;
  if (location.hash !== hash) window.history.replaceState(null, "", hash);
  refresh();
}

function listChats() {
  const items = history.list().map(({ id, title }) => {
    const link = make("a", "", title);
    link.href = `#${id}`;
    if (id === chat.id) link.setAttribute("aria-current", "page");
    const remove = make("button", "quiet remove", "×");
    remove.type = "button";
    remove.setAttribute("aria-label", `Delete ${title}`);
    remove.addEventListener("click", () => {
      if (!confirm(`Delete “${title}”?`)) return;
      if (id === chat.id) leave();
      history.remove(id);
      listChats();
    });
    return make("li", "", link, remove);
  });
  $("chats").replaceChildren(...items);
}

/** Goes on with a new conversation. */
function leave() {
  window.history.pushState(null, "", location.pathname);
  open(null);
}

// ---- Asking ----

function send() {
  const text = $("input").value.trim();
  if (!text || busy) return;
  $("input").value = "";
  grow();
  if (!chat.title) chat.title = text.split("\n")[0].slice(0, 80);
  const before = $("log").lastElementChild;
  const message = { role: "user", text };
  chat.messages.push(message);
  answers.get(before)?.update({ last: false });
  $("log").append(show(message));
  generate();
}

function regenerate() {
  if (busy || chat.messages.at(-1)?.role !== "assistant") return;
  chat.messages.pop();
  $("log").lastElementChild.remove();
  generate();
}

/** The messages so far, as the server takes them. What got no answer is left out, as templates want speakers to take turns. */
function conversation() {
  const system = settings.system(form);
  const out = system ? [{ role: "system", content: system }] : [];
  chat.messages.forEach(({ role, text }, i) => {
    const next = chat.messages[i + 1];
    const unanswered = role === "user" && next && !next.text;
    if (text && !unanswered) out.push({ role, content: text });
  });
  return out;
}

async function generate() {
  const controller = new AbortController();
  const here = chat;
  const body = {
    model: $("model").value || undefined,
    messages: conversation(),
    ...settings.sampler(form),
    stream: true,
    stream_options: { include_usage: true },
    logprobs: true,
    top_logprobs: TOP,
    return_progress: true,
  };
  const message = { role: "assistant", text: "", thinking: "", tokens: [], model: body.model ?? "" };
  here.messages.push(message);
  const element = show(message);
  $("log").append(element);
  busy = { controller };
  remember();
  const listener = new Listener(message, answers.get(element));
  $("scroll").scrollTop = $("scroll").scrollHeight;
  try {
    for await (const chunk of ask(body, settings.key(form), controller.signal)) listener.hear(chunk);
  } catch (e) {
    if (controller.signal.aborted) message.end = "stopped";
    else message.error = e.message;
    if (e.status === 401) askForKey();
  }
  listener.finish();
  busy = null;
  if (here === chat) return remember();
  history.save(here); // another one is shown by now
  refresh();
}

/** Makes a message of the chunks of an answer. */
class Listener {
  constructor(message, answer) {
    this.message = message;
    this.answer = answer;
    this.began = performance.now();
    this.first = 0; // when the first token came
    this.pending = []; // tokens without a text yet
    this.progress = "";
    this.painter = 0;
    message.stats = { count: 0 };
    this.paint();
  }

  hear(chunk) {
    const { stats } = this.message;
    const [choice] = chunk.choices;
    stats.seed ??= chunk.seed;
    if (chunk.prompt_progress) {
      const { processed, total } = chunk.prompt_progress;
      this.progress = processed < total ? `Reading: ${processed} of ${total} tokens` : "";
    }
    if (choice) this.take(choice);
    if (chunk.timings) {
      const t = chunk.timings;
      Object.assign(stats, { rate: t.predicted_per_second, count: t.predicted_n, cached: t.cache_n });
      stats.prompt = t.prompt_n + t.cache_n;
    }
    this.painter ||= setTimeout(() => this.paint(), PAINT_MS);
  }

  take({ delta, logprobs, finish_reason: end }) {
    const { message } = this;
    const said = (logprobs?.content ?? []).map(compact);
    if (said.length || delta.content || delta.reasoning_content) this.first ||= performance.now();
    message.stats.count += said.length;
    this.pending.push(...said);
    if (delta.reasoning_content) {
      message.thinking += delta.reasoning_content;
      this.pending = [];
    }
    if (delta.content) {
      message.tokens.push(...pieces(this.pending, message.text.length, delta.content));
      message.text += delta.content;
      this.pending = [];
    }
    if (end) message.end = end;
  }

  paint() {
    this.painter = 0;
    const { count } = this.message.stats;
    const ms = performance.now() - this.first;
    const rate = this.first && count > 1 ? `${((1e3 * (count - 1)) / ms).toFixed(1)} tokens/s` : "Waiting for the model…";
    following(() => this.answer.update({ progress: this.progress || rate }));
  }

  finish() {
    clearTimeout(this.painter);
    const { stats } = this.message;
    if (this.first) {
      stats.first = this.first - this.began;
      const ms = performance.now() - this.first;
      // The server has timed a whole answer; one that was stopped is timed here.
      if (stats.count > 1) stats.rate ??= (1e3 * (stats.count - 1)) / ms;
    } else {
      this.message.stats = undefined;
    }
    following(() => this.answer.update({ last: chat.messages.at(-1) === this.message }));
  }
}

/** A token and its alternatives, small enough to be kept by the thousand. */
function compact({ token, logprob, top_logprobs }) {
  const p = (x) => Number(Math.exp(x).toPrecision(3));
  return { token, p: p(logprob), top: top_logprobs.map((t) => ({ token: t.token, p: p(t.logprob) })) };
}

/** These tokens' places in the text; one place for all of them, if they are letters only together. */
function pieces(said, start, text) {
  if (said.length === 0) return [];
  if (said.map((s) => s.token).join("") !== text) return [{ start, end: start + text.length, said }];
  return said.map((one) => {
    const piece = { start, end: start + one.token.length, said: [one] };
    start = piece.end;
    return piece;
  });
}

/** Changes the page; who was at its end stays there. */
function following(change) {
  const view = $("scroll");
  const near = view.scrollHeight - view.scrollTop - view.clientHeight < NEAR;
  change();
  if (near) view.scrollTop = view.scrollHeight;
}

// ---- The rest of the page ----

function notice(text) {
  $("notice").textContent = text;
  $("notice").hidden = !text;
}

function toggle(id, button, on) {
  const panel = $(id);
  if (id === "settings") panel.hidden = !on;
  else document.body.classList.toggle("history-open", on);
  $(button).setAttribute("aria-expanded", String(on));
}

const historyOpen = () => document.body.classList.contains("history-open");
const showHistory = (on) => toggle("history", "show-history", on);
const showSettings = (on) => toggle("settings", "show-settings", on);

function askForKey() {
  showSettings(true);
  form.elements.key.focus();
}

/** Fills the list of models; tries again until the server answers. */
async function listModels() {
  try {
    const ids = await models(settings.key(form));
    const chosen = history.read("minfer.model", "");
    $("model").replaceChildren(...ids.map((id) => new Option(id, id, false, id === chosen)));
    notice("");
  } catch (e) {
    notice(e.message);
    if (e.status === 401) askForKey();
    else setTimeout(listModels, 3000);
  }
}

/** As high as its text, within the limit of the style. */
function grow() {
  const input = $("input");
  input.style.height = "auto";
  input.style.height = `${input.scrollHeight + 2}px`;
}

function listen() {
  $("composer").addEventListener("submit", (event) => {
    event.preventDefault();
    send();
  });
  $("input").addEventListener("input", grow);
  $("input").addEventListener("keydown", (event) => {
    // While a word is being composed (Japanese, say), Enter is the composer's.
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    send();
  });
  addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    if (busy) return busy.controller.abort();
    if (historyOpen()) showHistory(false);
    else showSettings(false);
  });
  $("stop").addEventListener("click", () => {
    busy?.controller.abort();
    $("input").focus();
  });
  $("new").addEventListener("click", () => {
    showHistory(false);
    leave();
  });
  $("chats").addEventListener("click", (event) => event.target.closest("a") && showHistory(false));
  $("show-history").addEventListener("click", () => showHistory(!historyOpen()));
  $("show-settings").addEventListener("click", () => showSettings($("settings").hidden));
  $("close-settings").addEventListener("click", () => {
    showSettings(false);
    $("show-settings").focus();
  });
  document.querySelector("main").addEventListener("pointerdown", () => {
    if (!narrow.matches) return;
    showHistory(false);
    showSettings(false);
  });
  $("model").addEventListener("change", () => history.write("minfer.model", $("model").value));
  form.addEventListener("submit", (event) => event.preventDefault());
  form.elements.key.addEventListener("change", listModels);
  $("reset").addEventListener("click", () => {
    for (const field of form.querySelectorAll("input[type=number]")) field.value = "";
    form.dispatchEvent(new Event("input"));
  });
  $("log").addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (!button) return;
    const answer = answers.get(button.closest(".answer"));
    if (button.matches(".copy-code")) copy(button.closest(".code").querySelector("code").textContent, button);
    else if (button.matches(".copy")) copy(answer.message.text, button);
    else if (button.matches(".again")) regenerate();
  });
  addEventListener("hashchange", () => open(location.hash.slice(1)));
  addEventListener("popstate", () => location.hash || open(null));
  addEventListener("storage", (event) => event.key === "minfer.chats" && listChats());
  addEventListener("pagehide", () => busy && history.save(chat));
}

settings.bind(form);
listen();
alternatives.attach($("log"), $("alternatives"), (span) => {
  return answers.get(span.closest(".answer"))?.message.tokens?.[Number(span.dataset.token)];
});
open(location.hash.slice(1));
listModels();
