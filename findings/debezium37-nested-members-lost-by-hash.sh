#!/bin/sh
# Debezium 3.7.0.Final, outbox EventRouter, with Kafka Connect 4.4.0
#
# With table.expand.json.payload an array loses members of objects within its objects, and
# the process decides which: {"items":[{"price":{"amount":5}},{"price":{"currency":"EUR"}}]}
# has the items [{"price":{"amount":5}},{"price":{}}] in one process, and
# [{"price":{}},{"price":{"currency":"EUR"}}] in another. The transformation succeeds.
#
# The objects of an array get one schema, with the members of all of them; of members that
# are objects it has the first one's. The first one of a HashSet, by hash codes of Java
# enums: these follow from what the process has hashed before. Here 20 processes that hash
# 0 to 19 other objects first stand for 20 restarts.
#
# The members of the objects themselves are joined, so that a test with flat objects
# passes. A test with this payload passes or fails until the process changes, and what a
# replay publishes is not what was published.
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
    static final String PAYLOAD = "{\"items\":[{\"price\":{\"amount\":5}},{\"price\":{\"currency\":\"EUR\"}}]}";

    public static void main(String[] args) {
        for (int i = 0; i < Integer.parseInt(args[0]); i++) {
            new Object().hashCode();
        }
        Schema rowSchema = SchemaBuilder.struct().name("Value").field("id", Schema.STRING_SCHEMA)
            .field("aggregatetype", Schema.STRING_SCHEMA).field("aggregateid", Schema.STRING_SCHEMA)
            .field("type", Schema.STRING_SCHEMA)
            .field("payload", SchemaBuilder.string().name("io.debezium.data.Json").build()).build();
        Schema envelope = SchemaBuilder.struct().name("t.Envelope").field("after", rowSchema)
            .field("op", Schema.STRING_SCHEMA).field("ts_ms", Schema.INT64_SCHEMA).build();
        EventRouter<SourceRecord> router = new EventRouter<>();
        router.configure(Map.of("table.expand.json.payload", "true"));
        Struct row = new Struct(rowSchema).put("id", "1").put("aggregatetype", "order").put("aggregateid", "7")
            .put("type", "Created").put("payload", PAYLOAD);
        Struct change = new Struct(envelope).put("after", row).put("op", "c").put("ts_ms", 1L);
        System.out.println(router.apply(new SourceRecord(null, null, "t", 0, null, null, envelope, change)).value());
    }
}
JAVA
javac -cp 'jars/*' Main.java
for before in $(seq 0 19); do
	java -XX:TieredStopAtLevel=1 -cp 'jars/*:.' Main "$before" 2>java.log | tee -a seen
done
sort -u seen >forms
cat >expected <<'END'
Struct{items=[Struct{price=Struct{amount=5}}, Struct{price=Struct{}}]}
Struct{items=[Struct{price=Struct{}}, Struct{price=Struct{currency=EUR}}]}
END
sort expected | diff - forms
