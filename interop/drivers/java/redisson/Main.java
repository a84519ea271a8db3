import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.redisson.Redisson;
import org.redisson.api.RFencedLock;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

/** Redisson: the kind is which of its locks. With a TTL of 0 its watchdog renews. */
final class Main extends Driver {
    private final String kind;
    private final RedissonClient client;
    private final Map<String, Long> tokens = new HashMap<>();

    Main(String kind, String url) {
        Config config = new Config();
        config.setLockWatchdogTimeout(Long.parseLong(System.getProperty("watchdog", "30000")));
        String address = url.replaceAll("/\\d*$", "");
        if (Boolean.getBoolean("cluster")) {
            config.useClusterServers().addNodeAddress(address)
                .setMasterConnectionPoolSize(8).setMasterConnectionMinimumIdleSize(1).setSlaveConnectionMinimumIdleSize(1);
        } else {
            config.useSingleServer().setAddress(address).setConnectionPoolSize(8).setConnectionMinimumIdleSize(2);
        }
        this.kind = kind;
        client = Redisson.create(config);
    }

    private RLock lock(String key) {
        switch (kind) {
            case "lock": return client.getLock(key);
            case "spin": return client.getSpinLock(key);
            case "fair": return client.getFairLock(key);
            case "fenced": return client.getFencedLock(key);
            case "write": return client.getReadWriteLock(key).writeLock();
            case "read": return client.getReadWriteLock(key).readLock();
            default: throw new IllegalArgumentException(kind);
        }
    }

    boolean acquire(String key, long ttlMs, long waitMs) throws Exception {
        RLock lock = lock(key);
        long ttl = ttlMs == 0 ? -1 : ttlMs;
        if (waitMs < 0) {
            lock.lock(ttl, TimeUnit.MILLISECONDS);
        } else if (!lock.tryLock(waitMs, ttl, TimeUnit.MILLISECONDS)) {
            return false;
        }
        if (lock instanceof RFencedLock) tokens.put(key, ((RFencedLock) lock).getToken());
        return true;
    }

    void release(String key) {
        lock(key).unlock();
    }

    String state(String key) {
        RLock lock = lock(key);
        return lock.isHeldByCurrentThread() ? "held" : lock.isLocked() ? "lost" : "free";
    }

    String about(String key) {
        return tokens.containsKey(key) ? ",\"fence\":" + tokens.get(key) : "";
    }

    boolean other(String command, String key) throws Exception {
        switch (command) {
            case "force": return lock(key).forceUnlock();
            case "locked": return lock(key).isLocked();
            default: return super.other(command, key);
        }
    }

    public static void main(String[] words) throws Exception {
        new Main(words[0], words[1]).run(words[1]);
    }
}
