// The humans' side, over REST, and a requester's side: what `switchboard friend` does, from specs/protocol.md alone.
import { createHash, generateKeyPairSync, randomBytes, randomUUID, sign } from 'node:crypto';

const b64 = (bytes) => Buffer.from(bytes).toString('base64url');
const sha256 = (text) => b64(createHash('sha256').update(text).digest());
const now = () => Math.floor(Date.now() / 1000);

/** RFC 8785, for the plain values that a request holds. */
export const canonical = (v) => {
  if (Array.isArray(v)) return `[${v.map(canonical).join(',')}]`;
  if (v === null || typeof v !== 'object') return JSON.stringify(v);
  return `{${Object.keys(v).sort().map((k) => `${JSON.stringify(k)}:${canonical(v[k])}`).join(',')}}`;
};

/** A browser that signed in as alice, bob or carol: it calls REST, and its decide opens a program's authorization URL and presses a button
 * of the consent page, when there is one; the answer is what the program's redirect would get. */
export async function signIn(base, name) {
  const jar = new Map();
  const cookies = (host) => [...(jar.get(host) ?? new Map())].map(([k, v]) => `${k}=${v}`).join('; ');
  const visit = async (url, init = {}, end = undefined) => {
    for (let hops = 0; hops < 10; hops += 1) {
      const { host } = new URL(url);
      const r = await fetch(url, { ...init, redirect: 'manual', headers: { ...init.headers, ...(cookies(host) && { cookie: cookies(host) }) } });
      for (const line of r.headers.getSetCookie()) {
        const [pair] = line.split(';');
        if (!jar.has(host)) jar.set(host, new Map());
        jar.get(host).set(pair.slice(0, pair.indexOf('=')), pair.slice(pair.indexOf('=') + 1));
      }
      if (r.status < 300 || r.status >= 400) return r;
      url = new URL(r.headers.get('location'), url).href;
      if (end && url.startsWith(end)) return { url };
      // The form's answer leads on by GET, as in a browser.
      init = {};
    }
    throw new Error('too many redirects');
  };
  await visit(`${base}/login?prompt=none&login_hint=${name}`);
  const call = async (method, path, body) => {
    const r = await visit(base + path, { method, ...(body && { body: JSON.stringify(body), headers: { 'content-type': 'application/json' } }) });
    const text = await r.text();
    if (!r.ok) throw new Error(`${method} ${path}: HTTP ${r.status} ${text}`);
    return text ? JSON.parse(text) : undefined;
  };
  call.decide = async (url, redirect, decision) => {
    const page = await visit(url, {}, redirect);
    if (!page.status) return { answer: new URL(page.url).searchParams, asked: false };
    const html = await page.text();
    if (page.status !== 200) throw new Error(`consent page: HTTP ${page.status} ${html}`);
    const form = new URLSearchParams({ decision });
    for (const [, k, v] of html.matchAll(/<input type="hidden" name="([^"]*)" value="([^"]*)">/g)) form.append(unescaped(k), unescaped(v));
    const back = await visit(`${base}/oauth/authorize`, { method: 'POST', body: form, headers: { origin: base, 'sec-fetch-site': 'same-origin' } }, redirect);
    if (back.status) throw new Error(`consent: HTTP ${back.status} ${await back.text()}`);
    return { answer: new URL(back.url).searchParams, asked: true, html };
  };
  return call;
}

