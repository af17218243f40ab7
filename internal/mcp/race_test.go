//go:build race

package mcp_test

// waiterLimit with the race detector, whose instrumentation doubles frames.
const waiterLimit = 48 << 10
