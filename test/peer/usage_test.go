package peer

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/numalet/numalet/test/cluster/rig"
)

// etcdReceived returns how many bytes clients have sent to etcd, nearly all of them writes.
func (n *node) etcdReceived() float64 {
	n.t.Helper()
	socket := filepath.Join(filepath.Dir(n.cluster.AdminKubeconfig()), "etcd.sock")
	client := &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", socket)
		},
	}}
	defer client.CloseIdleConnections()
	answer, err := client.Get("http://etcd/metrics")
	n.must(err)
	defer answer.Body.Close()
	lines := bufio.NewScanner(answer.Body)
	for lines.Scan() {
		value, is := strings.CutPrefix(lines.Text(),
			"etcd_network_client_grpc_received_bytes_total ")
		if is {
			bytes, err := strconv.ParseFloat(value, 64)
			n.must(err)
			return bytes
		}
	}
	n.t.Fatal("etcd does not say how much it received")
	return 0
}

// scrape asks the node for all its metrics every 10 s, through the API server, for a while.
func (n *node) scrape(lasts time.Duration) {
	n.t.Helper()
	end := time.Now().Add(lasts)
	for time.Now().Before(end) {
		next := time.Now().Add(min(10*time.Second, lasts/2))
		for _, path := range []string{"metrics", "metrics/cadvisor", "metrics/resource",
			"metrics/probes", "stats/summary"} {
			body, err := n.cluster.Client.CoreV1().RESTClient().Get().Resource("nodes").Name(n.Name).
				SubResource("proxy").Suffix(path).Do(context.Background()).Raw()
			if err != nil {
				n.t.Errorf("/%s: %v: %.200s", path, err, body)
			}
		}
		time.Sleep(time.Until(next))
	}
}

// metrics are the node's own.
func (n *node) metrics() string {
	n.t.Helper()
	page, err := n.cluster.Client.CoreV1().RESTClient().Get().Resource("nodes").Name(n.Name).
		SubResource("proxy").Suffix("metrics").Do(context.Background()).Raw()
	n.must(err)
	return string(page)
}

// inRuntime begins to sum the times that calls to the runtime take; what it returns has the sum.
func (n *node) inRuntime(operations ...string) func() time.Duration {
	n.t.Helper()
	sum := func() (seconds float64) {
		n.t.Helper()
		for line := range strings.Lines(n.metrics()) {
			what, value, _ := strings.Cut(strings.TrimSpace(line), "} ")
			operation, is := strings.CutPrefix(what,
				`kubelet_runtime_operations_duration_seconds_sum{operation_type="`)
			if is && slices.Contains(operations, strings.TrimSuffix(operation, `"`)) {
				took, err := strconv.ParseFloat(value, 64)
				n.must(err)
				seconds += took
			}
		}
		return seconds
	}
	before := sum()
	return func() time.Duration {
		n.t.Helper()
		return time.Duration((sum() - before) * float64(time.Second))
	}
}

// requests counts one node's requests to the API server, by kind.
type requests map[request]float64

type request struct{ verb, resource, subresource string }

// requests counts those of the node until now in the API server's audit log.
func (n *node) requests() requests {
	n.t.Helper()
	time.Sleep(time.Second) // for what is under way
	f, err := os.Open(rig.AuditLog())
	n.must(err)
	defer f.Close()
	out, lines := requests{}, bufio.NewReader(f)
	for {
		line, err := lines.ReadBytes('\n')
		if err == io.EOF {
			return out
		}
		n.must(err)
		var e struct {
			Verb      string
			User      struct{ Username string }
			ObjectRef struct{ Resource, Subresource string }
		}
		n.must(json.Unmarshal(line, &e))
		if e.User.Username == "system:node:"+n.Name {
			out[request{e.Verb, e.ObjectRef.Resource, e.ObjectRef.Subresource}]++
		}
	}
}

// since returns the requests after the earlier ones.
func (r requests) since(before requests) requests {
	out := requests{}
	for what, count := range r {
		out[what] = count - before[what]
	}
	return out
}

func (r requests) all() (sum float64) {
	for _, count := range r {
		sum += count
	}
	return sum
}

// ofPods leaves out what comes with time and not with pods.
func (r requests) ofPods() (sum float64) {
	for _, count := range r.podVerbs() {
		sum += count
	}
	return sum
}

// podVerbs counts by verb, without the requests of ofPods.
func (r requests) podVerbs() map[string]float64 {
	out := map[string]float64{}
	for what, count := range r {
		if what.resource != "leases" && what.resource != "nodes" && count > 0 {
			out[what.verb] += count
		}
	}
	return out
}
