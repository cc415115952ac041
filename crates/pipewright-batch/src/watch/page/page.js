(() => {
  const byId = (id) => document.getElementById(id);
  byId('download').href = URL.createObjectURL(
    new Blob([byId('data').textContent], { type: 'application/json' }));
  const details = [...document.querySelectorAll('details[id]')];
  const reload = Number(document.body.dataset.reload);
  /* What the reader has opened and typed outlives the next page. */
  const before = history.state ?? {};
  for (const it of details) it.open = before.open?.[it.id] ?? it.open;
  if (reload) {
    /* Nothing is written while jobs only run: their times go on here. */
    for (const it of document.querySelectorAll('[data-start]')) {
      const time = Math.max(0, Math.round(Date.now() / 1000 - Number(it.dataset.start)));
      const [hours, minutes, seconds] = [time / 3600, time / 60 % 60, time % 60].map(Math.floor);
      const two = (number) => String(number).padStart(2, '0');
      it.textContent = time < 60 ? time + ' s'
        : time < 3600 ? minutes + ' min ' + two(seconds) + ' s' : hours + ' h ' + two(minutes) + ' min';
    }
    setInterval(() => {
      const isRead = document.hidden || getSelection().type === 'Range' || document.activeElement?.type === 'search';
      if (isRead) return;
      const open = Object.fromEntries(details.map((it) => [it.id, it.open]));
      const [filter, onlyBad] = document.querySelectorAll('.tools input');
      history.replaceState({ open, filter: filter?.value, onlyBad: onlyBad?.checked }, '');
      location.reload();
    }, reload * 1000);
  }
  const body = document.querySelector('tbody');
  if (!body) return;
  const rows = [...body.rows].map((row) => ({
    row, text: row.textContent.toLowerCase(), bad: !row.cells[5].classList.contains('good') }));
  const [filter, onlyBad] = document.querySelectorAll('.tools input');
  const output = document.querySelector('.tools output');
  const show = () => {
    const words = filter.value.toLowerCase().split(/\s+/);
    let count = 0;
    for (const { row, text, bad } of rows) {
      row.hidden = (onlyBad.checked && !bad) || !words.every((word) => text.includes(word));
      count += row.hidden ? 0 : 1;
    }
    output.textContent = count === rows.length ? count + ' rows' : count + ' of ' + rows.length + ' rows';
  };
  filter.addEventListener('input', show);
  onlyBad.addEventListener('change', show);
  document.querySelector('.tools').addEventListener('submit', (event) => event.preventDefault());
  document.querySelector('.tools').hidden = false;
  filter.value = before.filter ?? '';
  onlyBad.checked = before.onlyBad ?? false;
  show();
  const value = (row, column) => {
    const cell = row.cells[column];
    const text = cell.dataset.v ?? cell.textContent;
    return column < 5 ? Number(text) : text;
  };
  const heads = [...document.querySelectorAll('th')];
  heads.forEach((head, column) => {
    const button = document.createElement('button');
    button.type = 'button';
    button.textContent = head.textContent;
    head.replaceChildren(button);
    button.addEventListener('click', () => {
      const down = head.getAttribute('aria-sort') === 'ascending';
      heads.forEach((other) => other.removeAttribute('aria-sort'));
      head.setAttribute('aria-sort', down ? 'descending' : 'ascending');
      const sign = down ? -1 : 1;
      rows.sort((one, other) => {
        const [a, b] = [value(one.row, column), value(other.row, column)];
        return sign * (a < b ? -1 : a > b ? 1 : 0);
      });
      body.append(...rows.map(({ row }) => row));
    });
  });
  document.querySelector('.lanes').addEventListener('click', (event) => {
    const id = event.target.dataset.row;
    const row = id && byId(id);
    if (!row) return;
    filter.value = '';
    onlyBad.checked = false;
    show();
    location.hash = id;
  });
})();
