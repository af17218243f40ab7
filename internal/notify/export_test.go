package notify

import (
	"context"
	"crypto/tls"
)

// SendAsIfElsewhere sends an e-mail with the rules for a mail server on another
// machine.
func SendAsIfElsewhere(ctx context.Context, address string) error {
	m, err := newMailer(address, "switchboard@example.com", "switchboard.example")
	if err != nil {
		return err
	}
	m.loopback, m.tls = false, &tls.Config{ServerName: m.host, MinVersion: tls.VersionTLS12}
	return m.send(ctx, envelope{To: "bob@example.com", ID: "1@switchboard.example", Subject: "Test", Plain: "Test", HTML: "Test"})
}
