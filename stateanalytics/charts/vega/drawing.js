// What Vega asks of a browser, in an engine that has none; and the one function that is called.
var nothing = function () {};
var console = { log: nothing, warn: nothing, error: nothing, info: nothing, debug: nothing };
var performance = { now: function () { return 0; } };
var setTimeout = function (job) { job(); return 0; };
var structuredClone = function (value) {
  if (Array.isArray(value)) return value.map(structuredClone);
  if (value === null || typeof value !== "object") return value;
  if (value instanceof Date) return new Date(value);
  if (value instanceof Set) return new Set(structuredClone([...value]));
  if (value instanceof Map) return new Map(structuredClone([...value]));
  return Object.fromEntries(Object.entries(value).map(function (pair) {
    return [pair[0], structuredClone(pair[1])];
  }));
};
var clearTimeout = nothing, addEventListener = nothing, removeEventListener = nothing;

// Text is as wide as in the widest of the fonts that a page may have (see style.py).
var pen = {
  font: "",
  measureText: function (text) {
    var size = parseFloat((/([\d.]+)px/.exec(pen.font) || [0, 11])[1]);
    var bold = /\bbold|[6-9]00\b/.test(pen.font) ? WIDTHS.bold : 1;
    var thousandths = 0;
    for (var i = 0; i < text.length; i++) {
      var width = WIDTHS.ascii[text.charCodeAt(i) - 32];
      thousandths += width === undefined ? WIDTHS.other : width;
    }
    return { width: thousandths * size / 1000 * bold };
  },
};
var document = {
  createElement: function () { return { getContext: function () { return pen; } }; },
};

// A drawing is a promise: called with a specification it begins, without one it tells the result.
var result = ["", "nothing was drawn"];
function draw(specification) {
  if (specification === null) return JSON.stringify(result);
  var failed = function (error) { result = ["", String(error)]; };
  result = ["", "nothing was drawn"];
  try {
    var compiled = vegaLite.compile(JSON.parse(specification)).spec;
    var view = new vega.View(vega.parse(compiled), { renderer: "none" });
    view.toSVG().then(function (svg) { result = [svg, ""]; view.finalize(); }).catch(failed);
  } catch (error) { failed(error); }
}
