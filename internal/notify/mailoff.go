package notify

import (
	"context"
	"crypto/subtle"
	"encoding/base64"
	"fmt"
	"net/url"
	"strings"

	"github.com/google/uuid"

	"switchboard/internal/refusal"
)

// mailOffPath is a page's, which calls MailOff.
const mailOffPath = "/notifications/off"

// mailOffContext is what such a link is sealed for.
const mailOffContext = "switch notification e-mail off"

// mailOffLink is that link, for the header of a mail (RFC 8058); "" where the
// instance is not on https, without which the standard has none. It tells nobody
// whose it is, and is good for this human at this address alone: a mail that was
// passed on says nothing about a later address.
func (s *Store) mailOffLink(to uuid.UUID, address string) (string, error) {
	if !strings.HasPrefix(s.o.PublicURL, "https://") {
		return "", nil
	}
	sealed, err := s.o.Sealer.Seal(append(to[:], hashOf(address)...), mailOffContext)
	if err != nil {
		return "", fmt.Errorf("seal the link that switches e-mail off: %w", err)
	}
	return s.o.PublicURL + mailOffPath + "?" + url.Values{"of": {base64.RawURLEncoding.EncodeToString(sealed)}}.Encode(), nil
}

// MailOff switches e-mail off for whom the link was made whose parameter this is.
// What is no such parameter, or is somebody's who is gone or has another address
// now, changes nothing and is no error: the caller's answer must not tell which.
func (s *Store) MailOff(ctx context.Context, of string) error {
	to, address, ok := s.openMailOff(of)
	if !ok {
		return nil
	}
	h, err := s.o.Humans.Get(ctx, to)
	switch {
	case refusal.CodeOf(err) == refusal.NotFound:
		return nil
	case err != nil:
		return err
	case subtle.ConstantTimeCompare(hashOf(h.Email), address) != 1:
		return nil
	}
	return s.o.Humans.MailOff(ctx, to)
}

func (s *Store) openMailOff(of string) (to uuid.UUID, address []byte, ok bool) {
	sealed, err := base64.RawURLEncoding.Strict().DecodeString(of)
	if err != nil {
		return uuid.Nil, nil, false
	}
	text, err := s.o.Sealer.Open(sealed, mailOffContext)
	if err != nil || len(text) <= len(to) {
		return uuid.Nil, nil, false
	}
	copy(to[:], text)
	return to, text[len(to):], true
}
