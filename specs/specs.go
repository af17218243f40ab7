// Package specs holds what outsiders may rely on, for the server to serve and
// for tests to check against.
package specs

import _ "embed"

// FriendRequestSchema is the JSON Schema of a friend request's data part, which
// a card's params.request_schema points to.
//
//go:embed friend-request/request.schema.json
var FriendRequestSchema []byte
