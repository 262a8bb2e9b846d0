#!/bin/sh
# Apache Kafka Connect 4.4.0, JsonConverter as key.converter
#
# A null key that has an (optional) schema becomes the four bytes "null", with
# schemas.enable=false, too. A null key without a schema stays no key at all.
#
# So the records of a source whose key column is empty all have one and the same
# key: they go to one partition, and a compacted topic keeps the last one of them.
#
# JsonConverter without schemas reads these bytes as null again, so that null seems
# to be kept as null, and one would expect that a format without schemas takes no
# notice of them. StringConverter gives no key in either case.
#
# Needs a JDK 17, Maven and Python 3.
. "$(dirname "$0")/lib.sh"

jars org.apache.kafka:connect-json:4.4.0 org.apache.kafka:connect-api:4.4.0

cat >Main.java <<'JAVA'
import java.util.Map;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.json.JsonConverter;
import org.apache.kafka.connect.storage.Converter;
import org.apache.kafka.connect.storage.StringConverter;

public class Main {
    static String key(Converter converter, Schema schema) {
        byte[] key = converter.fromConnectData("t", schema, null);
        return key == null ? "no key" : key.length + " bytes: " + new String(key);
    }

    public static void main(String[] args) {
        Converter json = new JsonConverter(), string = new StringConverter();
        json.configure(Map.of("schemas.enable", "false"), true);
        string.configure(Map.of(), true);
        String with = key(json, Schema.OPTIONAL_STRING_SCHEMA);
        String without = key(json, null);
        String strings = key(string, Schema.OPTIONAL_STRING_SCHEMA);
        System.out.println("JsonConverter, null with an optional schema: " + with);
        System.out.println("JsonConverter, null without a schema: " + without);
        System.out.println("StringConverter, null with an optional schema: " + strings);
        boolean as_seen = with.equals("4 bytes: null") && without.equals("no key") && strings.equals("no key");
        System.exit(as_seen ? 0 : 1);
    }
}
JAVA
java -cp 'jars/*' Main.java 2>java.log || { cat java.log; exit 1; }
