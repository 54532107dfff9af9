package server

import (
	"log"
	"strings"

	"k8s.io/klog/v2"
)

// errorLog takes what the HTTP servers have to say, and adds what an administrator can do.
type errorLog struct{}

// newErrorLog returns the log of an HTTP server.
func newErrorLog() *log.Logger { return log.New(errorLog{}, "", 0) }

func (errorLog) Write(line []byte) (int, error) {
	text := strings.TrimSpace(string(line))
	if hint := hintFor(text); hint != "" {
		klog.Background().Info("A request to the node failed", "why", text, "hint", hint)
	} else {
		klog.Background().Info("A request to the node failed", "why", text)
	}
	return len(line), nil
}

// hintFor says what to do if a client does not trust the node's certificate; "": the line is about something else.
func hintFor(line string) string {
	if !strings.Contains(line, "TLS handshake error") || !strings.Contains(line, "remote error: tls: ") {
		return ""
	}
	for _, alert := range []string{"bad certificate", "unknown certificate", "unknown certificate authority"} {
		if strings.HasSuffix(line, alert) {
			return "the client does not trust the node's certificate; if it is the API server, set serverTLSBootstrap: " +
				"true and approve the node's CSR (kubectl certificate approve), or set tlsCertFile and tlsPrivateKeyFile"
		}
	}
	return ""
}
