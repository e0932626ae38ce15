// The page: one room with a conversation in it.
//
// `Room` puts the parts together, and does what a person asks for. The address holds
// which conversation is open, from before its first message on; so whoever closes the tab
// finds it again. Nothing else is kept here: all that is shown comes from the server.
//
//     conversation.js  the cards, and the reply that is being written
//     cards.js         a card as elements            question.js  a question, to decide
//     sessions.js      the list                      stream.js    what the server tells
//     api.js           requests                      json.js      numbers as written
//     text.js          text by others                element.js   how elements are made

import { ask, pathOf } from "./api.js";
import { Conversation } from "./conversation.js";
import { questionForm } from "./question.js";
import { addressOf, sessionIn, Sessions } from "./sessions.js";
import { Stream } from "./stream.js";

const at = (id) => document.getElementById(id);
const NEW = "New conversation";
const MAX_TITLE = 80;
const QUIET = 1000; // milliseconds
const PASSING = ["delta", "progress", "event"]; // frames that change nothing around

class Room {
  #sessions = new Sessions(at("list"));
  #conversation = new Conversation(at("cards"), at("draft"), (asked, inner) =>
    questionForm(asked, inner, (decision) => this.#decide(asked, decision)),
  );
  #sessionId = null;
  #stream;
  #quiet;
  #isLost = false;
  #isSending = false;
  #agent = "minagent";

