'use strict';
// pawlock's own protocol, by the reference client: the key of a name begins with the namespace.
const path = require('node:path');
const { pathToFileURL } = require('node:url');

const CLIENT = path.join(__dirname, '..', '..', 'clients', 'node', 'pawlock.mjs');
const PREFIX = 'pawlock:';

// One server, Sentinels or a cluster, as the scheme of the URL says.
function connect(Redis, url) {
  const [scheme, rest] = url.split('://');
  const hosts = (text) => text.split(',').map((one) => ({ host: one.split(':')[0], port: Number(one.split(':')[1]) }));
  if (scheme === 'redis+sentinel') {
    const [sentinels, name] = rest.split('/');
    return new Redis({ sentinels: hosts(sentinels), name, sentinelRetryStrategy: () => 100 });
  }
  if (scheme === 'redis+cluster') return new Redis.Cluster(hosts(rest.split('/')[0]));
  return new Redis(url);
}

exports.library = async (Redis, url) => {
  const { Client } = await import(pathToFileURL(CLIENT));
  const redis = connect(Redis, url);
  redis.on('error', () => {});
  const client = new Client(redis);
  await client.ready(); // so that a wait is not over before its first request
  return {
    async get(key, ttl, wait) {
      if (!key.startsWith(PREFIX)) throw new Error(`the keys of this library begin with '${PREFIX}'`);
      const name = key.slice(PREFIX.length), options = ttl ? { ttl } : {};
      if (wait === 0) return client.tryAcquire(name, options);
      try {
        return await client.acquire(name, { ...options, ...(wait < 0 ? {} : { signal: AbortSignal.timeout(wait) }) });
      } catch (error) {
        if (error.name === 'TimeoutError') return null;
        throw error;
      }
    },
    release: (key, lease) => lease.release(),
    extend: () => { throw new Error('unsupported'); }, // it renews by itself
    owns: async (key, lease) => lease.held,
    about: (lease) => ({ fence: lease.fence, until: lease.validUntil / 1000 }),
  };
};
