'use strict';
// The lock that articles on Node.js show: SET NX PX with a random value, an interval that prolongs it, and a script that
// compares before it deletes.
const crypto = require('node:crypto');

const RELEASE = `if redis.call("get", KEYS[1]) == ARGV[1] then return redis.call("del", KEYS[1]) else return 0 end`;
const RENEW = `if redis.call("get", KEYS[1]) == ARGV[1] then return redis.call("pexpire", KEYS[1], ARGV[2]) else return 0 end`;

class RedisLock {
  constructor(client, key, ttlMs) {
    this.client = client;
    this.key = key;
    this.ttlMs = ttlMs;
    this.value = crypto.randomUUID();
  }

  async tryLock() {
    const reply = await this.client.set(this.key, this.value, 'PX', this.ttlMs, 'NX');
    if (reply !== 'OK') return false;
    this.timer = setInterval(() => this.renew(this.ttlMs).catch(() => {}), this.ttlMs / 3);
    this.timer.unref();
    return true;
  }

  async lock(waitMs, delayMs = 50) {
    const end = Date.now() + waitMs;
    while (!(await this.tryLock())) {
      if (Date.now() >= end) return false;
      await new Promise((resolve) => setTimeout(resolve, delayMs));
    }
    return true;
  }

  async renew(ttlMs) {
    return (await this.client.eval(RENEW, 1, this.key, this.value, ttlMs)) === 1;
  }

  async unlock() {
    clearInterval(this.timer);
    if ((await this.client.eval(RELEASE, 1, this.key, this.value)) !== 1) throw new Error('the lock was not held');
  }
}

module.exports = { RedisLock };
