package seglogkafka;

import org.apache.kafka.common.utils.Time;

import java.util.function.Supplier;

/** Kafka's clock, standing still until somebody moves it. Nanoseconds run on: Kafka divides by their differences. */
final class FrozenClock implements Time {
    private volatile long nowMs;

    FrozenClock(long nowMs) { this.nowMs = nowMs; }

    void advanceTo(long ms) { nowMs = Math.max(nowMs, ms); }

    @Override public long milliseconds() { return nowMs; }
    @Override public long nanoseconds() { return System.nanoTime(); }
    @Override public void sleep(long ms) { nowMs += ms; }
    @Override public void waitObject(Object lock, Supplier<Boolean> condition, long deadlineMs) {
        throw new UnsupportedOperationException("nothing the harness does waits");
    }
}
