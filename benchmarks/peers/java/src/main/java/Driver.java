import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.management.ManagementFactory;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.function.IntConsumer;
import org.redisson.Redisson;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

/** A participant's process for Redisson: the same lines of JSON in and out as benchmarks.worker. */
public final class Driver {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static RedissonClient client;
    private static String name;
    private static int workers;
    private static boolean fair;

    private Driver() {}

    static double now() {
        return System.nanoTime() / 1e9;
    }

    static double cpu() {
        var bean = (com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
        return bean.getProcessCpuTime() / 1e9;
    }

    static void sleep(double seconds) throws InterruptedException {
        if (seconds > 0) {
            long nanos = (long) (seconds * 1e9);
            Thread.sleep(nanos / 1_000_000, (int) (nanos % 1_000_000));
        }
    }

    static synchronized void say(Object line) throws Exception {
        System.out.println(JSON.writeValueAsString(line));
    }

    /** A lock of the name; its lease is renewed by the watchdog, which is Redisson's default. */
    static RLock lock(String of) {
        return fair ? client.getFairLock(of) : client.getLock(of);
    }

    interface Work {
        void run(int worker) throws Exception;
    }

    static void together(Work work) throws Exception {
        List<Thread> threads = new ArrayList<>();
        IntConsumer start = worker -> {
            Thread thread = new Thread(() -> {
                try {
                    work.run(worker);
                } catch (Exception error) {
                    fail(error);
                }
            });
            thread.start();
            threads.add(thread);
        };
        for (int worker = 0; worker < workers; worker++) {
            start.accept(worker);
        }
        for (Thread thread : threads) {
            thread.join();
        }
    }

    static void fail(Exception error) {
        try {
            say(Map.of("error", String.valueOf(error), "kind", error.getClass().getSimpleName()));
        } catch (Exception again) {
            again.printStackTrace();
        }
        Runtime.getRuntime().halt(1);
    }

    static Object pairs(JsonNode command) throws Exception {
        List<List<Double>> waits = new ArrayList<>();
        for (int worker = 0; worker < workers; worker++) {
            waits.add(new ArrayList<>());
        }
        double used = cpu();
        double begin = now();
        double until = begin + command.get("seconds").asDouble();
        together(worker -> {
            RLock lock = lock(name + "-" + worker);
            List<Double> mine = waits.get(worker);
            for (double asked = now(); asked < until; asked = now()) {
                lock.lock();
                mine.add(now() - asked);
                lock.unlock();
            }
        });
        double wall = now() - begin;
        double spent = cpu() - used;
        List<Double> all = new ArrayList<>();
        double squares = 0;
        for (List<Double> mine : waits) {
            all.addAll(mine);
            squares += (double) mine.size() * mine.size();
        }
        Collections.sort(all);
        double sum = all.size();
        return Map.of("grants", sum, "wall", wall, "cpu", spent, "thread_cpu", spent,
            "jain", sum * sum / (workers * squares),
            "acquire_p50_us", at(all, 0.5) * 1e6, "acquire_p99_us", at(all, 0.99) * 1e6,
            "acquire_max_us", all.get(all.size() - 1) * 1e6);
    }

    static double at(List<Double> sorted, double share) {
        return sorted.get(Math.min(sorted.size() - 1, (int) (sorted.size() * share)));
    }

    static Object crowd(JsonNode command) throws Exception {
        double start = command.get("start").asDouble();
        double until = start + command.get("seconds").asDouble();
        double section = command.get("section").asDouble();
        List<Object> events = Collections.synchronizedList(new ArrayList<>());
        double used = cpu();
        together(worker -> {
            RLock lock = lock(name);
            sleep(start - now());
            while (now() < until) {
                double asked = now();
                lock.lock();
                double acquired = now();
                sleep(section);
                double releasing = now();
                lock.unlock();
                events.add(Arrays.asList(worker, asked, acquired, releasing, now(), null));
            }
        });
        return Map.of("events", events, "cpu", cpu() - used);
    }

    static Object turn(JsonNode command) throws Exception {
        RLock lock = lock(name);
        lock.lock();
        double acquired = now();
        say(Map.of("acquired", acquired));
        sleep(acquired + command.get("hold").asDouble() - now());
        double releasing = now();
        lock.unlock();
        Thread.sleep(10);
        return Map.of("releasing", releasing);
    }

    public static void main(String[] arguments) throws Exception {
        JsonNode job = JSON.readTree(arguments[0]);
        name = job.get("name").asText();
        workers = job.get("workers").asInt();
        JsonNode options = job.get("options");
        fair = options.has("fair");
        Config config = new Config();
        config.setUseScriptCache(true);
        var server = config.useSingleServer().setAddress(job.get("url").asText().split("/0")[0]);
        if (options.has("best")) {
            server.setTcpNoDelay(true).setConnectionPoolSize(Math.max(16, workers)).setConnectionMinimumIdleSize(8);
            config.setThreads(4).setNettyThreads(4);
        }
        client = Redisson.create(config);
        String workload = job.get("workload").asText();
        say(Map.of("ready", 1));
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            JsonNode command = JSON.readTree(line);
            say(workload.equals("turns") ? turn(command) : workload.equals("pairs") ? pairs(command) : crowd(command));
        }
        Runtime.getRuntime().halt(0);
    }
}
