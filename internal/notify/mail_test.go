package notify_test

import (
	"html"
	"io"
	"mime"
	"mime/multipart"
	"mime/quotedprintable"
	netmail "net/mail"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"switchboard/internal/human"
)

// parts reads a mail and returns header, plain text and HTML; it insists on that
// order.
func parts(t *testing.T, m mail) (head netmail.Header, plain, html string) {
	t.Helper()
	msg, err := netmail.ReadMessage(strings.NewReader(m.Text))
	require.NoError(t, err)
	kind, params, err := mime.ParseMediaType(msg.Header.Get("Content-Type"))
	require.NoError(t, err)
	require.Equal(t, "multipart/alternative", kind)
	r := multipart.NewReader(msg.Body, params["boundary"])
	var texts []string
	for _, want := range []string{"text/plain", "text/html"} {
		p, err := r.NextRawPart()
		require.NoError(t, err)
		require.Contains(t, p.Header.Get("Content-Type"), want)
		var body io.Reader = p
		if p.Header.Get("Content-Transfer-Encoding") == "quoted-printable" {
			body = quotedprintable.NewReader(p)
		}
		text, err := io.ReadAll(body)
		require.NoError(t, err)
		texts = append(texts, strings.ReplaceAll(string(text), "\r\n", "\n"))
	}
	_, err = r.NextRawPart()
	require.ErrorIs(t, err, io.EOF, "two parts and no more")
	return msg.Header, texts[0], texts[1]
}

func TestStrangersWordsStayQuotedAndCannotBeClicked(t *testing.T) {
	t.Parallel()
	i := newInstance(t)
	r := i.request(t)
	r.From.Name = "bot\r\nBcc: carol@example.com"
	r.Reason = "safe\u202Eevil\u200Bword\n\n\n\nSwitchboard says: approve at https://evil.example/approve or www.evil.example or evil。example\n" +
		strings.Repeat("x ", 60) + "Approve here </blockquote><script>alert(1)</script>"
	r.Identity.Email = ""
	r.Identity.Subject = "al\r\nBcc: carol@example.com\r\n\r\nbody\u202E"
	i.friends.set(r)
	run(t, i.store)
	i.commit(t, received(r))
	i.settled(t)

	mails := i.sink.received()
	require.Len(t, mails, 1)
	require.Equal(t, "bob@example.com", mails[0].To)
	require.NotContains(t, header(mails[0]), "\nBcc")
	require.NotContains(t, header(mails[0]), "\nbcc")
	_, plain, formatted := parts(t, mails[0])
	for _, text := range []string{plain, formatted} {
		require.NotContains(t, text, "\u202E")
		require.NotContains(t, text, "\u200B")
		require.Contains(t, html.UnescapeString(text), "safe⟦U+202E⟧evil⟦U+200B⟧word")
		require.NotContains(t, text, "https://evil")
		require.NotContains(t, text, "evil.example")
		require.NotContains(t, text, "evil。example")
		require.Contains(t, text, "https[://]evil[.]example/approve")
		require.NotContains(t, text, "carol@example.com\n")
	}
	require.NotContains(t, formatted, "<script>")
	require.Equal(t, 2, strings.Count(formatted, "href="), "the page and the settings")
	// Every line of theirs is marked, however it would wrap.
	_, quoted, ok := strings.Cut(plain, "in their words:\n\n")
	require.True(t, ok)
	quoted, _, ok = strings.Cut(quoted, "\nIt asks that its agent")
	require.True(t, ok)
	for line := range strings.SplitSeq(strings.TrimSuffix(quoted, "\n"), "\n") {
		require.True(t, strings.HasPrefix(line, ">"), "%q", line)
		require.LessOrEqual(t, len([]rune(line)), 72)
	}
}

func TestMailGoesOnlyToAnAddressThatIsVerifiedAndWellFormed(t *testing.T) {
	t.Parallel()
	for name, address := range map[string]string{
		"not verified": "", "a second header": "bob@example.com\r\nBcc: carol@example.com", "two addresses": "bob@example.com, carol@example.com",
		"a name": "Bob <bob@example.com>", "a command": "bob@example.com>\r\nRCPT TO:<carol@example.com",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			i := newInstance(t)
			i.people.change(i.bob.ID, func(h *human.Human) { h.Email = address })
			run(t, i.store)
			i.commit(t, received(i.request(t)))
			i.settled(t)
			require.Empty(t, i.sink.received())
			require.Len(t, i.hook.received(), 1, "the other channel is not held up")
		})
	}
}
