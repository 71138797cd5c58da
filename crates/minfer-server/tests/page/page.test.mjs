// The chat page in a real browser, before a real server: node page.test.mjs BINARY MODEL
//
// MODEL is an instruction model with room for a few thousand tokens. `npm ci` first.

import { assert, browser, Chat, Checks, plain, serve } from "./harness.mjs";

const [binary, model] = process.argv.slice(2);
if (!model) {
  console.error("usage: node page.test.mjs BINARY MODEL");
  process.exit(2);
}
const server = await serve(binary, model);
const chromium = await browser();
const chat = await Chat.open(chromium, server.url);
const { page } = chat;
const checks = new Checks();
const check = (name, work) => checks.check(name, work);

const GREEDY = { temperature: "0", max_tokens: "24" };
const QUESTION = "Name three colours.";
const MARKDOWN = [
  "## A *plan*",
  "Some **bold**, `co<de>`, ~~gone~~ and [words](https://example.org/a_(b)?c=d), 5 * 3 * 2, snake_case_name.\nNext line \\*as is\\*.",
  "1. one\n2. two\n   - inner\n3. three",
  '```rust\nfn main() {\n    let a = "**x**";\n\n}\n```',
  "| Name | Size |\n|:-----|-----:|\n| `a|b` | 12 |",
  "> quoted\n\n---",
  "The end, café 你好.",
].join("\n\n");

await check("the page names the server's models", async () => {
  assert.deepEqual(await page.locator("#model option").allTextContents(), ["test"]);
  assert.equal(await page.title(), "minfer");
  assert.ok(await page.isVisible("#empty"));
});

await check("a message is sent by Enter, not by Shift+Enter, and answered as the server answers it", async () => {
  await chat.set(GREEDY);
  await page.fill("#input", QUESTION);
  await page.press("#input", "Shift+Enter");
  assert.equal(await page.inputValue("#input"), `${QUESTION}\n`);
  await page.press("#input", "Enter");
  assert.equal(await page.inputValue("#input"), "");
  const answer = await chat.answer();
  assert.equal(await page.locator(".user").last().innerText(), QUESTION);
  const messages = [{ role: "user", content: QUESTION }];
  const { json } = await plain(server.url, { messages, temperature: 0, max_tokens: 24, logprobs: true, top_logprobs: 5 });
  assert.equal((await chat.stored()).at(-1).text, json.choices[0].message.content);
  assert.equal(chat.bodies.at(-1).model, "test");
  const stats = await answer.locator(".stats").innerText();
  assert.match(stats, /^\d+\.\d tokens\/s · /);
  assert.ok(stats.includes(` ${json.usage.completion_tokens} tokens `), stats);
});

await check("hover shows a token's probability and its alternatives, as the server knows them", async () => {
  const messages = [{ role: "user", content: QUESTION }];
  const { json } = await plain(server.url, { messages, temperature: 0, max_tokens: 24, logprobs: true, top_logprobs: 5 });
  const visible = (t) => t.replaceAll(" ", "␣").replaceAll("\n", "↵");
  const tokens = page.locator(".answer .token");
  for (const i of [0, 1]) {
    await tokens.nth(i).hover();
    const shown = await chat.alternatives();
    const index = Number(await tokens.nth(i).getAttribute("data-token"));
    const { token, top_logprobs: top } = json.choices[0].logprobs.content[index];
    assert.deepEqual(shown.map((s) => s.token), top.map((t) => visible(t.token)));
    assert.equal(shown[0].p, `${(100 * Math.exp(top[0].logprob).toPrecision(3)).toFixed(1)}%`);
    assert.deepEqual(shown.filter((s) => s.taken).map((s) => s.token), [visible(token)]);
  }
  await page.hover("header");
  await page.waitForSelector("#alternatives", { state: "hidden" });
  // The same without a mouse.
  await page.focus(".answer .markdown");
  await page.keyboard.press("ArrowRight");
  const first = await chat.alternatives();
  await page.keyboard.press("ArrowRight");
  assert.notDeepEqual(await chat.alternatives(), first);
});

