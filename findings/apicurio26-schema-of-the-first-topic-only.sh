#!/bin/sh
# Apicurio Registry 2.6.13.Final, its AvroConverter for Connect, with Kafka Connect 4.3.1
#
# With auto-register, the converter registers a schema under the name of the first topic
# of which it sees a record (orders-key), and under no other topic's: to a record of
# another topic with the same schema it gives the number that it has. After a restart
# the first topic may be another one, and then payments-key appears.
#
# The resolver keeps what it registered by the schema's text alone; the name that its
# strategy makes of the topic (TopicIdStrategy) is asked for and not used. All keys that
# are strings have the same schema.
#
# Which subjects there are depends on the order of events, and on restarts. Whoever looks
# for the latest schema of a topic's subject finds none, and a compatibility rule set on
# it checks nothing.
#
# Needs a JDK 17, Maven and Python 3. Takes 150 MB.
. "$(dirname "$0")/lib.sh"

version=2.6.13.Final
jars "io.apicurio:apicurio-registry-utils-converter:$version" "io.apicurio:apicurio-registry-serdes-avro-serde:$version" \
	org.apache.kafka:connect-api:4.3.1
maven copy -Dartifact="io.apicurio:apicurio-registry-app:$version:tar.gz:all" -DoutputDirectory="$work/server"
tar -xzf server/*.tar.gz -C server
export PORT="$(free_port)"
java -Xmx256m -Dquarkus.http.host=127.0.0.1 -Dquarkus.http.port="$PORT" \
	-cp "server/apicurio-registry-app-$version-runner.jar:server/lib/*" io.quarkus.runner.GeneratedMain >server.log 2>&1 &
servers="$servers $!:KILL"
eventually grep -q "Listening on" server.log

cat >Main.java <<'JAVA'
import io.apicurio.registry.utils.converter.AvroConverter;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse.BodyHandlers;
import java.util.Map;
import org.apache.kafka.connect.data.Schema;

public class Main {
    static final String REGISTRY = "http://127.0.0.1:" + System.getenv("PORT") + "/apis/";

    static String keys(String... topics) throws Exception {
        AvroConverter<Object> converter = new AvroConverter<>();
        converter.configure(Map.of("apicurio.registry.url", REGISTRY + "registry/v2", "apicurio.registry.auto-register", "true"), true);
        for (String topic : topics) {
            converter.fromConnectData(topic, Schema.STRING_SCHEMA, "7");
        }
        String subjects = HttpClient.newHttpClient().send(HttpRequest.newBuilder(
            URI.create(REGISTRY + "ccompat/v7/subjects")).build(), BodyHandlers.ofString()).body();
        System.out.println("after a start and keys of " + String.join(", ", topics) + ": " + subjects);
        return subjects;
    }

    public static void main(String[] args) throws Exception {
        String first = keys("orders", "payments");
        String then = keys("payments", "orders");
        boolean as_seen = first.equals("[\"orders-key\"]") && then.contains("payments-key");
        System.exit(as_seen ? 0 : 1);
    }
}
JAVA
java -cp 'jars/*' Main.java 2>java.log || { cat java.log; exit 1; }
