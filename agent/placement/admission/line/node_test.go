package line

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/cpuset"

	"github.com/numalet/numalet/agent/node/machine"
	"github.com/numalet/numalet/agent/node/nodestatus"
	"github.com/numalet/numalet/cpumanager"
	"github.com/numalet/numalet/deviceplugin/devicemanager"
	"github.com/numalet/numalet/internal/podtest"
	"github.com/numalet/numalet/topology"
	"github.com/numalet/numalet/topology/topologytest"
)

// hardware returns a machine of two NUMA nodes of five CPUs each, of which CPU 0 is reserved. Words change it:
// "threads" are four cores of one node instead, CPU n and n+4 each, of which only whole ones are assigned, with
// core 0 reserved. "offline=5,6", "isolated=7-9", "strict" (reserved CPUs are not shared), "shared" (containers
// have no CPUs of their own), and an amount replaces what pods may request of a resource.
func hardware(t testing.TB, words []string) machine.Hardware {
	nodes := []topology.Node{{ID: 0, MemoryBytes: 64 << 30}, {ID: 1, MemoryBytes: 64 << 30}}
	count, reserved, options := 10, cpuset.New(0), cpumanager.Options{}
	var offline, isolated cpuset.CPUSet
	var amounts []string
	shared := false
	for _, word := range words {
		switch key, value, _ := strings.Cut(word, "="); key {
		case "threads":
			nodes, count, reserved, options.FullPCPUsOnly = nodes[:1], 8, cpuset.New(0, 4), true
		case "strict":
			options.StrictReservation = true
		case "shared":
			shared = true
		case "offline":
			offline = parsed(t, value)
		case "isolated":
			isolated = parsed(t, value)
		default:
			amounts = append(amounts, word)
		}
	}
	m := topologytest.Machine(t, nodes, count, func(c *topology.CPU) {
		if c.Offline = offline.Contains(c.ID); count == 8 {
			c.Core = topology.CoreID(c.ID % 4)
		} else {
			c.Node = topology.NodeID(c.ID / 5)
		}
	})
	static, err := cpumanager.NewStatic(m, reserved, options)
	if err == nil && !isolated.IsEmpty() {
		static, err = static.Isolating(isolated)
	}
	if err != nil {
		t.Fatal(err)
	}
	h := machine.Hardware{Machine: m, CPUs: static, Allocatable: nodestatus.Allocatable(m, nodestatus.Reservation{
		MaxPods: 100, Reserved: v1.ResourceList{
			v1.ResourceCPU: *resource.NewQuantity(int64(reserved.Size()), resource.DecimalSI),
		},
	})}
	if shared {
		h.CPUs = nil
	}
	maps.Copy(h.Allocatable, podtest.Amounts(strings.Join(amounts, " ")))
	return h
}

func parsed(t testing.TB, cpus string) cpuset.CPUSet {
	set, err := cpuset.Parse(cpus)
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// machine replaces the node's machine.
func (w *world) machine(words []string) {
	v := w.View
	v.Hardware = hardware(w.t, words)
	w.step(Seen{v})
}

// has gives the node that many devices of a resource, d0, d1 and so on, every other one on node 1. None: the
// plugin is away. Of the words, "prefers" and "hears" are what the plugin does, "away" means that its last list is
// known, "broken=d1,d2" names devices that are not healthy, "without=d0" those that it does not list, and with
// "uuids" the devices are GPU-0, GPU-1 and so on.
func (w *world) has(name, amount string, words []string) {
	count, err := strconv.Atoi(amount)
	if err != nil {
		w.t.Fatal(err)
	}
	v := w.View
	r := devicemanager.Resource{Name: name, Connected: count > 0, Generation: v.Inventory.Version + 1}
	var broken, without []string
	prefix := "d"
	for _, word := range words {
		switch key, value, _ := strings.Cut(word, "="); key {
		case "prefers":
			r.Options.Preferred = true
		case "hears":
			r.Options.Released = devicemanager.ReleasedWanted
		case "uuids":
			prefix = "GPU-"
		case "away":
			r.Connected = false
		case "broken":
			broken = strings.Split(value, ",")
		case "without":
			without = strings.Split(value, ",")
		default:
			w.t.Fatalf("a resource is %q", word)
		}
	}
	for i := range count {
		if id := fmt.Sprint(prefix, i); !slices.Contains(without, id) {
			r.Devices = append(r.Devices, &devicemanager.Device{
				ID: id, Healthy: !slices.Contains(broken, id), Nodes: topology.NewNodeSet(topology.NodeID(i % 2)),
			})
		}
	}
	all := maps.Clone(v.Inventory.Resources)
	if all == nil {
		all = map[string]devicemanager.Resource{}
	}
	all[name] = r
	v.Inventory = devicemanager.Inventory{Version: v.Inventory.Version + 1, Resources: all}
	w.step(Seen{v})
}

// status gives the node's object these extended resources; "?": the object is not known yet.
func (w *world) status(amounts string) {
	v := w.View
	if v.Node = nil; amounts != "?" {
		list := podtest.Amounts("cpu=9 " + amounts)
		v.Node = &v1.Node{Status: v1.NodeStatus{Capacity: list, Allocatable: list}}
	}
	w.step(Seen{v.InCluster()})
}
