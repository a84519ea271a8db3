// node counter.mjs URL NAME FILE ROUNDS: add 1 to the number in FILE, ROUNDS times, each time under the lock NAME.
// The token comes from $PAWLOCK_TOKEN. Needs Node 18 or later and no package.
import { randomUUID } from "node:crypto";
import { readFile, writeFile } from "node:fs/promises";
import { performance } from "node:perf_hooks";
import { setTimeout as sleep } from "node:timers/promises";

class Pawlock {
  constructor(url, token) {
    Object.assign(this, { url, token });
  }

  // The same request again, under the same key, until some instance has answered it.
  async ask(name, verb, body) {
    const headers = { Authorization: `Bearer ${this.token}`, "Idempotency-Key": randomUUID() };
    for (let attempt = 0; ; attempt++) {
      try {
        const path = `${this.url}/v1/ns/pawlock/lock/${encodeURIComponent(name)}/${verb}`;
        const reply = await fetch(path, { method: "POST", headers, body: JSON.stringify(body) });
        if (reply.status !== 429 && reply.status !== 503) return [reply.status, await reply.json()];
      } catch (error) {
        if (attempt >= 40) throw error;
      }
      if (attempt >= 40) throw new Error("the service is not ready");
      await sleep(100 + Math.random() * 400);
    }
  }

  // Run work(lease) under the lock. lease.signal is aborted when the lock is lost: give it to fetch() and the like.
  async locked(name, { ttl = 5, wait = 60 } = {}, work) {
    let asked, status, grant;
    do {
      asked = performance.now();
      [status, grant] = await this.ask(name, "acquire", { ttl, wait });
    } while (status === 423);
    if (status !== 200) throw new Error(`${grant.code}: ${grant.detail}`);
    const lost = new AbortController();
    const lose = () => lost.abort(new Error("the lock is lost"));
    // Counted from before the request was sent: the server counts from later.
    let until = asked + ttl * 990;
    const watch = setInterval(() => performance.now() > until && lose(), 50);
    const renewal = setInterval(async () => {
      const before = performance.now();
      const told = await this.ask(name, "renew", { token: grant.token, ttl }).catch(() => [0]);
      if (told[0] === 200) until = before + ttl * 990;
      else if (told[0] === 409) lose();
    }, (ttl * 1000) / 3);
    try {
      const done = await work({ fence: grant.fence, signal: lost.signal });
      lost.signal.throwIfAborted();
      return done;
    } finally {
      clearInterval(watch);
      clearInterval(renewal);
      await this.ask(name, "release", { token: grant.token });
    }
  }
}

const [url, name, file, rounds] = process.argv.slice(2);
const pawlock = new Pawlock(url, process.env.PAWLOCK_TOKEN);
for (let round = 0; round < Number(rounds); round++) {
  await pawlock.locked(name, {}, async (lease) => {
    const number = Number(await readFile(file, "utf8"));
    await sleep(10); // a long time for a computer: without the lock, others would read the same number
    lease.signal.throwIfAborted();
    await writeFile(file, `${number + 1}\n`);
    console.log(lease.fence);
  });
}
