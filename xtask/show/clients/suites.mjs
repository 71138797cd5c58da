// The suites in JavaScript: `openai`, and `ai` with `@ai-sdk/openai-compatible`. A JSON line is printed for each check.
import assert from 'node:assert/strict';
import OpenAI from 'openai';
import { zodResponseFormat } from 'openai/helpers/zod';
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { embedMany, generateText, Output, stepCountIs, streamText, tool, APICallError } from 'ai';
import { z } from 'zod';

const { MINFER_URL: url, SMOL, QWEN } = process.env;
const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: 'none', maxRetries: 0, timeout: 120_000 });
const greedy = { model: SMOL, messages: [{ role: 'user', content: 'Write one sentence about rivers.' }], temperature: 0, max_tokens: 24 };
const City = z.object({ name: z.string(), size: z.enum(['small', 'large']) });
const weather = {
  type: 'function',
  function: {
    name: 'get_weather',
    description: 'The weather of a city now.',
    parameters: { type: 'object', properties: { city: { type: 'string' } }, required: ['city'], additionalProperties: false },
  },
};
const question = [{ role: 'user', content: 'What is the weather in Paris? Use the tool.' }];

async function check(suite, name, run) {
  let reason = null;
  try {
    await run();
  } catch (e) {
    const at = /suites\.mjs:\d+/.exec(e.stack ?? '')?.[0] ?? '';
    reason = `${e.name}: ${String(e.message).split('\n')[0]} [${at}]`;
  }
  console.log(JSON.stringify({ suite, name, reason }));
}

async function collect(stream) {
  const all = [];
  for await (const x of stream) all.push(x);
  return all;
}

const said = (chunks) => chunks.map((c) => c.choices[0]?.delta?.content ?? '').join('');
const node = (name, run) => check('openai (Node)', name, run);

await node('models are listed; an unknown one is a NotFoundError', async () => {
  assert.deepEqual((await client.models.list()).data.map((m) => m.id), [SMOL, QWEN]);
  await assert.rejects(client.models.retrieve('gpt-9'), (e) => e instanceof OpenAI.NotFoundError && e.code === 'model_not_found');
});

await node('a stream says what the whole answer says, with usage; the stream helper agrees', async () => {
  const whole = await client.chat.completions.create(greedy);
  const chunks = await collect(await client.chat.completions.create({ ...greedy, stream: true, stream_options: { include_usage: true } }));
  assert.equal(said(chunks), whole.choices[0].message.content);
  assert.equal(chunks.at(-1).usage.total_tokens, whole.usage.total_tokens);
  const runner = client.chat.completions.stream(greedy);
  assert.equal(await runner.finalContent(), whole.choices[0].message.content);
});

await node('logprobs, seed, n and stop', async () => {
  const got = await client.chat.completions.create({ ...greedy, logprobs: true, top_logprobs: 3, max_tokens: 4 });
  assert.equal(got.choices[0].logprobs.content.length, 4);
  assert.equal(got.choices[0].logprobs.content[0].top_logprobs.length, 3);
  const twice = await Promise.all([1, 2].map(() => client.chat.completions.create({ ...greedy, temperature: 1, seed: 5, n: 2 })));
  assert.deepEqual(twice[0].choices, twice[1].choices);
});

await node('a type with zod: parse() and its schema', async () => {
  const ask = [{ role: 'user', content: 'Describe the city of Paris.' }];
  const got = await client.chat.completions.parse({ ...greedy, model: QWEN, messages: ask, max_tokens: 60, response_format: zodResponseFormat(City, 'city') });
  City.parse(got.choices[0].message.parsed);
});

await node('tools: a call, streamed the same, and runTools() to the end', async () => {
  const ask = { ...greedy, model: QWEN, messages: question, tools: [weather], tool_choice: 'required', max_tokens: 60 };
  const whole = await client.chat.completions.create(ask);
  assert.equal(whole.choices[0].finish_reason, 'tool_calls');
  const runner = client.chat.completions.stream(ask);
  const final = await runner.finalChatCompletion();
  assert.equal(final.choices[0].message.tool_calls[0].function.arguments, whole.choices[0].message.tool_calls[0].function.arguments);
  const asked = [];
  const run = (args) => (asked.push(args.city), '17 degrees');
  const tools = [{ type: 'function', function: { ...weather.function, function: run, parse: JSON.parse } }];
  // With the tool named, runTools() ends with what it gave; else a small model calls again and again.
  const tool_choice = { type: 'function', function: { name: 'get_weather' } };
  const loop = client.chat.completions.runTools({ ...greedy, model: QWEN, messages: question, tools, tool_choice, max_tokens: 60 });
  await loop.done();
  assert.deepEqual(asked, ['Paris']);
  const messages = [...loop.messages, { role: 'user', content: 'So how many degrees is it in Paris? Answer in one sentence.' }];
  const last = await client.chat.completions.create({ ...greedy, model: QWEN, messages, tools: [weather] });
  assert.match(last.choices[0].message.content, /17/);
});

