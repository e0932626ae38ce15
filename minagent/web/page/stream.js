// The stream of a session: server-sent events, begun again whenever it breaks off.
//
// Each event of the log has an id, and the last one that was seen is named when the
// stream begins again; so nothing is missed, and nothing comes twice. (EventSource does
// the same, but tells neither why it was refused nor tries again soon.)

import { pathOf, refusalOf } from "./api.js";

const FIRST_PAUSE = 250; // milliseconds
const LONGEST_PAUSE = 5000;

/**
 * Follows one session.
 *
 * The room is told `connected(isNew)`, then `take(name, data)` for each frame (data is
 * JSON text), `lost()` when the stream broke off, and `refused(refusal)` when there is no
 * use in trying again.
 */
export class Stream {
  #sessionId;
  #room;
  #last;
  #stop;
  #told;
  /** Awaited by whoever must not miss anything from now on: the first try is over. */
  begun = new Promise((resolve) => (this.#told = resolve));

  constructor(sessionId, room) {
    this.#sessionId = sessionId;
    this.#room = room;
  }

  /** Follow from where it stood, unless it does so already. */
  start() {
    if (this.#stop) return;
    this.#stop = new AbortController();
    this.#follow(this.#stop.signal);
  }

  /** Let go; what was seen stays known. */
  stop() {
    this.#stop?.abort();
    this.#stop = undefined;
  }

  async #follow(signal) {
    for (let pause = FIRST_PAUSE; !signal.aborted; pause = Math.min(2 * pause, LONGEST_PAUSE)) {
      try {
        if (await this.#once(signal)) pause = FIRST_PAUSE;
      } catch (error) {
        this.#told();
        if (signal.aborted) return;
        if (error.status < 500) return this.#room.refused(error);
      }
      if (signal.aborted) return;
      this.#room.lost();
      await new Promise((resolve) => setTimeout(resolve, pause));
    }
  }

  /** Follow until the stream ends; say whether it had begun. */
  async #once(signal) {
    const headers = this.#last ? { "Last-Event-ID": this.#last } : {};
    const path = `${pathOf(this.#sessionId)}/follow?cards=true`;
    const response = await fetch(path, { headers, signal });
    if (!response.ok) {
      const refusal = await refusalOf(response);
      if (refusal.type !== "UnknownEventError") throw refusal;
      this.#last = undefined; // the log is another one now
      return false;
    }
    this.#told();
    this.#room.connected(this.#last === undefined);
    try {
      for await (const { name, data, id } of frames(response.body)) {
        if (signal.aborted) return true;
        this.#room.take(name, data);
        this.#last = id ?? this.#last;
      }
    } catch (error) {
      if (!signal.aborted) console.warn(error);
    }
    return true;
  }
}

async function* frames(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const blocks = (rest + value).split("\n\n");
    rest = blocks.pop();
    for (const block of blocks) {
      const frame = {};
      for (const line of block.split("\n")) {
        const [, field, text] = /^([^:]*):? ?(.*)$/s.exec(line);
        if (field) frame[field === "event" ? "name" : field] = text;
      }
      if (frame.data !== undefined) yield frame;
    }
  }
}
