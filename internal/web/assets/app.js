// What pages do beyond HTML. Everything works without it, only less lively.
'use strict';

// A form is sent once: a second click while the first is on its way does nothing.
document.addEventListener('submit', (event) => {
  const form = event.target;
  // Enter in a field asks what the choice comes to, which here is shown without leaving the page.
  if (event.submitter?.hasAttribute('data-preview-only')) {
    event.preventDefault();
    htmx.trigger(form, 'change');
    return;
  }
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

// A preview is dimmed from the first keystroke until the answer to the last one is there. One that does not
// come says so: old sentences must not pass for what would be granted.
function preview(element, state) {
  const of = element.closest?.('form[data-preview]');
  const shown = of && document.querySelector(of.dataset.preview);
  if (!shown) return;
  shown.toggleAttribute('data-outdated', state !== 'current');
  shown.querySelector('[data-no-answer]')?.remove();
  if (state !== 'lost') return;
  const note = document.createElement('p');
  note.className = 'notice warn';
  note.dataset.noAnswer = '';
  note.textContent = 'No answer: this is not what the form says now. Change something to try again, or load the page again.';
  shown.prepend(note);
}
document.addEventListener('input', (event) => {
  preview(event.target, 'asked');
  const hint = event.target.closest('tr')?.querySelector('[data-hint]');
  if (hint) hint.hidden = true;
});
document.addEventListener('htmx:afterSwap', (event) => preview(event.detail.requestConfig?.elt ?? event.target, 'current'));
for (const lost of ['htmx:responseError', 'htmx:sendError', 'htmx:timeout']) {
  document.addEventListener(lost, (event) => preview(event.detail.elt, 'lost'));
}

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
const known = new Map(); // what each subject was when it was heard of last
function follow(element) {
  const of = element.dataset.live;
  if (streams.has(of) || document.hidden) return;
  const since = known.has(of) ? `&since=${known.get(of)}` : '';
  const source = new EventSource(`/events?of=${encodeURIComponent(of)}${since}`);
  streams.set(of, source);
  source.addEventListener('at', (event) => known.set(of, event.data));
  source.addEventListener('changed', (event) => {
    known.set(of, event.lastEventId);
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
  for (const e of document.querySelectorAll('[data-scriptless]')) e.hidden = true;
}
start();
document.addEventListener('htmx:afterSwap', start);
function stop() {
  for (const s of streams.values()) s.close();
  streams.clear();
}
addEventListener('pagehide', stop);
// Browsers open few connections to one server, so a page that nobody looks at holds none. When it is looked at
// again, its stream says whether it missed anything.
document.addEventListener('visibilitychange', () => { if (document.hidden) stop(); else start(); });
addEventListener('pageshow', (event) => { if (event.persisted) start(); });
