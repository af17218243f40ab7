// What an MCP client brings along that signs in by itself: a client id metadata document, and the SDKs' OAuthClientProvider, kept in memory.
import { createServer } from 'node:http';
import { createServer as createSecureServer } from 'node:https';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';

// Nobody listens there: the browser of these tests hands the answer over by itself.
const redirect = 'http://127.0.0.1:53683/callback';

/**
 * Serves a client's document. The SDKs take the URL of a document for an id only when it is https; TLS with a certificate that the instance
 * trusts is there when `run` could make one (INTEROP_TLS). Otherwise the id is handed to them like that of a registered client.
 */
export async function serveDocument(name, issuer, tls) {
  let id;
  let read = 0;
  const answer = (_, res) => {
    read += 1;
    res.setHeader('content-type', 'application/json');
    res.end(JSON.stringify({
      client_id: id, client_name: name, redirect_uris: [redirect], grant_types: ['authorization_code', 'refresh_token'], response_types: ['code'], token_endpoint_auth_method: 'none',
    }));
  };
  const server = tls ? createSecureServer({ cert: readFileSync(join(tls, 'cert.pem')), key: readFileSync(join(tls, 'key.pem')) }, answer) : createServer(answer);
  await new Promise((done) => { server.listen(0, '127.0.0.1', done); });
  server.unref();
  id = `${tls ? 'https' : 'http'}://127.0.0.1:${server.address().port}/client.json`;
  return { id, name, issuer, close: () => server.close(), read: () => read };
}

/** The SDKs' provider for a person with a browser, who presses decision on the consent page. */
export class Provider {
  constructor(browser, document, { decision = 'allow', scope, dpop } = {}) {
    this.browser = browser;
    this.document = document;
    this.decision = decision;
    this.scope = scope;
    if (dpop) this.dpop = () => dpop;
    this.answers = []; // of the authorization endpoint
    if (document.id.startsWith('https:')) this.clientMetadataUrl = document.id; // else it counts as registered
    else this.client = { client_id: document.id, issuer: document.issuer };
  }

  get redirectUrl() { return redirect; }

  get clientMetadata() {
    return { client_name: this.document.name, redirect_uris: [redirect], token_endpoint_auth_method: 'none', ...(this.scope && { scope: this.scope }) };
  }

  state() { return 'a-state-of-its-own'; }

  clientInformation() { return this.client; }

  saveClientInformation(client) { this.client = client; }

  tokens() { return this.kept; }

  saveTokens(tokens) { this.kept = tokens; }

  saveCodeVerifier(verifier) { this.verifier = verifier; }

  codeVerifier() { return this.verifier; }

  saveDiscoveryState(found) { this.found = found; }

  discoveryState() { return this.found; }

  invalidateCredentials(what) {
    if (what === 'all' || what === 'tokens') this.kept = undefined;
    if (what === 'all' || what === 'discovery') this.found = undefined;
  }

  async redirectToAuthorization(url) {
    this.asked = url;
    this.answers.push(await this.browser.decide(url.href, redirect, this.decision));
  }

  /** The last answer's parameters. */
  get answer() { return this.answers.at(-1)?.answer; }
}
