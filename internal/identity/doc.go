// Package identity gets a workload's credentials and tokens from the clouds:
// Amazon's, Microsoft Entra's, Google's. The environment names the source, as
// for the clouds' own clients.
//
// Invariants:
//
//  1. A value with an end is kept until shortly before the end, and then
//     renewed. While the source is away, the old value serves until the end.
//  2. Each question ends after answerTimeout, or sooner while an old value
//     serves. The error names source, cause and remedy, and is transient, as a
//     source may come back.
//  3. No error has a secret or a token.
//
// Non-goals: the login itself (internal/catalog, sink), the clouds' other
// services.
package identity
