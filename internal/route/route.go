// Package route has routes of an HTTP server, and how they answer: packages export routes to what they know
// without knowing the server.
package route

import (
	"encoding/json"
	"fmt"
	"net/http"
)

// Route serves requests of one method. Packages export routes to what they know; the composition
// assigns them to listeners.
type Route struct {
	// Method is an HTTP method; a route for GET also answers HEAD. "": every method.
	Method string
	// Pattern is a pattern of http.ServeMux without a method.
	Pattern string
	Handler http.Handler
	// Slash allows a slash at the end of the path, as old clients send it.
	Slash bool
	// Stream: the answer is sent while it is made, and has no time limit. Other answers are made in
	// memory first, one for all concurrent requests of the same kind.
	Stream bool
}

// Get answers GET requests.
func Get(pattern string, answer http.HandlerFunc) Route {
	return Route{Method: http.MethodGet, Pattern: pattern, Handler: answer}
}

// JSONRoute serves the present value.
func JSON(pattern string, value func() any) Route {
	return Get(pattern, func(w http.ResponseWriter, _ *http.Request) { WriteJSON(w, value()) })
}

// DisabledRoute answers every request that matches pattern with the reason why it is not served.
func Disabled(pattern, why string) Route {
	return Route{Pattern: pattern, Handler: http.HandlerFunc(
		func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, why, http.StatusMethodNotAllowed)
		})}
}

// WriteJSON answers with a value as indented JSON.
func WriteJSON(w http.ResponseWriter, value any) {
	text, err := json.MarshalIndent(value, "", "  ")
	Answer(w, append(text, '\n'), err)
}

// Answer answers with JSON, unless its making failed.
func Answer(w http.ResponseWriter, text []byte, err error) {
	if err != nil {
		http.Error(w, "encode answer: "+err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(text) // an error means that the client has gone
}

// Refusal is a plain-text answer to a request that is not served.
type Refusal struct {
	Code int
	Text string
}

// Refuse returns a refusal.
func Refuse(code int, format string, args ...any) *Refusal {
	return &Refusal{code, fmt.Sprintf(format, args...)}
}

func (r *Refusal) Error() string { return r.Text }

// Answer sends the refusal.
func (r *Refusal) Answer(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(r.Code)
	_, _ = w.Write([]byte(r.Text)) // an error means that the client has gone
}

// Installed collects the routes that a library installs.
type Installed []Route

// Handle collects a handler.
func (r *Installed) Handle(pattern string, handler http.Handler) {
	*r = append(*r, Route{Method: http.MethodGet, Pattern: pattern, Handler: handler})
}
