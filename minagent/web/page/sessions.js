// The list of a user's conversations, the newest first.

import { ask, pathOf } from "./api.js";
import { element } from "./element.js";

const PAGE = 100;

/** Return the address of a conversation on this page. */
export function addressOf(sessionId) {
  return `#/s/${encodeURIComponent(sessionId)}`;
}

/** Return the session that an address names, or null. */
export function sessionIn(address) {
  const named = /^#\/s\/(.+)$/.exec(address)?.[1];
  try {
    return named === undefined ? null : decodeURIComponent(named);
  } catch {
    return named; // there is none of that name, and the server will say so
  }
}

export class Sessions {
  #list;
  #known = new Map(); // by id, the oldest first
  #current;

  /** @param {Element} list Where they are listed. */
  constructor(list) {
    this.#list = list;
  }

  /** Read the list from the server. */
  async load() {
    const known = new Map();
    for (let after = ""; after !== null; ) {
      const from = after ? `&after=${encodeURIComponent(after)}` : "";
      const page = await ask("GET", `/api/sessions?limit=${PAGE}${from}`);
      for (const each of page.sessions) known.set(each.session_id, each);
      after = page.next;
    }
    this.#known = known;
    this.#draw();
  }

  /** Make a session, or a copy of one; return its id. */
  async make(copied) {
    const path = copied ? `${pathOf(copied)}/fork` : "/api/sessions";
    const made = await ask("POST", path, copied ? {} : undefined);
    this.#known.set(made.session_id, made);
    this.#draw();
    return made.session_id;
  }

  /** Delete a session. */
  async remove(sessionId) {
    await ask("DELETE", pathOf(sessionId));
    this.forget(sessionId);
  }

  /** Take a session off the list: it is gone. */
  forget(sessionId) {
    this.#known.delete(sessionId);
    this.#draw();
  }

  /** Mark the session that is open; null for none. */
  mark(sessionId) {
    this.#current = sessionId;
    this.#draw();
  }

  /** Give a session the title that it has by now. */
  rename(sessionId, title) {
    const known = this.#known.get(sessionId);
    if (!known || known.title === title) return;
    known.title = title;
    this.#draw();
  }

  #draw() {
    const focused = document.activeElement?.getAttribute("href");
    const items = [...this.#known.values()].reverse().map((each) => {
      const isOpen = each.session_id === this.#current;
      const link = element(
        "a",
        { href: addressOf(each.session_id), "aria-current": isOpen && "page" },
        element("span", {}, each.title || "New conversation"),
      );
      return element("li", {}, link);
    });
    const hadFocus = this.#list.contains(document.activeElement);
    this.#list.replaceChildren(...items);
    if (hadFocus) this.#list.querySelector(`a[href="${CSS.escape(focused)}"]`)?.focus();
  }
}