await check("markdown is rendered while it streams", async () => {
  await page.evaluate(() => {
    window.seen = [];
    const look = () => {
      const answer = [...document.querySelectorAll(".answer.busy")].at(-1);
      if (answer) window.seen.push([answer.querySelectorAll("h4, li, pre").length, answer.innerText.length]);
    };
    new MutationObserver(look).observe(document.getElementById("log"), { subtree: true, childList: true });
    // However busy the machine is, what has come reaches the page piece by piece, a frame apart.
    window.network = window.fetch;
    window.fetch = async (...request) => {
      const answer = await window.network(...request);
      const pieces = new TransformStream({
        async transform(chunk, to) {
          for (let at = 0; at < chunk.length; at += 512) {
            await new Promise(requestAnimationFrame);
            to.enqueue(chunk.slice(at, at + 512));
          }
        },
      });
      return new Response(answer.body.pipeThrough(pieces), answer);
    };
  });
  const answer = await chat.force("Show me.", MARKDOWN);
  await page.evaluate(() => { window.fetch = window.network; });
  assert.equal((await chat.stored()).at(-1).text, MARKDOWN);
  const seen = await page.evaluate(() => window.seen);
  assert.ok(new Set(seen.map(([, length]) => length)).size > 5, "it came at once");
  assert.ok(seen.some(([elements]) => elements === 1), "no heading before the rest came");
  const texts = (selector) => answer.locator(`.markdown ${selector}`).allInnerTexts();
  assert.deepEqual(await texts("h4"), ["A plan"]);
  assert.deepEqual(await texts("h4 em"), ["plan"]);
  assert.deepEqual(await texts("p strong"), ["bold"]);
  assert.deepEqual(await texts("p code"), ["co<de>"]);
  assert.deepEqual(await texts("del"), ["gone"]);
  assert.deepEqual(await texts("p em"), []);
  assert.ok((await texts("p"))[0].endsWith("5 * 3 * 2, snake_case_name.\nNext line *as is*."), await texts("p"));
  const link = answer.locator("a");
  assert.equal(await link.getAttribute("href"), "https://example.org/a_(b)?c=d");
  assert.equal(await link.getAttribute("rel"), "noopener noreferrer");
  assert.deepEqual(await texts("ol > li"), ["one", "two\ninner", "three"]);
  assert.deepEqual(await texts("ol > li > ul > li"), ["inner"]);
  assert.equal(await answer.locator("pre code").textContent(), 'fn main() {\n    let a = "**x**";\n\n}');
  assert.deepEqual(await texts("th"), ["Name", "Size"]);
  assert.deepEqual(await texts("td"), ["a|b", "12"]);
  assert.deepEqual(await texts("blockquote"), ["quoted"]);
  assert.equal(await answer.locator("hr").count(), 1);
  assert.equal((await texts("p")).at(-1), "The end, café 你好.");
});

await check("code and answers are copied as they are", async () => {
  await chat.context.grantPermissions(["clipboard-read", "clipboard-write"]);
  const clipboard = () => page.evaluate(() => navigator.clipboard.readText());
  const answer = page.locator(".answer").last();
  await answer.locator(".copy-code").click();
  await answer.getByText("Copied").waitFor();
  assert.equal(await clipboard(), 'fn main() {\n    let a = "**x**";\n\n}');
  await answer.locator(".copy").click();
  await answer.locator(".copy", { hasText: "Copied" }).waitFor();
  assert.equal(await clipboard(), MARKDOWN);
});

for (const [how, act] of [
  ["the button", () => page.click("#stop")],
  ["Esc", () => page.press("#input", "Escape")],
]) {
  await check(`an answer is stopped by ${how}, and what was said stays`, async () => {
    await chat.talk();
    const gone = page.waitForEvent("requestfailed");
    await act();
    assert.ok((await gone).url().endsWith("/v1/chat/completions"));
    const answer = await chat.answer();
    assert.equal(await answer.locator(".note").innerText(), "Stopped.");
    const { text, end, tokens } = (await chat.stored()).at(-1);
    assert.ok(end === "stopped" && text.length > 0 && tokens.length > 0);
    assert.match(await answer.locator(".stats").innerText(), /tokens\/s/);
  });
}

await check("an answer is made again from the same question; the same seed gives the same answer", async () => {
  await page.click("#new");
  await chat.set({ temperature: "1", max_tokens: "24", seed: "7" });
  await chat.say("Tell me a story.");
  await chat.answer();
  const [, first] = await chat.stored();
  const asked = chat.bodies.at(-1);
  await page.click(".again:visible");
  await chat.answer();
  assert.deepEqual(chat.bodies.at(-1), asked);
  assert.equal(await page.locator(".message").count(), 2);
  assert.equal((await chat.stored())[1].text, first.text);
  await chat.set({ seed: "8" });
  await page.click(".again:visible");
  await chat.answer();
  assert.notEqual((await chat.stored())[1].text, first.text);
});

