package oauth

import (
	"net/http"
)

const assertionType = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"

var keyAlgs = []string{"EdDSA", "Ed25519", "ES256"}

// serverMetadata is RFC 8414's document, with the members of RFC 9207, RFC 9449
// and client id metadata documents.
type serverMetadata struct {
	Issuer                string   `json:"issuer"`
	AuthorizationEndpoint string   `json:"authorization_endpoint"`
	TokenEndpoint         string   `json:"token_endpoint"`
	RevocationEndpoint    string   `json:"revocation_endpoint"`
	ScopesSupported       []string `json:"scopes_supported"`
	ResponseTypes         []string `json:"response_types_supported"`
	ResponseModes         []string `json:"response_modes_supported"`
	GrantTypes            []string `json:"grant_types_supported"`
	TokenAuthMethods      []string `json:"token_endpoint_auth_methods_supported"`
	TokenAuthAlgs         []string `json:"token_endpoint_auth_signing_alg_values_supported"`
	RevocationAuthMethods []string `json:"revocation_endpoint_auth_methods_supported"`
	CodeChallengeMethods  []string `json:"code_challenge_methods_supported"`
	DPoPAlgs              []string `json:"dpop_signing_alg_values_supported"`
	IssuerInAnswer        bool     `json:"authorization_response_iss_parameter_supported"`
	ClientIDDocuments     bool     `json:"client_id_metadata_document_supported"`
	ResourceIndicators    bool     `json:"resource_indicators_supported"`
	RequestParameter      bool     `json:"request_parameter_supported"`
	RequestURIParameter   bool     `json:"request_uri_parameter_supported"`
}

func (s *Server) metadata(w http.ResponseWriter, _ *http.Request) {
	open(w)
	w.Header().Set("Cache-Control", "public, max-age=300")
	answer(w, http.StatusOK, serverMetadata{
		Issuer:                s.PublicURL,
		AuthorizationEndpoint: s.PublicURL + authorizePath,
		TokenEndpoint:         s.PublicURL + tokenPath,
		RevocationEndpoint:    s.PublicURL + revokePath,
		// Scopes are verb:queue of one grant, which its endpoint tells; these are
		// the others.
		ScopesSupported:       []string{"offline_access"},
		ResponseTypes:         []string{"code"},
		ResponseModes:         []string{"query"},
		GrantTypes:            []string{"client_credentials", "authorization_code", "refresh_token"},
		TokenAuthMethods:      []string{"private_key_jwt", "none"},
		TokenAuthAlgs:         keyAlgs,
		RevocationAuthMethods: []string{"none"},
		CodeChallengeMethods:  []string{"S256"},
		DPoPAlgs:              keyAlgs,
		IssuerInAnswer:        true,
		ClientIDDocuments:     true,
		ResourceIndicators:    true,
	})
}

// resourceMetadata is RFC 9728's document. It is computed from the URL alone:
// that somebody gets one says nothing about what exists.
func (s *Server) resourceMetadata(kind, name string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		open(w)
		resource := s.PublicURL + kind + r.PathValue(name)
		if _, _, ok := s.Endpoints.ParseResource(resource); !ok {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Cache-Control", "public, max-age=300")
		answer(w, http.StatusOK, struct {
			Resource             string   `json:"resource"`
			AuthorizationServers []string `json:"authorization_servers"`
			BearerMethods        []string `json:"bearer_methods_supported"`
			DPoPAlgs             []string `json:"dpop_signing_alg_values_supported"`
		}{resource, []string{s.PublicURL}, []string{"header"}, keyAlgs})
	}
}
