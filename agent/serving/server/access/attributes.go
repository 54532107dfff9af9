package access

import (
	"net/http"
	"strings"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// proxy is the subresource of all paths without one of their own.
const proxy = "proxy"

// subresources maps paths to subresources of nodes; each of them allows requests below the path.
// Other paths need proxy.
var subresources = map[string][]string{
	"/stats":         {"stats"},
	"/metrics":       {"metrics"},
	"/logs":          {"log"},
	"/checkpoint":    {"checkpoint"},
	"/statusz":       {"statusz"},
	"/flagz":         {"configz"},
	"/healthz":       {"healthz", proxy},
	"/configz":       {"configz", proxy},
	"/pods":          {"pods", proxy},
	"/runningpods":   {"pods", proxy},
	"/allocatedPods": {"pods", proxy},
}

// verbs maps methods to RBAC's verbs. Other methods have none, so no role can allow them by name.
var verbs = map[string]string{
	http.MethodGet: "get", http.MethodHead: "get", http.MethodPost: "create",
	http.MethodPut: "update", http.MethodPatch: "patch", http.MethodDelete: "delete",
}

// subresourcesOf returns the subresources of the path, the narrowest first.
func subresourcesOf(path string) []string {
	root := "/" + strings.SplitN(strings.TrimPrefix(path, "/"), "/", 2)[0]
	if found, ok := subresources[root]; ok {
		return found
	}
	return []string{proxy}
}

// attributes returns the questions about a request, in order; one allowed is enough.
func attributes(node string, who user.Info, r *http.Request) []authorizer.Attributes {
	var out []authorizer.Attributes
	for _, sub := range subresourcesOf(r.URL.Path) {
		out = append(out, authorizer.AttributesRecord{
			User: who, Verb: verbs[r.Method], APIVersion: "v1", Resource: "nodes",
			Subresource: sub, Name: node, ResourceRequest: true, Path: r.URL.Path,
		})
	}
	return out
}
