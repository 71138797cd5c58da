// A server, a browser and a page for the checks, and what they count.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { chromium } from "playwright-core";

const WAIT = 60_000;
// Without these, a new profile calls its maker's hosts at every start.
const FLAGS = [
  "--no-sandbox",
  "--disable-gpu",
  "--disable-quic",
  "--no-first-run",
  "--disable-background-networking",
  "--disable-component-update",
  "--disable-sync",
];

/** Starts `minfer serve` on a free port and waits until its model, called `test`, is loaded. */
export async function serve(binary, model, options = []) {
  // One thread: on two cores the browser needs the other, or it paints an answer only when it is whole.
  const child = spawn(binary, ["serve", `test=${model}`, "--port", "0", "--threads", "1", ...options]);
  let said = "";
  const url = await new Promise((resolve, reject) => {
    const timer = setTimeout(() => reject(new Error(`not ready after ${WAIT} ms: ${said}`)), WAIT);
    const hear = (data) => {
      said += data;
      const found = /listening on (http:\/\/\S+?),?\s/.exec(said);
      if (!found || !/^ready/m.test(said)) return;
      clearTimeout(timer);
      resolve(found[1]);
    };
    child.stdout.on("data", hear);
    child.stderr.on("data", hear);
    child.on("error", reject);
    child.on("exit", (code) => reject(new Error(`the server ended with ${code}: ${said}`)));
  });
  process.on("exit", () => child.kill());
  return { url, process: child };
}

/** A browser; `CHROMIUM` names another program than Debian's. */
export async function browser() {
  return chromium.launch({ executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium", args: FLAGS });
}

/** The page and what the checks need to know of it. */
export class Chat {
  /** A new profile of the browser on the page, once the models are listed or something else is there. */
  static async open(browser, url, options = {}, until = "#model option") {
    const context = await browser.newContext({ viewport: { width: 1100, height: 800 }, ...options });
    const chat = new Chat(context, await context.newPage(), url);
    await chat.page.goto(url);
    await chat.page.waitForSelector(until, { state: "attached" });
    return chat;
  }

  constructor(context, page, url) {
    Object.assign(this, { context, page, url });
    this.requests = []; // addresses
    this.bodies = []; // of questions to the model
    this.keys = []; // authorization headers of what the page asks the API; the browser itself fetches the icon again, without
    this.complaints = []; // of the browser: scripts that fail, rules of the page's policy that are broken
    /** Changes a question's body on its way: what the page sends is seen before. */
    this.change = null;
    page.setDefaultTimeout(WAIT);
    page.on("request", (r) => {
      this.requests.push(r.url());
      if (new URL(r.url()).pathname.startsWith("/v1/")) this.keys.push(r.headers().authorization);
    });
    page.on("pageerror", (e) => this.complaints.push(e.message));
    page.on("console", (m) => {
      // A refused request is one of the checks; the browser notes it, too.
      if (m.type() === "error" && !m.text().startsWith("Failed to load resource")) this.complaints.push(m.text());
    });
    page.on("dialog", (d) => d.accept());
    page.route("**/v1/chat/completions", (route) => {
      const body = route.request().postDataJSON();
      this.bodies.push(structuredClone(body));
      this.change?.(body);
      return route.continue({ postData: JSON.stringify(body) });
    });
  }

  /** Types a message and sends it. */
  async say(text) {
    await this.page.fill("#input", text);
    await this.page.press("#input", "Enter");
  }

  /** Waits until nothing is being generated; the last answer. */
  async answer() {
    await this.page.waitForSelector("#send:visible");
    return this.page.locator(".answer").last();
  }

  /** Sends a message that the model answers with exactly this text: a grammar leaves it no other. */
  async force(question, text) {
    this.change = (body) => Object.assign(body, { grammar: `root ::= ${JSON.stringify(text)}`, max_tokens: -1 });
    await this.say(question);
    const answer = await this.answer();
    this.change = null;
    return answer;
  }

  /** Makes the model talk until it is stopped. */
  async talk() {
    this.change = (body) => Object.assign(body, { ignore_eos: true, max_tokens: -1 });
    await this.say("Tell me a long story.");
    await this.page.waitForSelector(".busy .token >> nth=5", { state: "attached" });
    this.change = null;
  }

  /** Fills fields of the settings. */
  async set(values) {
    const open = await this.page.isVisible("#settings");
    if (!open) await this.page.click("#show-settings");
    for (const [name, value] of Object.entries(values)) await this.page.fill(`#settings [name=${name}]`, value);
    await this.page.click("#close-settings");
  }

  /** The conversation that was changed last, as the browser remembers it. */
  async stored() {
    return this.page.evaluate(() => {
      const [{ id }] = JSON.parse(localStorage["minfer.chats"]).sort((a, b) => b.time - a.time);
      return JSON.parse(localStorage[`minfer.chat.${id}`]).messages;
    });
  }

  /** The rows of the panel of alternatives. */
  async alternatives() {
    await this.page.waitForSelector("#alternatives:visible");
    return this.page.$$eval("#alternatives tr", (rows) =>
      rows.map((r) => ({ token: r.cells[0].textContent, p: r.cells[2].textContent, taken: r.className === "taken" })),
    );
  }
}

/** What the server answers to a body without the page between. */
export async function plain(url, body) {
  const init = { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) };
  const response = await fetch(`${url}/v1/chat/completions`, init);
  return { status: response.status, json: await response.json() };
}

/** Runs checks one by one; a failed one does not hide the others. */
export class Checks {
  failed = 0;
  passed = 0;

  async check(name, work) {
    try {
      await work();
      this.passed += 1;
      console.log(`ok      ${name}`);
    } catch (e) {
      this.failed += 1;
      console.log(`FAILED  ${name}\n${e.stack}`);
    }
  }
}

export { assert };
