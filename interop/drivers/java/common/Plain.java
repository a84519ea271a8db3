import java.io.BufferedInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.net.Socket;
import java.net.URI;
import java.nio.charset.StandardCharsets;

/** A connection for the few plain commands of a driver, so that it needs no client of its own. */
final class Plain {
    private final Socket socket;
    private final InputStream in;

    Plain(String url) throws IOException {
        String counter = System.getenv("COUNTER_URL");
        URI uri = URI.create(counter == null || counter.isEmpty() ? url : counter);
        socket = new Socket(uri.getHost(), uri.getPort());
        socket.setTcpNoDelay(true);
        in = new BufferedInputStream(socket.getInputStream());
    }

    /** The reply as text: null for none; an error is thrown. */
    synchronized String call(String... words) throws IOException {
        StringBuilder out = new StringBuilder("*" + words.length + "\r\n");
        for (String word : words) {
            out.append('$').append(word.getBytes(StandardCharsets.UTF_8).length).append("\r\n").append(word).append("\r\n");
        }
        socket.getOutputStream().write(out.toString().getBytes(StandardCharsets.UTF_8));
        String head = line();
        switch (head.charAt(0)) {
            case '-': throw new IOException(head.substring(1));
            case '$':
                int size = Integer.parseInt(head.substring(1));
                if (size < 0) return null;
                String text = new String(in.readNBytes(size), StandardCharsets.UTF_8);
                in.readNBytes(2);
                return text;
            default: return head.substring(1);
        }
    }

    private String line() throws IOException {
        StringBuilder found = new StringBuilder();
        for (int c; (c = in.read()) != '\r'; ) {
            if (c < 0) throw new IOException("the server closed the connection");
            found.append((char) c);
        }
        in.read();
        return found.toString();
    }
}
