package deviceplugin

import (
	"fmt"
	"testing"

	v1beta1 "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/numalet/numalet/topology"
)

// The sizes that the benchmarks are run with: a GPU node, a node of virtual functions, and a plugin
// that shares each device ten thousandfold.
func sizes() []int { return []int{8, 1000, 250_000} }

// bench is the same work on lists of all sizes.
func bench(b *testing.B, run func(b *testing.B, n int)) {
	for _, n := range sizes() {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			b.ReportAllocs()
			run(b, n)
		})
	}
}

// messageOf is an encoded list of n devices on eight nodes; unhealthy is one that is not healthy, or
// -1.
func messageOf(b *testing.B, n, unhealthy int) []byte {
	msg := &v1beta1.ListAndWatchResponse{}
	for i := range n {
		d := &v1beta1.Device{
			ID: fmt.Sprintf("gpu-%d", i), Health: v1beta1.Healthy,
			Topology: &v1beta1.TopologyInfo{Nodes: []*v1beta1.NUMANode{{ID: int64(i * 8 / n)}}},
		}
		if i == unhealthy {
			d.Health = v1beta1.Unhealthy
		}
		msg.Devices = append(msg.Devices, d)
	}
	return encoded(b, msg)
}

func eightNodes() topology.NodeSet { return topology.NewNodeSet(0, 1, 2, 3, 4, 5, 6, 7) }

func mustRead(b *testing.B, l *lister, msg []byte) list {
	b.Helper()
	now, changed, err := l.read(msg)
	if err != nil || !changed {
		b.Fatal(changed, err)
	}
	return now
}

// BenchmarkFirstList reads the first list of a plugin and publishes it.
func BenchmarkFirstList(b *testing.B) {
	bench(b, func(b *testing.B, n int) {
		msg := messageOf(b, n, -1)
		for b.Loop() {
			published(mustRead(b, newLister(eightNodes()), msg))
		}
	})
}

// BenchmarkHealthChange reads a list in which one device has another health and publishes it.
func BenchmarkHealthChange(b *testing.B) {
	bench(b, func(b *testing.B, n int) {
		l := newLister(eightNodes())
		messages := [2][]byte{messageOf(b, n, n/2), messageOf(b, n, -1)}
		mustRead(b, l, messages[1])
		i := 0
		for b.Loop() {
			published(mustRead(b, l, messages[i%2]))
			i++
		}
	})
}

func published(now list) *view {
	t := &table{}
	l := &link{resource: gpu, socket: "/a"}
	t.registered(l)
	t.listed(l, pluginOptions{Preferred: true}, now)
	return t.view(1)
}

// BenchmarkAdmission offers places for 1,000 devices, or a quarter of those that there are, and
// chooses them as the plugin advises.
func BenchmarkAdmission(b *testing.B) {
	bench(b, func(b *testing.B, n int) {
		now := mustRead(b, newLister(eightNodes()), messageOf(b, n, -1))
		req := Request{
			N: min(1000, n/4), Resource: published(now).inventory.Resources[gpu],
		}
		for b.Loop() {
			hints := Hints(eightNodes(), req)
			req.Hint = hints[0]
			if ask, wanted := AdviceWanted(req); wanted {
				req.Advice, _ = ask.sift(ask.Available[:req.N], req.Resource)
			}
			if got, err := Choose(req); err != nil || len(got) != req.N {
				b.Fatal(len(got), err)
			}
		}
	})
}

// BenchmarkChoice is an admission without the hints, which only policies ask for.
func BenchmarkChoice(b *testing.B) {
	bench(b, func(b *testing.B, n int) {
		now := mustRead(b, newLister(eightNodes()), messageOf(b, n, -1))
		req := Request{
			N: min(1000, n/4), Resource: published(now).inventory.Resources[gpu],
			Hint: topology.Hint{Nodes: topology.NewNodeSet(3)},
		}
		for b.Loop() {
			if got, err := Choose(req); err != nil || len(got) != req.N {
				b.Fatal(len(got), err)
			}
		}
	})
}
