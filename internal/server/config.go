package server

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"switchboard/internal/human"
	"switchboard/internal/provenance"
)

// Config is everything that an operator decides. Each setting stands in the
// configuration file under its name, or in the environment under SWITCHBOARD_
// and the name in capitals, which wins.
type Config struct {
	PublicURL         string // without trailing slash; names the instance
	Listen            string
	PrivateListen     string
	DatabaseURL       string
	DirectDatabaseURL string // past a pooler, for LISTEN and migrations
	Pooled            bool   // DatabaseURL leads to a transaction pooler
	Issuers           []provenance.Issuer
	SealKeys          [][]byte // current first
	Residents         human.Residents
	TrustedProxies    []netip.Prefix // whose X-Forwarded-For is believed
	SMTP              string         // smtp://user:password@host:port, "" for none
	MailFrom          string
	Directories       []string // public URLs of instances whose personas are found here too
	SignInRedirects   []string // hosts, besides loopback, for method sign-in
	Dev               bool
}

// Setting documents one setting; `switchboard serve --help` and the operator's
// page print the table, and nothing else is read.
type Setting struct {
	Name, Default, About string
	Required             bool
}

// Settings is the one table of settings.
func Settings() []Setting {
	return []Setting{
		{Name: "public_url", Required: true, About: "What the instance is called and reached as: https, no path, no trailing slash."},
		{Name: "listen", Default: "127.0.0.1:8080", About: "Address of the public listener. TLS is a reverse proxy's."},
		{Name: "private_listen", Default: "127.0.0.1:8081", About: "Address of /healthz, /readyz and /metrics."},
		{Name: "database_url", Required: true, About: "PostgreSQL 15 or newer, postgres://…"},
		{Name: "direct_database_url", Default: "database_url", About: "The same database without a pooler between, for notifications and migrations."},
		{Name: "database_pooled", Default: "false", About: "true when database_url leads to PgBouncer in transaction mode."},
		{Name: "issuers_file", Required: true, About: "YAML list of the trusted OpenID issuers; see specs/operating.md."},
		{Name: "seal_key", Required: true, About: "32 random bytes in base64 that seal secrets at rest; older keys follow after commas. Make one with `switchboard admin seal-key`."},
		{Name: "residents", Required: true, About: "Who may live here: e-mail addresses, @domains, or \"issuer subject\", separated by commas."},
		{Name: "trusted_proxies", About: "Address ranges whose X-Forwarded-For is believed, separated by commas."},
		{Name: "smtp_url", About: "smtp://user:password@host:587 for notifications by e-mail; none without it."},
		{Name: "mail_from", About: "Sender of notifications; required with smtp_url."},
		{Name: "directories", About: "Public URLs of other instances whose listed personas are found here too, separated by commas."},
		{Name: "sign_in_redirects", About: "Hosts, besides loopback, that method sign-in may redirect to, separated by commas."},
	}
}

const prefix = "SWITCHBOARD_"

// faults are what is wrong with a configuration, one a setting: what follows
// from a setting that is wrong already is not worth a line.
type faults struct {
	about map[string]bool
	errs  []error
}

func (f *faults) add(setting string, err error) {
	if f.about == nil {
		f.about = map[string]bool{}
	}
	if !f.about[setting] {
		f.errs = append(f.errs, err)
	}
	f.about[setting] = true
}

func (f *faults) wrong(setting, format string, args ...any) {
	f.add(setting, fmt.Errorf("%s: %w", setting, fmt.Errorf(format, args...)))
}

// Load reads the configuration from a YAML file ("" for none) and the
// environment. The error names each setting that is missing or wrong; what is
// right is in the configuration all the same.
func Load(file string, environ []string) (Config, error) {
	values := map[string]string{}
	for _, s := range Settings() {
		if !strings.Contains(s.Default, "_") {
			values[s.Name] = s.Default
		}
	}
	if file != "" {
		if err := readFile(file, values); err != nil {
			return Config{}, err
		}
	}
	for _, kv := range environ {
		name, value, _ := strings.Cut(kv, "=")
		if !strings.HasPrefix(name, prefix) {
			continue
		}
		key := strings.ToLower(strings.TrimPrefix(name, prefix))
		if known(key) {
			values[key] = value
		}
	}
	var f faults
	for _, s := range Settings() {
		if s.Required && strings.TrimSpace(values[s.Name]) == "" {
			f.add(s.Name, fmt.Errorf("%s (%s%s) is not set: %s", s.Name, prefix, strings.ToUpper(s.Name), s.About))
		}
	}
	c := Config{
		PublicURL: values["public_url"], Listen: values["listen"], PrivateListen: values["private_listen"],
		DatabaseURL: values["database_url"], DirectDatabaseURL: values["direct_database_url"], Pooled: values["database_pooled"] == "true",
		SMTP: values["smtp_url"], MailFrom: values["mail_from"], SignInRedirects: split(values["sign_in_redirects"]),
		Directories: split(values["directories"]),
	}
	c.parse(file, values, &f)
	c.check(&f)
	return c, errors.Join(f.errs...)
}

