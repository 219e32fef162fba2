// Draws the charts of the report with the colours of the current theme, and again when the theme changes.
(function () {
  "use strict";
  const charts = JSON.parse(document.getElementById("chart-data").textContent);
  const narrow = window.matchMedia("(max-width: 640px)");
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const config = { displayModeBar: false, scrollZoom: false, doubleClick: false };

  function colour(name) {
    return getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();
  }

  // Replaces {"$colour": name} by the colour of that name, everywhere in a value.
  function resolved(value) {
    if (Array.isArray(value)) return value.map(resolved);
    if (value === null || typeof value !== "object") return value;
    if ("$colour" in value) return colour(value.$colour);
    return Object.fromEntries(Object.entries(value).map(([key, part]) => [key, resolved(part)]));
  }

  function axis(given) {
    const base = {
      automargin: true, fixedrange: true, gridcolor: colour("grid"), linecolor: colour("grid"),
      zerolinecolor: colour("grid"), tickfont: { size: narrow.matches ? 11 : 13 },
    };
    const title = Object.assign({ standoff: 10, font: { size: narrow.matches ? 12 : 13 } }, given.title);
    const log = given.type === "log" ? { dtick: 1, minor: { showgrid: true, gridcolor: colour("grid-faint") } } : {};
    return Object.assign(base, log, given, { title });
  }

  function layout(given) {
    const base = {
      autosize: true, dragmode: false, hovermode: "closest", bargap: 0.35,
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
      font: { family: colour("font"), size: 13, color: colour("ink") },
      margin: { l: 12, r: 16, t: 12, b: 12 },
      hoverlabel: { bgcolor: colour("card"), bordercolor: colour("grid"), font: { color: colour("ink") } },
      legend: { orientation: "h", x: 0, y: -0.22, yanchor: "top", itemclick: "toggle" },
    };
    const drawn = Object.assign(base, resolved(given));
    for (const name of ["xaxis", "yaxis", "yaxis2"]) if (drawn[name]) drawn[name] = axis(drawn[name]);
    if (drawn.yaxis2) drawn.yaxis2.anchor = "x";
    return drawn;
  }

  function draw() {
    for (const chart of charts) {
      Plotly.react("chart-" + chart.id, resolved(chart.traces), layout(chart.layout), config);
    }
    document.documentElement.dataset.drawn = String(charts.length);
  }

  // Follows the width of the page, of the print and of the column alike.
  const widths = new ResizeObserver((entries) => {
    for (const entry of entries) if (entry.contentRect.width > 0) Plotly.Plots.resize(entry.target);
  });

  draw();
  for (const chart of charts) widths.observe(document.getElementById("chart-" + chart.id));
  dark.addEventListener("change", draw);
  narrow.addEventListener("change", draw);
})();
