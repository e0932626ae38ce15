// The cards of a session, as the server gives them, drawn as elements.
//
// A card is drawn from itself and from nothing else, but for what a tool says while it
// runs; so it looks the same live and after a reload. What it says is text everywhere.

import { element } from "./element.js";
import { fill, seen, shown } from "./text.js";

const STATUS = {
  writing: "being written",
  running: "running",
  open: "no result yet",
  pending: "waits for a decision",
  success: "done",
  error: "failed",
  denied: "denied",
  expired: "expired",
  replaced: "replaced",
  cancelled: "cancelled",
  unknown: "outcome unknown",
};
const VERDICTS = { approved: "Approved", denied: "Denied", answered: "Answered" };
const NOTES = { recalled: "Recalled memories", summary: "Summary", checkpoint: "Checkpoint" };
const PICTURES = ["image/png", "image/jpeg", "image/gif", "image/webp"];
const MOST_LINES = 12;
const MOST_LETTERS = 1200;

/**
 * Return the element of a card.
 *
 * @param card As the server gives it.
 * @param {{progress: ?string, question: function}} live What a tool says while it runs,
 *   and what makes the form of a question.
 */
export function draw(card, live = {}) {
  const drawn = DRAWN[card.type](card, live);
  const kind = card.type === "message" ? ` ${card.role}` : "";
  const article = element("article", { class: `card ${card.type}${kind}`, tabindex: "-1" });
  article.append(...drawn.filter(Boolean));
  return article;
}

const DRAWN = {
  message: (card) => [
    heading(speaker(card)),
    fill(element("div", { class: "text" }), card.text),
    ...card.media.map(medium),
  ],

  reasoning(card) {
    const name = seen(card.author);
    if (!card.text.trim()) {
      const why = card.visibility === "redacted" ? "is sealed" : "is hidden";
      return [heading(`${name} thought`), element("p", { class: "aside" }, `The thought ${why}.`)];
    }
    const text = fill(element("div", { class: "text" }), card.text);
    return [folded(heading(`${name} thought`), text)];
  },

  tool(card, { progress, question, isRunning }) {
    const status = card.status === "open" && isRunning ? "running" : card.status;
    const answered = card.decisions.some((each) => each.verdict === "answered" && !each.inside.length);
    const words = answered && status === "success" ? "answered for it" : STATUS[status];
    return [
      heading(
        element("code", {}, seen(card.name) || "a tool"),
        " ",
        element("span", { class: `status ${status}` }, words ?? status),
      ),
      names(card.arguments),
      status === "writing" && element("pre", { class: "text" }, card.text),
      card.unreadable !== null && part("Unreadable input", card.unreadable),
      ...card.decisions.map((each) => decision(each, card.text)),
      ...card.pending.map((asked) => question(asked, inner(asked))),
      progress && element("p", { class: "progress" }, seen(progress)),
      status !== "writing" && card.text.trim() && result(card.text),
      ...card.media.map(medium),
      card.details !== null && json("Details", card.details),
    ];
  },

  note(card) {
    const title = `${NOTES[card.kind] ?? `Note: ${seen(card.kind)}`} ${seen(card.title)}`;
    const entries = card.entries.map((each) => element("li", {}, each));
    const text = card.text?.trim() && fill(element("div", { class: "text" }), card.text);
    const data = Object.keys(card.data).length ? json("Details", card.data) : undefined;
    const body = entries.length ? element("ul", {}, ...entries) : text;
    if (!body && !data) return [heading(title.trim())];
    return [folded(heading(title.trim()), ...[body, data].filter(Boolean))];
  },

  opaque: (card) => [
    folded(heading(`${seen(card.author)} sent something that is not known here`), code(shown(card.block))),
  ],

  interrupted: (card) => [heading(`${seen(card.author)} broke off here`)],
};

function speaker(card) {
  const author = seen(card.author).trim() || "somebody";
  if (card.role !== "user") return author;
  return author === "user" ? "You" : `${author} (as the user)`;
}

function heading(...words) {
  return element("h2", {}, ...words);
}

function folded(title, ...body) {
  return element("details", {}, element("summary", {}, title), ...body);
}

/** Return the names and values of a call's arguments. */
export function names(values) {
  const rows = Object.entries(values ?? {}).map(([name, value]) =>
    element("div", {}, element("dt", {}, seen(name)), element("dd", {}, shown(value))),
  );
  return rows.length ? element("dl", {}, ...rows) : undefined;
}

/** Return what a question is about, where it is not the card's own call. */
function inner(asked) {
  if (!asked.path.length) return [];
  const call = element("p", { class: "aside" }, "Inside, ", element("code", {}, seen(asked.name)));
  return [call, names(asked.arguments)].filter(Boolean);
}

function decision({ verdict, by, arguments: changed, reason, answer, inside }, result) {
  const where = inside.length ? "Inside: " : "";
  const who = by ? ` by ${seen(by)}` : "";
  const words = reason ?? answer ?? "";
  const said = result.includes(words) ? "" : words; // the result may say it already
  const taken = `${where}${VERDICTS[verdict]}${who}`;
  const edits = changed ? ", with these arguments instead:" : "";
  return element(
    "div",
    { class: "decision" },
    element("p", {}, `${taken}${edits}${said ? `: ${seen(said)}` : ""}`),
    names(changed),
  );
}

function result(text) {
  const lines = text.replace(/\s+$/, "").split("\n").length;
  if (lines <= MOST_LINES && text.length <= MOST_LETTERS) return code(text.trim());
  const size = lines > 1 ? `${lines} lines` : `${text.length} letters`;
  return part(`Result, ${size}`, text);
}

function part(title, text) {
  return folded(title, code(text));
}

function json(title, value) {
  return part(title, shown(value));
}

function code(text) {
  return element("pre", {}, text);
}

function medium({ media_type: type, data, url }) {
  if (data && PICTURES.includes(type)) {
    return element("img", { src: `data:${type};base64,${data}`, alt: `A picture (${type})` });
  }
  const where = url ?? `${Math.floor((data.length * 3) / 4).toLocaleString("en")} bytes`;
  return element("p", { class: "aside" }, `[${seen(type)}, ${seen(where)}]`);
}
