// A conversation on the page: its cards, and the reply that is being written.
//
// The server tells what changes (`cards`), and what passes until then (`delta`,
// `progress`). The open reply is drawn from cards that are made here, with the same
// strokes; when the real ones come, it is taken away. So a page that was there all the
// time and one that comes later show the same.

import { draw } from "./cards.js";
import { parse } from "./json.js";
import { fill } from "./text.js";

const NEAR = 80; // pixels from the end within which the page stays at the end

export class Conversation {
  #list;
  #draft;
  #questionForm;
  #cards = new Map(); // by key: { card, node }
  #forms = new Map(); // by fingerprint, so that what is typed there stays
  #progress = new Map(); // by tool call id
  #parts = []; // of the open reply: { card, node }
  #frame = 0;

  /**
   * @param {Element} list Where the cards are.
   * @param {Element} draft Where the open reply is.
   * @param {function(Object, Node[]): Element} questionForm Makes the form of a question.
   */
  constructor(list, draft, questionForm) {
    this.#list = list;
    this.#draft = draft;
    this.#questionForm = questionForm;
    this.agent = "";
    this.isRunning = false;
  }

  /** Forget all. */
  clear() {
    this.#cards.clear();
    this.#forms.clear();
    this.#list.replaceChildren();
    this.#list.ariaLive = "off"; // until what is there already is drawn
    this.connected();
  }

  /** A stream begins: what passed before it is not known any more. */
  connected() {
    this.#setRunning(false);
    this.#progress.clear();
    this.#dropDraft();
  }

  /** Take one frame of the stream, and return what it says. */
  take(name, data) {
    if (name === "event") return undefined; // the cards have said it already
    const frame = parse(data);
    if (name === "delta") {
      this.#write(frame);
      return frame;
    }
    const atEnd = isAtEnd();
    if (name === "opened") this.#setRunning(true);
    if (name === "cards") this.#change(frame);
    if (name === "progress") this.#tell(frame);
    if (name === "ended") this.connected();
    if (atEnd) toEnd();
    return frame;
  }

  /** From now on, what comes is read out. */
  readOut() {
    this.#list.ariaLive = "polite";
  }

  get isEmpty() {
    return !this.#cards.size && !this.#parts.length;
  }

  get waits() {
    return this.#all().some((card) => card.type === "tool" && card.pending.length > 0);
  }

  /** Whether there is no answer: what was said last is the user's, or broke off. */
  get isUnanswered() {
    const last = this.#all().findLast((card) => card.type !== "note");
    return last !== undefined && !(last.type === "message" && last.role === "assistant");
  }

  /** What the user said first. */
  get title() {
    const said = this.#all().find((card) => card.type === "message" && card.role === "user");
    return (said?.text ?? "").trim().replace(/\s+/g, " ");
  }

  #all() {
    const cards = new Map([...this.#cards.values()].map(({ card, node }) => [node, card]));
    return [...this.#list.children].map((node) => cards.get(node));
  }

  #change({ gone, changed, closes_reply: closes, anew }) {
    if (anew) {
      const all = new Set(changed.map(({ card }) => card.key));
      gone = [...this.#cards.keys()].filter((key) => !all.has(key));
    }
    const thoughts = this.#parts.filter(({ kind, node }) => node && kind === "reasoning");
    if (closes) this.#dropDraft();
    for (const key of gone) this.#remove(key);
    for (const { at, card } of changed) {
      const node = this.#put(card, at);
      if (closes && card.type === "reasoning" && thoughts.length) {
        keepOpen(thoughts.shift().node, node);
      }
    }
    const asked = new Set(
      [...this.#cards.values()].flatMap(({ card }) => (card.pending ?? []).map((each) => each.fingerprint)),
    );
    for (const fingerprint of this.#forms.keys()) {
      if (!asked.has(fingerprint)) this.#forms.delete(fingerprint);
    }
  }

  #put(card, at) {
    const focused = document.activeElement;
    const before = this.#cards.get(card.key)?.node;
    const hadFocus = before?.contains(focused);
    const node = draw(card, this.#live(card));
    if (before) keepOpen(before, node);
    before?.remove();
    this.#list.insertBefore(node, this.#list.children[at] ?? null);
    this.#cards.set(card.key, { card, node });
    if (hadFocus) (node.contains(focused) ? focused : node).focus({ preventScroll: true });
    return node;
  }

  #remove(key) {
    this.#cards.get(key)?.node.remove();
    this.#cards.delete(key);
  }

  #live(card) {
    return {
      isRunning: this.isRunning,
      progress: card.status === "open" ? this.#progress.get(card.tool_call_id) : undefined,
      question: (asked, inner) => {
        if (!this.#forms.has(asked.fingerprint)) {
          this.#forms.set(asked.fingerprint, this.#questionForm(asked, inner));
        }
        return this.#forms.get(asked.fingerprint);
      },
    };
  }

  #redraw(isMeant) {
    for (const { card, node } of [...this.#cards.values()]) {
      if (card.type === "tool" && card.status === "open" && isMeant(card)) {
        this.#put(card, [...this.#list.children].indexOf(node));
      }
    }
  }

  #setRunning(value) {
    if (this.isRunning === value) return;
    this.isRunning = value;
    this.#redraw(() => true);
  }

  #tell({ text, tool_call_id: id }) {
    this.#progress.set(id, text);
    this.#redraw((card) => card.tool_call_id === id);
  }

  // --- The open reply

  #write({ kind, text, tool_call_id: id, name }) {
    let last = this.#parts.at(-1);
    if (last?.kind !== kind || last.id !== id) {
      last = { kind, id, card: draftOf(kind, this.agent, name ?? "") };
      this.#parts.push(last);
    }
    last.card.text += text;
    // Once a frame: a model may write faster than anybody can look.
    this.#frame ||= requestAnimationFrame(() => this.#drawDraft());
  }

  #drawDraft() {
    const atEnd = isAtEnd();
    this.#frame = 0;
    for (const part of this.#parts) {
      const text = part.node?.querySelector(".text");
      if (text?.localName === "pre") {
        text.textContent = part.card.text;
      } else if (text) {
        fill(text, part.card.text);
      } else if (part.card.text.trim() || part.kind === "tool_input") {
        part.node = draw(part.card);
        this.#draft.append(part.node);
      }
    }
    if (atEnd) toEnd();
  }

  #dropDraft() {
    cancelAnimationFrame(this.#frame);
    this.#frame = 0;
    this.#parts = [];
    this.#draft.replaceChildren();
  }
}

function isAtEnd() {
  return innerHeight + scrollY >= document.documentElement.scrollHeight - NEAR;
}

function toEnd() {
  scrollTo({ top: document.documentElement.scrollHeight });
}

/** Return a card as the server would make it, for a part of a reply that is not whole. */
function draftOf(kind, author, name) {
  if (kind === "text") return { type: "message", role: "assistant", author, text: "", media: [] };
  if (kind === "reasoning") return { type: "reasoning", author, text: "", visibility: "shown" };
  return {
    type: "tool",
    author,
    name,
    status: "writing",
    arguments: null,
    unreadable: null,
    decisions: [],
    pending: [],
    text: "",
    media: [],
    details: null,
  };
}

/** What a person has unfolded stays so in the card that takes the place of another. */
function keepOpen(before, after) {
  const folds = after.querySelectorAll("details");
  before.querySelectorAll("details").forEach((each, index) => {
    if (each.open && folds[index]) folds[index].open = true;
  });
}
