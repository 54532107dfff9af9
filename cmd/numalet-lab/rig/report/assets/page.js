"use strict";
(function () {
  const report = JSON.parse(document.getElementById("report").textContent);
  const policies = report.policies;
  const dark = window.matchMedia("(prefers-color-scheme: dark)");

  // One colour means one thing. These are the policies', which people with any colour vision tell
  // apart. Every other line is dashed, and later ones are wider and below, so that those that
  // coincide in part are all seen.
  const palettes = {
    light: ["#0072b2", "#d55e00", "#00805c", "#a8488a", "#8a6d00", "#5b5b5b", "#6a3fc8", "#b3261e"],
    dark: ["#56b4e9", "#f08a3c", "#2fc79a", "#e08fc4", "#e3c53f", "#b0b0b0", "#b79cff", "#ff8a80"],
  };
  // What becomes of pods has colours of its own: shades of one for what they got, from one node to
  // many, and earthen ones for why they got nothing.
  const outcomes = {
    light: {
      admitted: "#8fae9b", got: ["#14344f", "#3f6b8c", "#7d9fb8", "#b3c8d6", "#dce6ec"], waits: "#d8d0e0",
      refused: ["#6b3416", "#b98a55", "#7d7a34", "#d8b98f", "#463c33", "#b9b878"],
    },
    dark: {
      admitted: "#5f7f6c", got: ["#e4eef5", "#b1c9da", "#7fa1ba", "#50748f", "#2f4a60"], waits: "#6d6478",
      refused: ["#c98a63", "#8a5a2b", "#c5c27c", "#e3cba8", "#a59a8d", "#6f6d31"],
    },
  };
  const outcome = () => outcomes[dark.matches ? "dark" : "light"];
  const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const colour = (i) => {
    const palette = palettes[dark.matches ? "dark" : "light"];
    return palette[i % palette.length];
  };
  const dash = (i) => (i < 8 ? [[], [7, 4]] : [[2, 3], [9, 3, 2, 3]])[i % 2];
  const width = (i) => 1.4 + 0.35 * (i % 8);
  // Legends of lines show the line as it is drawn, not wider than its neighbours.
  const lineLegend = {
    position: "bottom",
    labels: { usePointStyle: true, pointStyle: "line", pointStyleWidth: 34 },
  };
  const percent = (share) => (Math.round(share * 1000) / 10) + "%";

  const charts = [];
  let figures = 0;

  // figure adds a chart; config makes it, with the chosen option if there are any.
  function figure(title, about, config, options, height) {
    const id = "figure-" + (++figures);
    const box = document.createElement("figure");
    box.setAttribute("aria-labelledby", id);
    const head = document.createElement("h2");
    head.id = id;
    head.textContent = title;
    const text = document.createElement("p");
    text.textContent = about;
    box.append(head, text);
    let select = null;
    if (options && options.length > 1) {
      select = document.createElement("select");
      for (const option of options) select.add(new Option(option, option));
      const label = document.createElement("label");
      label.append("Show ", select);
      box.append(label);
    }
    const holder = document.createElement("div");
    holder.className = "canvas";
    holder.style.height = (height || 300) + "px";
    const canvas = document.createElement("canvas");
    canvas.setAttribute("role", "img");
    canvas.setAttribute("aria-label", title + ". " + about);
    holder.append(canvas);
    box.append(holder);
    document.getElementById("charts").append(box);
    let chart = null;
    const draw = () => {
      if (chart) chart.destroy();
      chart = new Chart(canvas, config(select ? select.value : (options || [])[0]));
    };
    if (select) select.addEventListener("change", draw);
    charts.push(draw);
  }

  const axis = (text, more) => Object.assign({
    title: { display: true, text: text },
    grid: { color: css("--line") },
    beginAtZero: true,
  }, more);

  const shares = { ticks: { callback: (value) => percent(value) } };

  // bars has one bar for each policy, of one or several parts.
  function bars(unit, datasets, scale, label) {
    return {
      type: "bar",
      data: { labels: policies.map((p) => p.policy), datasets: datasets },
      options: {
        indexAxis: "y", maintainAspectRatio: false, animation: false,
        scales: {
          x: axis(unit, Object.assign({ stacked: true }, scale)),
          y: { stacked: true, grid: { display: false } },
        },
        plugins: {
          legend: { display: datasets.length > 1, position: "bottom" },
          tooltip: { callbacks: label ? { label: label } : {} },
        },
      },
    };
  }

  const barHeight = Math.max(200, 120 + 34 * policies.length);

  // Time: seconds in the unit that suits the whole run.
  const length = report.workload.spanSeconds;
  const unit = length > 200 * 3600 ? { name: "days", seconds: 86400 }
    : length > 200 * 60 ? { name: "hours", seconds: 3600 }
      : length > 200 ? { name: "minutes", seconds: 60 } : { name: "seconds", seconds: 1 };

  // lines has one line over virtual time for each policy; policies that do the same all the time share
  // the first one's, which names them all.
  function lines(name, label, scale) {
    const datasets = [];
    policies.forEach((policy, i) => {
      const line = policy.series.lines.find((l) => l.name === name);
      if (!line) return;
      const step = policy.series.stepSeconds / unit.seconds;
      const key = step + ":" + line.values.join();
      const same = datasets.find((d) => d.key === key);
      if (same) {
        same.label += " = " + policy.policy;
        return;
      }
      datasets.push({
        key: key,
        label: policy.policy,
        data: line.values.map((value, at) => ({ x: (at + 0.5) * step, y: value })),
        borderColor: colour(i), backgroundColor: colour(i), borderDash: dash(i),
        borderWidth: width(i), pointRadius: 0, pointHitRadius: 8,
      });
    });
    return {
      type: "line",
      data: { datasets: datasets },
      options: {
        maintainAspectRatio: false, animation: false,
        interaction: { mode: "nearest", axis: "x", intersect: false },
        scales: {
          x: axis("virtual time, " + unit.name, { type: "linear", max: length / unit.seconds || undefined,
            ticks: { maxTicksLimit: 9, includeBounds: false } }),
          y: axis(label, scale),
        },
        plugins: { legend: lineLegend },
      },
    };
  }

  // named lists what follows a word in the names of the lines: "used cpu" has cpu.
  function named(word) {
    const found = [];
    for (const policy of policies) {
      for (const line of policy.series.lines) {
        if (line.name.startsWith(word + " ")) {
          const rest = line.name.slice(word.length + 1);
          if (!found.includes(rest)) found.push(rest);
        }
      }
    }
    return found;
  }

  function admitted() {
    const kinds = [];
    for (const p of policies) {
      for (const r of p.reasons) {
        const name = r.reason + (r.of && !r.reason.endsWith(r.of) ? " (" + r.of + ")" : "");
        if (!kinds.includes(name)) kinds.push(name);
      }
    }
    const rejected = (p, name) => p.reasons
      .filter((r) => r.reason + (r.of && !r.reason.endsWith(r.of) ? " (" + r.of + ")" : "") === name)
      .reduce((sum, r) => sum + r.count, 0);
    const parts = [{
      label: "admitted", data: policies.map((p) => p.pods.admitted), backgroundColor: outcome().admitted,
    }];
    kinds.forEach((name, i) => parts.push({
      label: name, data: policies.map((p) => rejected(p, name)),
      backgroundColor: outcome().refused[i % outcome().refused.length],
    }));
    if (policies.some((p) => p.pods.waiting > 0)) {
      parts.push({
        label: "still waiting", data: policies.map((p) => p.pods.waiting), backgroundColor: outcome().waits,
      });
    }
    return bars("pods", parts, { max: report.workload.pods });
  }

  function spread() {
    const most = Math.max(1, ...policies.map((p) => (p.placement.spread || []).length));
    const groups = most > 5 ? 5 : most;
    const counts = (p, g) => (p.placement.spread || [])
      .reduce((sum, n, at) => sum + (Math.min(at, groups - 1) === g ? n : 0), 0);
    const parts = [];
    for (let g = 0; g < groups; g++) {
      const many = g === groups - 1 && most > groups;
      parts.push({
        label: g === 0 ? "one node" : (g + 1) + (many ? " or more nodes" : " nodes"),
        data: policies.map((p) => p.placement.placed ? counts(p, g) / p.placement.placed : 0),
        counts: policies.map((p) => counts(p, g)),
        backgroundColor: outcome().got[g],
      });
    }
    return bars("share of admitted pods that got something of a node", parts,
      Object.assign({ max: 1 }, shares), (item) => " " + item.dataset.label + ": " +
        item.dataset.counts[item.dataIndex] + " pods, " + percent(item.raw));
  }

  function distance() {
    const config = bars("mean distance (10 is local)", [{
      label: "mean distance", data: policies.map((p) => p.placement.meanDistance),
      backgroundColor: policies.map((_, i) => colour(i)),
    }], {}, (item) => " " + item.raw + " on average, " +
      policies[item.dataIndex].placement.mostDistance + " at most");
    return config;
  }

  // none says 0 % where a bar has no height, in the colour of its policy.
  const none = {
    id: "none",
    afterDatasetsDraw(chart) {
      const draw = chart.ctx;
      draw.save();
      draw.font = "bold 11px " + Chart.defaults.font.family;
      draw.textAlign = "left";
      draw.textBaseline = "middle";
      chart.data.datasets.forEach((set, i) => {
        if (!chart.isDatasetVisible(i)) return;
        chart.getDatasetMeta(i).data.forEach((bar, at) => {
          if (set.data[at] !== 0) return;
          draw.save();
          draw.translate(bar.x, bar.y - 4);
          draw.rotate(-Math.PI / 2);
          draw.fillStyle = set.backgroundColor;
          draw.fillText("0 %", 0, 0);
          draw.restore();
        });
      });
      draw.restore();
    },
  };

  function kinds() {
    const places = policies[0].shapes.map((s, i) => i).filter((i) => policies[0].shapes[i].arrived > 0)
      .sort((a, b) => policies[0].shapes[b].arrived - policies[0].shapes[a].arrived).slice(0, 12)
      .sort((a, b) => a - b);
    return {
      type: "bar",
      data: {
        labels: places.map((i) => policies[0].shapes[i].name),
        datasets: policies.map((p, i) => ({
          label: p.policy, backgroundColor: colour(i),
          data: places.map((at) => p.shapes[at].admittedShare),
        })),
      },
      plugins: [none],
      options: {
        maintainAspectRatio: false, animation: false,
        scales: {
          x: { grid: { display: false } },
          y: axis("share admitted", Object.assign({ max: 1 }, shares)),
        },
        plugins: {
          legend: { position: "bottom" },
          tooltip: { callbacks: { label: (item) => " " + item.dataset.label + ": " + percent(item.raw) } },
        },
      },
    };
  }

  function times() {
    const timed = policies.filter((p) => p.timing && p.timing.decisions);
    const most = Math.max(...timed.map((p) => p.timing.histogram.length));
    const first = Math.min(...timed.map((p) => p.timing.histogram.findIndex((n) => n > 0)));
    const name = (us) => us >= 1e6 ? us / 1e6 + " s" : us >= 1000 ? Math.round(us / 1000) + " ms" : us + " µs";
    const labels = [];
    for (let at = first; at < most; at++) labels.push("< " + name(Math.pow(2, at)));
    return {
      type: "line",
      data: {
        labels: labels,
        datasets: timed.map((p) => {
          const i = policies.indexOf(p);
          return {
            label: p.policy + " (mean " + Math.round(p.timing.meanMicros) + " µs)",
            data: labels.map((_, at) => (p.timing.histogram[at + first] || 0) / p.timing.decisions),
            borderColor: colour(i), backgroundColor: colour(i), borderDash: dash(i),
            borderWidth: width(i), pointRadius: 2.5, tension: 0.3, cubicInterpolationMode: "monotone",
          };
        }),
      },
      options: {
        maintainAspectRatio: false, animation: false,
        interaction: { mode: "index", intersect: false },
        scales: {
          x: axis("time to decide on a pod, each step up to", { ticks: { maxRotation: 60, autoSkip: true } }),
          y: axis("share of decisions", shares),
        },
        plugins: {
          legend: lineLegend,
          tooltip: { callbacks: { label: (item) => " " + item.dataset.label + ": " + percent(item.raw) } },
        },
      },
    };
  }

  figure("Admitted and rejected", "Pods that were let in, and why the others were not.",
    admitted, null, barHeight + 20);
  figure("How many NUMA nodes a pod is spread over",
    "One node is aligned: everything the pod got is local to each other.", spread, null, barHeight + 20);
  figure("Distance between the nodes of a pod",
    "What the firmware says of the cost of memory access between nodes, averaged over pods.",
    distance, null, barHeight);
  figure("Admitted, by kind of pod",
    "Which kinds of pods a policy favours, and which it turns away: 0 % is where it admitted none.",
    kinds, null, barHeight);
  figure("Used", "The share that running pods request, over virtual time.",
    (of) => lines("used " + of, "share of " + of + " requested", Object.assign({ max: 1 }, shares)), named("used"));
  if (named("fragmentation").length) {
    figure("Fragmentation",
      "How much smaller the largest request for one node is than if all that is free lay together. Low is good. " +
        "Memory has lines for policies that place it on nodes.",
      (of) => lines("fragmentation " + of, "fragmentation of " + of, Object.assign({ suggestedMax: 0.2 }, shares)),
      named("fragmentation"));
  }
  if (named("stranded").length) {
    figure("Stranded devices",
      "Devices that are free on a node whose CPUs are taken, so that no pod can have both. Low is good.",
      (of) => lines("stranded " + of, "share of all " + of, Object.assign({ suggestedMax: 0.1 }, shares)),
      named("stranded"));
  }
  const waits = report.workload.waitSeconds > 0;
  figure("Pods", waits ? "Pods that run at the same time, and those that wait for a place, on average."
    : "Pods that run at the same time, on average.",
    (of) => lines(of, "pods " + of, {}), waits ? ["running", "waiting"] : ["running"]);
  if (policies.some((p) => p.timing && p.timing.decisions)) {
    figure("Time per decision",
      "How long the policy took to answer, on the computer that ran this. Each step to the right is twice as long.",
      times);
  }

  function drawAll() {
    Chart.defaults.color = css("--ink");
    Chart.defaults.borderColor = css("--line");
    Chart.defaults.plugins.legend.labels.boxWidth = 16;
    Chart.defaults.plugins.legend.labels.boxHeight = 8;
    Chart.defaults.font.family = getComputedStyle(document.body).fontFamily;
    for (const draw of charts) draw();
  }
  drawAll();
  dark.addEventListener("change", drawAll);
})();
