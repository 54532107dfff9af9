package handler

import (
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
)

// With the gate an action that asks for HTTP/2 uses it without TLS and without asking for it first;
// others, and all without the gate, use HTTP/1.1.
func TestHTTP2WithoutTLS(t *testing.T) {
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, r.Proto)
	}))
	s.Config.Protocols = new(http.Protocols)
	s.Config.Protocols.SetHTTP1(true)
	s.Config.Protocols.SetUnencryptedHTTP2(true)
	s.Start()
	defer s.Close()
	target, port := at(t, s.Listener.Addr().String())
	for _, gate := range []bool{false, true} {
		h := New(Config{Version: "1.37", HTTP2: gate})
		for protocol, want := range map[v1.HTTPProtocol]string{
			"": "HTTP/1.1", v1.HTTPProtocolHTTP1: "HTTP/1.1",
			v1.HTTPProtocolHTTP2: map[bool]string{false: "HTTP/1.1", true: "HTTP/2.0"}[gate],
		} {
			get := &v1.HTTPGetAction{Path: "/", Port: intstr.FromInt32(port)}
			if protocol != "" {
				get.Protocol = &protocol
			}
			got := h.answer(within(t, time.Minute), v1.ProbeHandler{HTTPGet: get}, target)
			if got != "success: "+want {
				t.Errorf("gate %t, protocol %q: %s, want %s", gate, protocol, got, want)
			}
		}
	}
}

// With the gate a gRPC probe that asks for TLS uses it, whoever the server says it is; without, and for
// others, the server's TLS is a failure.
func TestGRPCOverTLS(t *testing.T) {
	certified := httptest.NewUnstartedServer(nil)
	certified.StartTLS()
	certificate := certified.TLS.Certificates[0]
	certified.Close()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer(grpc.Creds(credentials.NewTLS(&tls.Config{
		Certificates: []tls.Certificate{certificate}})))
	healthv1.RegisterHealthServer(s, health.NewServer())
	go func() { _ = s.Serve(l) }()
	defer s.Stop()
	target, port := at(t, l.Addr().String())
	for _, tt := range []struct {
		gate bool
		mode *v1.GRPCProbeMode
		want string
	}{
		{true, ptr.To(v1.GRPCProbeModeTLS), "success: service healthy"},
		{true, ptr.To(v1.GRPCProbeModePlaintext), "failure: timeout"},
		{true, nil, "failure: timeout"},
		{false, ptr.To(v1.GRPCProbeModeTLS), "failure: timeout"},
	} {
		h, d := New(Config{Version: "1.37", TLS: tt.gate}), time.Minute
		if strings.HasPrefix(tt.want, "failure") {
			d = 300 * time.Millisecond
		}
		got := h.answer(within(t, d), v1.ProbeHandler{GRPC: &v1.GRPCAction{
			Port: port, Service: ptr.To(""), Mode: tt.mode}}, target)
		if !strings.HasPrefix(got, tt.want) {
			t.Errorf("gate %t, mode %s: %s, want %s", tt.gate, ptr.Deref(tt.mode, "-"), got, tt.want)
		}
	}
}
