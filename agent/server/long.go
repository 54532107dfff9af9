package server

import (
	"net/http"
	"time"
)

// Long is a handler whose answer takes as long as it takes, or comes piece by piece: it is not cut
// off while its client takes each piece within patience. What it writes goes out at once.
func Long(next http.Handler, patience time.Duration) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		control := http.NewResponseController(w)
		// Neither can fail on a connection of ours; one without deadlines needs none lifted.
		_ = control.SetReadDeadline(time.Time{})
		_ = control.SetWriteDeadline(time.Time{})
		next.ServeHTTP(&longWriter{w, control, patience}, r)
	})
}

// longWriter flushes what it is given before it returns.
type longWriter struct {
	http.ResponseWriter
	control  *http.ResponseController
	patience time.Duration
}

// Unwrap is for http.ResponseController.
func (l *longWriter) Unwrap() http.ResponseWriter { return l.ResponseWriter }

// Write lifts the limit again when the client has taken the piece: of HTTP/2 a limit that is
// reached ends the stream also when nothing is to be written.
func (l *longWriter) Write(p []byte) (int, error) {
	_ = l.control.SetWriteDeadline(time.Now().Add(l.patience))
	defer func() { _ = l.control.SetWriteDeadline(time.Time{}) }()
	n, err := l.ResponseWriter.Write(p)
	if err == nil {
		err = l.control.Flush()
	}
	return n, err
}
