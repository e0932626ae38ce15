// JSON whose numbers stay as they were written.
//
// An account number of twenty digits is no number that JavaScript can keep. Whoever
// approves a call must see the one that is sent, so such a number stays raw text, which
// JSON.stringify writes as it came. A browser that cannot do this reads as usual.

/** Return the value of a JSON text. */
export function parse(text) {
  return JSON.parse(text, (key, value, context) =>
    typeof value === "number" && context?.source && String(value) !== context.source
      ? JSON.rawJSON(context.source)
      : value,
  );
}
