// Package lab has the packages only tests, benchmarks and the demo use: servers
// to start and to kill (pgtest, kafkatest, redistest, dynamotest, and the
// runners below them), judges (checker, exactlyonce, proxy), helpers (must,
// child, freeport), and the demo itself.
//
// The packages that ship are beside it, in internal; those users import,
// outside internal. The linter (depguard) keeps the laboratory out of both.
package lab
