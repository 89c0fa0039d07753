package seglogkafka;

import org.apache.kafka.server.util.Scheduler;

import java.util.ArrayDeque;
import java.util.Queue;
import java.util.concurrent.Delayed;
import java.util.concurrent.FutureTask;
import java.util.concurrent.ScheduledFuture;
import java.util.concurrent.TimeUnit;

/** Keeps what Kafka wants done later (deleting files, flushing) until runAll(): no threads, so every run is the same. */
final class LaterScheduler implements Scheduler {
    private static final class Task extends FutureTask<Void> implements ScheduledFuture<Void> {
        Task(Runnable work) { super(work, null); }
        @Override public long getDelay(TimeUnit unit) { return 0; }
        @Override public int compareTo(Delayed other) { return 0; }
    }

    private final Queue<Task> waiting = new ArrayDeque<>();

    @Override public void startup() { }
    @Override public void shutdown() { }
    @Override public void resizeThreadPool(int size) { }

    @Override public synchronized ScheduledFuture<?> schedule(String name, Runnable work, long delayMs, long periodMs) {
        Task task = new Task(work);
        if (periodMs < 0) waiting.add(task); // a repeating task (producer expiry) would never let the queue run dry
        return task;
    }

    void runAll() throws Exception {
        for (Task task; (task = next()) != null; ) {
            if (task.isCancelled()) continue;
            task.run();
            task.get();
        }
    }

    private synchronized Task next() { return waiting.poll(); }
}
