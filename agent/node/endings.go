package node

import (
	"context"
	"net/http"
	"time"

	v1 "k8s.io/api/core/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/numalet/numalet/agent/node/eviction"
	"github.com/numalet/numalet/agent/node/eviction/wake"
	"github.com/numalet/numalet/agent/node/shutdown"
	"github.com/numalet/numalet/agent/storage/localstorage"
	"github.com/numalet/numalet/cgroups/kernel"
	"github.com/numalet/numalet/internal/part"
	"github.com/numalet/numalet/internal/route"
)

// EvictionsConfig says what evictions know of pods, and what they do. All fields are required.
type EvictionsConfig struct {
	// Active lists the pods that have not ended. Of Facts, Pods is not used.
	Active func() []*v1.Pod
	Facts  eviction.PodFacts
	// Meter measures; the kernel tells when memory is short.
	Meter func(tells *wake.Kernel) eviction.Meter
	// Used returns what pods use, not older than that.
	Used func(ctx context.Context, age time.Duration) (statsapi.Summary, error)
	// Reclaim removes what no pod needs, and reports whether there was something.
	Reclaim func(context.Context, eviction.Reclaim) (bool, error)
	// End ends a pod. It must not block.
	End func(eviction.Eviction)
}

// Evictions end pods before memory, a disk or PIDs run out, and those that use more of the node's disk than
// they may.
type Evictions struct {
	host    *Host
	manager *eviction.Manager // nil: there are no thresholds
	run     []part.Part
}

// PodsGroup returns the cgroup of all pods; "": there is none.
func (h *Host) PodsGroup() string {
	if h.Tree == nil {
		return ""
	}
	return h.Tree.PodsPath()
}

// NewEvictions makes what ends pods.
func NewEvictions(h *Host, c EvictionsConfig) (*Evictions, error) {
	e, k := &Evictions{host: h}, &h.Settings.Kubelet
	once := eviction.NewOnce(c.Active, func(one eviction.Eviction) {
		h.Events.Annotated(one.Pod, one.Annotations, v1.EventTypeWarning, eviction.ReasonEvicted, one.Message)
		c.End(one)
	})
	thresholds, err := eviction.Thresholds(h.Settings)
	if err != nil {
		return nil, err
	}
	kernelTells := wake.New(wake.Config{
		Unified: kernel.NewGroups("").Version() == 2, Pods: h.PodsGroup(),
		Levels: k.KernelMemcgNotification,
	})
	c.Facts.Pods = once.Pods
	manager, err := eviction.New(eviction.Config{
		Thresholds: thresholds, Pressure: h.Pressure,
		Transition: k.EvictionPressureTransitionPeriod.Duration,
		MaxGrace:   time.Duration(k.EvictionMaxPodGracePeriod) * time.Second,
		Meter:      c.Meter(kernelTells), PodFacts: c.Facts,
		Reclaim: c.Reclaim, Evict: once.Evict,
		Tell: h.Events.OnNode, Registry: h.Registry,
	})
	if err != nil {
		return nil, err
	}
	if len(thresholds) > 0 {
		e.manager = manager
		e.run = []part.Part{
			part.Of("evictions", manager.Run), part.Of("memory as the kernel tells", kernelTells.Run)}
	}
	if *k.LocalStorageCapacityIsolation {
		keeper := localstorage.NewKeeper(localstorage.KeeperConfig{
			Pods: once.Pods, Used: c.Used, Apart: eviction.ImagesApart,
			MemoryKept: h.Enabled("InPlacePodVerticalScalingMemoryBackedVolumes"),
			End: func(p *v1.Pod, excess localstorage.Excess) {
				one := eviction.Eviction{Pod: p, Signal: eviction.Signal(excess.Signal),
					Grace: time.Second, Words: eviction.Words{Message: excess.Message}, OwnLimit: true}
				manager.Note(one)
				once.Evict(one)
			},
		})
		e.run = append(e.run, part.Of("limits of local storage", keeper.Run))
	}
	return e, nil
}

// Parts lists the goroutines that begin once running pods were adopted.
func (e *Evictions) Parts() []part.Part { return e.run }

// Shortage says what the node is short of, and what was and will be done about it.
func (e *Evictions) Shortage(ctx context.Context) eviction.Explanation {
	out := eviction.Explanation{Node: e.host.Name}
	if e.manager != nil {
		out = e.manager.Explain(ctx, e.host.Name)
	}
	if cpus := e.host.Hardware.Get().CPUs; cpus != nil {
		out.DriverCPUs = cpus.Lent().String()
	}
	return out
}

// Route serves Shortage.
func (e *Evictions) Route() route.Route {
	return route.Get("/debug/shortage", func(w http.ResponseWriter, r *http.Request) {
		route.WriteJSON(w, e.Shortage(r.Context()))
	})
}

// ShortOf says in a line for each condition of pressure what is short.
func (e *Evictions) ShortOf() []string {
	if e.manager == nil {
		return nil
	}
	return e.manager.Pressure()
}

// NewShutdown makes what ends pods in order, by end, when the machine goes down.
func NewShutdown(h *Host, pods shutdown.PodFacts, end func(pod *v1.Pod, grace time.Duration)) (
	*shutdown.Manager, error) {
	c := shutdown.Config{
		Logind: shutdown.Logind{DropIns: "/etc/systemd/logind.conf.d"}, Announced: h.Down,
		Tell: h.Events.OnNode, Registry: h.Registry, PodFacts: pods, End: end,
	}
	if h.Enabled("GracefulNodeShutdown") {
		c.Waves = shutdown.Waves(&h.Settings.Kubelet)
		if h.Enabled("GracefulNodeShutdownBasedOnPodPriority") {
			c.Dir = h.Settings.RootDir
		}
	}
	return shutdown.New(c)
}
