/**
 * A client of level 1 (docs/reference/wire.md): it stands in pawlock's queue and polls. It renews nothing, so the work
 * has to end within the TTL.
 */
import { randomBytes } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { helperKey, keyOf } from './pawlock.mjs';

const { scripts } = JSON.parse(readFileSync(new URL('./scripts.json', import.meta.url), 'utf8'));
const TICKET = 3_000, HOUR = 3_600_000, TOMB = 60_000;
let requests = 0;

/** Run `work(fence, signal)` while the lock is held; the signal is aborted when the lease ends. `redis` is of ioredis. */
export async function locked(redis, name, work, ttl = 30_000) {
  const key = keyOf('pawlock', name), token = `${randomBytes(16).toString('hex')}@${process.pid}/polite`;
  const run = (script, ...args) => {
    const { source, keys } = scripts[`mutex/${script}`];
    const names = keys.map(({ suffix }) => helperKey(key, suffix.replace('<token>', token)));
    return redis.eval(source, names.length, ...names, token, ...args, String(++requests));
  };
  let answered = false;
  try {
    let sent = performance.now();
    let reply = await run('acquire', ttl, TICKET, 1, 1, '', 10_000, HOUR);
    answered = true;
    // An H with less than the TTL was granted to the ticket: renew raises it.
    while (reply[0] === 'Q' || (reply[0] === 'H' && reply[3] < ttl)) {
      if (reply[0] === 'Q') {
        const [, , rank, left, , , foreign] = reply;
        const first = rank > 0 ? TICKET : foreign ? 75 : left + 1;
        await sleep(Math.min(TICKET / 3, Math.max(first, 0)));
      }
      sent = performance.now();
      reply = await run('renew', ttl, TICKET, '', HOUR);
    }
    if (reply[0] !== 'H') throw new Error(`no lock: ${reply}`);
    // Counted from before the request was sent.
    const left = sent + ttl * 0.99 - 2 - performance.now();
    return await work(reply[2], AbortSignal.timeout(Math.max(0, Math.floor(left))));
  } finally {
    // A copy of an acquire that was not answered may arrive later: the tombstone bars it.
    await run('leave', answered ? 0 : TOMB, 0, HOUR);
  }
}
