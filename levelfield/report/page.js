"use strict";
// Sorts tables by a heading and filters long ones; without this file every row is there, in the page's own order.
const LONG = 12;  // rows from which on a table has a box to filter them
const UNITS = {k: 1e3, M: 1e6, G: 1e9, T: 1e12, P: 1e15, E: 1e18, s: 1, min: 60, h: 3600};
const NUMBER = /(?<![\w.])([−+-]?\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?)(?:\s(k|M|G|T|P|E|s|min|h)(?![\w]))?/g;

function text(cell) {
  return cell.innerHTML.replaceAll("<br>", "\n").replaceAll(/<[^>]*>/g, "").trim();
}

/** The numbers of a cell in base units: [0.5, 1.5] of "0.5 to 1.5", [1.2e6] of "1.20 M", [] of a dash. */
function numbers(cell) {
  const lines = text(cell).split("\n");
  if (lines.length > 1 && lines.every((line) => /^\d+ [a-z]/.test(line)))  // "2 at chance" and "1 diverged" are 3
    return [lines.reduce((sum, line) => sum + parseInt(line, 10), 0)];
  const one = ([, digits, unit]) => Number(digits.replaceAll(",", "").replace("−", "-")) * (UNITS[unit] ?? 1);
  return [...text(cell).matchAll(NUMBER)].map(one);
}

function words(cell) {
  return ["", "–"].includes(text(cell)) ? [] : [text(cell)];
}

/** Compares two keys part by part; a key without any part stands last, whatever the direction. */
function compare(a, b, down) {
  if (!a.length || !b.length) return !a.length - !b.length;
  const sign = down ? -1 : 1;
  for (let i = 0; i < Math.max(a.length, b.length); i++) {
    if (i >= a.length || i >= b.length) return (a.length - b.length) * sign;
    const found = typeof a[i] === "number" ? a[i] - b[i] : a[i].localeCompare(b[i], "en", {numeric: true});
    if (found) return found * sign;
  }
  return 0;
}

/** Sorts by a heading: numbers from the greatest, words from the first; then the reverse; then as the page had it. */
function sort(table, head, own) {
  const place = [...head.parentElement.children].indexOf(head);
  const number = head.classList.contains("number");
  const orders = number ? ["descending", "ascending"] : ["ascending", "descending"];
  const next = orders[orders.indexOf(head.getAttribute("aria-sort")) + 1];
  for (const other of table.querySelectorAll("th[aria-sort]")) other.removeAttribute("aria-sort");
  if (!next) return table.tBodies[0].append(...own);
  head.setAttribute("aria-sort", next);
  const keys = new Map(own.map((row) => [row, (number ? numbers : words)(row.children[place])]));
  table.tBodies[0].append(...[...own].sort((a, b) => compare(keys.get(a), keys.get(b), next === "descending")));
}

function addFilter(table, rows) {
  const box = document.createElement("p");
  box.className = "filter";
  box.innerHTML = '<label>Rows with <input type="search" placeholder="any words"></label> <output></output>';
  const [input, output] = [box.querySelector("input"), box.querySelector("output")];
  const texts = rows.map((row) => row.textContent.toLowerCase());
  input.addEventListener("input", () => {
    const wanted = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    rows.forEach((row, index) => { row.hidden = !wanted.every((word) => texts[index].includes(word)); });
    output.textContent = wanted.length ? `${rows.filter((row) => !row.hidden).length} of ${rows.length} rows` : "";
  });
  (table.closest(".scroll") ?? table).before(box);
}

/** Opens the list that a link leads into, where the browser does not do it by itself. */
function reveal() {
  const target = document.getElementById(location.hash.slice(1));
  const around = target?.closest("details");
  if (!around || around.open) return;
  around.open = true;
  target.scrollIntoView();
}

for (const table of document.querySelectorAll("table")) {
  const rows = [...table.tBodies[0].rows];
  const whole = rows.every((row) => row.children[0].textContent.trim());  // else rows continue the one above
  if (rows.length < 2 || !whole) continue;
  for (const head of table.querySelectorAll("thead th")) {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => sort(table, head, rows));
  }
  if (rows.length >= LONG) addFilter(table, rows);
}
addEventListener("hashchange", reveal);
reveal();
