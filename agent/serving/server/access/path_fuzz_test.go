package access

import (
	"bufio"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
)

// FuzzPath: however a path is written, it needs the same rights as the handler that it reaches.
func FuzzPath(f *testing.F) {
	mux, reached := http.NewServeMux(), ""
	for _, pattern := range []string{
		"/", "/pods", "/configz", "/healthz", "/healthz/{name}", "/stats/summary", "/metrics",
		"/metrics/cadvisor", "/runningpods/", "/logs/", "/flagz", "/statusz", "/placements",
		"/exec/{namespace}/{pod}/{container}", "/run/{namespace}/{pod}/{uid}/{container}",
		"/containerLogs/{namespace}/{pod}/{container}", "/debug/pprof/", "/debug/flags/v",
		"/checkpoint/{namespace}/{pod}/{container}", "/allocatedPods/{namespace}/{pod}",
	} {
		mux.HandleFunc(pattern, func(http.ResponseWriter, *http.Request) { reached = pattern })
	}
	for _, path := range []string{
		"/pods", "//pods", "/pods/", "/configz/../exec/a/b/c", "/configz%2f..%2fexec/a/b/c",
		"/%65xec/a/b/c", "/exec%2fa/b/c", "/./exec/a/b/c", "/pods;/exec/a/b/c", "/exec/pods/pods/c", "/pods/../../run/a/b/c/d",
		"/pods%00/a", "/logs/..%2f..%2fexec/a/b/c", "*", "http://x/exec/a/b/c", "http://pods//run/a/b/c/d",
		"/exec/a%2fb/c/d", "/\\exec/a/b/c", "/exec/a/b/c?x=/pods", "exec:/pods",
	} {
		f.Add(http.MethodGet, path)
		f.Add(http.MethodConnect, path)
	}
	f.Fuzz(func(t *testing.T, method, path string) {
		r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(
			method + " " + path + " HTTP/1.1\r\nHost: node\r\n\r\n")))
		if err != nil {
			return
		}
		reached = ""
		mux.ServeHTTP(httptest.NewRecorder(), r)
		if reached == "" || reached == "/" { // a redirect, or not found
			return
		}
		if got, want := subresourcesOf(r.URL.Path), subresourcesOf(reached); !slices.Equal(got, want) {
			t.Errorf("%s %q takes %v, and leads to %s, which takes %v", method, path, got, reached, want)
		}
	})
}
