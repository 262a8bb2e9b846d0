// Package setting is what the parts of a pipeline share when they judge their
// own options: values that must not be shown, and a report of faults.
//
// A part declares its options with the configuration's keys as yaml tags, and a
// Validate method that reports under these keys. So a rule stands once, where
// it is needed, and no part knows the configuration as a whole.
//
// Non-goals: reading values, saying where they come from (internal/config).
package setting
