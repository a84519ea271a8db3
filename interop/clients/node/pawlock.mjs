/**
 * A client of pawlock's locks for Node.js, of the wire protocol in docs/reference/wire.md: one queue, one order of fencing
 * tokens and hand-offs by message, together with pawlock's own clients in Python.
 *
 *   const client = new Client(new Redis('redis://localhost:6379'));
 *
 *   const lease = await client.acquire('order:42', { ttl: 30_000, signal: AbortSignal.timeout(5_000) });
 *   try {
 *     await charge({ fence: lease.fence, signal: lease.signal }); // aborted when the lease is lost
 *   } finally {
 *     await lease.release();
 *   }
 *
 * It takes an ioredis client: of one server, of Sentinels or of a cluster. To use it, copy this file and scripts.json,
 * which is a part of docs/wire/scripts.json. It needs Node.js 20.3 or later.
 */
import { randomBytes } from 'node:crypto';
import { setMaxListeners } from 'node:events';
import { readFileSync } from 'node:fs';
import { hostname } from 'node:os';

const { wire, scripts } = JSON.parse(readFileSync(new URL('./scripts.json', import.meta.url), 'utf8'));
if (wire !== '1') throw new Error(`scripts.json is of wire version ${wire}, this client of version 1`);

/** The lease ended before it was released; `cause` or the message says why. */
export class LeaseLost extends Error {
  name = 'LeaseLost';
}
/** The lease was released before. */
export class LeaseReleased extends Error {
  name = 'LeaseReleased';
}
/** As many wait as `maxWaiters` allows. */
export class QueueFull extends Error {
  name = 'QueueFull';
}
/** The server did not answer for as long as `patience` allows; `cause` is its last failure. */
export class Unavailable extends Error {
  name = 'Unavailable';
}
/** The client is closed. */
export class ClientClosed extends Error {
  name = 'ClientClosed';
}

/** A request that was not answered in time. */
class NoReply extends Error {
  name = 'NoReply';
}

const DEFAULTS = {
  namespace: 'pawlock', // what keys begin with; '': a name is its key
  holder: `${hostname()}:${process.pid}/node`, // what others see of a holder
  ttl: 30_000, // ms that the server keeps a lease that is not renewed
  ticketTtl: 3_000, // ms that the server keeps the place of a waiter that is not renewed
  fenceTtl: 3_600_000, // ms that the record of fencing tokens is kept after its last use
  patience: 10_000, // ms to go on while the server does not answer
  maxWaiters: 10_000,
};
const TOMB_MS = 60_000; // longer than a request may be on its way
const DRIFTED_MOST = 3;

/** Milliseconds on a clock that nobody can set. */
const now = () => Number(process.hrtime.bigint()) / 1e6;
const randomText = () => randomBytes(16).toString('hex');
const ignore = () => {};

// ---- Names and keys

const NAME_UNSAFE = /[%{}\x00-\x1f\x7f-\x9f\u2028\u2029]/;
const NAMESPACE_UNSAFE = /[%{}:\x00-\x20\x7f-\x9f\u2028\u2029*?[\]]/;
const UNSEEN = /[\x00-\x1f\x7f-\x9f\u2028\u2029]/;
const RESERVED = /(?:^\{.*\}|:pawlock):(?:fence$|\d+:)/;
const TAGGED = /^[^{}]*\{[^{}]+\}[^{}]*$/;

const escaped = (text, unsafe) =>
  text.replace(new RegExp(unsafe, 'g'), (character) =>
    [...Buffer.from(character)].map((byte) => `%${byte.toString(16).toUpperCase().padStart(2, '0')}`).join(''));

function checkText(text, what) {
  if (typeof text !== 'string' || !text.isWellFormed()) throw new TypeError(`${what} must be text`);
  if (Buffer.byteLength(text) > 200) throw new RangeError(`${what} must be at most 200 bytes`);
}

