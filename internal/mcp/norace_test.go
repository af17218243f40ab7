//go:build !race

package mcp_test

// waiterLimit is what a waiting call may hold, in bytes.
const waiterLimit = 20 << 10
