// Requests to the server, and what they are refused with.

import { parse } from "./json.js";

/** What the server did not do: `type` is for programs, `message` for people. */
export class Refusal extends Error {
  constructor(status, type, message) {
    super(message);
    Object.assign(this, { status, type });
  }
}

/** Return the path of a session. */
export function pathOf(sessionId) {
  return `/api/sessions/${encodeURIComponent(sessionId)}`;
}

/**
 * Ask the server for something, and return its answer.
 *
 * A run is not shown here but by the stream that follows the session, so whatever
 * starts one gets no more than its id.
 *
 * @throws {Refusal} The server refused, or was not to be reached (then `status` is 0).
 */
export async function ask(method, path, body) {
  const headers = { Accept: "application/json" };
  if (body !== undefined) headers["Content-Type"] = "application/json";
  let response;
  try {
    response = await fetch(path, { method, headers, body: JSON.stringify(body) });
  } catch {
    throw new Refusal(0, "Unreachable", "The server cannot be reached.");
  }
  if (!response.ok) throw await refusalOf(response);
  return response.status === 204 ? undefined : parse(await response.text());
}

/** Return what a response refuses with. */
export async function refusalOf(response) {
  try {
    const { type, message } = (await response.json()).error;
    return new Refusal(response.status, type, message);
  } catch {
    return new Refusal(response.status, "Refused", `The server said ${response.status}.`);
  }
}
