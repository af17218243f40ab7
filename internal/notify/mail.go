package notify

import (
	"bytes"
	_ "embed"
	"fmt"
	htmltemplate "html/template"
	"strings"
	"text/template"
	"time"

	"github.com/google/uuid"
)

// envelope is one e-mail, ready to be sent.
type envelope struct {
	To      string
	ID      string // Message-ID, without brackets: the same for every attempt
	At      time.Time
	Subject string
	Plain   string
	HTML    string
	Leave   string // where e-mail can be turned off, signed in
	Off     string // what a mail program posts to turn it off; "" = nothing
	err     error
}

// letter is what the two templates print.
type letter struct {
	Heading string
	Parts   []message
	More    int // parts left away
	Host    string
	Leave   string
}

var (
	//go:embed mail.txt.tmpl
	plainText string
	//go:embed mail.html.tmpl
	htmlText string

	words = map[string]any{
		"quoted": quoteLines,
		"unlink": unlink,
		"under":  func(text string) string { return strings.Repeat("-", min(len([]rune(text)), quoteWidth)) },
		"fold":   func(text string) string { return strings.Join(wrap(text, 76), "\n") },
		"last":   func(i int, parts []message) bool { return i == len(parts)-1 },
	}
	plainMail = template.Must(template.New("mail.txt").Funcs(words).Parse(plainText))
	htmlMail  = htmltemplate.Must(htmltemplate.New("mail.html").Funcs(words).Parse(htmlText))
)

// envelope puts one message into an e-mail to a human.
func (s *Store) envelope(m message, human uuid.UUID, to string) envelope {
	return s.write(human, envelope{To: to, ID: s.messageID(m.ID), At: m.At, Subject: m.Headline}, letter{Parts: []message{m}})
}

func (s *Store) messageID(id uuid.UUID) string { return id.String() + "@" + s.host }

// write fills in both forms of the text, and how the human turns e-mail off.
func (s *Store) write(human uuid.UUID, e envelope, l letter) envelope {
	e.Off, e.err = s.mailOffLink(human, e.To)
	e.Leave = s.o.PublicURL + "/settings#h-notify"
	l.Host, l.Leave = s.host, e.Leave
	var plain, html bytes.Buffer
	if err := plainMail.Execute(&plain, l); err != nil {
		e.err = fmt.Errorf("write the plain text: %w", err)
	}
	if err := htmlMail.Execute(&html, l); err != nil {
		e.err = fmt.Errorf("write the HTML: %w", err)
	}
	e.Plain, e.HTML = plain.String(), html.String()
	return e
}
