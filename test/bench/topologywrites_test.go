package bench

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/numalet/numalet/internal/podtest"
	"github.com/numalet/numalet/test/harness"
)

// BenchmarkTopologyWrites measures how often a node writes its NodeResourceTopology while ten pods
// a second come, each with a CPU of its own, and go: writes as the API server counts them, over
// half a minute. It needs the servers of a cluster, in NUMALET_CLUSTER.
func BenchmarkTopologyWrites(b *testing.B) {
	h := newHollow(b)
	h.count = 1
	for _, file := range []string{
		"../cluster/testdata/noderesourcetopology.yaml", "../../examples/schedulers/rights.yaml",
	} {
		text, err := os.ReadFile(file)
		if err != nil {
			b.Fatal(err)
		}
		h.Apply(string(text))
	}
	const every, span, lives = 100 * time.Millisecond, 30 * time.Second, 20
	for range b.N {
		h.start()
		harness.Eventually(b, "the node's NodeResourceTopology is there", func() error {
			if n := h.topologyWrites(); n == 0 {
				return fmt.Errorf("nothing was written")
			}
			return nil
		})
		before, began := h.topologyWrites(), time.Now()
		i := 0
		for tick := time.NewTicker(every); time.Since(began) < span; i++ {
			<-tick.C
			h.make(exclusivePod(fmt.Sprint("churn-", i)))
			if i >= lives {
				h.remove(fmt.Sprint("churn-", i-lives))
			}
		}
		b.ReportMetric(float64(i)/time.Since(began).Seconds(), "pods/s")
		b.ReportMetric((h.topologyWrites()-before)/time.Since(began).Minutes(), "writes/min")
		for last := max(0, i-lives); last < i; last++ {
			h.remove(fmt.Sprint("churn-", last))
		}
		h.await("all pods are gone", "pods: 0 running, 0 pending")
		h.stop()
	}
}

// exclusivePod returns a pod with an exclusive CPU.
func exclusivePod(name string) *v1.Pod {
	pod := hollowPod(name)
	pod.Spec.Containers[0].Resources = podtest.Requirements("cpu=1 memory=16Mi")
	return pod
}

func (h *hollow) make(pod *v1.Pod) {
	h.b.Helper()
	_, err := h.Client.CoreV1().Pods(h.Namespace).Create(h.b.Context(), pod, metav1.CreateOptions{})
	if err != nil {
		h.b.Fatal(err)
	}
}

func (h *hollow) remove(pod string) {
	h.b.Helper()
	err := h.Client.CoreV1().Pods(h.Namespace).Delete(h.b.Context(), pod,
		metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](1)})
	if err != nil {
		h.b.Fatal(err)
	}
}

var topologyRequests = regexp.MustCompile(
	`(?m)^apiserver_request_total\{.*resource="noderesourcetopologies".*verb="(?:APPLY|PATCH|POST|PUT)".*\} (\d+)$`)

// topologyWrites returns how often NodeResourceTopologies were written to the API server.
func (h *hollow) topologyWrites() (n float64) {
	h.b.Helper()
	text, err := h.Client.CoreV1().RESTClient().Get().AbsPath("/metrics").DoRaw(h.b.Context())
	if err != nil {
		h.b.Fatal(err)
	}
	for _, found := range topologyRequests.FindAllSubmatch(text, -1) {
		count, err := strconv.ParseFloat(string(found[1]), 64)
		if err != nil {
			h.b.Fatal(err)
		}
		n += count
	}
	return n
}
