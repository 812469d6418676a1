"use strict";
// Filters and sorts what the page already shows; without this file everything is there.
const form = document.getElementById("filters");
const every = (within, what) => [...within.querySelectorAll(what)];

function fits(element, wanted) {
  const one = ([name, value]) => !value || !(name in element.dataset) || element.dataset[name] === value;
  return Object.entries(wanted).every(one);
}

function filter() {
  const wanted = Object.fromEntries(new FormData(form));
  let cells = 0;
  for (const board of every(document, "section.board")) {
    let lines = 0;
    for (const cell of every(board, "[data-task]")) cell.hidden = !fits(cell, wanted);
    for (const line of every(board, "tbody tr")) {
      const full = every(line, "td[data-task]").filter((cell) => !cell.hidden && cell.firstChild).length;
      line.hidden = !full || !fits(line, wanted);
      if (line.className === "arm" && !line.hidden && fits(board, wanted)) {
        lines += 1;
        cells += full;
      }
    }
    board.hidden = !lines;
    for (const head of every(board, "th[data-task]")) {
      const column = every(board, "tr.arm:not([hidden]) td[data-task]");
      head.hidden = !column.some((cell) => cell.dataset.task === head.dataset.task && !cell.hidden && cell.firstChild);
      for (const cell of every(board, "td[data-task]"))
        if (cell.dataset.task === head.dataset.task) cell.hidden = head.hidden;
    }
  }
  for (const rows of every(document, "details.rows")) rows.hidden = !fits(rows, wanted);
  for (const rules of every(document, "details.rules")) rules.hidden = !fits(rules, wanted);
  form.querySelector("output").textContent = cells + (cells === 1 ? " cell" : " cells");
}

function sort(head) {
  const table = head.closest("table");
  const place = [...head.parentElement.children].indexOf(head);
  const before = head.getAttribute("aria-sort");
  const down = head.dataset.task ? before !== "descending" : before === "ascending";  // scores: the highest first
  for (const other of every(table, "th[aria-sort]")) other.removeAttribute("aria-sort");
  head.setAttribute("aria-sort", down ? "descending" : "ascending");
  const key = (line) => {
    const cell = line.children[place];
    if (!head.dataset.task) return cell.textContent;
    return cell.dataset.value ? Number(cell.dataset.value) : null;
  };
  const order = (one, other) => {
    const [a, b] = [key(one), key(other)];
    if (a === null || b === null) return (a === null) - (b === null);  // what has no score stands last
    return (a < b ? -1 : a > b ? 1 : 0) * (down ? -1 : 1);
  };
  table.tBodies[0].append(...every(table, "tbody tr").sort(order));
}

function reveal() {
  const target = document.getElementById(location.hash.slice(1));
  const around = target && target.closest("details");
  if (!around) return;
  around.hidden = false;
  around.open = true;
  target.scrollIntoView();
}

for (const head of every(document, "table.sortable thead th"))
  head.querySelector("button").addEventListener("click", () => sort(head));
form.addEventListener("change", filter);
form.addEventListener("reset", () => setTimeout(filter));
addEventListener("hashchange", reveal);
form.hidden = false;
filter();
reveal();
