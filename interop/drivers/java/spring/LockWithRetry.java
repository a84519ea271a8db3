import java.util.Collections;
import java.util.UUID;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.ScheduledFuture;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import org.springframework.data.redis.core.StringRedisTemplate;
import org.springframework.data.redis.core.script.DefaultRedisScript;

/** The enhanced lock of the same articles: a value for each lock, tries with a growing delay, and a task that prolongs. */
final class LockWithRetry {
    private static final ScheduledExecutorService WATCHDOG = Executors.newScheduledThreadPool(1, task -> {
        Thread thread = new Thread(task, "watchdog");
        thread.setDaemon(true);
        return thread;
    });
    private static final DefaultRedisScript<Long> UNLOCK = new DefaultRedisScript<>(
        "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end", Long.class);
    private static final DefaultRedisScript<Long> RENEW = new DefaultRedisScript<>(
        "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('pexpire', KEYS[1], ARGV[2]) else return 0 end", Long.class);

    private final StringRedisTemplate template;
    private final String key;
    private final long ttlMs;
    private final String value = UUID.randomUUID().toString();
    private ScheduledFuture<?> renewal;

    LockWithRetry(StringRedisTemplate template, String key, long ttlMs) {
        this.template = template;
        this.key = key;
        this.ttlMs = ttlMs;
    }

    boolean tryLock() {
        if (!Boolean.TRUE.equals(template.opsForValue().setIfAbsent(key, value, ttlMs, TimeUnit.MILLISECONDS))) return false;
        renewal = WATCHDOG.scheduleAtFixedRate(() -> renew(ttlMs), ttlMs / 3, ttlMs / 3, TimeUnit.MILLISECONDS);
        return true;
    }

    boolean lockWithRetry(long waitMs) throws InterruptedException {
        long end = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(waitMs), delayMs = 10;
        while (!tryLock()) {
            if (System.nanoTime() >= end) return false;
            Thread.sleep(delayMs + ThreadLocalRandom.current().nextLong(delayMs));
            delayMs = Math.min(100, delayMs * 2);
        }
        return true;
    }

    boolean renew(long ms) {
        return Long.valueOf(1).equals(template.execute(RENEW, Collections.singletonList(key), value, String.valueOf(ms)));
    }

    boolean unlock() {
        renewal.cancel(false);
        return Long.valueOf(1).equals(template.execute(UNLOCK, Collections.singletonList(key), value));
    }

    boolean owned() {
        return value.equals(template.opsForValue().get(key));
    }
}
