/* A click on a header sorts a table by that column: numbers by their first number, others as text. */
document.addEventListener("click", (event) => {
  const header = event.target.closest(".md-typeset table th");
  if (!header) return;
  const body = header.closest("table").tBodies[0];
  const column = header.cellIndex;
  const ascending = header.getAttribute("aria-sort") === "descending";
  for (const other of header.parentNode.cells) other.removeAttribute("aria-sort");
  header.setAttribute("aria-sort", ascending ? "ascending" : "descending");
  const value = (row) => row.cells[column].textContent.trim();
  const order = (a, b) => {
    const [x, y] = [parseFloat(value(a)), parseFloat(value(b))];
    if (isNaN(x) || isNaN(y)) return isNaN(x) - isNaN(y) || value(a).localeCompare(value(b));
    return ascending ? x - y : y - x;
  };
  body.append(...[...body.rows].sort(order));
});