/** The key of a lock name. */
export function keyOf(namespace, name) {
  checkText(namespace, 'namespace');
  checkText(name, 'name');
  if (name === '') throw new RangeError('name must be 1 to 200 bytes');
  if (UNSEEN.test(namespace) || namespace !== namespace.trim()) {
    throw new RangeError('namespace contains a control character, or a space at an end');
  }
  if (namespace !== '') return `${escaped(namespace, NAMESPACE_UNSAFE)}:${escaped(name, NAME_UNSAFE)}`;
  const bare = TAGGED.test(name) ? name.replace(/[{}]/g, '') : name;
  if (RESERVED.test(name) || NAME_UNSAFE.test(bare)) throw new RangeError(`name ${name} needs a namespace`);
  return name;
}

/** The key of a helper structure of a key, in the same hash slot; no suffix: the key itself. */
export function helperKey(key, suffix) {
  if (suffix === '') return key;
  return key.includes('{') ? `${key}:pawlock:${suffix}` : `{${key}}:${suffix}`;
}

// ---- Waiting

/** A promise that also ends with a signal. */
function interruptible(promise, signal) {
  return new Promise((resolve, reject) => {
    const abort = () => reject(signal.reason);
    if (signal?.aborted) return abort();
    signal?.addEventListener('abort', abort, { once: true });
    promise.then(resolve, reject).finally(() => signal?.removeEventListener('abort', abort));
  });
}

async function pause(ms, signal) {
  let timer;
  try {
    await interruptible(new Promise((resolve) => { timer = setTimeout(resolve, Math.max(ms, 0)); }), signal);
  } finally {
    clearTimeout(timer);
  }
}

/** What a waiter sleeps on: it is rung when something was said of its token, also while nobody sleeps. */
class Bell {
  #rung = false;
  #wake = ignore;

  ring = () => {
    this.#rung = true;
    this.#wake();
  };

  async wait(ms, signal) {
    if (!this.#rung) {
      let timer;
      const rung = new Promise((resolve) => {
        this.#wake = resolve;
        timer = setTimeout(resolve, ms);
      });
      await interruptible(rung, signal).finally(() => clearTimeout(timer));
    }
    this.#rung = false;
  }
}

// ---- Failures

const PASSING = new Set('LOADING READONLY MASTERDOWN CLUSTERDOWN TRYAGAIN BUSY NOREPLICAS MISCONF OOM'.split(' '));
const isReply = (error) => error.name === 'ReplyError';

/** Whether a request that failed may have been carried out, or may yet be. */
const mayHaveRun = (error) => !isReply(error) && !/enableOfflineQueue/.test(error.message);

/** Whether it makes sense to ask again: there was no answer, or the server cannot answer now. */
const passes = (error) =>
  isReply(error) ? PASSING.has(error.message.split(' ', 1)[0]) || /max number of clients/.test(error.message) : true;

/** How long the server has failed to answer. */
class Trouble {
  #attempts = 0;
  #since = 0;

