// Package nodelogs serves the logs of the host: the files below its log directory and, if allowed,
// the logs of its services (KEP-2258).
package nodelogs

import (
	"net/http"
	"time"

	"github.com/numalet/numalet/agent/serving/server"
	"github.com/numalet/numalet/internal/route"
)

// Config says which logs are served.
type Config struct {
	// Root is the log directory; nothing outside it is served, whatever links exist.
	Root string
	// Query allows requests for the logs of services.
	Query bool
	// Patience bounds how long a client may take to read each piece.
	Patience time.Duration
	// Journal is the program that prints the logs of services; "": journalctl.
	Journal string
}

// Route serves /logs/.
func Route(c Config) route.Route {
	files := http.StripPrefix("/logs/", http.FileServer(http.FS(folder{c.Root})))
	handler := func(w http.ResponseWriter, r *http.Request) {
		asked := r.URL.Query()
		if r.URL.Path != "/logs/" || len(asked) == 0 || !c.Query {
			if len(asked["query"]) > 0 && !c.Query {
				http.Error(w, "node log query is disabled: set enableSystemLogQuery",
					http.StatusForbidden)
				return
			}
			files.ServeHTTP(w, r)
			return
		}
		q, err := parse(asked)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		c.show(w, r, q)
	}
	return route.Route{
		Method: http.MethodGet, Pattern: "/logs/", Stream: true,
		Handler: server.Long(http.HandlerFunc(handler), c.Patience),
	}
}
