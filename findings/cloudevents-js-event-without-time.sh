#!/bin/sh
# CloudEvents SDK for JavaScript (cloudevents 10.0.0), Kafka binding
#
# Kafka.toEvent cannot read a structured event without the attribute time: it throws a
# RangeError, "Invalid time value". In binary mode the same event is read, and its time
# is the time of reading. The SDK's HTTP binding reads it in structured mode, too.
#
# time is optional in the specification, and a type of the SDK says so as well. Neither
# the error nor validation names the attribute, and with any time the event is fine.
#
# An event read twice is not the same event twice, and whoever orders events by their
# time, or measures their age, gets the age of the reader.
#
# Needs Node.js with npm.
. "$(dirname "$0")/lib.sh"

npm install --silent --no-audit --no-fund --ignore-scripts cloudevents@10.0.0 >&2

cat >main.js <<'JS'
const { HTTP, Kafka } = require("cloudevents")

const event = { specversion: "1.0", id: "1", source: "/orders", type: "created" }
const structured = { "content-type": "application/cloudevents+json" }
const binary = Object.fromEntries(Object.entries(event).map(([name, value]) => ["ce_" + name, value]))
const start = new Date().toISOString()

function read(how, binding, message) {
  let result
  try {
    const time = binding.toEvent(message).time
    result = time === "2026-01-01T00:00:00.000Z" ? "its time" : time >= start ? "the time of reading" : time
  } catch (e) {
    result = e.name + ": " + e.message
  }
  console.log(how + ": " + result)
  return result
}

const withTime = { ...event, time: "2026-01-01T00:00:00Z" }
const seen = [
  read("Kafka, structured, with a time", Kafka, { headers: structured, value: JSON.stringify(withTime) }),
  read("Kafka, structured", Kafka, { headers: structured, value: JSON.stringify(event) }),
  read("Kafka, binary", Kafka, { headers: binary, value: "x" }),
  read("HTTP, structured", HTTP, { headers: structured, body: JSON.stringify(event) }),
]
const expected = ["its time", "RangeError: Invalid time value", "the time of reading", "the time of reading"]
process.exit(JSON.stringify(seen) === JSON.stringify(expected) ? 0 : 1)
JS
node main.js
