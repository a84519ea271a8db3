import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.Locale;

/** The line protocol, of which a subclass knows the library: `java Main KIND URL`. A TTL of 0 is the library's default. */
abstract class Driver {
    protected Plain plain;

    /** A wait of -1 has no end. */
    abstract boolean acquire(String key, long ttlMs, long waitMs) throws Exception;

    abstract void release(String key) throws Exception;

    void extend(String key, long ttlMs) throws Exception {
        throw new UnsupportedOperationException();
    }

    /** "held", "lost" or "free", as the library tells; "unknown" where it does not. */
    String state(String key) throws Exception {
        return "unknown";
    }

    /** More members of the JSON of a grant. */
    String about(String key) throws Exception {
        return "";
    }

    boolean other(String command, String key) throws Exception {
        throw new UnsupportedOperationException();
    }

    static String after(String prefix, String key) {
        if (!key.startsWith(prefix)) throw new IllegalArgumentException("the keys of this library begin with " + prefix);
        return key.substring(prefix.length());
    }

    static double now() {
        return System.nanoTime() / 1e9;
    }

    static synchronized void say(String members) {
        System.out.println("{" + members + "}");
        System.out.flush();
    }

    static String number(double value) {
        return String.format(Locale.ROOT, "%.9f", value);
    }

    static String text(String value) {
        return "\"" + String.valueOf(value).replace("\\", "\\\\").replace("\"", "'").replaceAll("\\p{Cntrl}", " ") + "\"";
    }

    static String error(Throwable thrown) {
        if (thrown instanceof UnsupportedOperationException && thrown.getMessage() == null) return "unsupported";
        StringBuilder found = new StringBuilder();
        for (Throwable one = thrown; one != null; one = one.getCause() == one ? null : one.getCause()) {
            found.append(found.length() == 0 ? "" : " <- ").append(one.getClass().getSimpleName()).append(": ").append(one.getMessage());
        }
        return found.toString();
    }

    private void step(String key, long ttlMs, String counter, long holdMs, String me) throws Exception {
        double asked = now();
        if (!acquire(key, ttlMs, 5000)) {
            Thread.sleep(5);
            return;
        }
        double got = now();
        String inside = "inside:" + counter;
        String found = plain.call("SET", inside, me, "GET");
        String read = plain.call("GET", counter);
        long value = read == null ? 0 : Long.parseLong(read);
        say("\"event\":\"held\",\"t0\":" + number(asked) + ",\"t\":" + number(got) + ",\"found\":" + text(found == null ? "" : found)
            + ",\"value\":" + value + about(key));
        Thread.sleep(holdMs);
        plain.call("SET", counter, String.valueOf(value + 1));
        found = plain.call("GETDEL", inside);
        double left = now();
        release(key);
        say("\"event\":\"left\",\"t0\":" + number(left) + ",\"t\":" + number(now()) + ",\"found\":" + text(found == null ? "" : found)
            + ",\"me\":" + text(me));
    }

    private String count(String key, long ttlMs, double seconds, String counter, long holdMs) throws Exception {
        String me = String.valueOf(ProcessHandle.current().pid()), last = "";
        int errors = 0;
        for (double until = now() + seconds; now() < until; ) {
            try {
                step(key, ttlMs, counter, holdMs, me);
            } catch (Exception thrown) {
                errors++;
                last = error(thrown);
                say("\"event\":\"error\",\"t\":" + number(now()) + ",\"error\":" + text(last));
                Thread.sleep(50);
            }
        }
        return "\"ok\":true,\"errors\":" + errors + ",\"error\":" + text(last);
    }

    private String answer(String[] w) throws Exception {
        switch (w[0]) {
            case "try":
            case "lock":
                boolean ok = acquire(w[1], Long.parseLong(w[2]), w[0].equals("try") ? 0 : Long.parseLong(w[3]));
                return "\"ok\":" + ok + (ok ? about(w[1]) : "");
            case "unlock":
                release(w[1]);
                return "\"ok\":true";
            case "extend":
                extend(w[1], Long.parseLong(w[2]));
                return "\"ok\":true";
            case "state":
                return "\"ok\":true,\"state\":" + text(state(w[1]));
            case "count":
                return count(w[1], Long.parseLong(w[2]), Double.parseDouble(w[3]), w[4], Long.parseLong(w[5]));
            default:
                return "\"ok\":" + other(w[0], w[1]);
        }
    }

    void run(String url) throws Exception {
        plain = new Plain(url);
        say("\"ready\":true");
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line; (line = lines.readLine()) != null; ) {
            double begin = now();
            String found;
            try {
                found = answer(line.trim().split("\\s+"));
            } catch (Throwable thrown) {
                found = "\"ok\":false,\"error\":" + text(error(thrown));
            }
            say("\"t0\":" + number(begin) + ",\"t\":" + number(now()) + "," + found);
        }
        System.exit(0);
    }
}
