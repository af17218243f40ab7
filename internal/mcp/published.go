package mcp

import "github.com/mark3labs/mcp-go/mcp"

// PeerTools are all tools that a friend may be granted, in the order in which
// endpoints list them, for those who define them anew on the friend's side.
func PeerTools() []mcp.Tool {
	all := make([]mcp.Tool, 0, len(peerTools))
	for _, t := range peerTools {
		all = append(all, t.describe())
	}
	return all
}
