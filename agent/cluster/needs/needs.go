package needs

import (
	"context"
	"fmt"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/agent/cluster/objects"
	"github.com/numalet/numalet/agent/placement/admission/decide"
	"github.com/numalet/numalet/agent/storage/volume"
	"github.com/numalet/numalet/agent/storage/volume/csi"
	"github.com/numalet/numalet/internal/await"
)

const (
	// first is the pause before PVCs are read again that were not good; it grows up to period, and
	// from there up to longest while the API server does not answer.
	first, period, longest = 250 * time.Millisecond, 2 * time.Second, 30 * time.Second
	// readTimeout bounds the time of one reading of a pod's PVCs.
	readTimeout = 10 * time.Second
)

// Config configures Needs.
type Config struct {
	Objects Objects
	PVCs    PVCs
	// Changed is called when a pod's lack differs from what was reported. It must not block.
	Changed func()
}

// Objects follows the config maps and secrets that pods cannot start without; *objects.Expected
// implements it.
type Objects interface {
	Expect(pod *v1.Pod)
	Lack(pod *v1.Pod) *objects.Lack
	Look(ctx context.Context, pod *v1.Pod)
	Dismiss(pod types.UID)
}

// PVCs says why the PVCs of a pod cannot become volumes, or that this is unknown;
// *volume.Volumes implements it.
type PVCs interface {
	Lacking(ctx context.Context, pod *v1.Pod) (unknown bool, err error)
}

// Needs follows what pods need. It implements admission.Needs.
type Needs struct {
	cfg Config

	readers await.Tasks

	mu   sync.Mutex // guards the fields below, and the readings
	pods map[types.UID]*reading
}

// reading holds what was read of the PVCs of a pod.
type reading struct {
	pod   *v1.Pod
	known chan struct{} // closed when they were read, whatever came of it
	once  sync.Once
	again chan struct{} // capacity 1: the PVCs are worth another look
	stop  context.CancelFunc

	reads bool  // the PVCs are being read
	err   error // of the last time
	lack  decide.Lack
}

// New returns Needs that Run follows.
func New(cfg Config) *Needs { return &Needs{cfg: cfg, pods: map[types.UID]*reading{}} }

// Run reads the PVCs of pods until ctx ends.
func (n *Needs) Run(ctx context.Context) error {
	n.readers.Run(ctx)
	return nil
}

// Begin follows what the pod needs until End.
func (n *Needs) Begin(pod *v1.Pod) {
	n.cfg.Objects.Expect(pod)
	if !volume.HasPVCs(pod) {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.pods[pod.UID] != nil {
		return
	}
	r := &reading{pod: pod, known: make(chan struct{}), again: make(chan struct{}, 1), reads: true,
		lack: decide.Lack{Unknown: true, Reason: reasonMount,
			Why: "the API server has not told yet of the claims of the pod"}}
	n.pods[pod.UID] = r
	r.stop = n.readers.Go(func(ctx context.Context) { n.follow(ctx, r) })
}

// End ends Begin: the pod no longer waits.
func (n *Needs) End(pod types.UID) {
	n.cfg.Objects.Dismiss(pod)
	n.mu.Lock()
	defer n.mu.Unlock()
	if r := n.pods[pod]; r != nil {
		r.stop()
		delete(n.pods, pod)
	}
}

// follow reads the PVCs until they are good.
func (n *Needs) follow(ctx context.Context, r *reading) {
	pauses, silence := await.Pauses{First: first, Last: period}, await.Pauses{First: period, Last: longest}
	for times, unanswered := 0, 0; ; times++ {
		bounded, cancel := context.WithTimeout(ctx, readTimeout)
		n.begin(r)
		unknown, err := n.cfg.PVCs.Lacking(bounded, r.pod)
		cancel()
		if ctx.Err() != nil {
			return
		}
		n.put(r, unknown, err)
		switch {
		case err == nil:
			return
		case unknown:
			unanswered++
			r.pause(ctx, silence.After(unanswered))
		default:
			unanswered = 0
			r.pause(ctx, pauses.After(times))
		}
	}
}

// pause waits for d, or until the PVCs are worth another look.
func (r *reading) pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	case <-r.again:
	}
}

func (n *Needs) begin(r *reading) {
	n.mu.Lock()
	defer n.mu.Unlock()
	r.reads = true
}

// AttachmentChanged has the PVCs read at once of pods that wait for a volume to be attached.
func (n *Needs) AttachmentChanged(volume csi.Key) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, r := range n.pods {
		if r.reads || csi.Awaits(r.err, volume) {
			await.Wake(r.again)
		}
	}
}

// put records what was read, and calls Changed if it differs.
func (n *Needs) put(r *reading, unknown bool, err error) {
	var lack decide.Lack
	if err != nil {
		lack = decide.Lack{Unknown: unknown, Reason: reasonMount, Why: err.Error(),
			Usual: volume.IsUsual(err), Limit: volume.Limit(err)}
	}
	if n.replace(r, lack, err) {
		n.cfg.Changed()
	}
	r.once.Do(func() { close(r.known) })
}

func (n *Needs) replace(r *reading, lack decide.Lack, err error) (other bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	r.reads, r.err = false, err
	other, r.lack = r.lack != lack, lack
	return other
}

// Look waits until all that the pod needs is known, or will not be soon.
func (n *Needs) Look(ctx context.Context, pod *v1.Pod) {
	n.cfg.Objects.Look(ctx, pod)
	if known := n.known(pod.UID); known != nil {
		await.On(ctx, known)
	}
}

// known returns nil for a pod without PVCs.
func (n *Needs) known(pod types.UID) <-chan struct{} {
	n.mu.Lock()
	defer n.mu.Unlock()
	if r := n.pods[pod]; r != nil {
		return r.known
	}
	return nil
}

// Reasons of the kubelet's events about volumes and containers.
const reasonMount, reasonFailed = "FailedMount", "Failed"

// Lack returns what the pod is known to lack, or else what it may lack.
func (n *Needs) Lack(pod *v1.Pod) decide.Lack {
	ofObjects, ofPVCs := n.ofObjects(pod), n.ofPVCs(pod.UID)
	if ofObjects == (decide.Lack{}) || ofObjects.Unknown && ofPVCs.Missing() {
		return ofPVCs
	}
	return ofObjects
}

func (n *Needs) ofPVCs(pod types.UID) (lack decide.Lack) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if r := n.pods[pod]; r != nil {
		lack = r.lack
	}
	return lack
}

func (n *Needs) ofObjects(pod *v1.Pod) decide.Lack {
	lack := n.cfg.Objects.Lack(pod)
	switch {
	case lack == nil:
		return decide.Lack{}
	case lack.Container != "":
		return decide.Lack{Unknown: lack.Unknown(), Container: lack.Container,
			Reason: reasonFailed, Why: "Error: " + lack.Err.Error()}
	default:
		return decide.Lack{Unknown: lack.Unknown(), Reason: reasonMount, Why: fmt.Sprintf(
			"MountVolume.SetUp failed for volume %q : %v", lack.Volume, lack.Err)}
	}
}
