// Text that somebody else wrote, made fit to be looked at. It always stays text.

// What changes the direction of writing or cannot be seen, but for tab and line end: in
// what a person decides about, it could make one thing look like another.
// The joiners are parts of words and of emoji.
const UNSEEN = /(?![\n\t\u200c\u200d])[\p{Cc}\p{Cf}\p{Cs}\u2028\u2029\u034f\u115f\u1160\u3164\uffa0]/gu;
const FENCE = /^(?:`{3,}|~{3,})/;

/** Return a text with nothing unseen in it: that is spelled out. */
export function seen(text) {
  return text.replace(UNSEEN, (letter) => `\\u{${letter.codePointAt(0).toString(16)}}`);
}

/** Return a JSON value as text: a text that could be taken for another value in quotes. */
export function shown(value) {
  if (typeof value !== "string") return seen(JSON.stringify(value, null, 2));
  try {
    JSON.parse(value);
  } catch {
    if (value) return seen(value);
  }
  return seen(JSON.stringify(value));
}

/**
 * Put a text into an element: paragraphs as they are, and fenced code in blocks.
 *
 * A text that only grew is added to, so that what a person has selected stays so.
 */
export function fill(body, text) {
  const parts = partsOf(text);
  parts.forEach(({ tag, words }, index) => {
    let child = body.children[index];
    if (child?.localName !== tag) {
      const made = document.createElement(tag);
      made.append(document.createTextNode(""));
      if (child) child.replaceWith(made);
      else body.append(made);
      child = made;
    }
    const node = child.firstChild;
    if (words.startsWith(node.data)) node.appendData(words.slice(node.data.length));
    else node.data = words;
  });
  while (body.children.length > parts.length) body.lastChild.remove();
  return body;
}

function partsOf(text) {
  const parts = [];
  let lines = [];
  let fence = "";
  const end = (tag) => {
    const words = tag === "p" ? lines.join("\n").replace(/^\n+|\s+$/g, "") : lines.join("\n");
    if (words) parts.push({ tag, words });
    lines = [];
  };
  for (const line of text.split("\n")) {
    const mark = FENCE.exec(line)?.[0];
    if (fence ? line.trimEnd() === fence : mark) {
      end(fence ? "pre" : "p");
      fence = fence ? "" : mark;
    } else {
      lines.push(line);
    }
  }
  end(fence ? "pre" : "p");
  return parts;
}
