package actuator

import (
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/numalet/numalet/agent/pods/podworker"
)

// TestHookOverHTTP2: with the node's setting a hook that asks for HTTP/2 uses it, else HTTP/1.1.
func TestHookOverHTTP2(t *testing.T) {
	var got []string
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		got = append(got, r.Proto)
	}))
	s.Config.Protocols = new(http.Protocols)
	s.Config.Protocols.SetHTTP1(true)
	s.Config.Protocols.SetUnencryptedHTTP2(true)
	s.Start()
	defer s.Close()
	host, port, _ := strings.Cut(s.Listener.Addr().String(), ":")
	number, err := strconv.Atoi(port)
	if err != nil {
		t.Fatal(err)
	}
	run := podworker.Action{Kind: podworker.PostStart, Container: "web", IDs: []string{"w"}}
	for _, on := range []bool{false, true} {
		old, _ := newHooked(t)
		cfg := old.cfg
		cfg.Node.HTTP2 = on
		pod, observed := hookedPod("good")
		pod.Spec.Containers[0].Lifecycle.PostStart = &v1.LifecycleHandler{HTTPGet: &v1.HTTPGetAction{
			Host: host, Port: intstr.FromInt(number), Protocol: ptr.To(v1.HTTPProtocolHTTP2)}}
		if _, err := New(cfg).Do(t.Context(), pod, observed, run, nil); err != nil {
			t.Errorf("on %t: %v", on, err)
		}
	}
	if strings.Join(got, " ") != "HTTP/1.1 HTTP/2.0" {
		t.Errorf("the hooks came over %q", got)
	}
}
