package cluster_test

import (
	"crypto/tls"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/numalet/numalet/cmd/numalet-lab/crisim"
	"github.com/numalet/numalet/test/cluster/rig"
)

// gatesOn returns the setting of an agent with feature gates that are off by default: those of the
// control plane, and more that only concern nodes.
func gatesOn() map[string]any {
	on := map[string]bool{"DefaultPodSysctls": true,
		"ReduceDefaultCrashLoopBackOffDecay": true, "RuntimeClassInImageCriApi": true}
	for _, gate := range rig.Gates() {
		on[gate] = true
	}
	return map[string]any{"featureGates": on}
}

// level is the key of the taint of nodes whose pods all tolerate it; its value is a number.
const level = "example.com/level"

// taint gives the node the taint.
func (s *side) taint() { s.MustRun("taint", "node", s.Name, level+"=5:NoExecute") }

// gatedVariants need the gates that gatesOn has. RuntimeClassInImageCriApi shows in the variants with a
// runtime class.
func (a asking) gatedVariants() []variant {
	tolerates := func(name string, operator v1.TolerationOperator, value string) variant {
		return whole(name, func(s *v1.PodSpec) {
			s.Tolerations = []v1.Toleration{{Key: level, Operator: operator, Value: value,
				Effect: v1.TaintEffectNoExecute}}
		})
	}
	health := func(name, service string, mode v1.GRPCProbeMode) variant {
		return a.ready(name, func(p *v1.Pod) v1.ProbeHandler {
			p.Spec.HostNetwork = true // the server is at the node's address
			return v1.ProbeHandler{GRPC: &v1.GRPCAction{Port: int32(a.health), Service: &service,
				Mode: &mode}}
		}).patiently()
	}
	web := func(name, path string, protocol v1.HTTPProtocol) variant {
		return a.ready(name, func(p *v1.Pod) v1.ProbeHandler {
			return v1.ProbeHandler{HTTPGet: a.over(p, path, protocol)}
		}).patiently()
	}
	return []variant{
		web("ready-http1", "/ok/", v1.HTTPProtocolHTTP1),
		web("ready-http2", "/ok/", v1.HTTPProtocolHTTP2),
		web("ready-http2-fails", "/fails/", v1.HTTPProtocolHTTP2),
		web("ready-http2-elsewhere", "/elsewhere/", v1.HTTPProtocolHTTP2),
		health("ready-grpc-tls", "", v1.GRPCProbeModeTLS),
		health("ready-grpc-tls-unknown", "unknown", v1.GRPCProbeModeTLS),
		health("ready-grpc-plain", "", v1.GRPCProbeModePlaintext),
		whole("user-namespace-host-network", func(s *v1.PodSpec) {
			s.HostUsers, s.HostNetwork = ptr.To(false), true
		}),
		tolerates("tolerates-greater", v1.TolerationOpGt, "4"),
		tolerates("tolerates-less", v1.TolerationOpLt, "6"),
	}
}

// over makes a request with a protocol, which the API server takes with the pod's own address only.
func (a asking) over(p *v1.Pod, path string, protocol v1.HTTPProtocol) *v1.HTTPGetAction {
	p.Spec.HostNetwork = true
	return &v1.HTTPGetAction{Protocol: &protocol, Port: intstr.FromInt(a.relay),
		Path: path + p.Name + "?side=" + sideAddress, HTTPHeaders: []v1.HTTPHeader{
			{Name: "Host", Value: "h.example.com"}, {Name: "x-a", Value: "1"}}}
}

// hookOver2: a hook may ask for HTTP/2, too. The kubelet uses HTTP/1.1 for hooks, and sends none to the
// address of a pod in the node's network.
func hookOver2(t *testing.T, s *side, ask asking) {
	t.Helper()
	pod := ordinaryPod("post-start-http2")
	lifecycle(&pod.Spec.Containers[0]).PostStart = &v1.LifecycleHandler{
		HTTPGet: ask.over(pod, "/ok/", v1.HTTPProtocolHTTP2)}
	s.make(t, pod)
	await(t, s.Cluster, s.Namespace, pod.Name, runs)
	if got := s.answers.about(pod.Name); len(got) != 1 || !strings.Contains(got[0], " over HTTP/2.0;") {
		t.Errorf("a hook that asks for HTTP/2 came as %q", got)
	}
}

// patiently gives the readiness probe of a variant time on a busy machine.
func (t variant) patiently() variant {
	set := t.set
	t.set = func(p *v1.Pod) {
		set(p)
		p.Spec.Containers[0].ReadinessProbe.TimeoutSeconds = 9
	}
	return t
}

// listen listens at the node's address, which is the machine's.
func (s *side) listen(t *testing.T) net.Listener {
	t.Helper()
	node, err := s.Client.CoreV1().Nodes().Get(t.Context(), s.Name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	address := ""
	for _, a := range node.Status.Addresses {
		if a.Type == v1.NodeInternalIP {
			address = a.Address
		}
	}
	listener, err := net.Listen("tcp", net.JoinHostPort(address, "0"))
	if err != nil {
		t.Fatal(err)
	}
	return listener
}

// serveRelay starts a server at the node's address that speaks HTTP/1.1 and, without TLS, HTTP/2. It has
// the probe server answer whose address a request names, and returns its port.
func (s *side) serveRelay(t *testing.T, servers []*probeServer) int {
	t.Helper()
	relay := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for _, server := range servers {
			if r.URL.Query().Get("side") == server.address {
				server.ServeHTTP(w, r)
				return
			}
		}
		http.NotFound(w, r) // it was redirected
	}))
	_ = relay.Listener.Close()
	relay.Listener = s.listen(t)
	relay.Config.Protocols = new(http.Protocols)
	relay.Config.Protocols.SetHTTP1(true)
	relay.Config.Protocols.SetUnencryptedHTTP2(true)
	relay.Start()
	t.Cleanup(relay.Close)
	return relay.Listener.Addr().(*net.TCPAddr).Port
}

// serveHealth starts a gRPC health server with TLS at the node's address, and returns its port.
func (s *side) serveHealth(t *testing.T) int {
	t.Helper()
	listener := s.listen(t)
	certified := httptest.NewUnstartedServer(nil)
	certified.StartTLS()
	certified.Close()
	server := grpc.NewServer(grpc.Creds(credentials.NewTLS(&tls.Config{
		Certificates: certified.TLS.Certificates})))
	healthv1.RegisterHealthServer(server, health.NewServer())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := server.Serve(listener); err != nil {
			t.Errorf("the health server: %v", err)
		}
	}()
	t.Cleanup(func() { server.Stop(); <-ended })
	return listener.Addr().(*net.TCPAddr).Port
}

// startsSoon: with ReduceDefaultCrashLoopBackOffDecay the pauses of a container that keeps exiting are
// powers of two from 1 s, not 10 s and its doubles. The kubelet may show each one only as the next
// begins, so that any of them does.
func startsSoon(t *testing.T, sides []*side) {
	t.Helper()
	pod := ordinaryPod("crashes")
	pod.Annotations[crisim.AnnotationPrefix+"main"] = "exit=1"
	makeAll(t, sides, []*v1.Pod{pod})
	soon := regexp.MustCompile("^back-off (1|2|4|8|16|32)s ")
	for _, s := range sides {
		await(t, s.Cluster, s.Namespace, pod.Name, func(p *v1.Pod) bool {
			return slices.ContainsFunc(statuses(p), func(c v1.ContainerStatus) bool {
				return c.State.Waiting != nil && soon.MatchString(c.State.Waiting.Message)
			})
		})
	}
}
