'use strict';
// The line protocol for lock libraries of Node.js: `node driver.js KIND URL`. MODULES names the folder that has them.
const { createRequire } = require('node:module');
const path = require('node:path');
const crypto = require('node:crypto');
const { RedisLock } = require('./samples/redis-lock.js');
const wire = require('./wire.js');

const load = createRequire(path.join(process.env.MODULES, 'package.json'));
const Redis = load('ioredis');
// Several, separated by commas, are independent masters for redlock.
const [, , kind, urls] = process.argv;
// Of the counter, and of the libraries that take any client; the reference client makes its own.
const plain = new Redis(process.env.COUNTER_URL || urls.split(',')[0], { lazyConnect: kind === 'nodewire' });
const held = new Map();
const FOREVER = 600000;

const now = () => Number(process.hrtime.bigint()) / 1e9;
const say = (values) => process.stdout.write(JSON.stringify(values) + '\n');
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const unsupported = () => { throw new Error('unsupported'); };

const IF_EQUAL = "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call(";

function byHand() {
  return {
    async get(key, ttl, wait) {
      const value = crypto.randomBytes(16).toString('hex');
      const end = now() + (wait < 0 ? FOREVER : wait) / 1000;
      for (;;) {
        if (await plain.set(key, value, 'PX', ttl || 30000, 'NX')) return value;
        if (now() >= end) return null;
        await sleep(50);
      }
    },
    async release(key, value) {
      const done = await plain.eval(`${IF_EQUAL}'del', KEYS[1]) else return 0 end`, 1, key, value);
      if (!done) throw new Error('the lock was not held');
    },
    async extend(key, value, ttl) {
      const done = await plain.eval(`${IF_EQUAL}'pexpire', KEYS[1], ARGV[2]) else return 0 end`, 1, key, value, ttl);
      if (!done) throw new Error('the lock was not held');
      return value;
    },
    owns: async (key, value) => (await plain.get(key)) === value,
  };
}

// Version 4 and version 5 differ in their names alone, as far as a driver goes.
function redlock(four) {
  const module = load(four ? 'redlock4' : 'redlock5');
  const make = (retryCount) => {
    const made = new (module.default || module)(urls.split(',').map((url) => new Redis(url)), { retryCount, retryDelay: 200, retryJitter: 100 });
    made.on('error', () => {});
    return made;
  };
  const managers = new Map();
  // It counts tries instead of time: one each 200 ms, -1 without end.
  const manager = (wait) => {
    const tries = wait < 0 ? -1 : Math.floor(wait / 200);
    if (!managers.has(tries)) managers.set(tries, make(tries));
    return managers.get(tries);
  };
  return {
    async get(key, ttl, wait) {
      try {
        return await (four ? manager(wait).lock(key, ttl || 30000) : manager(wait).acquire([key], ttl || 30000));
      } catch (error) {
        if (error.name === 'LockError' || error.name === 'ExecutionError') return null;
        throw error;
      }
    },
    release: (key, lock) => (four ? lock.unlock() : lock.release()),
    extend: (key, lock, ttl) => lock.extend(ttl),
    owns: async (key, lock) => lock.expiration > Date.now(),
  };
}

function redisSemaphore() {
  const { Mutex } = load('redis-semaphore');
  return {
    async get(key, ttl, wait) {
      if (!key.startsWith('mutex:')) throw new Error("the keys of this library begin with 'mutex:'");
      const options = { lockTimeout: ttl || 10000, acquireTimeout: wait < 0 ? FOREVER : Math.max(wait, 1), onLockLost: () => {} };
      const mutex = new Mutex(plain, key.slice('mutex:'.length), options);
      if (wait === 0) return (await mutex.tryAcquire()) ? mutex : null;
      try {
        await mutex.acquire();
        return mutex;
      } catch (error) {
        if (error.name === 'TimeoutError' || /timeout/i.test(error.message)) return null;
        throw error;
      }
    },
    release: (key, mutex) => mutex.release(),
    extend: unsupported, // it renews by itself
    owns: async (key, mutex) => mutex.isAcquired,
  };
}

