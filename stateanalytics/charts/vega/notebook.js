// What Altair's widget imports from the network, in the module that a notebook is sent.
const loaded = {};
function load(name, library) {
  const module = { exports: {} };
  library(module.exports, module, function (needed) { return loaded[needed]; });
  loaded[name] = module.exports;
}
// The newest call of each stretch of time, at its end: lodash's debounce with a `maxWait`.
function lodashDebounce(call, wait_ms) {
  let timer = null, newest = [];
  return function (...given) {
    newest = given;
    timer ??= setTimeout(function () { timer = null; call(...newest); }, wait_ms);
  };
}
