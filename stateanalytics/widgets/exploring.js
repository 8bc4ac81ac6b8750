// Charts over one table that filter each other. Python counts; this draws and says what was
// chosen, by places only. Every text is set as text: none becomes markup.
const SVG = "http://www.w3.org/2000/svg";
const HEIGHT = 64, WIDTH = 260;

function made(tag, attributes = {}, text = null, space = null) {
  const node = space ? document.createElementNS(space, tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  if (text !== null) node.textContent = text;
  return node;
}

function scale(dimension, counts, chosen, choose) {
  const n = counts.length, step = WIDTH / n, most = Math.max(1, ...counts);
  const drawing = made("svg", {
    viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img", class: "sa-scale",
    "aria-label": `${dimension.title}: ${counts.reduce((a, b) => a + b, 0)} rows`,
  }, null, SVG);
  const bars = counts.map((count, place) => {
    const height = count ? Math.max(1, (HEIGHT - 2) * count / most) : 0;
    const bar = made("rect", {
      x: place * step, width: Math.max(1, step - 1), y: HEIGHT - height, height,
    }, null, SVG);
    bar.append(made("title", {}, `${dimension.labels[place]}: ${count.toLocaleString("en")}`, SVG));
    return bar;
  });
  const shade = (places) => bars.forEach((bar, place) =>
    bar.classList.toggle("sa-off", places.length > 0 &&
      (place < Math.min(...places) || place > Math.max(...places))));
  shade(chosen);
  drawing.append(...bars);
  let from = null, to = null;
  const at = (event) => {
    const box = drawing.getBoundingClientRect();
    return Math.min(n - 1, Math.max(0, Math.floor(n * (event.clientX - box.left) / box.width)));
  };
  drawing.addEventListener("pointerdown", (event) => {
    drawing.setPointerCapture(event.pointerId);
    from = to = at(event);
    event.preventDefault();
  });
  drawing.addEventListener("pointermove", (event) => {
    if (from !== null) { to = at(event); shade([from, to]); }
  });
  drawing.addEventListener("pointerup", () => {
    if (from === null) return;
    const places = [Math.min(from, to), Math.max(from, to)];
    // What is chosen already is let go.
    choose(String(places) === String(chosen) ? [] : places);
    from = null;
  });
  const ends = made("div", { class: "sa-ends" });
  ends.append(made("span", {}, dimension.low), made("span", {}, dimension.high));
  return [drawing, ends];
}

function words(dimension, counts, chosen, choose) {
  const most = Math.max(1, ...counts);
  return counts.map((count, place) => {
    const is_on = chosen.length === 0 || chosen.includes(place);
    const row = made("button", {
      type: "button", class: is_on ? "sa-word" : "sa-word sa-off",
      "aria-pressed": String(chosen.includes(place)), title: dimension.labels[place],
    });
    const bar = made("span", { class: "sa-bar" });
    bar.style.width = `${100 * count / most}%`;
    row.append(bar, made("span", { class: "sa-name" }, dimension.labels[place]),
      made("span", { class: "sa-n" }, count.toLocaleString("en")));
    row.addEventListener("click", () => choose(chosen.includes(place)
      ? chosen.filter((other) => other !== place) : [...chosen, place].sort((a, b) => a - b)));
    return row;
  });
}

function table(rows) {
  const shown = made("table");
  const head = made("tr");
  head.append(...rows.columns.map((name) => made("th", { scope: "col" }, name)));
  shown.append(head, ...rows.values.map((row) => {
    const line = made("tr");
    line.append(...row.map((value) => made("td", {}, value)));
    return line;
  }));
  return shown;
}

function render({ model, el }) {
  const root = made("div", { class: "sa-explore" });
  el.append(root);
  const draw = () => {
    const answer = model.get("answer"), chosen = model.get("chosen");
    const choose = (name) => (places) => {
      const next = { ...chosen };
      delete next[name];
      if (places.length) next[name] = places;
      model.set("chosen", next);
      model.save_changes();
    };
    const head = made("p", {}, `${answer.n.toLocaleString("en")} of ` +
      `${answer.n_of.toLocaleString("en")} rows`);
    const clear = made("button", { type: "button" }, "all");
    clear.addEventListener("click", () => { model.set("chosen", {}); model.save_changes(); });
    head.append(" ", clear);
    const panels = made("div", { class: "sa-panels" });
    for (const dimension of model.get("dimensions")) {
      const panel = made("section");
      const counts = answer.counts[dimension.name], places = chosen[dimension.name] || [];
      panel.append(made("h4", {}, dimension.title), ...(dimension.is_scale ? scale : words)(
        dimension, counts, places, choose(dimension.name)));
      panels.append(panel);
    }
    const query = made("pre", { class: "sa-sql", tabindex: "0" }, answer.sql);
    const copy = made("button", { type: "button" }, "copy SQL");
    copy.addEventListener("click", () => navigator.clipboard.writeText(answer.sql));
    const rows = made("div", { class: "sa-rows" });
    rows.append(table(answer.rows));
    root.replaceChildren(head, panels, query, copy, rows);
  };
  model.on("change:answer", draw);
  draw();
  return () => model.off("change:answer", draw);
}

export default { render };
