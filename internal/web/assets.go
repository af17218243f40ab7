package web

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"io/fs"
	"net/http"
	"path"
	"strings"
	"time"
)

//go:embed assets
var assetFiles embed.FS

// assets are served under a name that holds their hash, so that browsers may
// keep them for ever and never mix releases.
type assets struct {
	names map[string]string // "style.css" → "/assets/<hash>/style.css"
	files map[string][]byte // "<hash>/style.css"
}

func loadAssets() assets {
	a := assets{names: map[string]string{}, files: map[string][]byte{}}
	add := func(name string, content []byte) {
		sum := sha256.Sum256(content)
		stamped := hex.EncodeToString(sum[:6]) + "/" + name
		a.names[name], a.files[stamped] = "/assets/"+stamped, content
	}
	var style []byte
	// Embedded files cannot fail to be read.
	_ = fs.WalkDir(assetFiles, "assets", func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || strings.HasSuffix(p, ".LICENSE") {
			return err
		}
		content, err := assetFiles.ReadFile(p)
		name := strings.TrimPrefix(p, "assets/")
		if name == "style.css" {
			style = content
			return err
		}
		add(name, content)
		return err
	})
	// The stylesheet names the fonts, which have stamped names themselves.
	for name, url := range a.names {
		style = bytes.ReplaceAll(style, []byte(`url("`+name+`")`), []byte(`url("`+url+`")`))
	}
	add("style.css", style)
	return a
}

var assetTypes = map[string]string{
	".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".woff2": "font/woff2", ".svg": "image/svg+xml",
}

func (s *site) asset(w http.ResponseWriter, r *http.Request) {
	content, ok := s.assets.files[r.PathValue("file")]
	kind := assetTypes[path.Ext(r.URL.Path)]
	if !ok || kind == "" {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", kind)
	w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(content))
}

// icon answers who asks for it without having read a page that names it, as
// browsers do for what is no page of ours.
func (s *site) icon(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", assetTypes[".svg"])
	w.Header().Set("Cache-Control", "public, max-age=86400")
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(s.assets.files[strings.TrimPrefix(s.assets.names["icon.svg"], "/assets/")]))
}

// Icon is the path of the pages' icon, for pages of other transports.
func Icon() string { return loadAssets().names["icon.svg"] }

// Stylesheet is the path of the pages' one stylesheet, for pages of other
// transports that are to look like these.
func Stylesheet() string { return loadAssets().names["style.css"] }