await check("the system prompt and the sampler's settings are in the request, and nothing that was left empty", async () => {
  await page.click("#new");
  const numbers = { temperature: 0.5, top_k: 7, top_p: 0.9, min_p: 0.1, repeat_penalty: 1.1, presence_penalty: 0.2 };
  Object.assign(numbers, { frequency_penalty: 0.3, max_tokens: 5, seed: 11 });
  const texts = Object.entries(numbers).map(([k, v]) => [k, String(v)]);
  await chat.set({ ...Object.fromEntries(texts), system: "You are terse." });
  await chat.say("Hello");
  await chat.answer();
  const { messages, model: _, stream, stream_options, logprobs, top_logprobs, return_progress, ...sent } = chat.bodies.at(-1);
  assert.deepEqual(sent, numbers);
  assert.deepEqual(messages, [{ role: "system", content: "You are terse." }, { role: "user", content: "Hello" }]);
  await page.reload();
  await page.click("#show-settings");
  assert.equal(await page.inputValue("[name=top_p]"), "0.9");
  assert.equal(await page.inputValue("[name=system]"), "You are terse.");
  await page.click("#reset");
  await chat.set({ system: "", max_tokens: "5" });
  await chat.say("And now?");
  await chat.answer();
  const plainly = chat.bodies.at(-1);
  assert.deepEqual(Object.keys(plainly).filter((k) => k in numbers), ["max_tokens"]);
  assert.deepEqual(plainly.messages.map((m) => m.role), ["user", "assistant", "user"]);
});

await check("conversations survive a reload, alternatives and all", async () => {
  const before = await page.locator(".message").allInnerTexts();
  assert.equal(before.length, 4);
  await page.reload();
  await page.waitForSelector(".message");
  assert.deepEqual(await page.locator(".message").allInnerTexts(), before);
  await page.locator(".answer .token").first().hover();
  assert.ok((await chat.alternatives()).length >= 5);
  assert.deepEqual(await page.locator("#chats a").allInnerTexts(), ["Hello", "Tell me a story.", QUESTION]);
  await page.click(`#chats a:text("${QUESTION}")`);
  await page.locator(".answer h4").first().waitFor();
  await page.goBack();
  await page.locator(".user", { hasText: "And now?" }).waitFor();
  await page.click('[aria-label="Delete Tell me a story."]');
  assert.deepEqual(await page.locator("#chats a").allInnerTexts(), ["Hello", QUESTION]);
});

await check("what the server refuses is shown in its words, and can be tried again", async () => {
  await page.click("#new");
  await chat.set({ temperature: "-1" });
  await chat.say("Hello?");
  const answer = await chat.answer();
  const refused = await plain(server.url, { messages: [{ role: "user", content: "Hello?" }], temperature: -1 });
  assert.equal(refused.status, 400);
  assert.equal(await answer.locator(".error").innerText(), refused.json.error.message);
  await chat.set({ temperature: "0" });
  await page.getByText("Try again").click();
  const again = await chat.answer();
  assert.ok(await again.locator(".error").isHidden());
  assert.ok((await chat.stored()).at(-1).text.length > 0);
});

await check("the key is asked for where the server wants one, and sent as a bearer", async () => {
  assert.ok(chat.keys.length > 5 && chat.keys.every((k) => k === undefined));
  const locked = await serve(binary, model, ["--api-key", "s3cret"]);
  const other = await Chat.open(chromium, locked.url, {}, "#notice:not([hidden])");
  const refused = await (await fetch(`${locked.url}/v1/models`)).json();
  assert.equal(await other.page.locator("#notice").innerText(), refused.error.message);
  assert.equal(await other.page.evaluate(() => document.activeElement.name), "key");
  await other.page.keyboard.type("s3cret");
  await other.page.keyboard.press("Tab");
  await other.page.waitForSelector("#notice", { state: "hidden" });
  await other.set(GREEDY);
  await other.say("Hello!");
  await other.answer();
  assert.ok((await other.stored()).at(-1).text.length > 0);
  // The models, refused; the models; the answer.
  assert.deepEqual(other.keys, [undefined, "Bearer s3cret", "Bearer s3cret"]);
  assert.ok(other.requests.every((r) => !r.includes("s3cret")));
  await other.page.reload();
  await other.page.waitForSelector("#model option", { state: "attached" });
  assert.deepEqual(other.complaints, []);
  await other.context.close();
  locked.process.kill();
});

