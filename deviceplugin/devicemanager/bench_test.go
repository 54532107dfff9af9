package devicemanager

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"
	v1beta1 "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/numalet/numalet/topology"
)

// sizes returns the list sizes of the benchmarks: a GPU node, a node of virtual functions, and a
// plugin that shares each device ten thousandfold.
func sizes() []int { return []int{8, 1000, 250_000} }

// bench runs a benchmark for lists of all sizes.
func bench(b *testing.B, run func(b *testing.B, n int)) {
	for _, n := range sizes() {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			b.ReportAllocs()
			run(b, n)
		})
	}
}

// messageOf encodes a list of n devices on eight nodes; unhealthy is the index of the only
// unhealthy one, or -1.
func messageOf(b *testing.B, n, unhealthy int) []byte { return encoded(b, devicesOf(n, unhealthy)) }

// shuffledOf is messageOf in a random order.
func shuffledOf(b *testing.B, n, unhealthy int, seed uint64) []byte {
	msg := devicesOf(n, unhealthy)
	rand.New(rand.NewPCG(seed, 0)).Shuffle(n, func(i, j int) {
		msg.Devices[i], msg.Devices[j] = msg.Devices[j], msg.Devices[i]
	})
	return encoded(b, msg)
}

func devicesOf(n, unhealthy int) *v1beta1.ListAndWatchResponse {
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
	return msg
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

// BenchmarkHealthChange reads a list in which the health of one device changed, and publishes it.
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

// BenchmarkLibrary is BenchmarkHealthChange with the protobuf library and listOf in place of a lister. For
// 250,000 devices it takes some 60 times as long, and 80 MB each time.
func BenchmarkLibrary(b *testing.B) {
	bench(b, func(b *testing.B, n int) {
		messages := [2][]byte{messageOf(b, n, n/2), messageOf(b, n, -1)}
		i := 0
		for b.Loop() {
			decoded := &v1beta1.ListAndWatchResponse{}
			if err := proto.Unmarshal(messages[i%2], decoded); err != nil {
				b.Fatal(err)
			}
			published(listOf(decoded, eightNodes()))
			i++
		}
	})
}

// BenchmarkAnotherOrder reads lists of the same content in ever new order. With changes, the health
// of one device changes each time, which is published. "anew" reads without a comparison.
func BenchmarkAnotherOrder(b *testing.B) {
	read := func(anew, changes bool) func(*testing.B, int) {
		return func(b *testing.B, n int) {
			var messages [4][]byte
			for i := range messages {
				unhealthy := -1
				if changes {
					unhealthy = i * n / len(messages)
				}
				messages[i] = shuffledOf(b, n, unhealthy, uint64(i))
			}
			l := newLister(eightNodes())
			mustRead(b, l, messages[0])
			i := 0
			for b.Loop() {
				i++
				if anew {
					l.raw, l.last = "", nil
				}
				now, changed, err := l.read(messages[i%len(messages)])
				if err != nil || changed != changes {
					b.Fatal(changed, err)
				}
				if changed {
					published(now)
				}
			}
		}
	}
	b.Run("compared", func(b *testing.B) { bench(b, read(false, false)) })
	b.Run("anew", func(b *testing.B) { bench(b, read(true, false)) })
	b.Run("changed-compared", func(b *testing.B) { bench(b, read(false, true)) })
	b.Run("changed-anew", func(b *testing.B) { bench(b, read(true, true)) })
}

// BenchmarkFewDevices reads lists in which one device in the middle has come or gone.
func BenchmarkFewDevices(b *testing.B) {
	bench(b, func(b *testing.B, n int) {
		whole := devicesOf(n, -1)
		most := &v1beta1.ListAndWatchResponse{
			Devices: slices.Delete(slices.Clone(whole.Devices), n/2, n/2+1),
		}
		messages := [2][]byte{encoded(b, most), encoded(b, whole)}
		l := newLister(eightNodes())
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
	l := newTestLink(gpu, "/a")
	t.registered(l)
	t.listed(t.find(l), Options{Preferred: true}, now)
	return t.view(1)
}

// BenchmarkAdmission offers places for 1,000 devices, or for a quarter of the list, and chooses
// them as the plugin advises.
func BenchmarkAdmission(b *testing.B) {
	bench(b, func(b *testing.B, n int) {
		now := mustRead(b, newLister(eightNodes()), messageOf(b, n, -1))
		req := Request{
			N: min(1000, n/4), Resource: published(now).inventory.Resources[gpu],
		}
		for b.Loop() {
			hints := hintsOf(eightNodes(), req)
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

// BenchmarkChoice is BenchmarkAdmission without hints, which only some policies need.
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