function sample() {
  return {
    async get(key, ttl, wait) {
      const lock = new RedisLock(plain, key, ttl || 30000);
      return (await (wait === 0 ? lock.tryLock() : lock.lock(wait < 0 ? FOREVER : wait))) ? lock : null;
    },
    release: (key, lock) => lock.unlock(),
    async extend(key, lock, ttl) {
      if (!(await lock.renew(ttl))) throw new Error('the lock was not held');
      return lock;
    },
    owns: async (key, lock) => (await plain.get(key)) === lock.value,
  };
}

const KINDS = {
  ioredis: byHand,
  redlock4: () => redlock(true),
  redlock5: () => redlock(false),
  'redis-semaphore': redisSemaphore,
  'sample-js': sample,
  nodewire: () => wire.library(Redis, urls),
};
let client;

// What the library tells of the lock that it holds.
const about = (key) => (client.about && held.has(key) ? client.about(held.get(key)) : {});

async function acquire(key, ttl, wait) {
  const lock = await client.get(key, ttl, wait);
  if (lock !== null) held.set(key, lock);
  return lock !== null;
}

async function release(key) {
  const lock = held.get(key);
  held.delete(key);
  await client.release(key, lock);
}

async function count(key, ttl, seconds, counter, holdMs) {
  const me = String(process.pid), inside = `inside:${counter}`, until = now() + seconds;
  let errors = 0, last = '';
  while (now() < until) {
    try {
      const asked = now();
      if (!(await acquire(key, ttl, 5000))) continue;
      const got = now();
      let found = (await plain.set(inside, me, 'GET')) || '';
      const value = Number((await plain.get(counter)) || 0);
      say({ event: 'held', t0: asked, t: got, found, value, ...about(key) });
      await sleep(holdMs);
      await plain.set(counter, value + 1);
      found = (await plain.getdel(inside)) || '';
      const left = now(), last = about(key);
      await release(key);
      say({ event: 'left', t0: left, t: now(), found, me, ...last });
    } catch (error) {
      errors += 1;
      last = `${error.name}: ${error.message}`;
      say({ event: 'error', t: now(), error: last });
      await sleep(50);
    }
  }
  return { ok: true, errors, error: last };
}

async function answer([command, key, ...rest]) {
  switch (command) {
    case 'try': return { ok: await acquire(key, Number(rest[0]), 0), ...about(key) };
    case 'lock': return { ok: await acquire(key, Number(rest[0]), Number(rest[1])), ...about(key) };
    case 'unlock': await release(key); return { ok: true };
    case 'extend': held.set(key, await client.extend(key, held.get(key), Number(rest[0]))); return { ok: true };
    case 'state':
      if (!held.has(key)) return { ok: true, state: 'free' };
      return { ok: true, state: (await client.owns(key, held.get(key))) ? 'held' : 'lost' };
    case 'count': return count(key, Number(rest[0]), Number(rest[1]), rest[2], Number(rest[3]));
    default: return { ok: false, error: 'unsupported' };
  }
}

// What redlock wraps: the error of each server, since its own message only counts them.
async function causes(error) {
  const attempts = await Promise.all(Array.isArray(error.attempts) ? error.attempts : []);
  return attempts.flatMap((one) => [...(one.votesAgainst || new Map()).values()].map((each) => ` <- ${each.message}`)).join('');
}

(async () => {
  client = await KINDS[kind]();
  if (kind !== 'nodewire') await plain.ping();
  say({ ready: true });
  for await (const line of require('node:readline').createInterface({ input: process.stdin })) {
    const begin = now();
    let found;
    try {
      found = await answer(line.trim().split(/\s+/));
    } catch (error) {
      found = { ok: false, error: error.message === 'unsupported' ? 'unsupported' : `${error.name}: ${error.message}${await causes(error)}` };
    }
    say({ t0: begin, t: now(), ...found });
  }
  process.exit(0);
})();
