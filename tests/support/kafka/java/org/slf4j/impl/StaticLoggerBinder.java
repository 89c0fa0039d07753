package org.slf4j.impl;

import org.slf4j.ILoggerFactory;
import org.slf4j.Logger;
import org.slf4j.Marker;
import org.slf4j.helpers.FormattingTuple;
import org.slf4j.helpers.MessageFormatter;
import org.slf4j.spi.LoggerFactoryBinder;

import java.lang.reflect.Proxy;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;

/**
 * Where slf4j 1.7 looks for its binding: Kafka's own log lines are written to stderr up to the level of the system
 * property seglogkafka.echo (1 error, 2 warn, 3 info; default 0, none) and kept between capture() and captured().
 */
public final class StaticLoggerBinder implements LoggerFactoryBinder {
    public static final String REQUESTED_API_VERSION = "1.6.99"; // slf4j reads this field by name
    private static final StaticLoggerBinder SINGLETON = new StaticLoggerBinder();
    private static final Map<String, Integer> LEVELS = Map.of("error", 1, "warn", 2, "info", 3, "debug", 4, "trace", 5);
    private static final int MOST_EVENTS = 10_000;
    private static final int ECHO = Integer.getInteger("seglogkafka.echo", 0);
    private static final List<String> EVENTS = new ArrayList<>();
    private static volatile int captureLevel = 0;

    private final Map<String, Logger> loggers = new ConcurrentHashMap<>();

    public static StaticLoggerBinder getSingleton() { return SINGLETON; }

    public static void capture(int level) {
        synchronized (EVENTS) { EVENTS.clear(); }
        captureLevel = level;
    }

    public static List<String> captured() {
        captureLevel = 0;
        synchronized (EVENTS) { return List.copyOf(EVENTS); }
    }

    @Override public ILoggerFactory getLoggerFactory() { return name -> loggers.computeIfAbsent(name, StaticLoggerBinder::logger); }
    @Override public String getLoggerFactoryClassStr() { return StaticLoggerBinder.class.getName(); }

    /** All fifty-odd methods of Logger say a level in their names and differ only in how they pass the arguments. */
    private static Logger logger(String name) {
        return (Logger) Proxy.newProxyInstance(Logger.class.getClassLoader(), new Class<?>[] {Logger.class}, (proxy, method, arguments) -> {
            String call = method.getName();
            Integer level = LEVELS.get(call);
            if (level != null) {
                if (enabled(level)) write(level, call, name, arguments);
                return null;
            }
            if (call.startsWith("is")) return enabled(LEVELS.get(call.substring(2, call.length() - "Enabled".length()).toLowerCase(Locale.ROOT)));
            return switch (call) {
                case "getName" -> name;
                case "hashCode" -> System.identityHashCode(proxy);
                case "equals" -> proxy == arguments[0];
                default -> "Logger(" + name + ")";
            };
        });
    }

    private static boolean enabled(int level) { return level <= Math.max(ECHO, captureLevel); }

    private static void write(int level, String call, String name, Object[] arguments) {
        int first = arguments[0] instanceof Marker ? 1 : 0;
        Object[] rest = Arrays.copyOfRange(arguments, first + 1, arguments.length);
        if (rest.length == 1 && rest[0] instanceof Object[] packed) rest = packed;
        FormattingTuple text = MessageFormatter.arrayFormat(String.valueOf(arguments[first]), rest);
        String line = call.toUpperCase(Locale.ROOT) + " " + name.substring(name.lastIndexOf('.') + 1) + ": " + text.getMessage()
            + (text.getThrowable() == null ? "" : " | " + text.getThrowable());
        if (level <= captureLevel) synchronized (EVENTS) { if (EVENTS.size() < MOST_EVENTS) EVENTS.add(line); }
        if (level <= ECHO) System.err.println(line);
    }
}
