package notify_test

import (
	"crypto/tls"
	"net/http/httptest"
	"testing"

	"github.com/emersion/go-smtp"
	"github.com/stretchr/testify/require"

	"switchboard/internal/human"
	"switchboard/internal/notify"
)

// certificate is a self-made one for 127.0.0.1.
func certificate(t *testing.T) *tls.Config {
	t.Helper()
	server := httptest.NewUnstartedServer(nil)
	server.StartTLS()
	t.Cleanup(server.Close)
	return &tls.Config{Certificates: server.TLS.Certificates, MinVersion: tls.VersionTLS12}
}

func TestMailLogsInOverSTARTTLS(t *testing.T) {
	t.Parallel()
	server := newSink(t, certificate(t))
	server.password = "correct horse"
	i := newInstance(t, func(o *notify.Options) { o.SMTP = "smtp://switchboard:correct%20horse@" + server.address })
	i.people.change(i.bob.ID, func(h *human.Human) { h.Notifications.Webhook = "" })
	run(t, i.store)
	require.NoError(t, i.store.SendTest(t.Context(), i.bob.ID))
	i.settled(t)
	require.Len(t, server.received(), 1)
	require.Equal(t, 1, server.logins)
}

func TestAPasswordNeverGoesOverAnOpenConnectionNorIntoErrors(t *testing.T) {
	t.Parallel()
	open, wrong := newSink(t, nil), newSink(t, certificate(t))
	wrong.password = "another"
	for _, server := range []*sink{open, wrong} {
		i := newInstance(t, func(o *notify.Options) { o.SMTP = "smtp://switchboard:correct%20horse@" + server.address })
		i.people.change(i.bob.ID, func(h *human.Human) { h.Notifications.Webhook = "" })
		run(t, i.store)
		require.NoError(t, i.store.SendTest(t.Context(), i.bob.ID))
		i.settled(t)
		require.Empty(t, server.received())
		jobs := i.text(t, `SELECT json_agg(j)::text FROM river_job j`)
		require.Contains(t, jobs, "the mail server")
		require.NotContains(t, jobs, "horse")
		status, err := i.store.Status(t.Context(), i.bob.ID)
		require.NoError(t, err)
		require.Contains(t, status[0].LastError, "the mail server")
		require.NotContains(t, status[0].LastError, "horse")
	}
	require.Zero(t, open.logins)
	require.Equal(t, 1, wrong.logins)
}

func TestAMailServerElsewhereMustProveItselfAndEncrypt(t *testing.T) {
	t.Parallel()
	open, unknown := newSink(t, nil), newSink(t, certificate(t))
	require.ErrorContains(t, notify.SendAsIfElsewhere(t.Context(), "smtp://u:p@"+open.address), "offers no encryption")
	require.ErrorContains(t, notify.SendAsIfElsewhere(t.Context(), "smtp://u:p@"+unknown.address), "certificate is not trusted")
	require.ErrorContains(t, notify.SendAsIfElsewhere(t.Context(), "smtps://u:p@"+open.address), "the mail server broke off")
	for _, s := range []*sink{open, unknown} {
		require.Empty(t, s.received())
		require.Zero(t, s.logins)
	}
}

func TestARefusedRecipientIsFinalAndABusyServerIsNot(t *testing.T) {
	t.Parallel()
	i := newInstance(t)
	i.people.change(i.bob.ID, func(h *human.Human) { h.Notifications.Webhook = "" })
	tries := 0
	i.sink.refuse = func(string) error {
		tries++
		switch tries {
		case 1:
			return &smtp.SMTPError{Code: 451, EnhancedCode: smtp.EnhancedCode{4, 3, 0}, Message: "try again bob@example.com"}
		case 2:
			return nil
		}
		return &smtp.SMTPError{Code: 550, EnhancedCode: smtp.EnhancedCode{5, 1, 1}, Message: "no such user bob@example.com"}
	}
	run(t, i.store)
	i.commit(t, received(i.request(t)))
	i.settled(t)
	require.Len(t, i.sink.received(), 1)
	i.commit(t, received(i.request(t)))
	i.settled(t)
	require.Equal(t, 3, tries)
	jobs := i.text(t, `SELECT json_agg(j)::text FROM river_job j`)
	require.Contains(t, jobs, "the mail server answered 451")
	require.Contains(t, jobs, "the mail server answered 550")
	require.NotContains(t, jobs, "bob@")
	require.Equal(t, 1, i.count(t, `SELECT count(*) FROM notification_delivery WHERE outcome = 'failed'`))
}

func TestSettingsThatCannotWorkAreRefusedAtStart(t *testing.T) {
	t.Parallel()
	i := newInstance(t)
	for address, want := range map[string]string{
		"http://mail.example":            "smtp_url",
		"smtp://":                        "smtp_url",
		"smtp://user:pass%zz@mail":       "smtp_url",
		"smtp://u:hunter2@mail.example:": "",
		"smtps://mail.example/box":       "smtp_url",
		"smtp://u:hunter2@mail:0":        "smtp_url",
	} {
		o := i.options
		o.SMTP = address
		_, err := notify.New(i.pool, o)
		if want == "" {
			require.NoError(t, err, address)
			continue
		}
		require.ErrorContains(t, err, want, address)
		require.NotContains(t, err.Error(), "hunter2")
	}
	o := i.options
	o.MailFrom = "not an address"
	_, err := notify.New(i.pool, o)
	require.ErrorContains(t, err, "mail_from")
	o = i.options
	o.Sealer = nil
	_, err = notify.New(i.pool, o)
	require.Error(t, err)
	o = i.options
	unjoined, err := notify.New(i.pool, o)
	require.NoError(t, err)
	require.Error(t, unjoined.Run(t.Context()), "nobody to send to")
}
