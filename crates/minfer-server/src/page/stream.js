// Requests to the server, and an answer's stream of server-sent events.

/** What the server says when it refuses, or what is known when it does not answer at all. */
export class ServerError extends Error {
  /** @param {string} message @param {number} status HTTP status; 0: there was no response */
  constructor(message, status = 0) {
    super(message);
    this.status = status;
  }
}

/** A request with the key, if there is one; a refusal becomes a ServerError with the server's own words. */
async function ask(path, { key, ...init }) {
  const headers = init.body ? { "content-type": "application/json" } : {};
  if (key) headers.authorization = `Bearer ${key}`;
  let response;
  try {
    response = await fetch(path, { ...init, headers });
  } catch (e) {
    if (e.name === "AbortError") throw e;
    throw new ServerError("The server can't be reached. Is it still running?");
  }
  if (response.ok) return response;
  const text = await response.text();
  let message = text || response.statusText;
  try {
    message = JSON.parse(text).error.message ?? message;
  } catch {
    // Not the server's own shape: a proxy's page, say. Its text is the best there is.
  }
  throw new ServerError(message, response.status);
}

/** The ids of the server's models. */
export async function models(key) {
  const response = await ask("/v1/models", { key });
  return (await response.json()).data.map((m) => m.id);
}

/** The chunks of an answer, as they come. */
export async function* chat(body, key, signal) {
  const init = { method: "POST", body: JSON.stringify(body), key, signal };
  const response = await ask("/v1/chat/completions", init);
  for await (const data of events(response.body)) {
    if (data === "[DONE]") return;
    const chunk = JSON.parse(data);
    if (chunk.error) throw new ServerError(chunk.error.message, response.status);
    yield chunk;
  }
  throw new ServerError("The connection ended before the answer did.");
}

/** The data of each event; other fields and comments (pings) are passed over. */
async function* events(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  let data = [];
  try {
    for (;;) {
      const { value, done } = await reader.read().catch((e) => {
        if (e.name === "AbortError") throw e;
        throw new ServerError("The connection to the server was lost.");
      });
      if (done) return;
      const lines = (rest + value).split("\n");
      rest = lines.pop();
      for (const raw of lines) {
        const line = raw.endsWith("\r") ? raw.slice(0, -1) : raw;
        if (line.startsWith("data:")) data.push(line.slice(5).replace(/^ /, ""));
        if (line === "" && data.length) {
          yield data.join("\n");
          data = [];
        }
      }
    }
  } finally {
    reader.cancel().catch(() => {}); // it may have ended by itself
  }
}
