package localstorage

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/numalet/numalet/internal/await"
	"github.com/numalet/numalet/internal/complaint"
	"github.com/numalet/numalet/topology/podspec"
)

// lookPeriod is the time between two looks at what pods use, the kubelet's.
const lookPeriod = 10 * time.Second

// KeeperConfig connects a Keeper to the node. All of it is required.
type KeeperConfig struct {
	// Pods returns the pods that have not ended and are not being evicted.
	Pods func() []*v1.Pod
	// Used returns what pods use, not older than that.
	Used func(ctx context.Context, age time.Duration) (statsapi.Summary, error)
	// Apart reports whether images are on a filesystem of their own.
	Apart func(statsapi.Summary) bool
	// MemoryKept: the kernel alone keeps emptyDirs in memory to their sizes, as these may be changed.
	MemoryKept bool
	// End ends a pod; it must not block.
	End func(*v1.Pod, Excess)
}

// Keeper ends pods that use more of the node's disk than they may.
type Keeper struct {
	cfg KeeperConfig
	// Owned by Run.
	spared sets.Set[types.UID] // critical pods that exceed a limit
	wrong  complaint.Complaint[string]
}

// NewKeeper returns a keeper that has not looked yet.
func NewKeeper(c KeeperConfig) *Keeper { return &Keeper{cfg: c, spared: sets.Set[types.UID]{}} }

// Run looks until ctx ends.
func (k *Keeper) Run(ctx context.Context) error {
	for {
		k.look(ctx)
		if !await.For(ctx, lookPeriod) {
			return nil
		}
	}
}

// look ends the pods that exceed a limit.
func (k *Keeper) look(ctx context.Context) {
	limited := map[types.UID]*v1.Pod{}
	for _, pod := range k.cfg.Pods() {
		if !limitsOf(pod, k.cfg.MemoryKept).none() {
			limited[pod.UID] = pod
		}
	}
	if len(limited) == 0 {
		return
	}
	log := klog.FromContext(ctx)
	summary, err := k.cfg.Used(ctx, lookPeriod)
	if ctx.Err() != nil {
		return
	}
	if k.wrong.Begins(complaint.Of(err)) {
		log.Error(err, "Whether pods exceed limits of local storage is not known as usual; "+
			"what was measured last counts")
	}
	apart, spared := k.cfg.Apart(summary), sets.Set[types.UID]{}
	for i := range summary.Pods {
		pod := limited[types.UID(summary.Pods[i].PodRef.UID)]
		if pod == nil {
			continue
		}
		excess, exceeds := Exceeded(pod, &summary.Pods[i], apart, k.cfg.MemoryKept)
		switch {
		case !exceeds:
		case podspec.IsCritical(pod):
			if spared.Insert(pod.UID); !k.spared.Has(pod.UID) {
				log.Info("A critical pod exceeds a limit of local storage, and is not evicted",
					"pod", klog.KObj(pod), "limit", excess.Message)
			}
		default:
			log.Info("Evicting a pod", "pod", klog.KObj(pod), "signal", excess.Signal,
				"message", excess.Message)
			k.cfg.End(pod, excess)
		}
	}
	k.spared = spared
}
