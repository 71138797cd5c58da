// The small panel over a token: how probable it was, and what else the model had in mind.

/** Shows the panel for tokens inside `root`: on hover, on a tap, and by arrow keys in an answer that has the focus. */
export function attach(root, panel, tokenOf) {
  let current = null;
  const show = (span) => {
    if (span === current) return;
    current?.classList.remove("current");
    current = span;
    const token = span && tokenOf(span);
    panel.hidden = !token;
    if (!token) return;
    span.classList.add("current");
    panel.replaceChildren(...token.said.map(entry));
    place(panel, span);
  };
  const spanAt = (event) => event.target.closest?.(".token") ?? null;
  root.addEventListener("pointerover", (event) => show(spanAt(event)));
  root.addEventListener("pointerleave", () => show(null));
  root.addEventListener("click", (event) => show(spanAt(event)));
  root.addEventListener("focusout", () => show(null));
  // It stays with its token when the conversation scrolls (scroll events don't bubble, but they can be captured).
  addEventListener("scroll", () => !panel.hidden && place(panel, current), { capture: true, passive: true });
  root.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step || !event.target.matches(".markdown")) return;
    const spans = [...event.target.querySelectorAll(".token")];
    const next = spans[current ? spans.indexOf(current) + step : 0];
    if (!next) return;
    next.scrollIntoView({ block: "nearest" });
    show(next);
    event.preventDefault();
  });
}

/** One token's table: the likeliest ones, with the one that was taken marked. */
function entry({ token, p, top }) {
  const rows = top.some((t) => t.token === token) ? top : [{ token, p }, ...top];
  const table = document.createElement("table");
  for (const row of rows) {
    const tr = table.insertRow();
    if (row.token === token) tr.className = "taken";
    tr.insertCell().append(visible(row.token));
    const meter = document.createElement("meter");
    meter.value = row.p;
    tr.insertCell().append(meter);
    tr.insertCell().append(percent(row.p));
  }
  return table;
}

function percent(p) {
  if (p > 0 && p < 0.001) return "<0.1%";
  return `${(100 * p).toFixed(1)}%`;
}

/** A token's text with its blanks made visible. */
function visible(text) {
  return text.replaceAll(" ", "␣").replaceAll("\n", "↵").replaceAll("\t", "⇥") || "∅";
}

/** Above the token, or below where there is no room; inside the window. */
function place(panel, span) {
  const at = span.getClientRects()[0] ?? span.getBoundingClientRect();
  const { width, height } = panel.getBoundingClientRect();
  const left = Math.max(8, Math.min(at.left, innerWidth - width - 8));
  const top = at.top - height - 6 >= 8 ? at.top - height - 6 : at.bottom + 6;
  panel.style.left = `${left}px`;
  panel.style.top = `${top}px`;
}