await node('completions and embeddings (base64 by default)', async () => {
  const got = await client.completions.create({ model: SMOL, prompt: 'Once upon a time', temperature: 0, max_tokens: 8 });
  const chunks = await collect(await client.completions.create({ model: SMOL, prompt: 'Once upon a time', temperature: 0, max_tokens: 8, stream: true }));
  assert.equal(chunks.map((c) => c.choices[0]?.text ?? '').join(''), got.choices[0].text);
  const [a, b] = await Promise.all([undefined, 'float'].map((encoding_format) => client.embeddings.create({ model: SMOL, input: 'A cat.', encoding_format })));
  a.data[0].embedding.forEach((x, i) => assert.ok(Math.abs(x - b.data[0].embedding[i]) < 1e-6));
});

await node('responses: text, and the stream helper', async () => {
  const ask = { model: QWEN, input: 'Say only: yes', temperature: 0, max_output_tokens: 20, store: false };
  const whole = await client.responses.create(ask);
  const final = await client.responses.stream(ask).finalResponse();
  assert.equal(final.output_text, whole.output_text);
});

await node('errors: BadRequestError with param, also of a stream; abort() ends a stream', async () => {
  for (const stream of [false, true]) {
    await assert.rejects(client.chat.completions.create({ ...greedy, temperature: -1, stream }), (e) => e instanceof OpenAI.BadRequestError && e.param === 'temperature');
  }
  const stream = await client.chat.completions.create({ ...greedy, stream: true, max_tokens: 2000, ignore_eos: true });
  let n = 0;
  for await (const _ of stream) if (++n === 3) stream.controller.abort();
  assert.ok(n < 2000);
});

const minfer = createOpenAICompatible({ name: 'minfer', baseURL: `${url}/v1`, apiKey: 'none', includeUsage: true, supportsStructuredOutputs: true });
const ai = (name, run) => check('ai', name, run);
const quiet = { temperature: 0, maxRetries: 0 };

await ai('generateText and streamText say the same; usage and reason are told', async () => {
  const ask = { ...quiet, model: minfer(SMOL), prompt: 'Write one sentence about rivers.', maxOutputTokens: 24 };
  const whole = await generateText(ask);
  assert.equal(whole.finishReason, 'length');
  assert.equal(whole.usage.outputTokens, 24);
  const stream = streamText(ask);
  assert.equal((await collect(stream.textStream)).join(''), whole.text);
  assert.equal((await stream.usage).totalTokens, whole.usage.totalTokens);
});

await ai('a type with zod, whole and growing', async () => {
  const ask = { ...quiet, model: minfer(QWEN), prompt: 'Describe the city of Paris.', maxOutputTokens: 60, output: Output.object({ schema: City }) };
  const whole = await generateText(ask);
  City.parse(whole.output);
  const parts = await collect(streamText(ask).partialOutputStream);
  assert.deepEqual(parts.at(-1), whole.output);
});

await ai('tools: executed, and the answer uses the result; streamed, too', async () => {
  const asked = [];
  const get_weather = tool({
    description: 'The weather of a city now.',
    inputSchema: z.object({ city: z.string() }),
    execute: async ({ city }) => (asked.push(city), '17 degrees'),
  });
  // Left to itself, a small model calls again and again.
  const prepareStep = ({ stepNumber }) => ({ toolChoice: stepNumber ? 'none' : 'required' });
  const ask = { ...quiet, model: minfer(QWEN), messages: question, tools: { get_weather }, maxOutputTokens: 60, stopWhen: stepCountIs(2), prepareStep };
  assert.match((await generateText(ask)).text, /17/);
  assert.match((await collect(streamText(ask).textStream)).join(''), /17/);
  assert.deepEqual(asked, ['Paris', 'Paris']);
});

await ai('a tool that must be called', async () => {
  const get_weather = tool({ description: 'The weather of a city now.', inputSchema: z.object({ city: z.string() }) });
  const ask = { ...quiet, model: minfer(QWEN), messages: question, tools: { get_weather }, maxOutputTokens: 60 };
  for (const toolChoice of ['required', { type: 'tool', toolName: 'get_weather' }]) {
    const got = await generateText({ ...ask, toolChoice });
    assert.equal(got.finishReason, 'tool-calls');
    assert.equal(typeof got.toolCalls[0].input.city, 'string');
  }
});

await ai('completion and embedding models', async () => {
  const got = await generateText({ ...quiet, model: minfer.completionModel(SMOL), prompt: 'Once upon a time', maxOutputTokens: 8 });
  assert.ok(got.text.length > 0);
  const { embeddings } = await embedMany({ model: minfer.embeddingModel(SMOL), values: ['A cat.', 'A dog.'], maxRetries: 0 });
  assert.ok(embeddings.length === 2 && embeddings[0].length > 100);
});

await ai('errors: an APICallError with status and message', async () => {
  const wrong = (e) => e instanceof APICallError && e.statusCode === 404 && e.message.includes('gpt-9') && !e.isRetryable;
  await assert.rejects(generateText({ ...quiet, model: minfer('gpt-9'), prompt: 'Hi' }), wrong);
  let seen = null;
  await collect(streamText({ ...quiet, model: minfer(SMOL), prompt: 'Hi', topP: 7, onError: ({ error }) => (seen = error) }).textStream);
  assert.equal(seen?.statusCode, 400);
});

console.log(JSON.stringify({ end: true }));
