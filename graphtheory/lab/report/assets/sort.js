"use strict";
// A click on a heading sorts by that column, another one the other way around; a third restores.
// Numbers by their value ("82.99 ± 0.71" by 82.99, "3 of 10" by 3); what is none comes last.
(function () {
  const NUMBER = /^[+\-\u2212]?(\d[\d,]*\.?\d*|\.\d+)(e[+\-]?\d+)?/i;

  function valueOf(text) {
    const found = NUMBER.exec(text.trim());
    return found ? Number(found[0].replace(/,/g, "").replace("\u2212", "-")) : NaN;
  }

  function sort(table, column, order) {
    const body = table.tBodies[0], words = table.tHead.rows[0].cells[column].className === "word";
    const key = (row) => row.cells[column].textContent, sign = order === "ascending" ? 1 : -1;
    const rows = [...body.rows].sort((a, b) => {
      if (order === "none") return a.dataset.at - b.dataset.at;
      const one = words ? NaN : valueOf(key(a)), other = words ? NaN : valueOf(key(b));
      if (isNaN(one) !== isNaN(other)) return isNaN(one) - isNaN(other);
      return sign * (one - other || key(a).localeCompare(key(b), "en", { numeric: true }));
    });
    body.append(...rows);
  }

  for (const table of document.querySelectorAll("table")) {
    if (!table.tHead || table.tBodies[0].rows.length < 2) continue;
    [...table.tBodies[0].rows].forEach((row, at) => { row.dataset.at = at; });
    const heads = [...table.tHead.rows[0].cells];
    heads.forEach((head, column) => {
      // The first order is the one that puts the interesting end on top.
      const first = head.className === "word" ? "ascending" : "descending";
      const next = { none: first, [first]: first === "ascending" ? "descending" : "ascending" };
      const button = document.createElement("button");
      button.type = "button";
      button.append(...head.childNodes);
      head.append(button);
      head.setAttribute("aria-sort", "none");
      button.addEventListener("click", () => {
        const order = next[head.getAttribute("aria-sort")] || "none";
        heads.forEach((other) => other.setAttribute("aria-sort", other === head ? order : "none"));
        sort(table, column, order);
      });
    });
  }
})();
