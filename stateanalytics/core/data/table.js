// A table that is sorted, filtered and copied without a kernel or a network.
for (const box of document.querySelectorAll('.sa-frame:not([data-live])')) {
  box.dataset.live = '';
  const body = box.querySelector('tbody'), heads = [...box.querySelectorAll('th')];
  const foot = box.lastElementChild.previousElementSibling;
  const raw = cell => cell.dataset.v ?? cell.textContent;
  const add = (kind, settings) => {
    const made = Object.assign(document.createElement(kind), settings);
    foot.append(made);
    return made;
  };
  foot.dataset.lmSuppressShortcuts = 'true';  // keys are typed, not commands of the notebook
  const words = 'filter rows';
  const filter = add('input', {type: 'search', placeholder: words, ariaLabel: words});
  filter.oninput = () => {
    const word = filter.value.toLowerCase();
    for (const row of body.rows) row.hidden = !row.textContent.toLowerCase().includes(word);
  };
  const quoted = text => /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  const csv = () => [heads.map(head => head.textContent),
    ...[...body.rows].filter(row => !row.hidden).map(row => [...row.cells].map(raw))]
    .map(texts => texts.map(quoted).join(',')).join('\n') + '\n';
  add('button', {textContent: 'copy as CSV', title: 'the rows that are shown, all columns, texts as they are shown',
    onclick: async event => {
      const button = event.target;
      try { await navigator.clipboard.writeText(csv()); } catch {
        const area = add('textarea', {value: csv()});  // where a page may not use the clipboard
        area.select();
        document.execCommand('copy');
        area.remove();
      }
      button.textContent = 'copied';
      setTimeout(() => { button.textContent = 'copy as CSV'; }, 1500);
    }});
  if (box.querySelector('.more')) {
    add('button', {textContent: 'all columns', onclick: () => box.classList.toggle('all')});
  }
  heads.forEach((head, place) => {
    const sort = () => {
      const down = head.ariaSort === 'ascending' ? -1 : 1;
      const key = row => row.cells[place].dataset.r ?? raw(row.cells[place]);
      const isNumber = [...body.rows].every(row => key(row) === '' || !isNaN(key(row)));
      const order = (a, b) => isNumber ? a - b : a.localeCompare(b);
      heads.forEach(other => { other.ariaSort = 'none'; });
      head.ariaSort = down > 0 ? 'ascending' : 'descending';
      body.append(...[...body.rows].sort((one, other) => {
        const [a, b] = [key(one), key(other)];
        return (a === '') - (b === '') || down * order(a, b);  // what is not known comes last
      }));
    };
    Object.assign(head, {tabIndex: 0, onclick: sort});
    head.onkeydown = event => { if (event.key === 'Enter') sort(); };
  });
}
