import java.net.URI;
import java.time.Duration;
import java.time.Instant;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.Lock;
import net.javacrumbs.shedlock.core.LockConfiguration;
import net.javacrumbs.shedlock.core.LockProvider;
import net.javacrumbs.shedlock.core.SimpleLock;
import net.javacrumbs.shedlock.provider.redis.spring.RedisLockProvider;
import org.springframework.data.redis.connection.lettuce.LettuceConnectionFactory;
import org.springframework.data.redis.core.StringRedisTemplate;
import org.springframework.integration.redis.util.RedisLockRegistry;

/** Spring Integration, ShedLock, and the locks that articles show on Spring's template. */
final class Main {
    private static final long FOREVER_MS = 600_000;

    private Main() {}

    /** Its TTL is the registry's, which renews nothing by itself. */
    static final class Spring extends Driver {
        private final RedisLockRegistry registry;
        private final Map<String, Lock> held = new HashMap<>();

        Spring(LettuceConnectionFactory connections, boolean pubSub) {
            registry = new RedisLockRegistry(connections, "locks", Long.parseLong(System.getProperty("ttl", "60000")));
            if (pubSub) registry.setRedisLockType(RedisLockRegistry.RedisLockType.PUB_SUB_LOCK);
        }

        boolean acquire(String key, long ttlMs, long waitMs) throws Exception {
            Lock lock = registry.obtain(after("locks:", key));
            if (waitMs < 0) lock.lock();
            else if (!(waitMs == 0 ? lock.tryLock() : lock.tryLock(waitMs, TimeUnit.MILLISECONDS))) return false;
            held.put(key, lock);
            return true;
        }

        void release(String key) {
            held.get(key).unlock();
        }

        void extend(String key, long ttlMs) {
            registry.renewLock(after("locks:", key), Duration.ofMillis(ttlMs));
        }
    }

    /** One try is all that it knows: the driver waits. */
    static final class ShedLock extends Driver {
        private final LockProvider provider;
        private final Map<String, SimpleLock> held = new HashMap<>();

        ShedLock(LettuceConnectionFactory connections, boolean safe) {
            provider = new RedisLockProvider.Builder(connections).safeUpdate(safe).build();
        }

        boolean acquire(String key, long ttlMs, long waitMs) throws Exception {
            String name = after("job-lock:default:", key);
            double until = now() + (waitMs < 0 ? FOREVER_MS : waitMs) / 1000.0;
            Duration ttl = Duration.ofMillis(ttlMs == 0 ? 30_000 : ttlMs);
            while (true) {
                var got = provider.lock(new LockConfiguration(Instant.now(), name, ttl, Duration.ZERO));
                got.ifPresent(lock -> held.put(key, lock));
                if (got.isPresent() || now() >= until) return got.isPresent();
                Thread.sleep(50);
            }
        }

        void release(String key) {
            held.remove(key).unlock();
        }
    }

    static final class Simple extends Driver {
        private final StringRedisTemplate template;

        Simple(StringRedisTemplate template) {
            this.template = template;
        }

        private SimpleRedisLock lock(String key) {
            return new SimpleRedisLock(after("lock:", key), template);
        }

        boolean acquire(String key, long ttlMs, long waitMs) throws Exception {
            double until = now() + (waitMs < 0 ? FOREVER_MS : waitMs) / 1000.0;
            while (!lock(key).tryLock(ttlMs == 0 ? 30_000 : ttlMs)) {
                if (now() >= until) return false;
                Thread.sleep(50);
            }
            return true;
        }

        void release(String key) {
            if (!lock(key).unlock()) throw new IllegalStateException("the lock was not held");
        }

        String state(String key) {
            return lock(key).owned() ? "held" : "lost";
        }
    }

    static final class Retry extends Driver {
        private final StringRedisTemplate template;
        private final Map<String, LockWithRetry> held = new HashMap<>();

        Retry(StringRedisTemplate template) {
            this.template = template;
        }

        boolean acquire(String key, long ttlMs, long waitMs) throws Exception {
            LockWithRetry lock = new LockWithRetry(template, key, ttlMs == 0 ? 30_000 : ttlMs);
            boolean got = waitMs == 0 ? lock.tryLock() : lock.lockWithRetry(waitMs < 0 ? FOREVER_MS : waitMs);
            if (got) held.put(key, lock);
            return got;
        }

        void release(String key) {
            if (!held.remove(key).unlock()) throw new IllegalStateException("the lock was not held");
        }

        void extend(String key, long ttlMs) {
            if (!held.get(key).renew(ttlMs)) throw new IllegalStateException("the lock was not held");
        }

        String state(String key) {
            return !held.containsKey(key) ? "free" : held.get(key).owned() ? "held" : "lost";
        }
    }

    private static Driver make(String kind, LettuceConnectionFactory connections) {
        switch (kind) {
            case "spring": return new Spring(connections, false);
            case "springpub": return new Spring(connections, true);
            case "shedlock": return new ShedLock(connections, false);
            case "shedlock-safe": return new ShedLock(connections, true);
            case "simple-java": return new Simple(new StringRedisTemplate(connections));
            case "retry-java": return new Retry(new StringRedisTemplate(connections));
            default: throw new IllegalArgumentException(kind);
        }
    }

    public static void main(String[] words) throws Exception {
        URI uri = URI.create(words[1]);
        LettuceConnectionFactory connections = new LettuceConnectionFactory(uri.getHost(), uri.getPort());
        connections.afterPropertiesSet();
        connections.start();
        make(words[0], connections).run(words[1]);
    }
}
