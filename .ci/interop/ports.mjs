// Prints so many loopback ports that nobody listens on.
import { createServer } from 'node:net';
const open = await Promise.all(Array.from({ length: Number(process.argv[2]) }, () => new Promise((done) => {
  const s = createServer().listen(0, '127.0.0.1', () => done(s));
})));
console.log(open.map((s) => s.address().port).join(' '));
for (const s of open) s.close();
