package server

import (
	"crypto/tls"
	"crypto/x509"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestUntrustedCertificate: what a server logs of a client that does not trust its certificate names the setting.
func TestUntrustedCertificate(t *testing.T) {
	lines := make(chan string, 1)
	s := httptest.NewUnstartedServer(nil)
	s.Config.ErrorLog = newErrorLog()
	s.Config.ErrorLog.SetOutput(lineTo(lines))
	s.StartTLS()
	defer s.Close()
	conn, err := tls.Dial("tcp", s.Listener.Addr().String(), &tls.Config{RootCAs: x509.NewCertPool()})
	if err == nil {
		_ = conn.Close()
		t.Fatal("the client trusts it")
	}
	if line := <-lines; !strings.Contains(hintFor(line), "serverTLSBootstrap") {
		t.Errorf("no hint for %q", line)
	}
	if hint := hintFor("http: TLS handshake error from 10.0.0.1:7: EOF"); hint != "" {
		t.Errorf("of a client that has gone: %s", hint)
	}
}

// lineTo sends each line that is written.
type lineTo chan<- string

func (l lineTo) Write(line []byte) (int, error) {
	l <- strings.TrimSpace(string(line))
	return len(line), nil
}
