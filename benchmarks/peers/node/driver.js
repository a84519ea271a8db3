// A participant's process for node-redlock 5 on ioredis: the same lines of JSON in and out as benchmarks.worker.
// `best` pipelines what is sent in one turn of the loop and asks again after a millisecond instead of 200.
const IORedis = require("ioredis");
const Redlock = require("redlock").default;
const job = JSON.parse(process.argv[2]);
const best = Boolean(job.options.best);
const TTL = 30000;
const say = (line) => process.stdout.write(JSON.stringify(line) + "\n");
const now = () => Number(process.hrtime.bigint()) / 1e9;
const sleep = (seconds) => new Promise((done) => setTimeout(done, seconds * 1000));

function addresses() {
  if (!job.url.startsWith("redlock://")) return [new URL(job.url).port];
  return job.url.slice("redlock://".length).split(",").map((host) => host.split(":").pop());
}

const clients = addresses().map((port) => {
  const client = new IORedis(Number(port), "127.0.0.1", { enableAutoPipelining: best, noDelay: true });
  client.on("error", () => {});
  return client;
});
const retry = best ? { retryDelay: 1, retryJitter: 0 } : {};
const redlock = new Redlock(clients, { retryCount: -1, ...retry });
redlock.on("error", () => {});
const acquire = (name) => redlock.acquire([name], TTL);

const percentile = (sorted, share) => sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))];

async function pairs({ seconds }) {
  const waits = [];
  const tallies = new Array(job.workers).fill(0);
  const cpu = process.cpuUsage();
  const begin = now();
  const until = begin + seconds;
  async function work(worker) {
    const name = `${job.name}-${worker}`;
    for (let asked = now(); asked < until; asked = now()) {
      const lock = await acquire(name);
      waits.push(now() - asked);
      await lock.release();
      tallies[worker] += 1;
    }
  }
  await Promise.all(tallies.map((_, worker) => work(worker)));
  const wall = now() - begin;
  const used = process.cpuUsage(cpu);
  const spent = (used.user + used.system) / 1e6;
  waits.sort((a, b) => a - b);
  const sum = tallies.reduce((a, b) => a + b, 0);
  const squares = tallies.reduce((a, b) => a + b * b, 0);
  return {
    grants: sum, wall, cpu: spent, thread_cpu: spent, jain: (sum * sum) / (tallies.length * squares),
    acquire_p50_us: percentile(waits, 0.5) * 1e6, acquire_p99_us: percentile(waits, 0.99) * 1e6,
    acquire_max_us: waits[waits.length - 1] * 1e6,
  };
}

async function crowd({ start, seconds, section }) {
  const events = [];
  const cpu = process.cpuUsage();
  async function work(worker) {
    await sleep(Math.max(0, start - now()));
    while (now() < start + seconds) {
      const asked = now();
      const lock = await acquire(job.name);
      const acquired = now();
      if (section) await sleep(section);
      const releasing = now();
      await lock.release();
      events.push([worker, asked, acquired, releasing, now(), null]);
    }
  }
  await Promise.all(Array.from({ length: job.workers }, (_, worker) => work(worker)));
  const used = process.cpuUsage(cpu);
  return { events, cpu: (used.user + used.system) / 1e6 };
}

async function turn({ hold }) {
  const lock = await acquire(job.name);
  const acquired = now();
  say({ acquired });
  await sleep(Math.max(0, acquired + hold - now()));
  const releasing = now();
  await lock.release();
  await sleep(0.01);
  return { releasing };
}

const play = job.workload === "turns" ? turn : job.workload === "pairs" ? pairs : crowd;
const lines = require("readline").createInterface({ input: process.stdin });
Promise.all(clients.map((client) => new Promise((ready) => client.once("ready", ready)))).then(() => say({ ready: 1 }));
lines.on("line", async (line) => {
  try {
    say(await play(JSON.parse(line)));
  } catch (error) {
    say({ error: String(error), kind: error.name });
    process.exit(1);
  }
});
lines.on("close", () => process.exit(0));
