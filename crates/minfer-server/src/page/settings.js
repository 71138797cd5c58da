// The settings form: how answers are made. An empty field is not sent: then the model's own value holds.

import { read, write } from "./history.js";

const SETTINGS = "minfer.settings";
const KEY = "minfer.key";

/** Fills the form with what the browser remembers and remembers each change. */
export function bind(form) {
  const known = read(SETTINGS, {});
  for (const field of form.elements) {
    if (field.name === "key") field.value = read(KEY, "");
    else if (field.name) field.value = known[field.name] ?? "";
  }
  form.addEventListener("input", () => {
    const values = {};
    for (const field of form.elements) {
      if (field.name && field.name !== "key" && field.value !== "") values[field.name] = field.value;
    }
    write(SETTINGS, values);
    write(KEY, key(form));
  });
}

/** The API key, without the spaces that come along when it is pasted. */
export function key(form) {
  return form.elements.key.value.trim();
}

/** The system prompt; empty: none. */
export function system(form) {
  return form.elements.system.value.trim();
}

/** The request's fields of the sampler. The server knows the ranges and says so. */
export function sampler(form) {
  const fields = {};
  for (const field of form.querySelectorAll("input[type=number]")) {
    if (field.value !== "") fields[field.name] = field.valueAsNumber;
  }
  return fields;
}
