package web

import (
	"net/url"
	"strconv"
	"strings"

	"switchboard/internal/refusal"
)

// form is what somebody typed, and what is wrong with it, field by field.
type form struct {
	Values url.Values
	Errors map[string]string // under "": what is wrong as a whole
}

func newForm(values url.Values) form { return form{Values: values, Errors: map[string]string{}} }

// Get returns what was typed into a field.
func (f form) Get(name string) string { return f.Values.Get(name) }

// Has reports whether a box with this value was ticked.
func (f form) Has(name, value string) bool {
	for _, v := range f.Values[name] {
		if v == value {
			return true
		}
	}
	return false
}

// Sent reports whether the form had the field.
func (f form) Sent(name string) bool { return f.known(name) }

// Error returns what is wrong with a field.
func (f form) Error(name string) string { return f.Errors[name] }

// Notice returns what is wrong as a whole.
func (f form) Notice() string { return f.Errors[""] }

// Bad reports whether anything is wrong.
func (f form) Bad() bool { return len(f.Errors) > 0 }

func (f form) wrong(name, text string) { f.Errors[name] = sentence(text) }

// wrongWithin reports whether a field whose name begins so is wrong.
func (f form) wrongWithin(prefix string) bool {
	for name := range f.Errors {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}

// integer reads a number; empty is nil.
func (f form) integer(name string) *int64 {
	text := strings.TrimSpace(f.Get(name))
	if text == "" {
		return nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		f.wrong(name, "a whole number is expected")
		return nil
	}
	return &n
}

// refused puts a refusal beside the field that it is about, and returns nil; an
// error that is no refusal of the input is returned. aliases lead from members
// of the contract to fields of the form.
func (f form) refused(err error, aliases map[string]string) error {
	e := refusal.From(err)
	switch e.Code {
	case refusal.InvalidArgument, refusal.Conflict, refusal.PayloadTooLarge, refusal.QuotaExceeded, refusal.RateLimited, refusal.PreconditionFailed:
	default:
		return err
	}
	name := e.Field
	if alias, ok := aliases[name]; ok {
		name = alias
	} else {
		name = name[strings.LastIndexByte(name, '.')+1:]
	}
	if name == "" || !f.known(name) {
		f.wrong("", e.Message)
	} else {
		f.wrong(name, e.Message)
	}
	return nil
}

// known reports whether the form has a field of this name that was sent.
func (f form) known(name string) bool {
	_, ok := f.Values[name]
	return ok
}
