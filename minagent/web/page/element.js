// One way to make an element: its children are elements, and texts that stay texts.

/**
 * Return a new element.
 *
 * @param {string} tag
 * @param {Object} attributes A function is a listener; undefined and false are left out.
 * @param {...(Node|string|undefined)} children
 */
export function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") made.addEventListener(name, value);
    else if (value === true) made.setAttribute(name, "");
    else if (value !== undefined && value !== false) made.setAttribute(name, value);
  }
  made.append(...children.filter((child) => child !== undefined && child !== ""));
  return made;
}
