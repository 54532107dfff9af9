package access

import (
	"net/http"
	"strings"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// proxy is the subresource that allows all that has none of its own.
const proxy = "proxy"

// subresources are those of nodes by path: whoever may use one of them may ask. A path stands for
// all below it; what is not here is proxy.
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

// verbs are those of RBAC by method; another method has none, which nobody is allowed by name.
var verbs = map[string]string{
	http.MethodGet: "get", http.MethodHead: "get", http.MethodPost: "create",
	http.MethodPut: "update", http.MethodPatch: "patch", http.MethodDelete: "delete",
}

// subresourcesOf are those of the path, the finest first.
func subresourcesOf(path string) []string {
	root := "/" + strings.SplitN(strings.TrimPrefix(path, "/"), "/", 2)[0]
	if found, ok := subresources[root]; ok {
		return found
	}
	return []string{proxy}
}

// attributes are what is asked about a request, in order; any of them that is allowed is enough.
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
