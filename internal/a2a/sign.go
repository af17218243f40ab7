package a2a

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"

	"github.com/a2aproject/a2a-go/v2/a2a"
)

// signed is the card's JSON with its signatures, by one key: over the card as it
// is served, and over the card without empty values. A2A 1.0 §8.4.1 has
// verifiers drop default values first; those of the A2A SDKs drop whatever is
// empty, also {} among the security requirements, which says that sending needs
// none. Either kind of verifier finds a signature that is good.
func (h *Handler) signed(ctx context.Context, card any) ([]byte, error) {
	plain, err := json.Marshal(card)
	if err != nil {
		return nil, fmt.Errorf("encode card: %w", err)
	}
	full, err := withoutEmpty(plain)
	if err != nil {
		return nil, fmt.Errorf("encode card: %w", err)
	}
	sigs := []a2a.AgentCardSignature{}
	for _, form := range [][]byte{plain, full} {
		protected, signature, err := h.Keys.Sign(ctx, form)
		if err != nil {
			return nil, err
		}
		sigs = append(sigs, a2a.AgentCardSignature{Protected: protected, Signature: signature})
	}
	list, err := json.Marshal(sigs)
	if err != nil {
		return nil, fmt.Errorf("encode card: %w", err)
	}
	out := append(plain[:len(plain)-1:len(plain)-1], `,"signatures":`...)
	return append(append(out, list...), '}'), nil
}

// withoutEmpty drops empty strings, arrays, objects and null, from the inside
// out.
func withoutEmpty(card []byte) ([]byte, error) {
	dec := json.NewDecoder(bytes.NewReader(card))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		return nil, err
	}
	return json.Marshal(filled(v))
}

// filled is v without what is empty; nil when nothing is left.
func filled(v any) any {
	switch v := v.(type) {
	case string:
		if v == "" {
			return nil
		}
	case []any:
		kept := []any{}
		for _, e := range v {
			if e = filled(e); e != nil {
				kept = append(kept, e)
			}
		}
		if len(kept) == 0 {
			return nil
		}
		return kept
	case map[string]any:
		kept := map[string]any{}
		for k, e := range v {
			if e = filled(e); e != nil {
				kept[k] = e
			}
		}
		if len(kept) == 0 {
			return nil
		}
		return kept
	}
	return v
}
