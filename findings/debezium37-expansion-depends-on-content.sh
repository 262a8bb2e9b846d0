#!/bin/sh
# Debezium 3.7.0.Final, outbox EventRouter, with Kafka Connect 4.4.0
#
# With table.expand.json.payload a single array of numbers in the payload decides
# for the whole event: {"a":[1,2]} becomes a structure, {"a":[1,2.5]} and
# {"a":[1,9999999999]} stay a string, and of {"a":[]} the field a is gone.
#
# Each number gets a type of its own (INT32, INT64, FLOAT64), and an array whose
# elements are of two types has no schema, so that nothing of the payload is
# expanded. A top-level array stays a string in any case. The transformation
# succeeds, and so the values of one topic are of two kinds.
#
# JSON has one type of numbers, and 1 is a valid value where 2.5 is: a list of prices
# is a structure until the first one that is not whole. That an option which expands
# JSON skips valid JSON is unexpected, and even more that an empty list is dropped.
#
# Needs a JDK 17, Maven and Python 3.
. "$(dirname "$0")/lib.sh"

jars io.debezium:debezium-connector-postgres:3.7.0.Final org.apache.kafka:connect-json:4.4.0 \
	org.apache.kafka:connect-transforms:4.4.0

cat >Main.java <<'JAVA'
import io.debezium.transforms.outbox.EventRouter;
import java.util.Map;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.data.SchemaBuilder;
import org.apache.kafka.connect.data.Struct;
import org.apache.kafka.connect.source.SourceRecord;

public class Main {
    static final Schema ROW = SchemaBuilder.struct().name("Value").field("id", Schema.STRING_SCHEMA)
        .field("aggregatetype", Schema.STRING_SCHEMA).field("aggregateid", Schema.STRING_SCHEMA)
        .field("type", Schema.STRING_SCHEMA)
        .field("payload", SchemaBuilder.string().name("io.debezium.data.Json").build()).build();
    static final Schema ENVELOPE = SchemaBuilder.struct().name("t.Envelope").field("after", ROW)
        .field("op", Schema.STRING_SCHEMA).field("ts_ms", Schema.INT64_SCHEMA).build();
    static final EventRouter<SourceRecord> ROUTER = new EventRouter<>();
    static boolean as_seen = true;

    static void expand(String payload, String expected) {
        Struct row = new Struct(ROW).put("id", "1").put("aggregatetype", "order").put("aggregateid", "7")
            .put("type", "Created").put("payload", payload);
        Struct change = new Struct(ENVELOPE).put("after", row).put("op", "c").put("ts_ms", 1L);
        Object value = ROUTER.apply(new SourceRecord(null, null, "t", 0, null, null, ENVELOPE, change)).value();
        String seen = value.getClass().getSimpleName() + " " + value;
        System.out.println(payload + " becomes a " + seen);
        as_seen &= seen.equals(expected);
    }

    public static void main(String[] args) {
        ROUTER.configure(Map.of("table.expand.json.payload", "true"));
        expand("{\"a\":[1,2]}", "Struct Struct{a=[1, 2]}");
        expand("{\"a\":[1,2.5]}", "String {\"a\":[1,2.5]}");
        expand("{\"a\":[1,9999999999]}", "String {\"a\":[1,9999999999]}");
        expand("{\"a\":[],\"b\":1}", "Struct Struct{b=1}");
        expand("[1,2]", "String [1,2]");
        System.exit(as_seen ? 0 : 1);
    }
}
JAVA
java -cp 'jars/*' Main.java 2>java.log || { cat java.log; exit 1; }
