package devidp

import (
	"crypto/sha256"
	"encoding/base64"
	"slices"
	"strings"
)

// Person is somebody who can sign in here.
type Person struct {
	Login   string // what login_hint names
	Subject string // sub: stable over restarts, and not the login, so that nobody mixes them up
	Name    string
	Email   string
}

// People returns everyone who can sign in, in a fixed order.
func People() []Person {
	return []Person{person("alice", "Alice"), person("bob", "Bob"), person("carol", "Carol")}
}

// PersonNamed returns the person whose login or e-mail address is hint.
func PersonNamed(hint string) (Person, bool) {
	people := People()
	i := slices.IndexFunc(people, func(p Person) bool {
		return hint == p.Login || strings.EqualFold(hint, p.Email)
	})
	if i < 0 {
		return Person{}, false
	}
	return people[i], true
}

func person(login, name string) Person {
	sum := sha256.Sum256([]byte("switchboard development person " + login))
	return Person{
		Login:   login,
		Subject: base64.RawURLEncoding.EncodeToString(sum[:15]),
		Name:    name,
		Email:   login + "@example.com",
	}
}
