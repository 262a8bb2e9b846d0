#!/bin/sh
# Apache Kafka Connect 4.4.0, JsonConverter, and Jackson in it
#
# JsonConverter writes a character beyond U+FFFF, such as an emoji or a rare Chinese
# character, as two escapes (\uD83C\uDF75), and each other one as it is. As a key, the
# same text that another program writes as JSON in UTF-8 goes to another partition.
#
# Jackson itself does both: writeValueAsBytes, which the converter calls, escapes;
# writeValueAsString, turned into UTF-8, does not.
#
# All texts are valid and mean the same. What a reader compares is right; what it hashes
# (a partition, a compacted topic's key, a checksum) differs, for such keys only.
#
# Needs a JDK 17, Maven and Python 3.
. "$(dirname "$0")/lib.sh"

jars org.apache.kafka:connect-json:4.4.0 org.apache.kafka:connect-api:4.4.0

cat >Main.java <<'JAVA'
import com.fasterxml.jackson.databind.ObjectMapper;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import org.apache.kafka.clients.producer.internals.BuiltInPartitioner;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.json.JsonConverter;

public class Main {
    static boolean as_seen = true;

    static String key(String who, byte[] key) {
        String text = new String(key, StandardCharsets.UTF_8);
        StringBuilder ascii = new StringBuilder();
        text.codePoints().forEach(c -> ascii.append(c < 128 ? Character.toString(c) : String.format("U+%04X", c)));
        String seen = ascii + " in partition " + BuiltInPartitioner.partitionForKey(key, 12);
        System.out.println(who + ": " + seen);
        return text;
    }

    static void keys(String text, boolean same) throws Exception {
        JsonConverter converter = new JsonConverter();
        converter.configure(Map.of("schemas.enable", "false"), true);
        ObjectMapper jackson = new ObjectMapper();
        String connect = key("JsonConverter", converter.fromConnectData("t", Schema.STRING_SCHEMA, text));
        String bytes = key("writeValueAsBytes", jackson.writeValueAsBytes(text));
        String string = key("writeValueAsString", jackson.writeValueAsString(text).getBytes(StandardCharsets.UTF_8));
        as_seen &= connect.equals(bytes) && connect.equals(string) == same && string.equals('"' + text + '"');
    }

    public static void main(String[] args) throws Exception {
        keys("\u00e9\u8336", true);
        keys("\ud83c\udf75", false);
        System.exit(as_seen ? 0 : 1);
    }
}
JAVA
java -cp 'jars/*' Main.java 2>java.log || { cat java.log; exit 1; }
