// A question that waits for a person: approve, approve with other arguments, or deny.

import { element } from "./element.js";
import { parse } from "./json.js";
import { seen } from "./text.js";

let count = 0;

/**
 * Return the form of a question.
 *
 * A click counts once: what is decided is being sent, and nothing else is, until that is
 * refused.
 *
 * @param asked The question, as the server gives it.
 * @param {Node[]} inner What it is about, where the card does not say so.
 * @param {function(Object): Promise} decide Sends a decision; it may be refused.
 */
export function questionForm(asked, inner, decide) {
  const id = `question-${(count += 1)}`;
  const problem = element("p", { class: "problem", role: "alert", id: `${id}-problem` });
  const form = element("form", { class: "question", "aria-labelledby": id, submit });
  let isBusy = false;

  async function send(decision) {
    if (isBusy) return;
    setBusy(true);
    problem.textContent = "";
    try {
      await decide(decision);
    } catch (refusal) {
      problem.textContent = refusal.message;
      setBusy(false);
    }
  }

  // Not `disabled`, which would take the focus away.
  function setBusy(value) {
    isBusy = value;
    for (const each of form.querySelectorAll("button")) each.ariaDisabled = String(value);
  }

  function submit(event) {
    event.preventDefault();
    if (!editing.panel.hidden) sendEdited();
    else if (!denying.panel.hidden) send({ verdict: "deny", reason: reason.value.trim() || null });
  }

  function sendEdited() {
    let edited;
    try {
      edited = parse(json.value);
    } catch (error) {
      return complain(`This is no JSON: ${error.message}`);
    }
    if (edited === null || typeof edited !== "object" || Array.isArray(edited)) {
      return complain("Arguments are a JSON object: {…}");
    }
    json.removeAttribute("aria-invalid");
    return send({ verdict: "approve", arguments: edited });
  }

  function complain(words) {
    json.ariaInvalid = "true";
    json.focus();
    problem.textContent = words;
    problem.scrollIntoView({ block: "nearest" });
  }

  /** A button that shows a panel, or hides it again; one panel at a time. */
  function opener(words, panel, field) {
    const button = element(
      "button",
      { type: "button", "aria-expanded": "false", "aria-controls": panel.id, click: toggle },
      words,
    );
    const made = { button, panel };
    function toggle() {
      const opens = panel.hidden;
      for (const each of [editing, denying]) {
        each.panel.hidden = !(opens && each === made);
        each.button.ariaExpanded = String(!each.panel.hidden);
      }
      problem.textContent = "";
      if (!opens) return;
      field.focus();
      panel.scrollIntoView({ block: "nearest" });
    }
    form.addEventListener("keydown", (event) => {
      if (event.key !== "Escape" || panel.hidden) return;
      event.stopPropagation();
      toggle();
      button.focus();
    });
    return made;
  }

  const json = element("textarea", {
    id: `${id}-json`,
    rows: "4",
    spellcheck: "false",
    "aria-describedby": problem.id,
  });
  json.value = JSON.stringify(asked.arguments, null, 2);
  const reason = element("input", { id: `${id}-reason`, autocomplete: "off" });
  const editing = opener(
    "Edit",
    panelOf(`${id}-edit`, "Arguments, as JSON", json, "Approve as edited"),
    json,
  );
  const denying = opener(
    "Deny",
    panelOf(`${id}-deny`, "Why not? The model is told; it may stay empty", reason, "Deny it"),
    reason,
  );
  const approve = element(
    "button",
    { type: "button", class: "main", click: () => send({ verdict: "approve" }) },
    "Approve",
  );
  form.append(
    element("p", { id, class: "asked" }, seen(asked.confirmation_message)),
    ...inner,
    asked.expires_at ? element("p", { class: "aside" }, `Open until ${until(asked.expires_at)}`) : "",
    element("div", { class: "buttons" }, approve, editing.button, denying.button),
    editing.panel,
    denying.panel,
    problem,
  );
  return form;
}

function panelOf(id, words, field, doIt) {
  return element(
    "div",
    { id, class: "panel", hidden: true },
    element("label", { for: field.id }, words),
    field,
    element("button", { type: "submit", class: "main" }, doIt),
  );
}

function until(time) {
  return new Date(time).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "short" });
}
