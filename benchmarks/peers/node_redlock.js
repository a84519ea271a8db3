// A participant's process for node-redlock 5: the same lines of JSON in and out as benchmarks.worker.
const [, , modules, text] = process.argv;
const { createRequire } = require("module");
const from = createRequire(modules + "/x.js");
const IORedis = from("ioredis");
const Redlock = from("redlock").default;
const job = JSON.parse(text);
const ports = job.url.replace("redlock://", "").split(",").map((host) => Number(host.split(":").pop()));
const clients = ports.map((port) => {
  const client = new IORedis(port, "127.0.0.1");
  client.on("error", () => {});
  return client;
});
const redlock = new Redlock(clients, { retryCount: -1 });
redlock.on("error", () => {});
const say = (line) => console.log(JSON.stringify(line));
async function work(seconds) {
  const cpu = process.cpuUsage();
  const begin = process.hrtime.bigint();
  const until = begin + BigInt(Math.round(seconds * 1e9));
  let pairs = 0;
  while (process.hrtime.bigint() < until) {
    const lock = await redlock.acquire([job.name], 30000);
    await lock.release();
    pairs += 1;
  }
  const wall = Number(process.hrtime.bigint() - begin) / 1e9;
  const used = process.cpuUsage(cpu);
  const spent = (used.user + used.system) / 1e6;
  return { grants: pairs, wall, cpu: spent, thread_cpu: spent };
}
const lines = require("readline").createInterface({ input: process.stdin });
Promise.all(clients.map((client) => new Promise((ready) => client.once("ready", ready)))).then(() => say({ ready: 1 }));
lines.on("line", async (line) => say(await work(JSON.parse(line).seconds)));
lines.on("close", () => process.exit(0));
