// What the browser remembers: conversations, settings, the key. It never leaves the browser but for what a request needs.
//
// minfer.chats: {id, title, time} of each conversation; minfer.chat.ID: the conversation; minfer.settings; minfer.key.

const LIST = "minfer.chats";
const one = (id) => `minfer.chat.${id}`;

/** The value of a key, or `otherwise` where there is none, or none that can be read. */
export function read(key, otherwise) {
  try {
    return JSON.parse(localStorage.getItem(key)) ?? otherwise;
  } catch {
    return otherwise;
  }
}

/** Remembers a value; whether there was room for it. */
export function write(key, value) {
  try {
    localStorage.setItem(key, JSON.stringify(value));
    return true;
  } catch {
    return false;
  }
}

/** All conversations, the newest first. */
export function list() {
  return read(LIST, []).sort((a, b) => b.time - a.time);
}

/** A conversation: `{id, title, time, messages}`; null if there is none of this id. */
export function load(id) {
  return read(one(id), null);
}

/** Remembers a conversation; whether there was room. The oldest alternatives go first, where it is scarce. */
export function save(chat) {
  const { id, title, time } = chat;
  const others = list().filter((c) => c.id !== id);
  const put = () => write(one(id), chat) && write(LIST, [{ id, title, time }, ...others]);
  if (put()) return true;
  for (const other of others.reverse()) {
    const old = load(other.id);
    if (!old?.messages.some((m) => m.tokens?.length)) continue;
    write(one(other.id), withoutTokens(old));
    if (put()) return true;
  }
  return write(one(id), withoutTokens(chat)) && write(LIST, [{ id, title, time }, ...others]);
}

function withoutTokens(chat) {
  return { ...chat, messages: chat.messages.map((m) => ({ ...m, tokens: undefined })) };
}

/** Forgets a conversation. */
export function remove(id) {
  localStorage.removeItem(one(id));
  write(LIST, list().filter((c) => c.id !== id));
}
