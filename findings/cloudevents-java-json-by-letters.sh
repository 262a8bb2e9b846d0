#!/bin/sh
# CloudEvents SDK for Java 4.0.1, JSON format (cloudevents-json-jackson)
#
# The JSON format takes a data content type ending with +json for JSON only if the
# name in front has letters and nothing else. Data of application/order+json is
# written as JSON; data of application/vnd.api+json and application/merge-patch+json,
# registered media types both, as base64. And an event of these types with JSON in
# data, as other SDKs write it, is refused (EventDeserializationException).
#
# The suffix is what makes such a type JSON, in the specification of the format, too.
# The versions of a type (order.v2+json) are where a dot or a digit comes in: an event
# is fine until its type gets a vendor or a version.
#
# Needs a JDK 17, Maven and Python 3.
. "$(dirname "$0")/lib.sh"

jars io.cloudevents:cloudevents-json-jackson:4.0.1

cat >Main.java <<'JAVA'
import io.cloudevents.core.builder.CloudEventBuilder;
import io.cloudevents.jackson.JsonFormat;
import java.net.URI;

public class Main {
    static final JsonFormat FORMAT = new JsonFormat();
    static boolean as_seen = true;

    static void event(String type, boolean json) {
        byte[] data = "{\"a\":1}".getBytes();
        String written = new String(FORMAT.serialize(CloudEventBuilder.v1().withId("1").withSource(URI.create("/s"))
            .withType("t").withData(type, data).build()));
        String read = "its data";
        try {
            FORMAT.deserialize(("{\"specversion\":\"1.0\",\"id\":\"1\",\"source\":\"/s\",\"type\":\"t\","
                + "\"datacontenttype\":\"" + type + "\",\"data\":{\"a\":1}}").getBytes());
        } catch (RuntimeException e) {
            read = e.getClass().getSimpleName();
        }
        String kind = written.contains("\"data\":{\"a\":1}") ? "JSON" : written.contains("\"data_base64\":") ? "base64" : written;
        System.out.println(type + ": data is written as " + kind + ", and JSON is read with " + read);
        as_seen &= kind.equals(json ? "JSON" : "base64") && read.equals(json ? "its data" : "EventDeserializationException");
    }

    public static void main(String[] args) {
        event("application/json", true);
        event("application/order+json", true);
        event("application/order.v2+json", false);
        event("application/vnd.api+json", false);
        event("application/merge-patch+json", false);
        System.exit(as_seen ? 0 : 1);
    }
}
JAVA
java -cp 'jars/*' Main.java 2>java.log || { cat java.log; exit 1; }
