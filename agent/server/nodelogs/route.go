// Package nodelogs has the logs of the host: the files below its folder of logs, and, where that is
// allowed, what its services wrote (KEP-2258).
package nodelogs

import (
	"net/http"
	"time"

	"github.com/numalet/numalet/agent/server"
)

// Config is what is shown.
type Config struct {
	// Root is the folder; nothing outside of it is shown, whatever links there are.
	Root string
	// Query allows to ask for the logs of services.
	Query bool
	// Patience is how long a client may take over each piece.
	Patience time.Duration
	// Journal is the program that reads services' logs; "": journalctl.
	Journal string
}

// Route answers below /logs/.
func Route(c Config) server.Route {
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
	return server.Route{
		Method: http.MethodGet, Pattern: "/logs/", Stream: true,
		Handler: server.Long(http.HandlerFunc(handler), c.Patience),
	}
}
