package provenance

import "time"

// SetNow replaces the cache's clock.
func (k *Keys) SetNow(now func() time.Time) { k.now = now }

// CheckAddress is what the guarded client asks at dial.
var CheckAddress = checkAddress

// JSON of the canonical form, for the vectors of RFC 8785.
var Canonical = canonical
