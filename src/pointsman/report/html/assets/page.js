"use strict";
// Warnings that stand behind their number are open on paper.
{
  const opened = new Set();
  addEventListener("beforeprint", () => {
    for (const folded of document.querySelectorAll("details.warnings:not([open])")) {
      folded.open = true;
      opened.add(folded);
    }
  });
  addEventListener("afterprint", () => {
    for (const folded of opened) folded.open = false;
    opened.clear();
  });
}

// Values of a chart, for whoever points at it or walks through it with the arrow keys.
{
  const tip = document.getElementById("tip");

  function values(figure) {
    return JSON.parse(figure.querySelector("script").textContent);
  }

  function ring(svg) {
    let spot = svg.querySelector(".spot");
    if (!spot) {
      spot = document.createElementNS("http://www.w3.org/2000/svg", "circle");
      spot.setAttribute("class", "spot");
      spot.setAttribute("r", "6");
      svg.append(spot);
    }
    return spot;
  }

  function show(svg, facts, series, index) {
    const [x, y, xText, yText, more] = facts.series[series][2][index];
    const named = (axis, text) => (axis ? `${axis}: ${text}` : text);
    const lines = [facts.series[series][0], named(facts.axes[0], xText), named(facts.axes[1], yText)];
    if (!facts.axes[0]) lines.splice(1, 2, yText, named(facts.axes[1], xText));
    tip.textContent = [...lines, more].filter(Boolean).join("\n");
    const spot = ring(svg);
    spot.setAttribute("cx", x);
    spot.setAttribute("cy", y);
    const box = svg.getBoundingClientRect();
    const scale = box.width / svg.viewBox.baseVal.width;
    tip.hidden = false;
    const left = box.left + x * scale + 12;
    const top = box.top + y * scale + 12;
    tip.style.left = `${Math.max(4, Math.min(left, innerWidth - tip.offsetWidth - 8))}px`;
    tip.style.top = `${Math.max(4, Math.min(top, innerHeight - tip.offsetHeight - 8))}px`;
  }

  function hide(svg) {
    tip.hidden = true;
    svg.querySelector(".spot")?.remove();
  }

  function nearest(svg, facts, event) {
    const box = svg.getBoundingClientRect();
    const scale = box.width / svg.viewBox.baseVal.width;
    const x = (event.clientX - box.left) / scale;
    const y = (event.clientY - box.top) / scale;
    let best = null;
    facts.series.forEach(([, , spots], series) => spots.forEach((spot, index) => {
      const far = (spot[0] - x) ** 2 + (spot[1] - y) ** 2;
      if (!best || far < best.far) best = { far, series, index };
    }));
    return best;
  }

  function step(key, facts, at) {
    const shown = facts.series.map((_, k) => k).filter((k) => facts.series[k][2].length);
    const place = shown.indexOf(at.series);
    const turns = { ArrowUp: -1, ArrowDown: 1 };
    const moves = { ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity };
    let { series, index } = at;
    if (key in turns) series = shown[(place + turns[key] + shown.length) % shown.length];
    else if (key in moves) index += moves[key];
    else return null;
    return { series, index: Math.max(0, Math.min(index, facts.series[series][2].length - 1)) };
  }

  for (const figure of document.querySelectorAll(".chart")) {
    const svg = figure.querySelector("svg");
    let facts = null;
    let at = null;
    const known = () => (facts ??= values(figure));
    svg.addEventListener("pointermove", (event) => {
      const found = nearest(svg, known(), event);
      if (!found) return;
      at = found;
      show(svg, facts, at.series, at.index);
    });
    svg.addEventListener("pointerleave", () => hide(svg));
    svg.addEventListener("blur", () => hide(svg));
    svg.addEventListener("keydown", (event) => {
      if (event.key === "Escape") return hide(svg);
      const first = known().series.findIndex(([, , spots]) => spots.length);
      if (first < 0) return;
      const begin = { series: first, index: 0 };
      const isFirst = !at && event.key.startsWith("Arrow"); // nothing is shown that one could leave
      const next = isFirst ? begin : step(event.key, facts, at ?? begin);
      if (!next) return;
      event.preventDefault();
      at = next;
      show(svg, facts, at.series, at.index);
    });
  }
}
