import java.util.Collections;
import java.util.UUID;
import java.util.concurrent.TimeUnit;
import org.springframework.data.redis.core.StringRedisTemplate;
import org.springframework.data.redis.core.script.DefaultRedisScript;

/** The first lock of many articles: setIfAbsent with the id of this program and its thread, and a script that compares. */
final class SimpleRedisLock {
    private static final String ID_PREFIX = UUID.randomUUID() + "-";
    private static final DefaultRedisScript<Long> UNLOCK = new DefaultRedisScript<>(
        "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0", Long.class);

    private final String name;
    private final StringRedisTemplate template;

    SimpleRedisLock(String name, StringRedisTemplate template) {
        this.name = name;
        this.template = template;
    }

    private String id() {
        return ID_PREFIX + Thread.currentThread().getId();
    }

    boolean tryLock(long ttlMs) {
        return Boolean.TRUE.equals(template.opsForValue().setIfAbsent("lock:" + name, id(), ttlMs, TimeUnit.MILLISECONDS));
    }

    boolean unlock() {
        return Long.valueOf(1).equals(template.execute(UNLOCK, Collections.singletonList("lock:" + name), id()));
    }

    boolean owned() {
        return id().equals(template.opsForValue().get("lock:" + name));
    }
}
