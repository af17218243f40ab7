package notify

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/mail"
	"net/textproto"
	"net/url"
	"strconv"
	"strings"
	"time"

	gomail "github.com/wneessen/go-mail"
)

// smtpTimeout bounds each of four steps: connecting with all that precedes the
// message, handing it over, resetting, and saying goodbye. Together they stay
// below attemptTimeout, as go-mail looks at no context after the first.
const smtpTimeout = 12 * time.Second

// mailer hands e-mail to the operator's mail server.
type mailer struct {
	host     string
	port     int
	implicit bool // TLS from the first byte
	loopback bool
	user     string
	password string
	from     *mail.Address
	helo     string
	tls      *tls.Config
}

// newMailer reads the operator's settings. The errors name the setting and hold
// no password.
func newMailer(address, from, helo string) (*mailer, error) {
	u, err := url.Parse(address)
	if err != nil || u.Hostname() == "" || u.Scheme != "smtp" && u.Scheme != "smtps" || u.Path != "" && u.Path != "/" || u.RawQuery != "" {
		return nil, errors.New("smtp_url must look like smtp://user:password@host:587 or smtps://user:password@host:465")
	}
	m := &mailer{host: u.Hostname(), port: 587, implicit: u.Scheme == "smtps", loopback: loopback(u.Hostname()), helo: helo}
	if m.implicit {
		m.port = 465
	}
	if u.Port() != "" {
		if m.port, err = strconv.Atoi(u.Port()); err != nil || m.port < 1 || m.port > 65535 {
			return nil, errors.New("smtp_url: the port is not a number from 1 to 65535")
		}
	}
	if u.User != nil {
		m.user = u.User.Username()
		m.password, _ = u.User.Password()
	}
	if m.from, err = mail.ParseAddress(from); err != nil {
		return nil, errors.New("mail_from must be an e-mail address, such as switchboard@example.com")
	}
	if m.from.Name == "" {
		m.from.Name = "Switchboard"
	}
	m.tls = &tls.Config{
		ServerName: m.host, MinVersion: tls.VersionTLS12,
		// The mail server on this very machine usually has a certificate of its
		// own making, and nobody stands between.
		InsecureSkipVerify: m.loopback, //nolint:gosec // loopback only
	}
	return m, nil
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// send hands one e-mail over; a *refused when it was not taken. Neither a
// password nor a message goes over a connection that is not encrypted, except to
// this machine.
func (m *mailer) send(ctx context.Context, e envelope) error {
	if e.err != nil {
		return e.err
	}
	msg, err := m.message(e)
	if err != nil {
		return err
	}
	options := []gomail.Option{
		gomail.WithPort(m.port), gomail.WithTimeout(smtpTimeout), gomail.WithHELO(m.helo), gomail.WithTLSConfig(m.tls),
	}
	switch {
	case m.implicit:
		options = append(options, gomail.WithSSL())
	case m.loopback:
		options = append(options, gomail.WithTLSPolicy(gomail.TLSOpportunistic))
	default:
		options = append(options, gomail.WithTLSPolicy(gomail.TLSMandatory))
	}
	if m.user != "" {
		options = append(options, gomail.WithSMTPAuth(gomail.SMTPAuthAutoDiscover), gomail.WithUsername(m.user), gomail.WithPassword(m.password))
	}
	client, err := gomail.NewClient(m.host, options...)
	if err != nil {
		return &refused{why: "the mail settings cannot be used"}
	}
	if err := client.DialAndSendWithContext(ctx, msg); err != nil {
		if msg.IsDelivered() {
			return nil // only saying goodbye failed
		}
		return refusedBy(err)
	}
	return nil
}

// message builds the e-mail: plain text first, then HTML.
func (m *mailer) message(e envelope) (*gomail.Msg, error) {
	// The address was verified by an issuer, which is no reason to let it be
	// anything but one bare address.
	to, err := mail.ParseAddress("<" + e.To + ">")
	if err != nil || to.Address != e.To || strings.ContainsAny(e.To, "\r\n") {
		return nil, &refused{why: "the e-mail address is not one that can be written to", final: true}
	}
	msg := gomail.NewMsg(gomail.WithNoDefaultUserAgent())
	msg.FromMailAddress(m.from)
	msg.ToMailAddress(to)
	msg.Subject(oneLine(e.Subject))
	msg.SetMessageIDWithValue(e.ID)
	msg.SetDateWithValue(e.At)
	if e.Off == "" {
		msg.SetListUnsubscribe(e.Leave)
	} else if err := msg.SetListUnsubscribeOneClick(e.Off); err != nil {
		return nil, err
	}
	msg.SetGenHeader("Auto-Submitted", "auto-generated") // RFC 3834: no out-of-office notes
	msg.SetBodyString(gomail.TypeTextPlain, e.Plain)
	msg.AddAlternativeString(gomail.TypeTextHTML, e.HTML)
	return msg, nil
}

// oneLine is the last line of defence for headers; nothing should reach it.
func oneLine(text string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, text)
}

// refusedBy puts an SMTP failure into words that hold no address and nothing
// that the server said, which may repeat what it was told.
func refusedBy(err error) *refused {
	var send *gomail.SendError
	var proto *textproto.Error
	var certificate *tls.CertificateVerificationError
	var unknown x509.UnknownAuthorityError
	var dns *net.DNSError
	var op *net.OpError
	var timeout net.Error
	switch {
	case errors.As(err, &send) && send.ErrorCode() != 0:
		r := &refused{why: fmt.Sprintf("the mail server answered %d", send.ErrorCode())}
		if code := send.EnhancedStatusCode(); code != "" {
			r.why += " (" + oneLine(code) + ")"
		}
		// A refused recipient or message stays refused; a refused sender is the
		// operator's to mend, and then it goes out.
		r.final = send.ErrorCode() >= 500 && (send.Reason == gomail.ErrSMTPRcptTo || send.Reason == gomail.ErrSMTPDataClose)
		return r
	case errors.As(err, &proto):
		if strings.Contains(err.Error(), "SMTP AUTH failed") {
			return &refused{why: fmt.Sprintf("the mail server answered %d to the login", proto.Code)}
		}
		return &refused{why: fmt.Sprintf("the mail server answered %d", proto.Code)}
	case errors.As(err, &certificate), errors.As(err, &unknown):
		return &refused{why: "the mail server's certificate is not trusted"}
	case errors.As(err, &dns):
		return &refused{why: "the mail server's name does not resolve"}
	case errors.As(err, &timeout) && timeout.Timeout(), errors.Is(err, context.DeadlineExceeded):
		return &refused{why: "the mail server did not answer in time"}
	case errors.As(err, &op):
		return &refused{why: "the mail server cannot be reached"}
	case strings.Contains(err.Error(), "STARTTLS"):
		return &refused{why: "the mail server offers no encryption (STARTTLS)"}
	case strings.Contains(err.Error(), "AUTH"):
		return &refused{why: "the mail server offers no way to log in that is safe here"}
	}
	return &refused{why: "the mail server broke off"}
}
