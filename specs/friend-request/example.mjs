#!/usr/bin/env node
// The requester's side in plain Node 20, to read rather than to build on. README.md, "A worked example", shows it with curl.
//
//   node example.mjs part CARD_URL QUEUE VERB,VERB   prints the data part; LOGIN_HINT=alice signs in without a browser at the development issuer
//   node example.mjs assertion AUTHORIZATION_SERVER  prints a client assertion by the same key
//
// The key lies in KEY_FILE (agent-key.pem by default) and is made when it is not there.
import { createHash, createPrivateKey, createPublicKey, generateKeyPairSync, randomBytes, sign } from 'node:crypto';
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';

const EXTENSION = 'urn:switchboard:a2a:friend-request:v1';
const b64 = (v) => Buffer.from(v).toString('base64url');
const random = () => b64(randomBytes(16));
const now = () => Math.floor(Date.now() / 1000);

// JCS (RFC 8785): sorted members; ECMAScript's numbers and strings are already the right ones.
const canonicalize = (v) => (Array.isArray(v) ? `[${v.map(canonicalize)}]`
  : v && typeof v === 'object' ? `{${Object.keys(v).sort().map((k) => `${JSON.stringify(k)}:${canonicalize(v[k])}`)}}` : JSON.stringify(v));
const hash = (v) => createHash('sha256').update(canonicalize(v)).digest('base64url');

const keyFile = process.env.KEY_FILE ?? 'agent-key.pem';
if (!existsSync(keyFile)) writeFileSync(keyFile, generateKeyPairSync('ed25519').privateKey.export({ type: 'pkcs8', format: 'pem' }), { mode: 0o600 });
const privateKey = createPrivateKey(readFileSync(keyFile));
const key = createPublicKey(privateKey).export({ format: 'jwk' }); // kty, crv, x: exactly the members of RFC 7638
const jkt = hash(key);
const jws = (typ, claims) => {
  const input = `${b64(JSON.stringify({ alg: 'EdDSA', typ }))}.${b64(JSON.stringify(claims))}`;
  return `${input}.${b64(sign(null, Buffer.from(input), privateKey))}`;
};
const json = async (url, init) => {
  const r = await fetch(url, init);
  if (!r.ok) throw new Error(`${url}: ${r.status} ${await r.text()}`);
  return r.json();
};

/** An ID token with our nonce: authorization code with PKCE on a loopback redirect (RFC 8252). */
async function idToken({ issuer, client_id, client_secret, scope, redirect_uris }, nonce) {
  const found = await json(`${issuer.replace(/\/$/, '')}/.well-known/openid-configuration`);
  const [verifier, state] = [random() + random(), random()];
  let answered;
  const answer = new Promise((resolve) => { answered = resolve; });
  const server = createServer((request, response) => {
    const url = new URL(request.url, 'http://127.0.0.1');
    if (url.pathname === new URL(redirect_uris[0]).pathname) answered(url.searchParams);
    response.end('Done, you can close this page.\n');
  });
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
  const redirect = new URL(redirect_uris[0]);
  redirect.port = server.address().port;
  const url = new URL(found.authorization_endpoint);
  const query = { response_type: 'code', client_id, redirect_uri: redirect.href, scope, state, nonce, code_challenge_method: 'S256', code_challenge: createHash('sha256').update(verifier).digest('base64url') };
  for (const [name, value] of Object.entries(query)) url.searchParams.set(name, value);
  if (process.env.LOGIN_HINT) {
    url.searchParams.set('prompt', 'none');
    url.searchParams.set('login_hint', process.env.LOGIN_HINT);
    await fetch(url); // follows the redirect to our own listener, as a browser would
  } else console.error(`Open this page and sign in:\n${url}`);
  const back = await answer;
  server.close();
  if (back.get('state') !== state || !back.get('code')) throw new Error(`no code: ${back}`);
  const body = new URLSearchParams({ grant_type: 'authorization_code', code: back.get('code'), redirect_uri: redirect.href, client_id, code_verifier: verifier, ...(client_secret && { client_secret }) });
  return (await json(found.token_endpoint, { method: 'POST', body })).id_token;
}

const [command, target, queue, verbs] = process.argv.slice(2);
if (command === 'part') {
  const card = await json(target);
  const { aud, persona, issuers } = card.capabilities.extensions.find((e) => e.uri === EXTENSION).params;
  const request = {
    type: 'friend-request', from: { name: 'release-bot' }, reason: 'Hand you pull requests that touch billing for review.',
    scope: { queues: [queue], verbs: verbs.split(',') }, key,
  };
  const [digest, salt] = [hash(request), random()];
  const id_token = await idToken(issuers[0], hash({ v: 1, aud, persona, jkt, digest, salt }));
  const { iss, sub } = JSON.parse(Buffer.from(id_token.split('.')[1], 'base64url'));
  const statement = jws('friend-statement+jwt', { iss, sub, aud, persona, digest, salt, jti: random(), iat: now(), exp: now() + 300 });
  console.log(JSON.stringify({ ...request, provenance: { method: 'oidc-nonce', id_token, salt, statement } }));
} else if (command === 'assertion') {
  const client = `urn:ietf:params:oauth:jwk-thumbprint:sha-256:${jkt}`;
  console.log(jws('JWT', { iss: client, sub: client, aud: target, jti: random(), iat: now(), exp: now() + 120 }));
} else console.error('usage: node example.mjs part CARD_URL QUEUE VERB,VERB | assertion AUTHORIZATION_SERVER');
