package mcp

// VisibleJSON and Prose are for tests of the outside kind.
var (
	VisibleJSON = visibleJSON
	Prose       = prose
)
