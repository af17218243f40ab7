package web

import "html/template"

// Paths on a 16 by 16 grid, drawn as strokes in the text's colour.
var iconPaths = map[string]string{
	"plus":   `<path d="M8 3v10M3 8h10"/>`,
	"eye":    `<path d="M1.5 8S4 3.5 8 3.5 14.500 8 14.500 8 12 12.500 8 12.500 1.500 8 1.500 8z"/><circle cx="8" cy="8" r="1.800"/>`,
	"list":   `<path d="M5.500 4h8M5.500 8h8M5.500 12h8M2.500 4h.01M2.500 8h.01M2.500 12h.01"/>`,
	"reply":  `<path d="M6.500 4 2.500 8l4 4M2.500 8h7a4 4 0 0 1 4 4v1"/>`,
	"x":      `<path d="m4 4 8 8M12 4l-8 8"/>`,
	"check":  `<path d="m3 8.500 3.500 3.500L13 4.500"/>`,
	"shield": `<path d="M8 1.800 3 3.600v4c0 3.200 2.100 5.500 5 6.600 2.900-1.100 5-3.400 5-6.600v-4z"/><path d="m5.700 7.900 1.700 1.700 3-3.200"/>`,
	"clock":  `<circle cx="8" cy="8" r="6"/><path d="M8 4.500V8l2.300 1.700"/>`,
	"pause":  `<path d="M5.500 3.500v9M10.500 3.500v9"/>`,
	"arrow":  `<path d="M3 8h10M9 4l4 4-4 4"/>`,
	"inbox":  `<path d="M2 9.500 4 3.500h8l2 6v3H2zM2 9.500h3.500l1 1.500h3l1-1.500H14"/>`,
	"people": `<circle cx="5.800" cy="5.500" r="2.300"/><path d="M1.800 13c0-2.200 1.800-3.700 4-3.700s4 1.500 4 3.700M10.500 3.500a2.200 2.200 0 0 1 0 4.200M11.500 9.500c1.700.4 2.800 1.700 2.800 3.500"/>`,
	"face":   `<circle cx="8" cy="8" r="6"/><path d="M6 6.500h.01M10 6.500h.01M5.500 9.800c1.400 1.500 3.600 1.500 5 0"/>`,
	"plug":   `<path d="M5.500 1.800v3M10.500 1.800v3M3.500 4.800h9v2.700a4.500 4.500 0 0 1-9 0zM8 12v2.300"/>`,
	"queue":  `<path d="M2.500 3.500h11v2.500h-11zM2.500 8.500h11M2.500 12h7"/>`,
	"pulse":  `<path d="M1.500 8.500h3l2-5 3 9 2-4h3"/>`,
	"gear":   `<circle cx="8" cy="8" r="2.200"/><path d="M8 1.800v2M8 12.200v2M1.800 8h2M12.200 8h2M3.600 3.600 5 5M11 11l1.400 1.400M12.400 3.600 11 5M5 11l-1.400 1.400"/>`,
	"flag":   `<path d="M3.500 14V2.500h8.500L10 6l2 3.500H3.500"/>`,
}

// icon is decoration beside words that say the same, so it is hidden from screen readers.
func icon(name string) template.HTML {
	return template.HTML(`<svg class="icon" viewBox="0 0 16 16" width="16" height="16" aria-hidden="true" focusable="false">` + iconPaths[name] + `</svg>`) //nolint:gosec // constants
}
