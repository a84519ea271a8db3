// java Counter.java URL NAME FILE ROUNDS: add 1 to the number in FILE, ROUNDS times, each time under the lock NAME.
// The token comes from $PAWLOCK_TOKEN. Needs Java 17 or later and no library.
import java.io.IOException;
import java.net.URI;
import java.net.URLEncoder;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse.BodyHandlers;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.UUID;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import java.util.regex.Pattern;

public final class Counter {
    record Reply(int status, String body) {
        String field(String name) { // enough for what this service says; a program with a JSON library uses that
            var found = Pattern.compile("\"" + name + "\": ?\"?([^\",}]*)").matcher(body);
            return found.find() ? found.group(1) : "";
        }
    }

    static final class Pawlock {
        final HttpClient http = HttpClient.newHttpClient();
        final String url;
        final String token;

        Pawlock(String url, String token) {
            this.url = url;
            this.token = token;
        }

        /** The same request again, under the same key, until some instance has answered it. */
        Reply ask(String name, String verb, String body) throws IOException, InterruptedException {
            var path = url + "/v1/ns/pawlock/lock/" + URLEncoder.encode(name, StandardCharsets.UTF_8).replace("+", "%20");
            var request = HttpRequest.newBuilder(URI.create(path + "/" + verb))
                .header("Authorization", "Bearer " + token)
                .header("Idempotency-Key", UUID.randomUUID().toString())
                .POST(HttpRequest.BodyPublishers.ofString(body))
                .build();
            var failed = new IOException("the service is not ready");
            for (int attempt = 0; attempt < 40; attempt++) {
                try {
                    var response = http.send(request, BodyHandlers.ofString());
                    if (response.statusCode() != 429 && response.statusCode() != 503) {
                        return new Reply(response.statusCode(), response.body());
                    }
                } catch (IOException error) {
                    failed = error;
                }
                Thread.sleep(100 + ThreadLocalRandom.current().nextInt(400));
            }
            throw failed;
        }
    }

    /** A lease that renews itself until it is closed. */
    static final class Lease implements AutoCloseable {
        final Pawlock pawlock;
        final String name;
        final String token;
        final long fence;
        final double ttl;
        final ScheduledExecutorService renewal = Executors.newSingleThreadScheduledExecutor();
        volatile long until; // by System.nanoTime, which no clock change moves
        volatile boolean lost;

        Lease(Pawlock pawlock, String name, double ttl) throws IOException, InterruptedException {
            long asked;
            Reply grant;
            do { // a minute at a time, forever
                asked = System.nanoTime();
                grant = pawlock.ask(name, "acquire", "{\"ttl\": %s, \"wait\": 60}".formatted(ttl));
            } while (grant.status() == 423);
            if (grant.status() != 200) {
                throw new IOException(grant.body());
            }
            this.pawlock = pawlock;
            this.name = name;
            this.ttl = ttl;
            token = grant.field("token");
            fence = Long.parseLong(grant.field("fence"));
            until = asked + (long) (ttl * 0.99e9); // from before it was asked: the server counts from later
            long every = (long) (ttl * 1000 / 3);
            renewal.scheduleAtFixedRate(this::renew, every, every, TimeUnit.MILLISECONDS);
        }

        private void renew() {
            long before = System.nanoTime();
            try {
                var told = pawlock.ask(name, "renew", "{\"token\": \"%s\", \"ttl\": %s}".formatted(token, ttl));
                if (told.status() == 200) {
                    until = before + (long) (ttl * 0.99e9);
                } else {
                    lost = true;
                }
            } catch (IOException error) {
                System.err.println("renewal: " + error); // check() tells when the time is up
            } catch (InterruptedException closed) {
                Thread.currentThread().interrupt();
            }
        }

        /** Call it before each step that must not happen twice, and send the fence along. */
        void check() throws IOException {
            if (lost || System.nanoTime() - until > 0) {
                throw new IOException("the lock is lost");
            }
        }

        @Override
        public void close() throws IOException, InterruptedException {
            renewal.shutdownNow();
            renewal.awaitTermination(10, TimeUnit.SECONDS);
            var told = pawlock.ask(name, "release", "{\"token\": \"%s\"}".formatted(token));
            if (told.status() != 200) {
                throw new IOException("lost before its release: " + told.body());
            }
        }
    }

    public static void main(String[] given) throws Exception {
        var pawlock = new Pawlock(given[0], System.getenv("PAWLOCK_TOKEN"));
        var file = Path.of(given[2]);
        for (int round = 0; round < Integer.parseInt(given[3]); round++) {
            try (var lease = new Lease(pawlock, given[1], 5)) {
                int number = Integer.parseInt(Files.readString(file).strip());
                Thread.sleep(10); // a long time for a computer: without the lock, others would read the same number
                lease.check();
                Files.writeString(file, (number + 1) + "\n");
                System.out.println(lease.fence);
            }
        }
    }
}
