package server

import (
	"net/http"
	"time"
)

// Long wraps a handler whose answer may take long or is written in pieces. Its connection is not
// closed as long as the client reads each piece within patience. Each piece is sent at once.
func Long(next http.Handler, patience time.Duration) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		control := http.NewResponseController(w)
		// On our connections neither can fail; connections without deadlines have none to remove.
		_ = control.SetReadDeadline(time.Time{})
		_ = control.SetWriteDeadline(time.Time{})
		next.ServeHTTP(&longWriter{w, control, patience}, r)
	})
}

// longWriter flushes each piece before Write returns.
type longWriter struct {
	http.ResponseWriter
	control  *http.ResponseController
	patience time.Duration
}

// Unwrap serves http.ResponseController.
func (l *longWriter) Unwrap() http.ResponseWriter { return l.ResponseWriter }

// Write removes the deadline when the client has read the piece: on HTTP/2 a deadline ends the
// stream even if nothing is being written.
func (l *longWriter) Write(p []byte) (int, error) {
	_ = l.control.SetWriteDeadline(time.Now().Add(l.patience))
	defer func() { _ = l.control.SetWriteDeadline(time.Time{}) }()
	n, err := l.ResponseWriter.Write(p)
	if err == nil {
		err = l.control.Flush()
	}
	return n, err
}