await check("markup in what is said stays text", async () => {
  const attacks = [
    "<script>window.pwned = 1</script>",
    "<img src=x onerror=window.pwned=1>",
    "<svg/onload=window.pwned=1>",
    "<iframe srcdoc='<script>parent.pwned=1</script>'></iframe>",
    "&lt;script&gt;",
    "[a](javascript:window.pwned=1)",
    "[b](data:text/html,<script>window.pwned=1</script>)",
    "<javascript:window.pwned=1>",
    "![c](http://outside.invalid/c.png)",
    '[d](https://outside.invalid/"onmouseover="window.pwned=1)',
    "**<b onclick=window.pwned=1>e</b>**",
    "`<u>f</u>`",
  ];
  await page.click("#new");
  const all = attacks.join("\n\n");
  const answer = await chat.force(all, all);
  await page.reload();
  await page.waitForSelector(".answer");
  assert.equal(await page.locator(".user .text").textContent(), all);
  const text = await answer.locator(".markdown").innerText();
  for (const attack of attacks.filter((a) => a.startsWith("<") || a.startsWith("["))) {
    if (!attack.includes("https:")) assert.ok(text.includes(attack), `${attack} in ${text}`);
  }
  const found = await page.$$eval("main *", (all) => [...new Set(all.map((e) => e.localName))]);
  for (const bad of ["script", "img", "svg", "iframe", "b", "u"]) assert.ok(!found.includes(bad), bad);
  const links = await page.$$eval("main a", (all) => all.map((a) => [a.protocol, a.getAttributeNames().join()]));
  for (const [protocol, attributes] of links) {
    assert.ok(["http:", "https:"].includes(protocol), protocol);
    assert.equal(attributes, "href,target,rel");
  }
  assert.equal(await page.evaluate(() => window.pwned), undefined);
  assert.equal(await page.locator("#chats a").first().innerText(), attacks[0]);
});

await check("long and crooked markdown is rendered in no time", async () => {
  const ms = await page.evaluate(async () => {
    const { Markdown } = await import("/page/markdown.js");
    const begin = performance.now();
    const bad = ["**a ", "_a ", "[", "[a](", "`", "``a`", "> ", "- ", "|a", "\\", "http://", "***a*", "1. ", "\t- a\n"];
    for (const piece of bad) new Markdown(document.createElement("div")).update(piece.repeat(5000), []);
    return performance.now() - begin;
  });
  assert.ok(ms < 10_000, `${ms} ms`);
});

await check("it fits a phone, in the dark too, and every control has a name", async () => {
  const light = await page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  const phone = await Chat.open(chromium, server.url, { viewport: { width: 390, height: 844 }, colorScheme: "dark" });
  await phone.force("Show me.", MARKDOWN);
  const [width, dark] = await phone.page.evaluate(() => {
    return [document.documentElement.scrollWidth, getComputedStyle(document.body).backgroundColor];
  });
  assert.ok(width <= 390, `${width} pixels wide`);
  assert.notEqual(dark, light);
  assert.ok(await phone.page.isHidden("#history"));
  await phone.page.click("#show-history");
  await phone.page.locator("#chats a", { hasText: "Show me." }).waitFor();
  await phone.page.keyboard.press("Escape");
  await phone.page.waitForSelector("#history", { state: "hidden" });
  const nameless = await phone.page.$$eval("button, input, select, textarea", (all) =>
    all.filter((e) => !e.ariaLabel && !e.textContent.trim() && !e.labels?.length).map((e) => e.outerHTML),
  );
  assert.deepEqual(nameless, []);
  assert.deepEqual(phone.complaints, []);
  await phone.context.close();
});

await check("a server that goes away is told of, and what was said stays", async () => {
  await page.click("#new");
  await chat.talk();
  server.process.kill("SIGKILL");
  const answer = await chat.answer();
  assert.match(await answer.locator(".error").innerText(), /connection .* (lost|ended)/);
  assert.ok((await chat.stored()).at(-1).text.length > 0);
  await page.getByText("Try again").click();
  await page.locator(".error", { hasText: "can't be reached" }).waitFor();
});

await check("nothing was asked of another host, and the browser has nothing to complain of", async () => {
  const elsewhere = chat.requests.filter((r) => new URL(r).origin !== server.url);
  assert.deepEqual(elsewhere, []);
  assert.ok(chat.requests.length > 20);
  assert.deepEqual(chat.complaints, []);
});

await chromium.close();
console.log(`${checks.passed} checks passed, ${checks.failed} failed`);
process.exit(checks.failed ? 1 : 0);
