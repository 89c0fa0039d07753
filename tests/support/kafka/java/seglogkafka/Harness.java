package seglogkafka;

import com.fasterxml.jackson.databind.JsonNode;

import org.apache.kafka.common.utils.*; // 4.4 has moved classes of this package to `internals`
import org.apache.kafka.common.utils.internals.*;
import org.apache.kafka.tools.DumpLogSegments;

import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.BufferedOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Map;

/**
 * Answers requests about Kafka logs with the own classes of Kafka 4.3 or 4.4, in one process, without a broker.
 *
 * A request is one line: a JSON object with the field "command". The answer is any number of lines that `list` streams
 * (they begin with {"t":), then one line {"answer":…}, or {"failure":{"error":class,"message":…}}.
 */
public final class Harness {
    private final PrintStream out;

    private Harness(PrintStream out) { this.out = out; }

    public static void main(String[] arguments) throws Exception {
        PrintStream out = new PrintStream(new BufferedOutputStream(new FileOutputStream(FileDescriptor.out), 1 << 16), false, StandardCharsets.UTF_8);
        Harness harness = new Harness(out);
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line; (line = requests.readLine()) != null; ) {
            out.println(Answers.json(harness.answer(line)));
            out.flush();
        }
        Runtime.getRuntime().halt(0); // Kafka's metrics library leaves threads that would keep the process alive
    }

    private Map<String, Object> answer(String line) {
        try {
            JsonNode request = Answers.JSON.readTree(line);
            return Answers.object("answer", run(request.path("command").asText(), new Options(request)));
        } catch (Throwable e) { // the next request must still be answered
            return Answers.object("failure", Answers.failure(e));
        }
    }

    private Object run(String command, Options options) throws Exception {
        return switch (command) {
            case "generate" -> Generator.generate(options);
            case "list" -> Lister.list(options, out::println);
            case "digest" -> Lister.digest(options);
            case "index" -> IndexLister.index(options);
            case "clean" -> Cleaning.clean(options);
            case "recover" -> Operations.open(options, false);
            case "load" -> Operations.open(options, true);
            case "retain" -> Operations.retain(options);
            case "read" -> Operations.read(options);
            case "search" -> Operations.search(options);
            case "append" -> Appending.append(options);
            case "live" -> LiveLog.live(options);
            case "measure" -> Timing.measure(options);
            case "dump_log" -> dumpLog(options);
            case "image" -> Metadata.image(options);
            case "known" -> Metadata.known(options);
            default -> throw new Options.Refused("unknown command " + command);
        };
    }

    private static final class Exited extends RuntimeException { }

    /** kafka-dump-log as a process of its own would run: both streams, the exit status, an escaped exception on stderr. */
    private static Object dumpLog(Options options) {
        String[] arguments = options.texts("arguments", "").toArray(String[]::new);
        options.finish();
        ByteArrayOutputStream output = new ByteArrayOutputStream(), errors = new ByteArrayOutputStream();
        PrintStream realOut = System.out, realErr = System.err;
        int[] status = {0};
        Exit.Procedure stop = (code, message) -> {
            status[0] = code;
            throw new Exited();
        };
        Exit.setExitProcedure(stop);
        System.setOut(new PrintStream(output, false, StandardCharsets.UTF_8));
        System.setErr(new PrintStream(errors, false, StandardCharsets.UTF_8));
        try {
            DumpLogSegments.main(arguments);
        } catch (Exited e) {
            System.err.flush();
        } catch (Throwable e) {
            status[0] = 1;
            System.err.println("Exception in thread \"main\" " + e);
        } finally {
            System.out.flush();
            System.err.flush();
            System.setOut(realOut);
            System.setErr(realErr);
            Exit.resetExitProcedure();
        }
        return Answers.object("stdout", output.toString(StandardCharsets.UTF_8), "stderr", errors.toString(StandardCharsets.UTF_8), "status", status[0]);
    }
}