  async enter() {
    this.#listen();
    // Who answers is the author of the open reply, so that is asked first.
    const known = await this.#try(async () => {
      const { agent } = await ask("GET", "/api/me");
      this.#agent = this.#conversation.agent = agent;
    });
    if (!known) return;
    this.#open();
    await this.#try(() => this.#sessions.load());
  }

  #listen() {
    addEventListener("hashchange", () => this.#open());
    document.addEventListener("visibilitychange", () => this.#look());
    document.addEventListener("keydown", (event) => this.#key(event));
    const clicks = {
      menu: () => this.#menu(at("menu").ariaExpanded !== "true"),
      new: () => this.#begin(),
      fork: () => this.#try(async () => this.#goTo(await this.#sessions.make(this.#sessionId))),
      delete: () => at("sure").showModal(),
      "sure-no": () => at("sure").close(),
      "sure-yes": () => this.#delete(),
      stop: () => this.#cancel(),
      "go-on": () => this.#say(undefined),
    };
    for (const [id, act] of Object.entries(clicks)) at(id).addEventListener("click", act);
    at("skip").addEventListener("click", (event) => {
      event.preventDefault(); // the address stays the conversation's
      at("message").focus();
    });
    at("composer").addEventListener("submit", (event) => {
      event.preventDefault();
      this.#send();
    });
    at("message").addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
      event.preventDefault();
      this.#send();
    });
  }

  // --- Which conversation is open

  #open() {
    this.#stream?.stop();
    this.#sessionId = sessionIn(location.hash);
    this.#stream = undefined;
    this.#isLost = false;
    this.#complain("");
    this.#menu(false);
    this.#conversation.clear();
    this.#sessions.mark(this.#sessionId);
    if (this.#sessionId) {
      this.#stream = new Stream(this.#sessionId, this.#follower(this.#sessionId));
      this.#stream.start();
    } else if (matchMedia("(pointer: fine)").matches) {
      at("message").focus();
    }
    this.#show();
  }

  #goTo(sessionId) {
    location.hash = sessionId ? addressOf(sessionId) : "#/";
  }

  #begin() {
    this.#menu(false);
    at("message").focus();
  }

  /** Return what a stream tells; one that was left is not listened to any more. */
  #follower(sessionId) {
    const heard = (act) => (...told) => {
      if (this.#sessionId !== sessionId) return;
      act(...told);
      if (!PASSING.includes(told[0])) this.#show();
    };
    return {
      connected: heard((isNew) => {
        this.#isLost = false;
        if (isNew) this.#conversation.clear();
        else this.#conversation.connected();
        // What is stored comes first, and at once.
        clearTimeout(this.#quiet);
        this.#quiet = setTimeout(() => this.#conversation.readOut(), QUIET);
      }),
      take: heard((name, data) => this.#take(name, data)),
      lost: heard(() => (this.#isLost = true)),
      refused: heard((refusal) => {
        this.#sessionId = null;
        const words = { 404: "There is no such conversation.", 401: "You are not logged in." };
        this.#complain(words[refusal.status] ?? refusal.message);
      }),
    };
  }

  #take(name, data) {
    const frame = this.#conversation.take(name, data);
    if (name === "opened") this.#complain("");
    if (name === "ended" && frame.error) this.#complain(`It failed: ${frame.error.message}`);
    if (name === "deleted") {
      this.#sessions.forget(this.#sessionId);
      this.#goTo(null);
    }
  }

  /** While nobody looks and nothing goes on, no connection is held. */
  #look() {
    if (document.visibilityState === "visible") {
      this.#stream?.start();
      this.#try(() => this.#sessions.load());
    } else if (!this.#conversation.isRunning) {
      this.#stream?.stop();
    }
  }

  // --- What a person does

  async #send() {
    const box = at("message");
    const words = box.value;
    if (!words.trim() || this.#conversation.isRunning) return;
    // What was typed meanwhile stays.
    if ((await this.#say(words)) && box.value.startsWith(words)) box.value = box.value.slice(words.length);
  }

  /** Say something, or go on; say whether it was taken. */
  async #say(text) {
    if (this.#isSending) return false;
    this.#isSending = true;
    const taken = await this.#try(async () => {
      if (!this.#sessionId) {
        const made = await this.#sessions.make();
        history.pushState(null, "", addressOf(made));
        this.#open();
      }
      // So that also a run that fails at once is seen to fail.
      await this.#stream?.begun;
      await ask("POST", `${pathOf(this.#sessionId)}/messages`, { text });
    });
    this.#isSending = false;
    return taken;
  }

  #decide(asked, decision) {
    const { tool_call_id, fingerprint, path } = asked;
    const decisions = [{ tool_call_id, fingerprint, path, ...decision }];
    return ask("POST", `${pathOf(this.#sessionId)}/decisions`, { decisions });
  }

  #cancel() {
    return this.#try(() => ask("POST", `${pathOf(this.#sessionId)}/cancel`));
  }

  #delete() {
    at("sure").close();
    return this.#try(async () => {
      await this.#sessions.remove(this.#sessionId);
      this.#goTo(null);
    });
  }

  #key(event) {
    if (event.key !== "Escape" || event.isComposing || at("sure").open) return;
    if (at("menu").ariaExpanded === "true") {
      this.#menu(false);
      at("menu").focus();
    } else if (this.#conversation.isRunning) {
      this.#cancel();
    }
  }

  async #try(act) {
    this.#complain("");
    try {
      await act();
      return true;
    } catch (error) {
      this.#complain(error.message);
      return false;
    }
  }

  // --- What is shown around the conversation

  #show() {
    const { isRunning, isEmpty, waits, isUnanswered, title } = this.#conversation;
    const isOpen = this.#sessionId !== null;
    const short = title.length > MAX_TITLE ? `${title.slice(0, MAX_TITLE - 1)}…` : title;
    if (title) this.#sessions.rename(this.#sessionId, short);
    at("title").textContent = short || NEW;
    document.title = short ? `${short} · ${this.#agent}` : this.#agent;
    at("actions").hidden = !isOpen;
    at("empty").hidden = !isEmpty;
    at("send").hidden = isRunning;
    at("stop").hidden = !isRunning;
    at("go-on").hidden = isRunning || waits || this.#isLost || !isUnanswered;
    let words = "";
    if (this.#isLost) words = "The server cannot be reached. Trying again…";
    else if (isRunning) words = "Answering…";
    else if (waits) words = "A question waits for you. A new message would close it.";
    else if (isUnanswered) words = "There is no answer yet.";
    at("state").classList.toggle("busy", isRunning);
    if (at("state").textContent !== words) at("state").textContent = words;
  }

  #complain(words) {
    at("notice").textContent = words;
  }

  #menu(opens) {
    at("menu").ariaExpanded = String(opens);
    document.body.classList.toggle("menu", opens);
  }
}

new Room().enter();