// parse reads the settings that are more than a word.
func (c *Config) parse(file string, values map[string]string, f *faults) {
	if path := values["issuers_file"]; path != "" {
		if file != "" && !filepath.IsAbs(path) {
			path = filepath.Join(filepath.Dir(file), path)
		}
		text, err := os.ReadFile(path)
		if err != nil {
			f.wrong("issuers_file", "%w", err)
		} else if c.Issuers, err = provenance.ParseIssuers(text, false); err != nil {
			f.wrong("issuers_file", "%s: %w", path, err)
		}
	}
	for n, text := range split(values["seal_key"]) {
		key, err := provenance.ParseSealKey(text)
		if err != nil {
			f.wrong("seal_key", "key %d: %w; make one with `switchboard admin seal-key`", n+1, err)
			continue
		}
		c.SealKeys = append(c.SealKeys, key)
	}
	var err error
	if c.Residents, err = human.NewResidents(split(values["residents"]), false); err != nil {
		f.add("residents", err)
	}
	for _, text := range split(values["trusted_proxies"]) {
		p, err := netip.ParsePrefix(text)
		if err != nil {
			f.wrong("trusted_proxies", "%q is no address range such as 10.0.0.0/8", text)
			continue
		}
		c.TrustedProxies = append(c.TrustedProxies, p)
	}
}

func known(key string) bool {
	return slices.ContainsFunc(Settings(), func(s Setting) bool { return s.Name == key })
}

func readFile(file string, values map[string]string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("configuration: %w", err)
	}
	var doc map[string]yaml.Node
	dec := yaml.NewDecoder(bytes.NewReader(text))
	if err := dec.Decode(&doc); err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("configuration %s: %w", file, err)
	}
	for key, node := range doc {
		switch {
		case !known(key):
			return fmt.Errorf("configuration %s: line %d: there is no setting %q", file, node.Line, key)
		case node.Kind == yaml.SequenceNode:
			var list []string
			if err := node.Decode(&list); err != nil {
				return fmt.Errorf("configuration %s: line %d: %s must be a list of words", file, node.Line, key)
			}
			values[key] = strings.Join(list, ",")
		case node.Kind == yaml.ScalarNode:
			values[key] = node.Value
		default:
			return fmt.Errorf("configuration %s: line %d: %s must be a word or a list", file, node.Line, key)
		}
	}
	return nil
}

func split(text string) []string {
	var out []string
	for part := range strings.SplitSeq(text, ",") {
		if part = strings.TrimSpace(part); part != "" {
			out = append(out, part)
		}
	}
	return out
}

// Check reports what is wrong or dangerous, naming the setting.
func (c *Config) Check() error {
	var f faults
	c.check(&f)
	return errors.Join(f.errs...)
}

func (c *Config) check(f *faults) {
	wrong := f.wrong
	u, err := url.Parse(c.PublicURL)
	switch {
	case err != nil || u.Host == "" || (u.Scheme != "https" && u.Scheme != "http"):
		wrong("public_url", "%q is no https URL", c.PublicURL)
	case u.Path != "" || u.RawQuery != "" || u.Fragment != "" || u.User != nil:
		wrong("public_url", "%q must have no path, query or trailing slash", c.PublicURL)
	case u.Scheme == "http" && !loopback(u.Hostname()):
		wrong("public_url", "http is for loopback only; put a reverse proxy with TLS before the public listener, and write https://%s", u.Host)
	case c.Dev && !loopback(u.Hostname()):
		wrong("public_url", "development mode serves loopback only")
	}
	if len(c.SealKeys) == 0 {
		wrong("seal_key", "there is none; make one with `switchboard admin seal-key`")
	}
	login, trusted := false, false
	for _, i := range c.Issuers {
		login = login || i.Login != nil
		trusted = trusted || i.Provenance != nil
	}
	if !login {
		wrong("issuers_file", "no issuer has login, so nobody could sign in")
	}
	if !trusted {
		wrong("issuers_file", "no issuer is trusted for provenance, so nobody could ask for friendship")
	}
	for _, d := range c.Directories {
		u, err := url.Parse(d)
		if err != nil || u.Host == "" || u.Path != "" || u.Scheme != "https" && (!c.Dev || u.Scheme != "http") {
			wrong("directories", "%q is no instance's public URL", d)
		}
	}
	if c.SMTP != "" {
		s, err := url.Parse(c.SMTP)
		if err != nil || (s.Scheme != "smtp" && s.Scheme != "smtps") || s.Host == "" {
			wrong("smtp_url", "must look like smtp://user:password@host:587")
		}
		if !strings.Contains(c.MailFrom, "@") {
			wrong("mail_from", "is required with smtp_url")
		}
	}
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
