// The map by keyboard: each service is one stop of the Tab key, the arrow keys go from cell to cell. Without this every
// cell is a stop of its own.

const STEPS = { ArrowRight: 1, ArrowLeft: -1 };

function prepare(within) {
  for (const map of within.querySelectorAll(".map")) {
    for (const [number, cell] of [...map.children].entries()) cell.tabIndex = number ? -1 : 0;
  }
}

// The cell above or below: the nearest of those that lie in the next line.
function neighbour(cells, from, down) {
  const here = from.getBoundingClientRect();
  let best = null;
  for (const cell of cells) {
    const there = cell.getBoundingClientRect();
    const away = down ? there.top - here.top : here.top - there.top;
    if (away < here.height / 2) continue;
    const far = away * 1000 + Math.abs(there.left - here.left);
    if (!best || far < best.far) best = { cell, far };
  }
  return best?.cell;
}

document.addEventListener("keydown", (event) => {
  const from = event.target.closest?.(".map > a");
  if (!from || event.altKey || event.ctrlKey || event.metaKey) return;
  const cells = [...from.parentElement.children];
  let to = null;
  if (event.key in STEPS) to = cells[cells.indexOf(from) + STEPS[event.key]];
  else if (event.key === "Home") to = cells[0];
  else if (event.key === "End") to = cells[cells.length - 1];
  else if (event.key === "ArrowDown" || event.key === "ArrowUp") to = neighbour(cells, from, event.key === "ArrowDown");
  else return;
  event.preventDefault();
  if (!to) return;
  from.tabIndex = -1;
  to.tabIndex = 0;
  to.focus();
});

document.body.addEventListener("htmx:load", (event) => prepare(event.detail.elt));
prepare(document);