const unescaped = (s) => s.replace(/&#(\d+);/g, (_, n) => String.fromCharCode(n)).replace(/&lt;/g, '<').replace(/&gt;/g, '>').replace(/&quot;/g, '"').replace(/&amp;/g, '&');

/** Bob's agent, queue, persona that offers everything, and home endpoint. */
export async function publish(bob, slug) {
  const agent = await bob('POST', '/v1/agents', { name: slug });
  const queue = `${slug}-work`;
  await bob('POST', '/v1/queues', { name: queue });
  const persona = await bob('POST', '/v1/personas', {
    agent_id: agent.id, slug, name: slug, prompt: 'Work.', queues: [queue], visibility: 'listed',
    offers: [{ queue, verbs: ['create_for', 'todo_status', 'list_created', 'answer', 'cancel_todo'], limits: { max_open: 50, per_hour: 500 } }],
  });
  const home = await bob('POST', '/v1/endpoints', { kind: 'home', agent_id: agent.id, persona_id: persona.id, queues: [queue] });
  return { slug, queue, persona, home };
}

/** An agent of the named human with a key of its own. */
export class Agent {
  constructor(human) {
    this.human = human;
    const { publicKey, privateKey } = generateKeyPairSync('ed25519');
    this.private = privateKey;
    const { kty, crv, x } = publicKey.export({ format: 'jwk' });
    this.jwk = { kty, crv, x };
    this.thumbprint = sha256(canonical({ crv, kty, x }));
  }

  jws(header, claims) {
    const input = `${b64(JSON.stringify({ alg: 'EdDSA', ...header }))}.${b64(JSON.stringify(claims))}`;
    return `${input}.${b64(sign(null, Buffer.from(input), this.private))}`;
  }

  /** The data part of a request for all that params.offers has on its first queue; params stand in the card. */
  async request(params, reason = 'Hand you pull requests that touch billing for review.') {
    const [offer] = params.offers;
    const part = { type: 'friend-request', from: { name: `${this.human}-bot` }, reason, scope: { queues: [offer.queue], verbs: offer.verbs }, key: this.jwk };
    const salt = b64(randomBytes(16));
    const digest = sha256(canonical(part));
    const nonce = sha256(canonical({ v: 1, aud: params.aud, persona: params.persona, jkt: this.thumbprint, digest, salt }));
    const id_token = await idToken(params.issuers[0], this.human, nonce);
    const { iss, sub } = JSON.parse(Buffer.from(id_token.split('.')[1], 'base64url'));
    const statement = this.jws({ typ: 'friend-statement+jwt' }, { iss, sub, aud: params.aud, persona: params.persona, digest, salt, jti: randomUUID(), iat: now(), exp: now() + 300 });
    return { ...part, provenance: { method: 'oidc-nonce', id_token, salt, statement } };
  }

  /** An access token for a resource of the instance. */
  async token(instance, resource) {
    const me = `urn:ietf:params:oauth:jwk-thumbprint:sha-256:${this.thumbprint}`;
    const r = await fetch(`${instance}/oauth/token`, {
      method: 'POST',
      body: new URLSearchParams({
        grant_type: 'client_credentials', resource, client_assertion_type: 'urn:ietf:params:oauth:client-assertion-type:jwt-bearer',
        client_assertion: this.jws({ typ: 'JWT' }, { iss: me, sub: me, aud: instance, jti: randomUUID(), iat: now(), exp: now() + 60 }),
      }),
    });
    const text = await r.text();
    if (!r.ok) throw new Error(`token: HTTP ${r.status} ${text}`);
    return JSON.parse(text).access_token;
  }
}

async function idToken(issuer, human, nonce) {
  const metadata = await (await fetch(`${issuer.issuer}/.well-known/openid-configuration`)).json();
  const verifier = b64(randomBytes(32));
  const redirect_uri = 'http://127.0.0.1:53682/callback';
  const asked = new URLSearchParams({
    response_type: 'code', client_id: issuer.client_id, redirect_uri, scope: issuer.scope, nonce,
    code_challenge: sha256(verifier), code_challenge_method: 'S256', prompt: 'none', login_hint: human,
  });
  const back = await fetch(`${metadata.authorization_endpoint}?${asked}`, { redirect: 'manual' });
  const code = new URL(back.headers.get('location')).searchParams.get('code');
  const r = await fetch(metadata.token_endpoint, {
    method: 'POST', body: new URLSearchParams({ grant_type: 'authorization_code', code, redirect_uri, client_id: issuer.client_id, code_verifier: verifier }),
  });
  return (await r.json()).id_token;
}
