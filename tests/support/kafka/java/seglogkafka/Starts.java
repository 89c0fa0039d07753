package seglogkafka;

import kafka.server.KafkaConfig;
import kafka.server.KafkaRaftServer;

import org.apache.kafka.common.utils.*;
import org.apache.kafka.common.utils.internals.*;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;

/**
 * Starts one broker after the other in this process: a line of stdin names a server.properties, the answer is "started"
 * or "refused: why"; the next line ends that broker, and the answer is "ended".
 *
 * Each broker has a thread group of its own. A thread that ends the process (Exit) ends only its broker: the group says
 * which one. A broker that refused to start leaves threads behind; they are interrupted, and the caller starts a new
 * process from time to time.
 */
public final class Starts {
    private static final long LIMIT_SECONDS = 120;

    private static final class Course extends ThreadGroup {
        final CountDownLatch known = new CountDownLatch(1);
        volatile String refused = null;
        volatile KafkaRaftServer server = null;

        Course(String name) { super(name); }

        void refuse(String why) {
            if (refused == null) refused = why;
            known.countDown();
        }

        @Override public void uncaughtException(Thread thread, Throwable error) {
            System.err.println("ERROR Starts: " + thread.getName() + " died | " + error);
        }
    }

    /** The error stream, without the lines of brokers that came before. */
    private static final class OfOne extends PrintStream {
        volatile Course course = null;

        OfOne(PrintStream below) { super(below, true); }

        @Override public void println(String line) {
            if (course == null || courseOfThread() == course) super.println(line);
        }
    }

    private static Course courseOfThread() {
        ThreadGroup group = Thread.currentThread().getThreadGroup();
        while (group != null && !(group instanceof Course)) group = group.getParent();
        return (Course) group;
    }

    private static final Course NOBODY = new Course("nobody");

    private static final class Ended extends Error {
        Ended(String message) { super(message, null, false, false); }
    }

    public static void main(String[] arguments) throws Exception {
        Exit.Procedure ends = (status, message) -> {
            Course course = courseOfThread();
            if (course != null) course.refuse("exit " + status + (message == null ? "" : ": " + message));
            throw new Ended("exit " + status);
        };
        OfOne said = new OfOne(System.err);
        System.setErr(said);
        Exit.setExitProcedure(ends);
        Exit.setHaltProcedure(ends);
        Exit.setShutdownHookAdder((name, hook) -> { });
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            Course course = new Course(line);
            said.course = course;
            Thread starting = new Thread(course, () -> start(course), "starting");
            starting.setDaemon(true);
            starting.start();
            if (!course.known.await(LIMIT_SECONDS, TimeUnit.SECONDS)) course.refuse("no end of it");
            System.out.println(course.refused == null ? "started" : "refused: " + course.refused.replace('\n', ' '));
            if (lines.readLine() == null) break;
            System.out.println("ended" + (course.refused == null ? "" : ": " + course.refused.replace('\n', ' ')));
            Thread ending = new Thread(course, () -> { if (course.server != null) course.server.shutdown(); }, "ending");
            ending.setDaemon(true);
            ending.start();
            ending.join(TimeUnit.SECONDS.toMillis(course.refused == null ? 10 : 1));
            said.course = NOBODY;
            course.interrupt();
        }
        Runtime.getRuntime().halt(0);
    }

    private static void start(Course course) {
        try {
            course.server = new KafkaRaftServer(new KafkaConfig(Utils.loadProps(course.getName())), Time.SYSTEM);
            course.server.startup();
            course.known.countDown();
        } catch (Throwable error) {
            System.err.println("ERROR Starts: exiting due to an exception during startup | " + error);
            Throwable cause = error.getCause() == null ? error : error.getCause();
            course.refuse(error instanceof Ended ? error.getMessage() : cause.getClass().getSimpleName() + ": " + cause.getMessage());
        }
    }
}