  /** Rest before the next try, or throw why there is none. */
  async bear(error, patience, signal) {
    signal?.throwIfAborted();
    if (!passes(error)) throw error;
    if (this.#attempts++ === 0) this.#since = now();
    if (now() - this.#since > patience) throw new Unavailable('the server does not answer', { cause: error });
    await pause(Math.random() * Math.min(1000, 20 * 2 ** this.#attempts), signal);
  }
}

// ---- Requests

/** A token's life on the server: what was asked for it. */
class Token {
  #connection;
  #keys;
  unanswered = false; // an acquire may still be on its way, and has to be barred
  sent = false; // the server may know it
  pending = null; // the acquire that its caller did not wait for

  constructor(connection, name, settings) {
    this.#connection = connection;
    this.name = name;
    this.settings = settings;
    this.text = `${randomText()}@${settings.holder.replace(/\s/g, '_')}`;
    const key = keyOf(settings.namespace, name);
    this.#keys = (script) => script.keys.map(({ suffix }) => helperKey(key, suffix.replace('<token>', this.text)));
  }

  /** Send one request; wait for its reply, the signal, or the end of its time. The reply, and when it was sent. */
  async #ask(name, args, signal, limit = Infinity) {
    signal?.throwIfAborted();
    const script = scripts[name];
    const sent = now();
    const answered = this.#connection.send(script, this.#keys(script), args);
    answered.catch(ignore);
    let timer;
    const late = new Promise((_, reject) => {
      const ms = Math.min(1000, this.settings.ticketTtl / 3, limit);
      timer = setTimeout(() => reject(new NoReply('no reply in time')), ms);
    });
    try {
      return { reply: await interruptible(Promise.race([answered, late]), signal), sent };
    } catch (error) {
      if (signal?.aborted) this.pending = answered;
      else if (error instanceof NoReply) this.#connection.stalled(sent);
      throw error;
    } finally {
      clearTimeout(timer);
    }
  }

  async acquire(mode, channel, signal) {
    const { ttl, ticketTtl, maxWaiters, fenceTtl } = this.settings;
    signal.throwIfAborted();
    this.sent = true;
    try {
      return await this.#ask('mutex/acquire', [this.text, ttl, ticketTtl, mode, 1, channel, maxWaiters, fenceTtl], signal);
    } catch (error) {
      this.unanswered ||= this.pending === null && mayHaveRun(error);
      throw error;
    }
  }

  async renew(channel, signal, limit) {
    const { ttl, ticketTtl, fenceTtl } = this.settings;
    try {
      return await this.#ask('mutex/renew', [this.text, ttl, ticketTtl, channel, fenceTtl], signal, limit);
    } finally {
      this.pending = null; // a late copy brings nothing back
    }
  }

  async leave(signal) {
    const { fenceTtl } = this.settings;
    return (await this.#ask('mutex/leave', [this.text, this.unanswered ? TOMB_MS : 0, 0, fenceTtl], signal)).reply;
  }

  /** Remove what the server has of it, which nobody may use any more. */
  async withdraw() {
    if (!this.sent) return;
    if (this.pending !== null) {
      // A request that is answered first needs no tombstone.
      const late = pause(Math.min(1000, this.settings.ticketTtl / 3)).then(() => { throw new NoReply('no reply'); });
      late.catch(ignore);
      await Promise.race([this.pending, late]).catch((error) => { this.unanswered ||= mayHaveRun(error); });
      this.pending = null;
    }
    const trouble = new Trouble();
    for (;;) {
      try {
        return void await this.leave();
      } catch (error) {
        try {
          // After that the server has forgotten it.
          await trouble.bear(error, this.settings.ttl + this.settings.patience);
        } catch {
          return;
        }
      }
    }
  }
}

/** When a lease ends of which the server said what is left, counted from before it was asked. */
const validUntil = (sent, left, ttl) => sent + Math.min(left, ttl) * 0.99 - 2;

// ---- The client

export class Client {
  #redis;
  #ear = null;
  #source;
  #defaults;
  #channel;
  #bells = new Map(); // by token
  #leases = new Set();
  #work = new Set(); // what goes on in the background, or has to end before the client does
  #closing = new AbortController();
  #listening = null;
  #subscribed = false;
  #requests = 0;
  #answered = 0; // when the last reply came

  /**
   * @param redis An ioredis client, which stays the caller's: this one makes two connections like it.
   * @param options Other defaults than those above, for all locks.
   */
  constructor(redis, options = {}) {
    this.#defaults = { ...DEFAULTS, ...options };
    this.#source = redis;
    // A request that is sent again by the library would hide that a copy is on its way.
    this.#redis = this.#duplicate({ enableOfflineQueue: false, autoResendUnfulfilledCommands: false, maxRetriesPerRequest: 0, disconnectTimeout: 100 });
    const space = this.#defaults.namespace === '' ? 'pawlock' : escaped(this.#defaults.namespace, NAMESPACE_UNSAFE);
    this.#channel = `${space}:wake:${randomText()}`;
    setMaxListeners(0, this.#closing.signal); // one for each waiter
  }

  #duplicate(options) {
    const own = { ...options, reconnectOnError: (error) => error.message.startsWith('READONLY') };
    const source = this.#source;
    const made = source.isCluster
      ? source.duplicate([], {
          ...('enableOfflineQueue' in options ? { enableOfflineQueue: false } : {}),
          retryDelayOnFailover: 0,
          retryDelayOnClusterDown: 0,
          retryDelayOnTryAgain: 0,
          redisOptions: { ...source.options.redisOptions, ...own },
        })
      : source.duplicate(own);
    made.on('error', ignore); // each request tells its own
    return made;
  }

  /** Wait until the client is connected and subscribed; otherwise the first `acquire` does. */
  async ready(signal = this.#closing.signal) {
    if (!this.#subscribed) await this.#listens(signal, this.#defaults.patience);
  }

  /** Take the lock of a name if it is free; null if another client holds or awaits it. */
  tryAcquire(name, options) {
    return this.#track(this.#take(name, options, null));
  }

  /**
   * Take the lock of a name, and wait in the queue while another client has it.
   *
   * @param name What to lock.
   * @param options Settings of this lock, and `signal`: when it is aborted, the wait ends with its reason and the place in
   *   the queue is given up; it has no effect on the lease.
   */
  acquire(name, options) {
    return this.#track(this.#take(name, options, new Bell()));
  }

  /** Run a function while the lock is held; it is given the lease. */
  async withLock(name, options, work) {
    const lease = await this.acquire(name, options);
    try {
      return await work(lease);
    } finally {
      await lease.release();
    }
  }

  /** Release what is held, end what waits, and wait until nothing of this client is left on the server. */
  async close() {
    const ended = [...this.#leases].map((lease) => lease.release());
    this.#closing.abort(new ClientClosed('the client is closed'));
    await Promise.allSettled(ended);
    while (this.#work.size > 0) await Promise.allSettled([...this.#work]);
    this.#redis.disconnect();
    this.#ear?.disconnect();
  }

  [Symbol.asyncDispose]() {
    return this.close();
  }

  #track(promise) {
    this.#work.add(promise);
    promise.catch(ignore).finally(() => this.#work.delete(promise));
    return promise;
  }

  #connection = {
    send: async (script, keys, args) => {
      const rid = String(++this.#requests);
      const words = [keys.length, ...keys, ...args, rid];
      let reply;
      try {
        reply = await this.#redis.evalsha(script.sha1, ...words);
      } catch (error) {
        if (!isReply(error) || !error.message.startsWith('NOSCRIPT')) throw error;
        reply = await this.#redis.eval(script.source, ...words);
      }
      this.#answered = now();
      if (reply?.[1] !== rid) throw new Error(`the reply ${reply} is not to request ${rid}`);
      return reply;
    },

    /** Nothing has come on the connection since this was sent: what is sent next would wait behind it. */
    stalled: (sent) => {
      if (this.#answered < sent && this.#redis.status === 'ready') this.#redis.disconnect(true);
    },
  };

  /** Subscribe to the client's own channel, once, and again whenever the connection is lost. */
  #listen() {
    this.#listening ??= new Promise((resolve) => {
      this.#ear = this.#duplicate({ autoResubscribe: false, maxRetriesPerRequest: null });
      this.#ear.on('message', (_, text) => this.#bells.get(text.split(' ', 1)[0])?.ring());
      const subscribe = () =>
        this.#ear.subscribe(this.#channel).then(() => {
          this.#subscribed = true;
          resolve();
          // What was said meanwhile is lost: everybody asks.
          for (const bell of this.#bells.values()) bell.ring();
        }, ignore);
      if (this.#ear.status === 'ready') subscribe();
      this.#ear.on('ready', subscribe);
    });
    return this.#listening;
  }

  async #listens(signal, patience) {
    const given = AbortSignal.timeout(patience);
    try {
      await interruptible(this.#listen(), AbortSignal.any([signal, given]));
    } catch (error) {
      if (error !== given.reason) throw error;
      throw new Unavailable('the server did not confirm the subscription');
    }
  }

  /** Go on with one token after the other until one holds the lock. No bell: it does not wait. */
  async #take(name, { signal: asked, ...options } = {}, bell) {
    const settings = { ...this.#defaults, ...options };
    settings.ticketTtl = Math.min(settings.ticketTtl, settings.ttl);
    const signal = asked ? AbortSignal.any([asked, this.#closing.signal]) : this.#closing.signal;
    signal.throwIfAborted();
    keyOf(settings.namespace, name);
    if (bell && !this.#subscribed) await this.#listens(signal, settings.patience);
    for (;;) {
      const token = new Token(this.#connection, name, settings);
      if (bell) this.#bells.set(token.text, bell);
      try {
        const won = await this.#win(token, bell, signal);
        if (won !== undefined) return won;
      } catch (error) {
        this.#track(token.withdraw());
        throw error;
      } finally {
        this.#bells.delete(token.text);
      }
      // The server dropped its ticket, or lost it.
      this.#track(token.withdraw());
    }
  }

  /** Ask until the token holds the lock. A lease; null if another client has it; undefined if the token is dead. */
  async #win(token, bell, signal) {
    const { settings } = token;
    const channel = bell ? this.#channel : '';
    let trouble = new Trouble();
    let known = false;
    let drifted = 0;
    for (;;) {
      let reply, sent;
      try {
        ({ reply, sent } = known ? await token.renew(channel, signal) : await token.acquire(bell ? 1 : 0, channel, signal));
      } catch (error) {
        await trouble.bear(error, settings.patience, signal);
        continue;
      }
      trouble = new Trouble();
      switch (reply[0]) {
        case 'H': {
          const [, , fence, left] = reply;
          if (fence <= 0) return undefined; // the server lost the record of the fencing tokens since it granted the lock
          const valid = validUntil(sent, left, settings.ttl);
          // It was granted to the ticket, or to an earlier copy of the request: raised to the whole TTL once.
          if ((left >= settings.ttl || drifted > 0) && now() < valid) return this.#granted(token, fence, valid);
          if (++drifted > DRIFTED_MOST) throw new Error(`${drifted} grants in a row had expired when they arrived`);
          known = true;
          break;
        }
        case 'Q': {
          known = true;
          const [, , rank, holderLeft, , , foreign] = reply;
          let length = settings.ticketTtl / 3;
          if (rank === 0 && foreign === 1) length = Math.min(length, 50 + Math.random() * 50);
          if (rank === 0 && holderLeft >= 0) length = Math.min(length, holderLeft + 1);
          await bell.wait(length, signal);
          break;
        }
        case 'B':
          if (token.unanswered) this.#track(token.withdraw());
          return null;
        case 'F':
          token.sent = token.unanswered;
          throw new QueueFull(`${reply[2]} wait for ${token.name}`);
        case 'U':
        case 'X':
          return undefined;
        default:
          throw new Error(`a reply that is not of pawlock: ${reply}`);
      }
    }
  }

  #granted(token, fence, valid) {
    const lease = new Lease(token, fence, valid, (ended) => {
      this.#leases.delete(lease);
      this.#track(ended);
    });
    this.#leases.add(lease);
    return lease;
  }
}

// ---- The lease

/** A lock that is held. It is renewed in the background until it is released or lost. */
class Lease {
  #token;
  #valid;
  #ended; // told when the lease is over, with what goes on then
  #over = new AbortController();
  #renewing = new AbortController();
  #kept;
  #left = false;

  constructor(token, fence, valid, ended) {
    this.#token = token;
    this.#valid = valid;
    this.#ended = ended;
    /** The fencing token: larger than that of every earlier lease of the name. */
    this.fence = fence;
    /** What is locked. */
    this.name = token.name;
    this.#kept = this.#keep();
  }

  /** Aborted when the lease is lost or released; its reason says which. */
  get signal() {
    return this.#over.signal;
  }

  /** The value of the lock's key. */
  get token() {
    return this.#token.text;
  }

  /** When the lease ends if it is not renewed until then, as `process.hrtime`, in milliseconds. */
  get validUntil() {
    return this.#valid;
  }

  /** Whether it is held. This looks at the clock, so it is right even where the program has just been stopped for a while. */
  get held() {
    if (!this.#over.signal.aborted && now() >= this.#valid) this.#lose('it expired before it could be renewed');
    return !this.#over.signal.aborted;
  }

  /** Throw LeaseLost or LeaseReleased unless it is held. */
  check() {
    if (!this.held) throw this.#over.signal.reason;
  }

  /** Renew it every third of its TTL, until it is lost or to be released. */
  async #keep() {
    const { ttl } = this.#token.settings;
    const signal = this.#renewing.signal;
    let next = now() + ttl / 3;
    let attempts = 0;
    for (;;) {
      try {
        await pause(Math.min(next, this.#valid) - now(), signal);
        if (!this.held) return;
        const { reply, sent } = await this.#token.renew('', signal, this.#valid - now());
        if (!this.held) return; // after its end no reply counts
        if (reply[0] !== 'H') return this.#lose(`the server says ${reply.slice(2)}`);
        this.#valid = validUntil(sent, reply[3], ttl);
        next = sent + ttl / 3;
        attempts = 0;
      } catch (error) {
        if (signal.aborted || !this.held) return;
        if (!passes(error)) return this.#lose(error.message, error);
        next = now() + Math.random() * Math.min(1000, ttl / 12, 20 * 2 ** ++attempts);
      }
    }
  }

  #lose(why, cause) {
    if (!this.#over.signal.aborted) this.#over.abort(new LeaseLost(`the lease of ${this.name} is lost: ${why}`, { cause }));
    this.#renewing.abort();
    this.#leave(() => this.#token.withdraw());
  }

  #leave(how) {
    if (this.#left) return undefined;
    this.#left = true;
    const ended = how();
    this.#ended(ended);
    return ended;
  }

  /** Release the lock. It throws LeaseLost if the lease was lost, and LeaseReleased if it was released before. */
  async release() {
    this.check();
    if (this.#left) throw new LeaseReleased(`the lease of ${this.name} is being released`);
    await this.#leave(() => this.#release());
  }

  [Symbol.asyncDispose]() {
    return this.release();
  }

  async #release() {
    this.#renewing.abort();
    await this.#kept; // the token is free for this
    let trouble = new Trouble();
    let unanswered = false;
    for (;;) {
      let reply;
      try {
        reply = await this.#token.leave();
      } catch (error) {
        unanswered ||= mayHaveRun(error);
        try {
          await trouble.bear(error, this.#token.settings.patience);
        } catch (last) {
          this.#over.abort(new LeaseReleased(`the lease of ${this.name} was released, but the server did not answer`));
          throw last;
        }
        continue;
      }
      // An earlier copy has released it, unless an operator took it.
      const earlier = unanswered && reply[0] === 'A' && reply[3] === 0 && now() < this.#valid;
      if (reply[0] === 'R' || earlier) return this.#over.abort(new LeaseReleased(`the lease of ${this.name} is released`));
      this.#over.abort(new LeaseLost(`the lease of ${this.name} is lost: the server says ${reply.slice(2)}`));
      throw this.#over.signal.reason;
    }
  }
}
