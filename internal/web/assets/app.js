// What pages do beyond HTML. Everything works without it, only less lively.
'use strict';

// A form is sent once: a second click while the first is on its way does nothing.
document.addEventListener('submit', (event) => {
  const form = event.target;
  if (!form.hasAttribute('data-once')) return;
  if (form.dataset.sent) { event.preventDefault(); return; }
  form.dataset.sent = 'yes';
  form.setAttribute('aria-busy', 'true');
  // A page that comes back from the browser's cache can be sent again; the server knows what was done.
  addEventListener('pageshow', () => { delete form.dataset.sent; form.removeAttribute('aria-busy'); }, { once: true });
});

document.addEventListener('click', async (event) => {
  const button = event.target.closest('[data-copy]');
  if (!button) return;
  try {
    await navigator.clipboard.writeText(button.dataset.copy);
    button.textContent = 'Copied';
  } catch {
    button.textContent = 'Select and copy';
  }
  setTimeout(() => { button.textContent = 'Copy'; }, 2000);
});

// Only one small panel is open at a time; Escape closes it.
document.addEventListener('toggle', (event) => {
  if (!event.target.matches?.('details.pop') || !event.target.open) return;
  for (const other of document.querySelectorAll('details.pop[open]')) if (other !== event.target) other.open = false;
}, true);
document.addEventListener('keydown', (event) => {
  if (event.key !== 'Escape') return;
  const open = document.querySelector('details.pop[open]');
  if (open) { open.open = false; open.querySelector('summary').focus(); }
});

// On a phone the navigation is a strip: the current entry has to be in sight.
document.querySelector('nav [aria-current]')?.scrollIntoView({ inline: 'center', block: 'nearest' });

// Live pages: the server says that something changed, the page asks for itself again.
const streams = new Map();
function waiting(count) {
  if (!(count >= 0)) return;
  const badge = document.querySelector('[data-waiting]');
  if (!badge) return;
  badge.hidden = count === 0;
  badge.querySelector('[data-waiting-number]').textContent = count;
  document.title = document.title.replace(/^\(\d+\) /, '');
  if (count) document.title = `(${count}) ${document.title}`;
}
function typing(element) {
  const active = document.activeElement;
  return element.contains(active) && active.matches('input, textarea, select') || [...element.querySelectorAll('textarea')].some((t) => t.value !== t.defaultValue);
}
function follow(element) {
  const of = element.dataset.live;
  if (streams.has(of)) return;
  const source = new EventSource(`/events?of=${encodeURIComponent(of)}`);
  streams.set(of, source);
  source.addEventListener('changed', (event) => {
    waiting(Number(event.data));
    for (const e of document.querySelectorAll(`[data-live="${CSS.escape(of)}"]`)) {
      if (e.hasAttribute('data-live-reload')) e.hidden = false;
      else if (!typing(e)) htmx.trigger(e, 'live');
    }
  });
}
function start() {
  for (const e of document.querySelectorAll('[data-live]')) follow(e);
  for (const e of document.querySelectorAll('[data-copy]')) e.hidden = false;
}
start();
document.addEventListener('htmx:afterSwap', start);
addEventListener('pagehide', () => { for (const s of streams.values()) s.close(); streams.clear(); });
addEventListener('pageshow', (event) => { if (event.persisted) start(); });
