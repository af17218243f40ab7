package web

import (
	"strings"

	"switchboard/internal/quote"
)

// What browsers call themselves, and what people call them; the first that is
// found counts, since most claim to be several others too.
var (
	browserNames = [][2]string{
		{"Edg", "Edge"}, {"OPR/", "Opera"}, {"Vivaldi", "Vivaldi"}, {"SamsungBrowser", "Samsung Internet"}, {"FxiOS", "Firefox"},
		{"CriOS", "Chrome"}, {"Firefox", "Firefox"}, {"Chrome", "Chrome"}, {"Safari/", "Safari"}, {"curl/", "curl"},
	}
	systemNames = [][2]string{
		{"iPhone", "iPhone"}, {"iPad", "iPad"}, {"Android", "Android"}, {"Windows", "Windows"}, {"Mac OS X", "macOS"}, {"CrOS", "ChromeOS"}, {"Linux", "Linux"},
	}
)

// browser says in two words what sent a User-Agent header, so that a person can
// tell sessions apart; of an unknown one, its own words.
func browser(userAgent string) string {
	name, system := firstNamed(browserNames, userAgent), firstNamed(systemNames, userAgent)
	switch {
	case name == "":
		return quote.Visible(userAgent, 70)
	case system == "":
		return name
	}
	return name + " on " + system
}

func firstNamed(names [][2]string, text string) string {
	for _, n := range names {
		if strings.Contains(text, n[0]) {
			return n[1]
		}
	}
	return ""
}
